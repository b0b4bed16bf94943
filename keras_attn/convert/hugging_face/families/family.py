"""A family of checkpoints: how a checkpoint becomes a model, and a model a checkpoint."""

import inspect

from keras_attn import registry
from keras_attn.compat.unallocated import without_values

# Arguments of layers that change no output at inference.
_FREE = {
    *("activity_regularizer", "autocast", "chunks", "drop", "dropout", "dtype", "implementation"),
    *("frozen", "name", "remat", "seed", "trainable"),
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


class Family:
    """A family of checkpoints, by whose methods a checkpoint becomes a model and back.

    Attributes:
        model_classes: tuple of the classes of models that the family may write.
        prefix: str. Beginning of the names of all tensors but those of heads.
        heads: tuple of beginnings of the names of heads.
        requires: dict of options that must have another value than those of other families.
        free: tuple of names of arguments in which a model that is written may differ from that of
            `build`.
        pad_id: int. The id of padding in `config.json` for a model without one; None for none.
    """

    model_classes = ()
    prefix = ""
    heads = ()
    requires = {}
    free = ()
    pad_id = None

    def convert(self, checkpoint, overrides):
        """Return the model of a `Checkpoint`, with the user's overrides of its arguments."""
        raise NotImplementedError

    def fits(self, model):
        """Return True for a model that the family writes, if no family before it fits."""
        return True

    def options(self, model):
        """Return the options of `config.json` for a model that is to be written."""
        raise NotImplementedError

    def build(self, config, model):
        """Return a model of the family by a `Config` with the options of `model`.

        The model fits the family if the two differ in their weights only.
        """
        raise NotImplementedError

    def copy_weights(self, checkpoint, model):
        """Copy the tensors of a model, from a `Checkpoint` or to a `StoredModel`."""
        raise NotImplementedError

    def prefix_of(self, model):
        """Return the prefix in the class of transformers: the class without a head has none."""
        return self.prefix if getattr(model, "num_classes", 1) is not None else ""


def read_sizes(config):
    """Return the sizes of an encoder, of which `ENCODER_OPTIONS` has the way back."""
    return {
        "num_layers": config.size("num_hidden_layers"),
        "num_heads": config.size("num_attention_heads"),
        "hidden_dim": config.size("hidden_size"),
        "intermediate_dim": config.size("intermediate_size"),
    }


def build(function, arguments, overrides):
    """Call a function that builds a model; refuse overrides that are no arguments of it.

    Weights have no values until they are read, or `conversion.convert` initializes the others: to
    draw them at random takes longer than to read a checkpoint.
    """
    names = inspect.signature(function).parameters
    if unknown := sorted(overrides.keys() - names):
        raise ValueError(
            f"`overrides` must be arguments of `{function.__name__}`: {', '.join(names)}. "
            f"Received: {unknown[0]}={overrides[unknown[0]]!r}."
        )
    with without_values():
        return function(**{**arguments, **overrides})


def read_options(model, table):
    """Return the options of `config.json` for a model, from a table of options and their paths."""
    return {option: read_part(model, path) for option, path in table.items()}


def read_part(model, path):
    """Return the attribute at a path in a model, such as "encoder.blocks.0"; refuse others."""
    part, steps = model, path.split(".")
    for index, step in enumerate(steps):
        inner = part[int(step)] if step.isdigit() else getattr(part, step, None)
        if inner is None:
            before = ".".join(["model", *steps[:index]])
            raise ValueError(
                f"`model` fits no family of checkpoints: `{before}` has no {step}. "
                f"Received: {before}={part!r}."
            )
        part = inner
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
    for step, mine, other in _pairs(ours, theirs, free):
        yield from _differences(mine, other, free, f"{path}{step}")
    if not _has_pairs(ours, theirs) and ours != theirs:
        yield path, ours, theirs


def _has_pairs(ours, theirs):
    """Return True for two dicts, or for two lists of one length."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs)
    return isinstance(ours, dict) and isinstance(theirs, dict)


def _pairs(ours, theirs, free):
    """Yield the step of the path to each pair of values of two dicts or lists, and both values."""
    if not _has_pairs(ours, theirs):
        return
    if isinstance(ours, list):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield f"[{index}]", mine, other
        return
    for name, mine in ours.items():
        if name not in free and not name.endswith(_FREE_ENDINGS):
            yield f".{name}", mine, theirs.get(name)


def _is_object(value):
    return isinstance(value, dict) and "class_name" in value


def _show(value):
    """Return a value as Python code; for a layer, the name of its class."""
    if not _is_object(value):
        return repr(value)
    revived = registry.revive(value)
    return repr(revived) if isinstance(revived, registry.Value) else value["class_name"]
