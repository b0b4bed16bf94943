"""Changes of a loaded model by options: pattern, depth, dropout, new weights."""

from keras_attn import depth, layers, patterns, registry
from keras_attn.backend.replicas import whole_values
from keras_attn.compat.keras_layers import flatten_layers


def change_model(model, options, pad_id=None):
    """Return a model with the pattern, depth and dropout of the options, and the same weights.

    With `options.from_scratch` the weights are drawn anew. A `pad_id` becomes the model's.

    Raises:
        ValueError: if the blocks cannot be reversible.
    """
    pattern = _pattern(options, _is_causal(model))
    changes = {
        "pattern": pattern and registry.serialize(pattern),
        "dropout": options.dropout,
        "pad_id": pad_id,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if not any((changes, options.depth, options.from_scratch)):
        return model
    config = model.get_config()
    _rewrite(config, changes)
    if options.depth == "reversible":
        part = "depth" if "depth" in config else "encoder"
        stack = registry.revive(config[part])
        if not hasattr(stack, "blocks"):
            raise ValueError(
                "--depth reversible needs a --model of one stack of blocks. "
                f"Received: {type(stack).__name__}."
            )
        config[part] = registry.serialize(depth.Reversible(stack.blocks, name=stack.name))
    changed = type(model).from_config(config)
    if not options.from_scratch:
        with whole_values(model.variables):
            changed.set_weights(model.get_weights())
    return changed


def check_positions(model, max_length):
    """Refuse rows that are longer than the positions of a model."""
    limit = model.max_length
    if limit is not None and max_length > limit:
        raise ValueError(
            "--max-length must be at most the number of the model's positions. "
            f"Received: --max-length {max_length}, and {limit} positions."
        )


def _is_causal(model):
    """Return True if no position of the model attends to a later one."""
    attention = (x for x in flatten_layers(model) if isinstance(x, layers.MultiHeadAttention))
    return all(layer.pattern.causal for layer in attention)


def _pattern(options, causal):
    if options.pattern == "local":
        return patterns.Local(options.window, causal=causal)
    if options.pattern == "dense":
        return patterns.Causal() if causal else patterns.Dense()
    return None


def _rewrite(config, changes):
    """Set the arguments of some names in a configuration, in its parts too."""
    if isinstance(config, list):
        for part in config:
            _rewrite(part, changes)
    if not isinstance(config, dict):
        return
    for name, value in config.items():
        # A layer of the name "dropout" has a configuration in its place.
        if name in changes and (name != "dropout" or isinstance(value, int | float)):
            config[name] = changes[name]
        else:
            _rewrite(value, changes)
