"""Cross-entropy and weights of tokens, for losses, metrics and layers that have a loss; means."""

from keras import backend, ops

from keras_attn.backend import operations
from keras_attn.backend.replicas import replica_sum, share_of_sum
from keras_attn.ops.ids import narrow
from keras_attn.ops.shapes import same_shape


def crossentropy(labels, logits, label_smoothing=0.0):
    """Compute -sum_v q(v) log softmax(logits)(v) with q = (1 - s) one_hot(label) + s / V.

    With lse = logsumexp(logits) this is lse - (1 - s) logits[label] - s mean(logits), so that
    neither q nor log softmax is ever stored. The result (...) is at least float32.

    Args:
        labels: integer tensor (...), each in [0, V). label_smoothing: float in [0, 1), s.
        logits: float tensor (..., V).
    """
    _check_logits(labels, logits)
    return _crossentropy(labels, logits, label_smoothing)


def _crossentropy(labels, logits, label_smoothing):
    logits = ops.cast(logits, backend.result_type(logits.dtype, "float32"))
    return operations.crossentropy(narrow(labels), logits, label_smoothing)


def _check_logits(labels, logits):
    if len(logits.shape) == 0 or not same_shape(labels.shape, logits.shape[:-1]):
        raise ValueError(
            "`logits` must have the axes of `labels` and then the vocabulary. "
            f"Received: labels of shape {tuple(labels.shape)}, "
            f"logits of shape {tuple(logits.shape)}."
        )


def token_weights(labels, ignore_class, sample_weight=None, dtype="float32"):
    """Return weights (B, T): 0 where the label is `ignore_class`, else the sample's weight.

    With `ignore_class=None` all labels count. `sample_weight` is (B,), (B, 1) or (B, T); None is 1.
    """
    weights = element_weights(labels, sample_weight, dtype)
    if ignore_class is None:
        return weights
    return weights * ops.cast(ops.not_equal(labels, ignore_class), dtype)


def element_weights(elements, sample_weight=None, dtype="float32"):
    """Return weights of the shape of `elements` (B, ...): 1, or the sample's weight.

    `sample_weight` has the first axes of `elements`, or 1 in place of an axis.
    """
    weights = ops.ones_like(elements, dtype=dtype)
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, dtype)
    _check_rank(sample_weight, "sample_weight")
    pairs = zip(sample_weight.shape, weights.shape)
    fits = all(size in (1, None, wanted) or wanted is None for size, wanted in pairs)
    if len(sample_weight.shape) > len(weights.shape) or not fits:
        raise ValueError(
            f"`sample_weight` must have the shape {tuple(weights.shape)}, its first axes, or 1 in "
            f"place of an axis. Received: shape={tuple(sample_weight.shape)}."
        )
    while len(sample_weight.shape) < len(weights.shape):
        sample_weight = ops.expand_dims(sample_weight, -1)  # (B,) -> (B, 1)
    return weights * sample_weight


def known_labels(labels, ignore_class):
    """Replace `ignore_class`, which may lie outside the vocabulary (such as -100), by 0."""
    if ignore_class is None:
        return labels
    return ops.where(ops.equal(labels, ignore_class), ops.zeros_like(labels), labels)


def _check_rank(x, name):
    """Refuse a tensor of unknown rank, which TensorFlow makes of one whose rank has changed."""
    if getattr(x.shape, "rank", 0) is None:
        raise ValueError(
            f"`{name}` must have the same number of axes in all batches of a compiled model; "
            "`compile` it again before those of another number. Received: a tensor of unknown rank."
        )


def check_labels(labels, count, ignore_class, name="y_true"):
    """Return True where a label is in [0, count); refuse the others where they have values."""
    labels = ops.cast(narrow(labels), "int32")
    is_known = ops.logical_and(labels >= 0, labels < count)
    # Under a JAX trace even constants give results without a value.
    if not operations.is_symbolic(is_known) and not ops.all(is_known):
        raise ValueError(
            f"`{name}` must be ids of the vocabulary, in [0, {count}), or `ignore_class`. "
            f"Received: {name} from {int(ops.min(labels))} to {int(ops.max(labels))}, "
            f"ignore_class={ignore_class}."
        )
    return is_known


def token_losses(labels, predictions, ignore_class, label_smoothing=0.0, z_loss=0.0):
    """Return the negative log-likelihood of each label (B, T), float32 or, of float64, float64.

    A label outside the vocabulary is an error where it has a value. Graphs give NaN for it, unless
    an operation of TensorFlow raises first, as on the CPU.

    Args:
        predictions: logits (B, T, V); or losses (B, T), from a layer that does not make all logits.
        ignore_class: int, or None. Where it is the label, the result is finite and means nothing.
        label_smoothing: float in [0, 1). Needs logits.
        z_loss: float. Weight of logsumexp(logits)^2, which is added. Needs logits.
    """
    _check_rank(labels, "y_true")
    if not same_shape(labels.shape, predictions.shape):
        _check_logits(labels, predictions)
        labels = known_labels(labels, ignore_class)
        is_known = check_labels(labels, ops.shape(predictions)[-1], ignore_class)
        losses = _crossentropy(labels, predictions, label_smoothing)
        losses = ops.where(is_known, losses, float("nan"))
        if z_loss:
            log_sums = ops.logsumexp(ops.cast(predictions, losses.dtype), axis=-1)
            losses = losses + z_loss * ops.square(log_sums)
        return losses
    if len(labels.shape) > 2:
        raise ValueError(
            "`y_true` must be (B, T), the id of each token; one-hot labels become ids by "
            f"`argmax(y_true, axis=-1)`. Received: y_true of shape {tuple(labels.shape)}, "
            f"y_pred of shape {tuple(predictions.shape)}."
        )
    for name, value in {"label_smoothing": label_smoothing, "z_loss": z_loss}.items():
        if value:
            raise ValueError(
                f"`{name}` needs the logits of all words; losses of shape (B, T), which a layer "
                f"has computed itself, need `{name}=0.0`. Received: {name}={value}"
            )
    return ops.cast(predictions, backend.result_type(predictions.dtype, "float32"))


def reduce_losses(losses, elements, sample_weight, reduction):
    """Reduce losses by Keras's rules, with means over the elements of all replicas.

    Keras adds the gradients of replicas up, so a mean must divide by the elements of all of them;
    a loss of Keras divides by those of its own replica. A mean of no element is 0.

    Args:
        losses: float tensor, zero where an element does not count.
        elements: tensor like `losses`. The number of elements that each loss stands for.
        sample_weight: tensor like `losses`, or None.
        reduction: "sum_over_batch_size" or "mean", which divide by the sum of `elements`;
            "mean_with_sample_weight", which divides by their weighted sum; "sum"; "none" or None.

    Returns:
        Scalar, this replica's share of the loss, as of `share_of_sum`; without a reduction the
        weighted losses.
    """
    if sample_weight is not None:
        losses = losses * sample_weight
    if reduction in (None, "none"):
        return losses
    total = ops.sum(losses)
    if reduction == "sum":
        return share_of_sum(total)
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        weight = replica_sum(ops.sum(elements * sample_weight))
        return share_of_sum(ops.divide_no_nan(total, weight))
    return share_of_sum(total / ops.maximum(replica_sum(ops.sum(elements)), 1.0))
