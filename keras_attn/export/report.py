"""An inspected export in words."""


def report(found):
    """The lines that `python -m keras_attn.export inspect` prints of an `Inspection`."""
    lines = [found.directory, "", "signatures"]
    for name, signature in found.signatures.items():
        lines.append(f"  {name}")
        for arrow, side in (("<-", "inputs"), ("->", "outputs")):
            lines += [f"    {arrow} {_tensor(key, *x)}" for key, x in signature[side].items()]
    unservable = ", ".join(found.unservable) or "none"
    others = "" if found.has_own_variables else ", OTHERS than it was written with"
    lines += [
        "",
        f"operations   {sum(found.ops.values())} of {len(found.ops)} kinds",
        f"not servable {unservable}",
        f"needs        TensorFlow Serving {found.serving_version} or later "
        f"(written by TensorFlow {found.written_by})",
        f"tokenizer    {found.tokenizer or 'none: ids go in and out'}",
        f"weights      {found.num_weights:,} in {_size(found.weight_bytes)}{others}",
        f"files        {_size(found.file_bytes)}",
        f"answers      {_answers(found.answers)}",
    ]
    return lines


def _tensor(name, dtype, shape):
    sizes = "?" if shape is None else ", ".join("?" if n is None else str(n) for n in shape)
    return f"{name}: {dtype} [{sizes}]"


def _size(count):
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def _answers(answers):
    if not answers:
        return "not checked: the export carries no requests"
    parts = []
    for outcome, words in (
        ("same", "as where it was written"),
        ("runs", "run, with none recorded to compare with"),
        ("differs", "OTHERS than where it was written"),
    ):
        names = sorted(name for name, found in answers.items() if found == outcome)
        parts += [f"{words}: {', '.join(names)}"] if names else []
    return "; ".join(parts)
