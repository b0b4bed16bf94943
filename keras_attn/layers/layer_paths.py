"""Paths of the layers inside a model."""

import keras


def layers_by_path(model):
    """Yield the path, a tuple of names, and the layer of all parts of a model, each part once.

    A path has the names of attributes, the indices of lists, and in a model made by Keras's
    functional API the names of layers.
    """
    seen = set()

    def visit(path, layer):
        if id(layer) in seen:
            return
        seen.add(id(layer))
        yield path, layer
        for name, part in _parts(layer):
            yield from visit((*path, name), part)

    yield from visit((), model)


def _parts(layer):
    """Yield the names and the layers of the public attributes, then those of a model's graph."""
    for name, value in vars(layer).items():
        if name.startswith("_"):
            continue
        if isinstance(value, keras.layers.Layer):
            yield name, value
        elif isinstance(value, (list, tuple)):
            yield from (
                (f"{name}/{index}", part)
                for index, part in enumerate(value)
                if isinstance(part, keras.layers.Layer)
            )
    if isinstance(layer, keras.Model):
        yield from ((part.name, part) for part in layer.layers)
