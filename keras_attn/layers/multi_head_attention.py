"""Multi-head attention with any score and any pattern."""

import keras
from keras import ops

from keras_attn import patterns, positions, registry, scores
from keras_attn.attention.cache import check_cache, read_cache
from keras_attn.attention.inputs import AttentionInputs
from keras_attn.attention.masks import (
    attach_keras_mask,
    combine_masks,
    keras_mask,
    mask_and_bias,
    spread_padding_mask,
)
from keras_attn.attention.positions import PositionRange, resolve_positions
from keras_attn.attention.softmax import attend
from keras_attn.layers.fused_attention import attend_fused, fuses
from keras_attn.layers.head_projections import HeadProjections
from keras_attn.ops.checks import check_choice, check_positions, check_rates, check_shape
from keras_attn.ops.random import RepeatedSeed
from keras_attn.ops.shapes import merge_heads, size
from keras_attn.patterns import Causal, Dense


@registry.register
class MultiHeadAttention(HeadProjections):
    """Attends with several heads, each with projections, score and pattern of its own.

        head_n = softmax(score(X W_q, Y W_k) over allowed keys) Y W_v,   out = [head_1 ...] W_o

    Takes the weights of `keras.layers.MultiHeadAttention` in their order and shapes. Masks are
    boolean, True = may attend; a query with nothing to attend gets exactly zero attention, so only
    the output bias remains. Logits, softmax and weights are float32 under any dtype policy.
    Returning scores does not change the output.

    Attention is computed either from the whole matrix of scores, in O(T S N H) time and O(N T S)
    memory, or by the pattern's plan, which leaves out what the pattern forbids and keeps one tile
    of scores at a time: its class says at what cost. The projections take O(T D N H).

    Args:
        num_heads: int. Number of heads N.
        key_dim: int. Size H of each head's queries and keys.
        value_dim: int. Size of each head's values; by default `key_dim`.
        score: name or object of the score axis.
        pattern: name or object of the pattern axis.
        position: name or object of the position axis that works on heads ("rotary"): what each
            head's queries and keys go through before they meet; by default nothing.
        num_key_value_heads: int. Heads of keys and values, each shared by N divided by it heads
            of queries; by default N.
        use_bias: bool. Whether the four projections have biases.
        dropout: float. Dropout rate of the attention weights.
        output_shape: int. Size of the output; by default that of `query`.
        kernel_initializer: of the projections. Each is drawn as the matrix that it is: Keras's own
            layer draws a (D, N, H) kernel as if it were a convolution's, several times too narrow.
        bias_initializer: of the biases.
        kernel_regularizer, bias_regularizer, kernel_constraint, bias_constraint: of each projection.
        implementation: "dense" for the whole matrix of scores, "blockwise" for the pattern's plan, or "auto":
            the plan where it is known to compute fewer or to need much less memory. Positions,
            an `attention_mask` or a cache given to a call always take the matrix. With "auto", on
            JAX and a GPU, in half precision, a kernel of `keras.ops.dot_product_attention` takes
            the place of both where it gives the same to the rounding of the dtype.
        seed: int. Seed of the dropout.
        output_initializer: of the output projection; by default `kernel_initializer`.

    Call arguments:
        query: (B, T, D).
        value: (B, S, D). None only with a complete cache.
        key: (B, S, D); by default `value`.
        query_mask: bool (B, T), by default Keras's mask of `query`. It changes no number and becomes
            the Keras mask of the output.
        value_mask, key_mask: bool (B, S), True where a key is real; a key must be real by both. By
            default Keras's masks of `value` and `key`; without them with a cache.
        attention_mask: bool, broadcastable to (B, N, T, S); three axes are (B, T, S).
        query_positions: int (T,) or (B, T); by default the last T of S positions.
        key_positions: int (S,) or (B, S); by default 0 .. S-1.
        use_causal_mask: bool. Same as `pattern & Causal()`, by positions.
        cache: dict from `keras_attn.memory.KVCache`. One with an `"index"` is extended by the T
            new keys and values, and S counts its slots; one without is complete and only read.
        return_attention_scores: bool. They are a matrix: what a plan saves is lost.

    Returns:
        (B, T, output_shape); then, if asked for, the scores (B, N, T, S) float32, whose rows sum to
        1, or to 0 where nothing may be attended; then, with `cache`, the new cache.

    Raises:
        ValueError: if a size is below 1, `num_heads` is not a multiple of `num_key_value_heads`,
            `dropout` is outside [0, 1), a mask is not boolean, or the shapes of the call's
            arguments do not fit together.

    Example:
        >>> import keras_attn
        >>> from keras import ops
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 8, pattern="causal")
        >>> layer(ops.ones((3, 5, 16)), ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: biases in the projections, as Keras has them (`use_bias=False`).

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.2; shared
        key-value heads: [Ainslie et al., 2023](https://arxiv.org/abs/2305.13245), section 2.2.
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        *,
        score="scaled_dot",
        pattern="dense",
        position=None,
        num_key_value_heads=None,
        use_bias=True,
        dropout=0.0,
        output_shape=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        implementation="auto",
        seed=None,
        output_initializer=None,
        **kwargs,
    ):
        score = scores.get(score, dtype=kwargs.get("dtype"))
        super().__init__(
            num_heads,
            key_dim,
            value_dim,
            num_key_value_heads=num_key_value_heads,
            use_bias=use_bias,
            output_shape=output_shape,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            output_initializer=output_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            shares_query=getattr(score, "shares_query", False),
            **kwargs,
        )
        check_rates(dropout=dropout)
        check_choice(("auto", "dense", "blockwise"), implementation=implementation)
        self.score = score
        self.pattern = patterns.get(pattern)
        self.pattern.check_score(self.score)
        if position is not None:
            position = positions.get_of_heads(position, dtype=kwargs.get("dtype"))
        self.position = position
        self.dropout = dropout
        self.implementation = implementation
        self.seed = seed
        if dropout or self.pattern.is_random:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True

    def build(self, query_shape, value_shape=None, key_shape=None):
        heads, key_shape = self.num_heads, key_shape or value_shape or query_shape
        super().build(query_shape, value_shape, key_shape)
        if isinstance(self.score, keras.layers.Layer):
            per_head = [(None, heads, shape[1], self.key_dim) for shape in (query_shape, key_shape)]
            registry.build_once(self.score, *per_head)
        if isinstance(self.pattern, keras.layers.Layer):
            registry.build_once(
                self.pattern, (None, heads, query_shape[1], self.key_dim), query_shape
            )
        if self.position is not None:
            registry.build_once(self.position, (None, heads, query_shape[1], self.key_dim))

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        *,
        query_positions=None,
        key_positions=None,
        cache=None,
    ):
        if cache is not None:
            # `Layer.__call__` fills in Keras's masks of the new values: a cache needs all slots'.
            value_mask = None if value_mask is keras_mask(value) else value_mask
            key_mask = None if key_mask is keras_mask(key) else key_mask
        self._check_inputs(query, value, key, cache)
        inputs, given = query, (query_positions, key_positions)
        query, key, value = self._heads(query, key, value, decoding=cache is not None)
        if self.position is not None:
            query, key = self._at_positions(query, key, cache, *given)
        pattern, read = self._with_causal(use_causal_mask), None
        if cache is not None:
            cache, read = read_cache(cache, key, value, pattern, *given)
            key, value = read.key, read.value
            value_mask = read.cut(value_mask, "value_mask")
            key_mask = read.cut(key_mask, "key_mask")
            attention_mask = read.cut(attention_mask, "attention_mask")
        if self.num_key_value_heads < self.num_heads:
            repeats = self.num_heads // self.num_key_value_heads
            key, value = ops.repeat(key, repeats, axis=1), ops.repeat(value, repeats, axis=1)
        operands = AttentionInputs(
            *(query, key, value),
            *self._positions(query, key, query_positions, key_positions, read),
            self.score,
            real=combine_masks(
                spread_padding_mask(value_mask, query.shape[0], key.shape[2], "value_mask"),
                spread_padding_mask(key_mask, query.shape[0], key.shape[2], "key_mask"),
            ),
            inputs=inputs,
        )
        if training and (self.dropout or pattern.is_random):
            drop = self._drop if self.dropout else None
            operands = operands.replace(drop=drop, seed=self.seed_generator.next())
        scores = None
        # One query at the last position, as in decoding, may meet all: a mask would cost more than
        # the products.
        if query.shape[2] == 1 and given == (None, None) and isinstance(pattern, Causal):
            pattern = Dense()
        is_free = all(x is None for x in (cache, attention_mask, query_positions, key_positions))
        planned = is_free and self._has_plan(pattern, query.shape[2], key.shape[2])
        is_fused = self.implementation == "auto" and cache is None
        if is_fused and fuses(operands, pattern, attention_mask, planned):
            output = attend_fused(operands, pattern, attention_mask)
        elif planned:
            output, _ = pattern.attend(operands)
        else:
            output, scores = self._attend_by_matrix(operands, pattern, attention_mask, read)
        if return_attention_scores and scores is None:
            again = operands.replace(again=True)
            _, scores = self._attend_by_matrix(again, pattern, attention_mask)
        output = self._multiply(merge_heads(output), "output")  # (B, T, D)
        if query_mask is not None:
            attach_keras_mask(output, query_mask, "query_mask")
        results = [output]
        if return_attention_scores:
            results.append(scores if read is None else read.spread(scores))
        if cache is not None:
            results.append(cache)
        return results[0] if len(results) == 1 else tuple(results)

    def _at_positions(self, query, key, cache, *given):
        """Queries and new keys with their positions in them, as kept keys have theirs."""
        query_positions, key_positions = resolve_positions(query, key, cache, *given)
        placed = self.position(query, query_positions)
        if key is query and all(x is None for x in given):  # stays one tensor
            return placed, placed
        return placed, key if key_positions is None else self.position(key, key_positions)

    def _positions(self, query, key, query_positions, key_positions, read):
        """Where queries and keys stand: as given, or one after the other up to the last."""
        length, num_keys = query.shape[2], key.shape[2]
        if key_positions is None:
            key_positions = PositionRange(0, size(key, 2)) if read is None else read.positions
        else:
            key_positions = check_positions(
                key_positions, "key_positions", query.shape[0], num_keys
            )
        if query_positions is None:
            steps = size(query, 2)
            end = size(key, 2) if read is None else read.end
            query_positions = PositionRange(end - steps, steps)
        else:
            query_positions = check_positions(
                query_positions, "query_positions", query.shape[0], length
            )
        return query_positions, key_positions

    def _with_causal(self, use_causal_mask):
        if not use_causal_mask or self.pattern.causal:
            return self.pattern
        return Causal() if isinstance(self.pattern, Dense) else self.pattern & Causal()

    def _has_plan(self, pattern, length, num_keys):
        """Whether to compute by the pattern's plan."""
        if None not in (length, num_keys) and length > num_keys and not isinstance(pattern, Dense):
            return False  # the first queries would stand before all keys
        if self.implementation != "auto":
            return self.implementation == "blockwise"
        return pattern.prefers_blockwise(length, num_keys)

    def _attend_by_matrix(self, operands, pattern, attention_mask=None, read=None):
        """The output and the whole matrix of scores (B, N, T, S)."""
        present = None if read is None else read.present
        mask, bias = mask_and_bias(operands, pattern, attention_mask, present)
        logits = self.score(
            operands.query,
            operands.key,
            query_positions=operands.query_positions,
            key_positions=operands.key_positions,
        )
        if bias is not None:
            logits = ops.cast(logits, "float32") + bias
        return attend(logits, operands.value, mask, operands.drop_by(operands.seed))

    def context_cache(self, value, key=None, key_positions=None):
        """A complete cache of `value` (B, S, D), for attending to it in many calls.

        With a `position` keys are kept at `key_positions` (S,) or (B, S), by default 0 .. S-1.
        """
        if key is None:
            key, value = self._project(value, "key", "value")
        else:
            (key,), (value,) = self._project(key, "key"), self._project(value, "value")
        if self.position is not None:
            key = self.position(key, key_positions)
        return {"key": key, "value": value}

    def _check_inputs(self, query, value, key, cache):
        check_shape(query, "query", (None, None, self.query_kernel.shape[0]))
        if cache is not None:
            check_cache(cache, self.num_key_value_heads, self.key_dim, self.value_dim)
        if value is not None:
            check_shape(value, "value", (query.shape[0], None, self.value_kernel.shape[0]))
            key = value if key is None else key
            check_shape(key, "key", (*value.shape[:2], self._kernel("key").shape[0]))
        elif cache is None or "index" in cache:
            raise ValueError(
                "`value` may be left out only with a complete cache; for self-attention call the "
                "layer with `(x, x)`. Received: value=None, "
                f"{'no cache' if cache is None else 'a cache to be extended'}."
            )

    def _drop(self, weights, seed):
        return keras.random.dropout(weights, self.dropout, seed=RepeatedSeed(seed))

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        *,
        cache=None,
        **positions,
    ):
        if cache is not None:
            return super().compute_output_spec(
                query,
                value,
                key,
                query_mask,
                value_mask,
                key_mask,
                attention_mask,
                return_attention_scores,
                training,
                use_causal_mask,
                cache=cache,
                **positions,
            )
        shape = (*query.shape[:-1], self._output_shape or query.shape[-1])
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        scores_shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        return output, keras.KerasTensor(scores_shape, dtype="float32")

    def get_config(self):
        return {
            **super().get_config(),
            "score": registry.serialize(self.score),
            "pattern": registry.serialize(self.pattern),
            "position": registry.serialize(self.position),
            "dropout": self.dropout,
            "implementation": self.implementation,
            "seed": self.seed,
        }
