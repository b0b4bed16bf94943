"""The layers inside a layer, by attribute."""

import keras

from keras_attn.compat.torch_parameters import modules


def attributes(layer):
    """Return the public attributes of a layer, by name."""
    values = {**vars(layer), **modules(layer)}
    return {name: value for name, value in values.items() if not name.startswith("_")}


def sublayers(layer):
    """Return the layers that are attributes of a layer, or in its lists and dicts, by path."""
    layers = layers_in(attributes(layer))
    if isinstance(layer, keras.Model):
        known = set(map(id, layers.values()))
        others = {f"layers/{i}": each for i, each in enumerate(layer.layers)}
        layers |= {path: each for path, each in others.items() if id(each) not in known}
    return layers


def layers_in(values):
    """Return the layers among the values of a dict, and in lists and dicts there, by path."""
    layers = {}
    for name, value in values.items():
        if isinstance(value, keras.layers.Layer):
            layers[str(name)] = value
        elif isinstance(value, (list, tuple, dict)):
            inside = value if isinstance(value, dict) else dict(enumerate(value))
            layers |= {f"{name}/{path}": each for path, each in layers_in(inside).items()}
    return layers


def all_sublayers(layer):
    """Return the layer and all inside it, each once, by path; its own is ""."""
    layers, seen, waiting = {}, set(), [("", layer)]
    while waiting:
        path, each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        layers[path] = each
        inside = [(f"{path}/{name}".lstrip("/"), x) for name, x in sublayers(each).items()]
        waiting.extend(reversed(inside))
    return layers
