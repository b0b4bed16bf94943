"""Layers with a window of keys among layers without one."""

SLIDING, FULL = "sliding_attention", "full_attention"


def layer_types(config, is_sliding):
    """Return the type of each layer: `layer_types`, or by the index where an old file has none."""
    num_layers = config.size("num_hidden_layers")
    found = config.strings("layer_types")
    if found is None:
        return [SLIDING if is_sliding(index) else FULL for index in range(num_layers)]
    if len(found) != num_layers or not set(found) <= {SLIDING, FULL}:
        config.refuse(
            f"`layer_types` must name {SLIDING!r} or {FULL!r} for each of {num_layers} layers, "
            f"not {found!r}."
        )
    return found


def windows(config, types, default=4096):
    """Return a function from a layer's index to its window, None for none."""
    window = config.size("sliding_window", default) if SLIDING in types else None
    return lambda index: window if types[index] == SLIDING else None
