"""Symbolic inputs of a model for one length."""

import keras


def symbolic_inputs(model, length, batch_size):
    """Return `keras.KerasTensor`s in the structure of the inputs of a functional model.

    A memory has all its slots; optional inputs are None.
    """
    memory = getattr(model, "memory", None)
    slots = length if memory is None else getattr(memory, "num_slots", None) or memory.memory_length

    def fill(x):
        if _is_optional(model, x):
            return None
        free = slots if x.name == "memory" else length
        batch, *sizes = x.shape
        if batch not in (None, batch_size):
            raise ValueError(
                f"`batch_size` must be that of the model's inputs, {batch}. "
                f"Received: batch_size={batch_size}."
            )
        shape = batch_size, *(free if size is None else size for size in sizes)
        return keras.KerasTensor(shape, dtype=x.dtype)

    inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    return keras.tree.map_structure(fill, inputs)


def _is_optional(model, x):
    return any(layer.name == x.name and getattr(layer, "optional", False) for layer in model.layers)
