"""Pooling of the outputs at all positions of a text to one vector, and layers after it."""

import keras
import numpy as np
from keras import ops

from keras_attn import registry
from keras_attn.ops.activations import activate, get_activation
from keras_attn.ops.checks import check_choice, check_sizes, check_that


@registry.register
class Pool(registry.MaskedLayer):
    """Pool the outputs at a text's positions to one vector, in one way or in several.

        first: x_1      last: x_n      max: max_t x_t      mean: sum_t x_t / n
        mean_sqrt_len: sum_t x_t / sqrt(n)      weighted_mean: sum_t t x_t / sum_t t

    Padding is left out, but for "first": x_1 is the output at position 0, whatever is there, or the
    first one after a prompt. Several poolings are joined along the last axis, in their order. Time
    and memory O(T D).

    Args:
        pooling: one of these names, or a list of several.
        padding_at_end: bool. If True, a model takes padding at the end of a text only: the same id
            before another token is a token. By default True if "last" is the only pooling
            and there is no `token_id`.
        include_prompt: bool. If False, a model reads `prompt_lengths` too, and no pooling reads the
            tokens of a prompt. The other tokens keep their weights t.
        token_id: int. If given, poolings read the tokens of this id only, as BART reads the last
            end of a sentence, and calls need `token_ids`; None for all tokens.

    Call arguments:
        x: (B, T, D).
        prompt_lengths: optional int (B,); by default all 0.
        mask, x_mask: optional bool (B, T), False at padding.
        token_ids: int (B, T), which a layer with a `token_id` needs.

    Returns:
        (B, D), or (B, K D) for K poolings. Without a token, the maximum and the means are 0.

    Raises:
        ValueError: if a pooling is unknown, or a layer with a `token_id` gets no `token_ids`.

    Example:
        >>> import keras, keras_attn
        >>> pool = keras_attn.layers.Pool(["mean", "max"])
        >>> pool(keras.ops.ones((2, 3, 5))).shape
        TensorShape([2, 10])

    Differs from the paper: three poolings more, which sentence-transformers has.

    Reference: [Reimers and Gurevych, 2019](https://arxiv.org/abs/1908.10084), section 3.
    """

    def __init__(self, pooling, padding_at_end=None, include_prompt=True, token_id=None, **kwargs):
        super().__init__(**kwargs)
        names = [pooling] if isinstance(pooling, str) else pooling
        are_names = isinstance(names, (list, tuple)) and len(names) > 0
        check_that(are_names, "a name or a list of names", pooling=pooling)
        for name in names:
            check_choice(tuple(_POOLINGS), pooling=name)
        self.pooling = pooling if isinstance(pooling, str) else list(pooling)
        is_last = self.names == ["last"] and token_id is None
        self.padding_at_end = is_last if padding_at_end is None else bool(padding_at_end)
        self.include_prompt = bool(include_prompt)
        reads_its_tokens = token_id is None or "first" not in self.names
        check_that(reads_its_tokens, "None for the pooling 'first'", token_id=token_id)
        self.token_id = token_id

    @property
    def names(self):
        """The names of the poolings, a list."""
        return [self.pooling] if isinstance(self.pooling, str) else self.pooling

    @classmethod
    def of(cls, identifier, dtype):
        """Return the layer for a name, a list of names or a layer; models name it "pool"."""
        pool = identifier if isinstance(identifier, cls) else cls(identifier, dtype=dtype)
        pool.name = "pool"
        return pool

    def call(self, x, prompt_lengths=None, mask=None, x_mask=None, token_ids=None):
        if self.names == ["first"] and prompt_lengths is None:
            return _first(x, None, None, None)  # no mask is read
        mask = x_mask if mask is None else mask  # named so by Keras beside a second tensor
        if self.token_id is not None:
            mask = self._mask_of_token(token_ids, mask)
        out_dtype = x.dtype
        dtype = keras.backend.result_type(out_dtype, "float32")
        weights = ops.ones(ops.shape(x)[:2], dtype) if mask is None else ops.cast(mask, dtype)
        order, start = ops.cumsum(weights, axis=1), None  # 1 at the first token
        if prompt_lengths is not None:
            lengths = ops.expand_dims(ops.cast(prompt_lengths, dtype), 1)
            is_prompt = ops.logical_and(order <= lengths, lengths > 0)
            weights = ops.where(is_prompt, 0.0, weights)
            start = ops.sum(ops.cast(is_prompt, "int32"), axis=1, keepdims=True)
        x = ops.cast(x, dtype)
        pooled = [_POOLINGS[name](x, weights, order, start) for name in self.names]
        return ops.cast(ops.concatenate(pooled, axis=-1), out_dtype)

    def _mask_of_token(self, token_ids, mask):
        """Return True at the tokens of the id that poolings read."""
        if token_ids is None:
            raise ValueError(
                "A `Pool` with a token_id needs the argument `token_ids`. "
                f"Received: token_id={self.token_id}."
            )
        is_read = ops.equal(token_ids, self.token_id)
        return is_read if mask is None else ops.logical_and(mask, is_read)

    def compute_mask(self, inputs, *masks, **named_masks):
        return None

    def compute_output_shape(self, x_shape, *other_shapes, **named_shapes):
        return x_shape[0], len(self.names) * x_shape[2]


def _first(x, weights, order, start):
    if start is None:
        # A sum over a slice: `x[:, 0]` fails for texts without tokens.
        return ops.sum(x[:, :1], axis=1)
    return _at(x, ops.where(start < ops.shape(x)[1], start, 0))  # 0 for a prompt without a text


def _last(x, weights, order, start):
    return _at(x, ops.sum(ops.cast(_is_before_end(weights), "int32"), axis=1, keepdims=True) - 1)


def _max(x, weights, order, start):
    # Finite, as no converter mistakes it; and one position more, since a text may have none.
    least = float(np.finfo("float32").min)
    x = ops.where(ops.expand_dims(weights, -1) > 0, x, least)
    largest = ops.max(ops.pad(x, [[0, 0], [0, 1], [0, 0]], constant_values=least), axis=1)
    return ops.where(_count(weights) > 0, largest, 0.0)


def _mean(x, weights, order, start):
    return _sum(x, weights) / ops.maximum(_count(weights), 1.0)


def _mean_sqrt_len(x, weights, order, start):
    return _sum(x, weights) / ops.sqrt(ops.maximum(_count(weights), 1.0))


def _weighted_mean(x, weights, order, start):
    return _mean(x, weights * order, order, start)


# Functions of the outputs, 1.0 at each token that is read and else 0.0, the number of tokens up to
# each position, and (B, 1), the position after the prompt.
_POOLINGS = {
    "first": _first,
    "last": _last,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len": _mean_sqrt_len,
    "weighted_mean": _weighted_mean,
}


def _sum(x, weights):
    return ops.einsum("bt,btd->bd", weights, x)


def _count(weights):
    return ops.sum(weights, axis=1, keepdims=True)


def _at(x, index):
    """Return (B, D), the vectors at an index (B, 1), where -1 is 0; zeros without positions."""
    positions = ops.arange(ops.shape(x)[1], dtype="int32")
    return _sum(x, ops.cast(positions == ops.maximum(index, 0), x.dtype))


def _is_before_end(weights):
    """Return bool (B, T), True up to the last position at which a weight is above 0."""
    return ops.flip(ops.cumsum(ops.flip(weights, axis=1), axis=1), axis=1) > 0


@registry.register
class EndIsPadding(registry.MaskedLayer):
    """Return the embeddings (B, T, D) of tokens with a mask that is True up to the last real token.

    Many causal models have no id of padding of their own and use one that texts may have too, such
    as that of the last token.
    """

    def call(self, x):
        return ops.copy(x)  # Keras leaves the mask of a tensor that is returned itself.

    def compute_mask(self, x, previous_mask=None):
        return None if previous_mask is None else _is_before_end(ops.cast(previous_mask, "int32"))

    def compute_output_shape(self, x_shape):
        return x_shape


@registry.register
class Projection(registry.MaskedLayer):
    """Project vectors, and add the vectors themselves if asked.

        y = activation(x W + b) [+ x, or + x R if D and `units` differ]

    Time and weights O(D units).

    Args:
        units: int. Width of the output.
        activation: name or function.
        use_bias: bool. If False, there is no b.
        residual: bool. If True, the input is added.

    Call arguments:
        x: (B, D).

    Returns:
        (B, units).

    Raises:
        ValueError: if `units` < 1.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.Projection(3, residual=True)
        >>> layer(keras.ops.ones((2, 5))).shape
        TensorShape([2, 3])

    Differs from the paper: any activation, and the residual.

    Reference: [Reimers and Gurevych, 2020](https://arxiv.org/abs/2004.09813), section 3, whose code
        ends some of its students so.
    """

    weight_axes = {"dense/kernel": (), "dense/bias": (), "residual_dense/kernel": ()}

    def __init__(self, units, activation="tanh", use_bias=True, residual=False, **kwargs):
        super().__init__(**kwargs)
        check_sizes(units=units)
        self.units, self.use_bias, self.residual = units, bool(use_bias), bool(residual)
        self.activation = get_activation(activation)
        self.dense = keras.layers.Dense(
            units, use_bias=self.use_bias, dtype=self.dtype_policy, name="dense"
        )
        self.residual_dense = None

    def build(self, x_shape):
        self.dense.build(x_shape)
        if self.residual and x_shape[-1] != self.units:
            self.residual_dense = keras.layers.Dense(
                self.units, use_bias=False, dtype=self.dtype_policy, name="residual_dense"
            )
            self.residual_dense.build(x_shape)

    def call(self, x):
        y = activate(self.activation, self.dense(x))
        if not self.residual:
            return y
        return y + (x if self.residual_dense is None else self.residual_dense(x))

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.units)


@registry.register
class Truncate(registry.MaskedLayer):
    """Keep the first numbers of vectors, as embeddings that were trained in several widths allow.

        y = x[..., :size]

    Args:
        size: int. Numbers to keep; narrower vectors stay as they are.

    Call arguments:
        x: (B, D).

    Returns:
        (B, min(D, size)).

    Raises:
        ValueError: if `size` < 1.

    Example:
        >>> import keras, keras_attn
        >>> keras_attn.layers.Truncate(3)(keras.ops.ones((2, 5))).shape
        TensorShape([2, 3])

    Differs from the paper: none.

    Reference: [Kusupati et al., 2022](https://arxiv.org/abs/2205.13147), section 3.
    """

    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        check_sizes(size=size)
        self.size = size

    def call(self, x):
        return x[..., : self.size]

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], min(x_shape[-1], self.size))
