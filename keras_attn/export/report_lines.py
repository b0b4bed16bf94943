"""The lines that `keras-attn inspect` prints of all kinds of exports."""


def format_signatures(signatures):
    """Return the lines of the signatures by name, each with its inputs and outputs."""
    lines = ["signatures"]
    for name, signature in signatures.items():
        lines.append(f"  {name}")
        for arrow, side in (("<-", "inputs"), ("->", "outputs")):
            lines += [f"    {arrow} {_format_spec(key, *x)}" for key, x in signature[side].items()]
    return lines


def _format_spec(name, dtype, shape):
    sizes = "?" if shape is None else ", ".join("?" if n is None else str(n) for n in shape)
    return f"{name}: {dtype} [{sizes}]"


def format_size(count):
    """Return a number of bytes in three digits."""
    for unit in ("bytes", "kB", "MB"):
        if count < 999.5:  # three digits
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def format_outcomes(outcomes):
    """Return the outcomes of the recorded requests in words."""
    parts = []
    for outcome, words in (
        ("same", "equal to the recorded ones"),
        ("runs", "not recorded, the request runs"),
        ("differs", "DIFFERENT from the recorded ones"),
    ):
        names = sorted(name for name, each in outcomes.items() if each == outcome)
        parts += [f"{words}: {', '.join(names)}"] if names else []
    return "; ".join(parts) or "not checked: the export carries no requests"
