"""The options that make a run what it is, kept with it so that no other run goes on in its place."""

import json
import os

# The rest (epochs, decoding, paths) may change from one start to the next.
NAMES = (
    *("source", "target", "variant", "tokenizer", "vocabulary_size", "max_source_length"),
    *("preset", "num_layers", "residual", "dropout", "precision"),
    *("tokens_per_batch", "learning_rate", "warmup_steps", "label_smoothing", "clip_norm", "seed"),
)


def settings(options):
    """The options of `NAMES`, and what is translated."""
    chosen = {name: getattr(options, name) for name in NAMES}
    return {"task": "parallel text" if options.data_dir else "dates", **chosen}


def check_settings(path, options):
    """Refuses to go on with a run that was started with other options."""
    if not os.path.exists(path):
        return
    try:
        with open(path, encoding="utf-8") as file:
            before = json.load(file)
    except ValueError as error:
        raise ValueError(f"The file {path} is damaged; give another --out.") from error
    now = settings(options)
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        differences = ", ".join(f"{n}={before.get(n)!r}, now {now[n]!r}" for n in changed)
        raise ValueError(
            f"The run in {options.out} was started with other options; give another --out. "
            f"Received: {differences}."
        )


def save_settings(path, options):
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(settings(options), file, indent=1)
    os.replace(temporary, path)
