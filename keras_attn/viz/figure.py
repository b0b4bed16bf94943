"""Import of Matplotlib, which is an optional package."""


def new_figure(width, height):
    """Return an empty figure of `width` x `height` inches, outside pyplot's global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Pictures need Matplotlib, which is not installed: pip install 'keras_attn[viz]'"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")
