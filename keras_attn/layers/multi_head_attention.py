"""Multi-head attention with any score and any pattern."""

import inspect

import keras
from keras import backend

from keras_attn import patterns, registry, scores
from keras_attn.attention import captures
from keras_attn.attention.cache import check_cache_arguments, read_cache
from keras_attn.attention.inputs import (
    NO_POSITIONS,
    AttentionInputs,
    TileSizes,
    resolve_positions,
)
from keras_attn.attention.linear import extend_sums
from keras_attn.attention.masks import attach_keras_mask, keras_mask, spread_masks
from keras_attn.attention.segments import Segments
from keras_attn.backend.loop_invariants import in_loop_invariants
from keras_attn.layers.attention_plans import (
    PLANS,
    PLANS_WITH_SINKS,
    choose,
    of_last_query,
    reads_positions,
)
from keras_attn.layers.head_projections import HeadProjections
from keras_attn.ops.checks import check_choice, check_given, check_rates
from keras_attn.ops.random import RepeatedSeed
from keras_attn.ops.shapes import merge_heads
from keras_attn.patterns.causal import make_causal

UNSCALED = scores.DotProduct(scaled=False)


@registry.register
class MultiHeadAttention(HeadProjections):
    """Attention with several heads, each with projections, score and pattern of its own.

        head_n = softmax(score(X W_q, Y W_k) over allowed keys) Y W_v,   out = [head_1 ...] W_o

    Takes the weights of `keras.layers.MultiHeadAttention` in their order and shapes. Masks are
    boolean, True = may attend; a query with nothing to attend gets exactly zero attention, so only
    the output bias remains. Logits, softmax and weights are float32 under any dtype policy, float64
    under that of float64. Returning scores does not change the output.

    Attention is computed either from the whole matrix of scores, in O(T S N H) time and O(N T S)
    memory, or by the pattern's plan. A plan leaves out what the pattern forbids and keeps one tile
    of scores at a time, at the cost that the pattern's class names. A `KernelScore` takes linear
    time under `Dense` and `Causal`. The projections take O(T D N H).

    Args:
        num_heads: int. Number of heads N.
        key_dim: int. Size H of each head's queries and keys.
        value_dim: int. Size of each head's values; by default `key_dim`.
        score: name or object of the score axis.
        pattern: name or object of the pattern axis.
        position: name or object of the position axis that works on heads ("rotary"), applied to
            each head's queries and keys; by default none.
        qk_norm: name or object of the norm axis, copies of which normalise queries and keys before
            their position; by default none. Logits then keep their scale at a high learning rate.
        qk_norm_axis: "head" to normalise each head with one gain (H,) for all, or "heads" to
            normalise those of a position together, with a gain (N H,).
        sinks: bool. If True, each head learns a logit s beside those of the keys, so that a query
            may attend to little: weight_j = exp(z_j) / (exp(s) + sum of exp(z)). No key has it,
            unlike the first keys of `patterns.Sinks`.
        use_gate: bool. If True, the heads' outputs are multiplied by sigmoid(X W_g + b_g).
        num_key_value_heads: int. Heads of keys and values, each shared by equally many heads of
            queries; by default N.
        dropout: float. Dropout rate of the attention weights.
        output_shape: int. Size of the output; by default that of `query`.
        implementation: "dense" for the whole matrix of scores, "blockwise" for the pattern's plan,
            or "auto" for the plan where it computes fewer scores or needs much less memory. Calls
            with positions, an `attention_mask` or a cache of keys always take the matrix. With
            "auto", on JAX and a GPU, in half precision, `keras.ops.dot_product_attention` replaces
            both where it gives the same to the rounding of the dtype.
        seed: int. Seed of the dropout.
        use_bias: bool. If True, all projections have biases.
        kernel_initializer: of the projections. Each is drawn as the matrix that it is: Keras's own
            layer draws a (D, N, H) kernel as if it were a convolution's, several times too narrow.
        query_initializer, key_initializer, value_initializer, output_initializer: of one
            projection; by default `kernel_initializer`. Two with one integer seed draw the same.
        bias_initializer, kernel_regularizer, bias_regularizer, kernel_constraint, bias_constraint:
            of each projection.

    Call arguments:
        query: (B, T, D); with a cache also (B, D), for one position.
        value: (B, S, D), or as `query` (B, D). None only with a complete cache.
        key: (B, S, D); by default `value`.
        query_mask: bool (B, T), by default Keras's mask of `query`. It changes no number and
            becomes the Keras mask of the output.
        value_mask, key_mask: bool (B, S), True where a key is real; a key must be real by both. By
            default Keras's masks of `value` and `key`; without them with a cache.
        attention_mask: bool, broadcastable to (B, N, T, S); three axes are (B, T, S).
        segment_ids: int (B, S), for packed rows, in which queries attend to keys of their own
            document only. A run of equal ids is a document, in which positions count from 0; an id
            of 0 is padding. The queries are the last T of S tokens, or the new ones in a cache.
        query_positions: int (T,) or (B, T); by default the last T of S positions.
        key_positions: int (S,) or (B, S); by default 0 .. S-1.
        use_causal_mask: bool. Same as `pattern & Causal()`, by positions: T queries are the last of
            S keys, where Keras's layer takes them for the first.
        cache: dict from `keras_attn.memory.KVCache`. One with an `"index"` is extended by the T
            new keys and values, and S counts its slots; one without is complete and only read.
        return_attention_scores: bool. They are a matrix: what a plan saves is lost.

    Returns:
        (B, T, output_shape); then, if asked for, the scores (B, N, T, S) float32, whose rows sum to
        1, to less with `sinks`, or to 0 where nothing may be attended; then, with `cache`, the new
        cache.

    Raises:
        ValueError: if a size is below 1, `num_heads` is not a multiple of `num_key_value_heads`,
            `dropout` is outside [0, 1), a mask is not boolean, or the shapes of the call's
            arguments do not fit together.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 8, pattern="causal")
        >>> layer(keras.ops.ones((3, 5, 16)), keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: biases in the projections, as Keras has them (`use_bias=False`).

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.2; shared
        key-value heads: [Ainslie et al., 2023](https://arxiv.org/abs/2305.13245), section 2.2;
        norms: [Henry et al., 2020](https://arxiv.org/abs/2010.04245), section 2.2,
        [OLMo et al., 2025](https://arxiv.org/abs/2501.00656), section 2.1;
        sinks: [OpenAI, 2025](https://arxiv.org/abs/2508.10925), section 2.2;
        gate: [Qiu et al., 2025](https://arxiv.org/abs/2505.06708), section 2.2.
    """

    # Sizes of the tiles of blockwise attention.
    tile_sizes = TileSizes()
    decided_arguments = ("shares_query",)  # by the score
    sink_logits = None
    weight_axes = {**HeadProjections.weight_axes, "sinks": ("model",)}

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        *,
        score="scaled_dot",
        pattern="dense",
        position=None,
        qk_norm=None,
        qk_norm_axis="head",
        sinks=False,
        use_gate=False,
        num_key_value_heads=None,
        dropout=0.0,
        output_shape=None,
        implementation="auto",
        seed=None,
        **kwargs,
    ):
        score = scores.get(score, dtype=kwargs.get("dtype"))
        super().__init__(
            *(num_heads, key_dim, value_dim),
            shares_query=score.shares_query,
            position=position,
            qk_norm=qk_norm,
            qk_norm_axis=qk_norm_axis,
            use_gate=use_gate,
            num_key_value_heads=num_key_value_heads,
            output_shape=output_shape,
            **kwargs,
        )
        check_rates(dropout=dropout)
        check_choice(("auto", "dense", "blockwise"), implementation=implementation)
        self.score = score
        self.pattern = patterns.get(pattern)
        self.pattern.check_score(self.score)
        self.sinks = bool(sinks)
        if self.shares_query and self.num_key_value_heads != num_heads:
            raise ValueError(
                "A score that shares queries and keys needs as many heads of both. Received: "
                f"num_heads={num_heads}, num_key_value_heads={num_key_value_heads}."
            )
        self.dropout = dropout
        self.implementation = implementation
        self.seed = seed
        if dropout or self.pattern.is_random:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, query_shape=None, value_shape=None, key_shape=None):
        check_given(query=query_shape)
        super().build(query_shape, value_shape, key_shape)
        key_shape = key_shape or value_shape or query_shape
        of_queries = None, self.num_heads, query_shape[1], self.key_dim
        of_keys = None, self.num_heads, key_shape[1], self.key_dim
        self.score.build_for(of_queries, of_keys)
        self.pattern.build_for(of_queries, query_shape)
        if self.sinks:
            small = keras.initializers.RandomNormal(stddev=0.02)
            self.sink_logits = self.add_weight((self.num_heads,), small, name="sinks")

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        *,
        segment_ids=None,
        query_positions=None,
        key_positions=None,
        cache=None,
    ):
        pattern = make_causal(self.pattern) if use_causal_mask else self.pattern
        positions, segments = (query_positions, key_positions), None
        masks = {"value_mask": value_mask, "key_mask": key_mask, "attention_mask": attention_mask}
        self.check_inputs(query, value, key, cache)
        if segment_ids is not None:
            segments = Segments.of_call(segment_ids, query, value, cache, positions)
            positions = segments.positions
        given = query, value, key, pattern, masks, positions, cache, training
        inputs, view, cache = self._prepare(*given)
        if segments is not None:
            inputs = segments.restrict(inputs)
        plan, pattern = choose(self, inputs, pattern, view, positions)
        output, scores = self._attend(plan, inputs, pattern)
        results = [self._finish(output, query, query_mask)]
        found = scores, inputs, pattern, view
        if captures.thread.record is not None:
            captures.thread.record(self, inputs, lambda: self._scores(*found))
        if return_attention_scores:
            results.append(self._scores(*found))
        if cache is not None:
            results.append(cache)
        return results[0] if len(results) == 1 else tuple(results)

    def _scores(self, scores, inputs, pattern, view):
        """Return the scores of a plan, or those that it left out, for all slots of a cache."""
        if scores is None:
            _, scores = self._attend("dense", inputs.replace(is_recompute=True), pattern)
        return scores if view is None else view.scatter_scores(scores)

    def _prepare(self, query, value, key, pattern, masks, positions, cache, training):
        """Project to heads, and resolve positions, masks and cache.

        Returns:
            `AttentionInputs`; the `CacheView` and the new cache, None without a cache.
        """
        if cache is not None:
            check_cache_arguments(cache, pattern, self.score, positions, masks)
            # `Layer.__call__` fills in Keras's masks of the new values: a cache needs all slots'.
            for name, x in (("value_mask", value), ("key_mask", key)):
                if masks[name] is not None and masks[name] is keras_mask(x):
                    masks[name] = None
        has_masks = any(mask is not None for mask in masks.values())
        layer_input = query
        query, key, value = self.project_inputs(query, key, value, decoding=cache is not None)
        if cache is not None:
            pattern = of_last_query(pattern, query, positions == (None, None))
        is_read = reads_positions(self, pattern, positions, cache)
        resolved = NO_POSITIONS
        if is_read:
            reads_new = self.position is not None
            resolved = resolve_positions(query, key, cache, *positions, reads_new)
        if self.position is not None:
            query, key = self.apply_position(query, key, resolved)
        view, slot_mask = None, None
        if cache is not None:
            cache, view = read_cache(cache, key, value, pattern, *positions)
            key, value, slot_mask = view.key, view.value, view.slot_mask
            if has_masks:
                masks = {name: view.select_columns(mask, name) for name, mask in masks.items()}
        key_positions = resolved.key
        if key_positions is None and is_read:
            key_positions = resolved.new_key if view is None else view.key_positions()
        if self.num_key_value_heads < self.num_heads:
            key, value = self.repeat_heads(key, value)
        score = self.score if self.query_scale() is None else UNSCALED
        dropout_fn = seed = None
        key_mask, attention_mask = spread_masks(query, key, **masks) if has_masks else (None, None)
        if training and (self.dropout or pattern.is_random):
            dropout_fn = self._drop if self.dropout else None
            seed = self.seed_generator.next()
        inputs = AttentionInputs(
            *(query, key, value, resolved.query, key_positions, score),
            key_mask=key_mask,
            dropout_fn=dropout_fn,
            seed=seed,
            layer_input=layer_input,
            position=self.position,
            attention_mask=attention_mask,
            slot_mask=slot_mask,
            sums=None if view is None else view.sums,
            sinks=self.sink_logits,
            tile_sizes=self.tile_sizes,
        )
        return inputs, view, cache if inputs.sums is None else extend_sums(cache, inputs)

    @property
    def takes_rows(self):
        """True if a query with a cache may be (B, D): patterns with weights read (B, T, D)."""
        return self.pattern.is_of_positions

    def query_scale(self):
        is_changed = self.position is not None or self.qk_norm is not None
        if is_changed or not in_loop_invariants():
            return None
        return self.score.kernel_scale(self.key_dim)

    def _attend(self, plan, inputs, pattern):
        """Return the heads (B, N, T, Hv) by one of `PLANS`, and the scores or None."""
        plans = PLANS if self.sink_logits is None else PLANS_WITH_SINKS
        return plans[plan](inputs, pattern)

    def _finish(self, output, query, query_mask):
        """Merge the heads, project them, and pass the mask of the queries on."""
        output = self.project_output(merge_heads(output), query)  # (B, T, D) or (B, D)
        if query_mask is not None:
            attach_keras_mask(output, query_mask, "query_mask")
        return output

    def _drop(self, weights, seed):
        return keras.random.dropout(weights, self.dropout, seed=RepeatedSeed(seed))

    def compute_output_spec(self, *args, **kwargs):
        given = inspect.signature(self.call).bind(*args, **kwargs).arguments
        if given.get("cache") is not None:
            return super().compute_output_spec(*args, **kwargs)
        query, value = given["query"], given.get("value")
        self.check_inputs(query, value, given.get("key"), None)
        shape = (*query.shape[:-1], self.output_shape or query.shape[-1])
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not given.get("return_attention_scores"):
            return output
        shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        return output, keras.KerasTensor(shape, backend.result_type(self.compute_dtype, "float32"))
