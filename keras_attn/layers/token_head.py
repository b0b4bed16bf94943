"""The head of a language model: logits by the token table, with a bias."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.initializers import redraw
from keras_attn.ops.checks import check_that


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
