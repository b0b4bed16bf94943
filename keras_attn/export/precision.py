"""What a model computes in."""


def check_float32(model):
    """Raises a `ValueError` where a layer of the model computes in 16 bits."""
    dtypes = {layer.compute_dtype for layer in model.layers} - {"float32"}
    if dtypes:
        raise ValueError(
            "`model` must compute in float32: load it under that policy. "
            f"Received: {', '.join(sorted(dtypes))}."
        )
