"""A family of checkpoints: the ways from a checkpoint to a model and back."""

import dataclasses
from collections.abc import Callable

from keras_attn import registry

# Arguments of layers that change no output at inference.
_FREE = {
    *("activity_regularizer", "autocast", "chunks", "drop", "dropout", "dtype", "implementation"),
    *("name", "remat", "seed", "trainable"),
}
_FREE_ENDINGS = ("_constraint", "_initializer", "_regularizer")
# Where encoders have the options of `config.json` that several families share.
FIRST = "encoder.blocks.0"
ENCODER_OPTIONS = {
    "num_hidden_layers": "encoder.num_layers",
    "num_attention_heads": f"{FIRST}.attention.num_heads",
    "hidden_size": "embedding.hidden_dim",
    "intermediate_size": f"{FIRST}.feed_forward.intermediate_dim",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": f"{FIRST}.attention.dropout",
    "layer_norm_eps": f"{FIRST}.attention_residual.norm.epsilon",
}
# The stacks of a model of two texts.
SIDES = ("encoder", "decoder")


@dataclasses.dataclass(frozen=True)
class Family:
    """The functions by which a checkpoint of a family becomes a model, and a model a checkpoint.

    Args:
        convert: function from a `Checkpoint` and the user's overrides to the model.
        options: function from the model to the options of `config.json`; None for a family that is
            not written.
        build: function from a `Config` with these options, and the model, to a model of the family
            that is equal but for its weights, if the model fits the family.
        copy_weights: function of a `Checkpoint` or a `StoredModel`, and the model.
        prefix: str. Beginning of the names of all tensors but those of heads.
        heads: tuple of beginnings of the names of heads.
        files: function from the model to the contents of more JSON files, by their names.
        free: tuple of names of arguments that the family need not have as the model has them.
    """

    convert: Callable
    options: Callable | None = None
    build: Callable | None = None
    copy_weights: Callable | None = None
    prefix: str = ""
    heads: tuple = ()
    files: Callable = lambda model: {}
    free: tuple = ()


def read_options(model, table):
    """Return the options of a table, of which it has the paths in the model."""
    return {option: read_part(model, path) for option, path in table.items()}


def read_part(model, path):
    """Return what is at a path in a model; refuse a model without it."""
    part, steps = model, path.split(".")
    for index, step in enumerate(steps):
        found = part[int(step)] if step.isdigit() else getattr(part, step, None)
        if found is None:
            before = ".".join(["model", *steps[:index]])
            raise ValueError(
                f"`model` fits no family of checkpoints: `{before}` has no {step}. "
                f"Received: {before}={part!r}."
            )
        part = found
    return part


def check_fit(model, reference, model_type, free):
    """Refuse a model whose parts differ from those of a family's model in more than weights."""
    ours, theirs = model.get_config(), reference.get_config()
    for path, value, wanted in _differences(ours, theirs, {*_FREE, *free}):
        raise ValueError(
            f"`model` fits no family of checkpoints: `{path}` must be {_show(wanted)}, as in a "
            f"model of {model_type}. Received: {path}={_show(value)}."
        )


def _differences(ours, theirs, free, path="model"):
    """Yield the path and both values where two configurations differ."""
    if _is_object(ours) and _is_object(theirs) and ours["class_name"] == theirs["class_name"]:
        ours, theirs = (x.get("config", x.get("items")) for x in (ours, theirs))  # items of a tuple
    elif _is_object(ours) or _is_object(theirs):
        return (yield path, ours, theirs)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours:
            if name not in free and not name.endswith(_FREE_ENDINGS):
                yield from _differences(ours[name], theirs.get(name), free, f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from _differences(*pair, free, f"{path}[{index}]")
    elif ours != theirs:
        yield path, ours, theirs


def _is_object(value):
    return isinstance(value, dict) and "class_name" in value


def _show(value):
    """Return a value as it is written in Python, a part by the name of its class."""
    if not _is_object(value):
        return repr(value)
    revived = registry.revive(value)
    return repr(revived) if isinstance(revived, registry.Value) else value["class_name"]
