"""The cross-entropy of every token, shared by losses, metrics and layers that have a loss."""

import keras
from keras import ops


def crossentropy(labels, logits, label_smoothing=0.0):
    """Compute -sum_v q(v) log softmax(logits)(v) with q = (1 - s) one_hot(label) + s / V.

    With lse = logsumexp(logits) this is lse - (1 - s) logits[label] - s mean(logits), so that
    neither q nor log softmax is ever stored.

    Args:
        labels: integer tensor (...), each in [0, V).
        logits: float tensor (..., V); computed in float32 whatever its dtype.
        label_smoothing: float in [0, 1), s.

    Returns:
        float32 tensor (...).
    """
    pairs = zip(labels.shape, logits.shape)
    if len(logits.shape) != len(labels.shape) + 1 or any(
        label != logit and None not in (label, logit) for label, logit in pairs
    ):
        raise ValueError(
            "`logits` must have the axes of `labels` and then the vocabulary. "
            f"Received: labels of shape {tuple(labels.shape)}, "
            f"logits of shape {tuple(logits.shape)}."
        )
    compute = _fused if keras.backend.backend() == "tensorflow" else _portable
    return compute(labels, logits, label_smoothing)


def _portable(labels, logits, label_smoothing):
    logits = ops.cast(logits, "float32")
    label_logit = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)  # (..., 1)
    losses = ops.logsumexp(logits, axis=-1) - (1.0 - label_smoothing) * ops.squeeze(label_logit, -1)
    if label_smoothing:
        losses = losses - label_smoothing * ops.mean(logits, axis=-1)
    return losses


def _fused(labels, logits, label_smoothing):
    """One softmax serves the value and the gradient, softmax - q.

    Half the time of TensorFlow's own sparse op on CPU, where softmax is a oneDNN kernel and that
    op is not. The metrics repeat the same ops on the same logits, which the graph optimiser then
    computes once: in training they are free.
    """
    import tensorflow as tf

    @tf.custom_gradient
    def losses_of(logits):
        vocabulary_size = tf.shape(logits)[-1]
        flat_logits = tf.reshape(tf.cast(logits, "float32"), (-1, vocabulary_size))
        flat_labels = tf.reshape(tf.cast(labels, "int32"), (-1,))
        at_label = tf.stack([tf.range(tf.size(flat_labels)), flat_labels], axis=-1)
        probabilities = tf.nn.softmax(flat_logits)
        # The greatest probability is at least 1/V, so its log is safe where others underflow.
        logsumexp = tf.reduce_max(flat_logits, -1) - tf.math.log(tf.reduce_max(probabilities, -1))
        losses = logsumexp - (1.0 - label_smoothing) * tf.gather_nd(flat_logits, at_label)
        if label_smoothing:
            losses -= label_smoothing * tf.reduce_mean(flat_logits, -1)

        def gradient(upstream):
            upstream = tf.reshape(upstream, (-1,))
            uniform = label_smoothing / tf.cast(vocabulary_size, "float32")
            spread = (probabilities - uniform) * upstream[:, None]
            result = tf.tensor_scatter_nd_sub(spread, at_label, (1.0 - label_smoothing) * upstream)
            return tf.cast(tf.reshape(result, tf.shape(logits)), logits.dtype)

        return tf.reshape(losses, tf.shape(labels)), gradient

    return losses_of(logits)
