"""A family of checkpoints: how a checkpoint becomes a model, and a model a checkpoint."""

import dataclasses
from collections.abc import Callable

from keras_attn import registry

# Arguments of layers that change no output at inference.
_FREE = {
    *("activity_regularizer", "autocast", "chunks", "drop", "dropout", "dtype", "implementation"),
    *("name", "remat", "seed", "trainable"),
}
_FREE_ENDINGS = ("_constraint", "_initializer", "_regularizer")
FIRST = "encoder.blocks.0"
# The path in an encoder of each option of `config.json` that several families share.
ENCODER_OPTIONS = {
    "num_hidden_layers": "encoder.num_layers",
    "num_attention_heads": f"{FIRST}.attention.num_heads",
    "hidden_size": "embedding.hidden_dim",
    "intermediate_size": f"{FIRST}.feed_forward.intermediate_dim",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": f"{FIRST}.attention.dropout",
    "layer_norm_eps": f"{FIRST}.attention_residual.norm.epsilon",
}
SIDES = ("encoder", "decoder")  # of an `EncoderDecoder`


@dataclasses.dataclass(frozen=True)
class Family:
    """The functions by which a checkpoint of a family becomes a model, and a model a checkpoint.

    Args:
        convert: function from a `Checkpoint` and the user's overrides to the model.
        options: function from the model to the options of `config.json`; None for a family that is
            not written.
        build: function from a `Config` with these options, and the model, to a model of the family.
            The model fits the family if the two differ in their weights only.
        copy_weights: function of a `Checkpoint` or a `StoredModel`, and the model.
        prefix: str. Beginning of the names of all tensors but those of heads.
        heads: tuple of beginnings of the names of heads.
        files: function from the model to the contents of more JSON files, by their names.
        requires: dict of options that must have another value than those of other families.
        free: tuple of names of arguments in which the model may differ from that of `build`.
        pad_id: int. The id of padding in `config.json` for a model without one; None for none.
    """

    convert: Callable
    options: Callable | None = None
    build: Callable | None = None
    copy_weights: Callable | None = None
    prefix: str = ""
    heads: tuple = ()
    files: Callable = lambda model: {}
    requires: dict = dataclasses.field(default_factory=dict)
    free: tuple = ()
    pad_id: int | None = None


def read_options(model, table):
    """Return the options of `config.json` for a model, from a table of options and their paths."""
    return {option: read_part(model, path) for option, path in table.items()}


def read_part(model, path):
    """Return the attribute at a path in a model, such as "encoder.blocks.0"; refuse others."""
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


def output_vocabulary_size(model):
    """Return the number of ids that a model predicts, or reads if it predicts none."""
    return getattr(getattr(model, "target_embedding", model.embedding), "vocabulary_size", 0)


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
    """Return a value as Python code; for a layer, the name of its class."""
    if not _is_object(value):
        return repr(value)
    revived = registry.revive(value)
    return repr(revived) if isinstance(revived, registry.Value) else value["class_name"]
