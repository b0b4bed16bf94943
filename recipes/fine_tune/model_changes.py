"""Changes of a loaded model by options: pattern, depth, dropout, new weights."""

from keras_attn import depth, patterns, registry


def change_model(model, options):
    """Return a model with the pattern, depth and dropout of the options, and the same weights.

    With `options.from_scratch` the weights are drawn anew.

    Raises:
        ValueError: if the blocks cannot be reversible.
    """
    pattern = _pattern(options, causal=hasattr(model, "depth"))
    if not any((pattern, options.depth, options.dropout is not None, options.from_scratch)):
        return model
    config = model.get_config()
    _rewrite(config, pattern and registry.serialize(pattern), options.dropout)
    if options.depth == "reversible":
        part = "depth" if "depth" in config else "encoder"
        stack = registry.revive(config[part])
        config[part] = registry.serialize(depth.Reversible(stack.blocks, name=stack.name))
    changed = type(model).from_config(config)
    if not options.from_scratch:
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


def _pattern(options, causal):
    if options.pattern == "local":
        return patterns.Local(options.window, causal=causal)
    if options.pattern == "dense":
        return patterns.Causal() if causal else patterns.Dense()
    return None


def _rewrite(config, pattern, dropout):
    """Set the patterns and the dropout rates in a configuration, in its parts too."""
    if isinstance(config, list):
        for part in config:
            _rewrite(part, pattern, dropout)
    if not isinstance(config, dict):
        return
    for name, value in config.items():
        if name == "pattern" and pattern is not None:
            config[name] = pattern
        elif name == "dropout" and dropout is not None and isinstance(value, int | float):
            config[name] = dropout
        else:
            _rewrite(value, pattern, dropout)
