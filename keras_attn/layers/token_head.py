"""Heads of models of tokens: logits by the token table, and the places of answers."""

import keras
from keras import ops

from keras_attn import norms, registry
from keras_attn.initializers import redraw
from keras_attn.ops.activations import activate, get_activation
from keras_attn.ops.checks import check_that

_LEAST = -1e9  # finite, as no converter mistakes it


@registry.register
class TokenHead(registry.MaskedLayer):
    """Score hidden states against the token table, and add a bias for each token.

        logits = x E^T + c

    Time O(T D V), weights V, and those of the table.

    Use it for models whose tokens differ in frequency whatever the context, as Marian and BART do.

    Args:
        embedding: the `TokenEmbedding` whose table is shared.
        bias_initializer: of c.

    Call arguments:
        x: (B, T, D).

    Returns:
        Logits (B, T, V), float32.

    Raises:
        ValueError: if `embedding` has no `logits`.

    Example:
        >>> import keras_attn
        >>> embedding = keras_attn.layers.TokenEmbedding(100, 8)
        >>> head = keras_attn.layers.TokenHead(embedding)

    Differs from the paper: none.

    Reference: [Junczys-Dowmunt et al., 2018](https://arxiv.org/abs/1804.00344); tying:
        [Press and Wolf, 2017](https://arxiv.org/abs/1608.05859), section 3.
    """

    weight_axes = {"bias": ("model",)}

    def __init__(self, embedding, bias_initializer="zeros", **kwargs):
        super().__init__(**kwargs)
        embedding = registry.revive(embedding)
        has_table = hasattr(embedding, "logits")
        check_that(has_table, "a layer with `logits`, as a `TokenEmbedding`", embedding=embedding)
        self.embedding = embedding
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, x_shape):
        registry.build_once(self.embedding, x_shape)
        shape = (self.embedding.vocabulary_size,)
        self.bias = self.add_weight(shape, redraw(self.bias_initializer), name="bias")

    def call(self, x):
        return self.embedding.logits(x) + ops.cast(self.bias, "float32")

    def compute_output_spec(self, x):
        return keras.KerasTensor((*x.shape[:-1], self.embedding.vocabulary_size), dtype="float32")


@registry.register
class MaskedTokenHead(registry.MaskedLayer):
    """Transform hidden states and score them against the token table.

        logits = norm(activation(x W + b)) E^T + c

    W maps to the width D' of the table, which may differ from the D of x. Time O(T D D'), weights
    D D' + 3 D' + V.

    Args:
        embedding: the `TokenEmbedding` whose table is shared.
        activation: name or function.
        norm: value of the norm axis.
        kernel_initializer: of W.
        use_bias: bool. If False, there is no b.

    Call arguments:
        x: (B, T, D).

    Returns:
        Logits (B, T, V), float32.

    Raises:
        ValueError: if `embedding` has no `logits`.

    Example:
        >>> import keras_attn
        >>> embedding = keras_attn.layers.TokenEmbedding(100, 8)
        >>> head = keras_attn.layers.MaskedTokenHead(embedding)

    Differs from the paper: none; the paper leaves the head to its code.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1, task 1.
    """

    weight_axes = {"dense/kernel": (), "dense/bias": (), "bias": ("model",)}

    def __init__(
        self,
        embedding,
        activation="gelu",
        norm="layer_norm",
        kernel_initializer="glorot_uniform",
        use_bias=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        embedding = registry.revive(embedding)
        if not hasattr(embedding, "logits"):
            raise ValueError(
                "`embedding` must have a method `logits(x)`, as a `TokenEmbedding` has. "
                f"Received: embedding={embedding!r}."
            )
        self.embedding = embedding
        self.activation = get_activation(activation)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.use_bias = bool(use_bias)
        self.dense = keras.layers.Dense(
            embedding.hidden_dim,
            use_bias=self.use_bias,
            kernel_initializer=redraw(self.kernel_initializer),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.norm = norms.get(norm, dtype=self.dtype_policy, name="norm")

    def build(self, x_shape):
        registry.build_once(self.embedding, x_shape)
        self.dense.build(x_shape)
        registry.build_once(self.norm, (*x_shape[:-1], self.embedding.hidden_dim))
        self.bias = self.add_weight((self.embedding.vocabulary_size,), "zeros", name="bias")

    def call(self, x):
        hidden = self.norm(activate(self.activation, self.dense(x)))
        return self.embedding.logits(hidden) + keras.ops.cast(self.bias, "float32")

    def compute_output_spec(self, x):
        return keras.KerasTensor((*x.shape[:-1], self.embedding.vocabulary_size), dtype="float32")


@registry.register
class AnswerHead(keras.layers.Dense):
    """Score each token as the first and as the last one of an answer.

        logits[..., 0] = x w_start + b_start,   logits[..., 1] = x w_end + b_end

    An answer is the span from token i to j >= i with the greatest sum of both logits. Time O(T D),
    weights 2 D + 2.

    Use it as the `head` of a `MaskedLanguageModel` that reads a question and a text.

    Args:
        dtype: of the logits; by default float32 under every policy.
        kwargs: more of `keras.layers.Dense`, such as `kernel_initializer`.

    Call arguments:
        x: (B, T, D).

    Returns:
        Logits (B, T, 2), of the `dtype`.

    Raises:
        ValueError: if an argument is none of `keras.layers.Dense`.

    Example:
        >>> import keras, keras_attn
        >>> keras_attn.layers.AnswerHead()(keras.ops.zeros((5, 3, 8))).shape
        TensorShape([5, 3, 2])

    Differs from the paper: none.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 4.2.
    """

    def __init__(self, *, dtype="float32", **kwargs):
        kwargs.pop("units", None)  # of a configuration
        super().__init__(2, dtype=dtype, **kwargs)

    @staticmethod
    def best_spans(logits, is_allowed, max_length=30):
        """Return the best answer of each row, and its probability.

        Args:
            logits: (B, T, 2).
            is_allowed: bool (B, T), True at the tokens that may be in an answer.
            max_length: int. Most tokens of an answer.

        Returns:
            The index of the first and of the last token, int32 (B,), and the product of the
            probabilities of both among the tokens allowed, float32 (B,): 0 without such tokens.
        """
        logits = ops.where(ops.expand_dims(is_allowed, -1), ops.cast(logits, "float32"), _LEAST)
        logs = ops.log_softmax(logits, axis=1)
        total = ops.expand_dims(logs[..., 0], 2) + ops.expand_dims(logs[..., 1], 1)  # (B, T, T)
        length = ops.shape(logits)[1]
        places = ops.arange(length, dtype="int32")
        distance = ops.expand_dims(places, 0) - ops.expand_dims(places, 1)
        fits = ops.logical_and(distance >= 0, distance < max_length)
        allowed = ops.logical_and(ops.expand_dims(is_allowed, 2), ops.expand_dims(is_allowed, 1))
        total = ops.where(ops.logical_and(fits, allowed), total, 2 * _LEAST)
        total = ops.reshape(total, (-1, length * length))
        best = ops.cast(ops.argmax(total, axis=1), "int32")
        return best // length, best % length, ops.exp(ops.max(total, axis=1))
