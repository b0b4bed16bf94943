"""Single tensor operations on TensorFlow."""

import tensorflow as tf

from keras_attn.compat.tensorflow_control_flow import has_gradient


def require(condition, message, x):
    with tf.control_dependencies([tf.debugging.Assert(condition, [message])]):
        return tf.identity(x)


@tf.custom_gradient
def softmax_with_logsumexp(logits):
    # The greatest weight is at least one over the number of keys, so its logarithm is exact: no
    # second pass of exponentials is needed.
    weights = tf.nn.softmax(logits)
    top = tf.reduce_max(logits, axis=-1, keepdims=True)
    log_sum = top - tf.math.log(tf.reduce_max(weights, axis=-1, keepdims=True))

    def gradient(weights_gradient, log_sum_gradient):
        mean = tf.reduce_sum(weights_gradient * weights, axis=-1, keepdims=True)
        return weights * (weights_gradient - (mean - log_sum_gradient))

    return (weights, log_sum), gradient


def read(variable):
    return tf.convert_to_tensor(variable.value)


def einsum(subscripts, *tensors):
    return tf.einsum(subscripts, *tensors)


def take_rows(table, indices):
    return tf.gather(table, indices)  # Keras looks for negative indices


def gather_rows(x, indices):
    return tf.gather(x, indices, axis=1, batch_dims=1)


def multiply_transposed(x, y):
    return tf.matmul(x, y, transpose_b=True)


def crossentropy(labels, logits, label_smoothing):
    """Compute value and gradient, softmax - q, from one softmax.

    Half the time of TensorFlow's own sparse op on CPU, where softmax is a oneDNN kernel and that
    op is not. The metrics repeat the same ops on the same logits, and the graph optimiser removes
    the repetition: in training they are free.
    """

    @tf.custom_gradient
    def losses_of(logits):
        vocabulary_size = tf.shape(logits)[-1]
        flat_logits = tf.reshape(logits, (-1, vocabulary_size))
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
            uniform = label_smoothing / tf.cast(vocabulary_size, logits.dtype)
            spread = (probabilities - uniform) * upstream[:, None]
            result = tf.tensor_scatter_nd_sub(spread, at_label, (1.0 - label_smoothing) * upstream)
            return tf.reshape(result, tf.shape(logits))

        return tf.reshape(losses, tf.shape(labels)), gradient

    return losses_of(logits)


def normalize(x, epsilon, scale, shift=None):
    """Compute the gradient in closed form, from a third of the operations of the derived one."""

    @tf.custom_gradient
    def normalize_tensors(x, scale, *shift):
        centred = x - tf.reduce_mean(x, -1, keepdims=True)
        inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
        normalized = centred * inverse

        def gradient(upstream):
            scaled = upstream * scale
            mean = tf.reduce_mean(scaled, -1, keepdims=True)
            slope = tf.reduce_mean(scaled * normalized, -1, keepdims=True)
            # The gradient of a bias is a sum over all axes but the last one.
            by_scale = tf.raw_ops.BiasAddGrad(out_backprop=upstream * normalized)
            by_shift = [tf.raw_ops.BiasAddGrad(out_backprop=upstream)] if shift else []
            return inverse * (scaled - mean - normalized * slope), by_scale, *by_shift

        y = normalized * scale
        return y + shift[0] if shift else y, gradient

    return normalize_tensors(x, scale, *(() if shift is None else (shift,)))


def uniform(shape, seed=None):
    # Keras's global seed is a variable, which an exported graph must not capture, and its
    # seeded numbers differ under XLA.
    if seed is None:
        return tf.random.uniform(shape)
    return tf.random.stateless_uniform(shape, seed=(seed, 0), alg="philox")


def is_symbolic(x):
    return not tf.executing_eagerly()


can_branch = has_gradient
