"""Errors of one sentence where Keras trains wrongly, or fails without a reason."""

import contextlib
import inspect


def check_class_weight(model, method, args, kwargs):
    """Refuse `class_weight` where labels are positions (B, T) of a batch.

    Keras takes labels of two axes for one-hot vectors, and weighs each row by the class that is the
    place of its greatest label: https://github.com/keras-team/keras/issues/16311.

    Args:
        model: a functional model, or a wrapper of one, which is its attribute `model`.
        method: `fit` or `train_on_batch` of the model, with these arguments.
        args, kwargs: tuple and dict.
    """
    weights = inspect.signature(method).bind(*args, **kwargs).arguments.get("class_weight")
    outputs = getattr(getattr(model, "model", model), "outputs", ())
    if weights is not None and any(len(output.shape) > 2 for output in outputs):
        raise ValueError(
            "`class_weight` must be None for a model with labels (B, T), which Keras takes for "
            "one-hot vectors; `sample_weight` (B, T) weighs each position. "
            f"Received: class_weight={weights!r}."
        )


@contextlib.contextmanager
def explain_loss_scale(optimizer):
    """Explain that Keras cannot divide the sparse gradient of an embedding on TensorFlow."""
    try:
        yield
    except TypeError as error:
        scale = getattr(optimizer, "loss_scale_factor", None)
        if scale is None or "IndexedSlices" not in str(error):
            raise
        raise ValueError(
            "`loss_scale_factor` must be None for a model with an embedding on TensorFlow, whose "
            "sparse gradient Keras cannot divide; the policy `mixed_float16` scales the loss by "
            f"itself. Received: loss_scale_factor={scale!r}."
        ) from error
