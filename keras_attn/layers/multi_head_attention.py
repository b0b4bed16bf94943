"""Multi-head attention with any score and any pattern: projections, preparation, computation."""

import inspect
import math

import keras
from keras import backend, ops

from keras_attn import norms, patterns, positions, registry, scores
from keras_attn.attention import captures, fused
from keras_attn.attention.cache import check_cache, check_cache_arguments, read_cache
from keras_attn.attention.inputs import (
    NO_POSITIONS,
    AttentionCall,
    AttentionInputs,
    Prepared,
    TileSizes,
    attach_keras_mask,
    masks_of_call,
    positions_tensor,
    resolve_positions,
)
from keras_attn.attention.linear import attend_linear, can_attend_linear, extend_sums
from keras_attn.attention.segments import Segments
from keras_attn.attention.softmax import attend_dense, attend_dense_with_sinks, share_of_keys
from keras_attn.backend.loop_invariants import loop_invariant, loop_scope, weights_invariant
from keras_attn.initializers import MatrixInitializer, redraw
from keras_attn.low_rank_kernels import LowRankKernels
from keras_attn.ops.checks import check_choice, check_given, check_rates, check_shape, check_sizes
from keras_attn.ops.random import RepeatedSeed, replica_seed
from keras_attn.ops.shapes import as_axes, merge_heads, rows_to_heads, rows_to_sequence
from keras_attn.patterns.causal import make_causal

DENSE = patterns.Dense()
SHORTEST_BLOCKWISE = 512  # keys; with fewer the whole matrix is faster
UNSCALED = scores.DotProduct(scaled=False)


class HeadProjections(LowRankKernels, registry.KernelLayer):
    """Projections of queries, keys and values to heads, and of heads to the output.

        Q = X W_q + b_q,   K = Y W_k + b_k,   V = Y W_v + b_v,   out = [head_1 ...] W_o + b_o

    If the layer has them, a norm, then a position are applied to each head's queries and keys, and
    a gate to the heads. Kernels have the shapes and the order of `keras.layers.MultiHeadAttention`.
    Projections of the same tensor are one product. Time O(T D N H).
    """

    # Number of heads of queries, and of keys, that share a head of values.
    heads_per_value = 1
    query_bias = key_bias = gate_bias = value_bias = output_bias = None
    weight_axes = {
        **{f"{name}_kernel": (None, "model") for name in ("query", "key", "gate", "value")},
        **{f"{name}_bias": ("model",) for name in ("query", "key", "gate", "value")},
        "output_kernel": ("model",),
        "output_bias": (),
    }

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        *,
        shares_query=False,  # True if keys are projected by the kernel of the queries
        position=None,
        qk_norm=None,
        qk_norm_axis="head",
        use_gate=False,
        num_key_value_heads=None,
        output_shape=None,
        query_initializer=None,
        key_initializer=None,
        value_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.query_initializer = keras.initializers.get(query_initializer)
        self.key_initializer = keras.initializers.get(key_initializer)
        self.value_initializer = keras.initializers.get(value_initializer)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = key_dim if value_dim is None else value_dim
        self.num_key_value_heads = num_heads if num_key_value_heads is None else num_key_value_heads
        check_sizes(num_heads=num_heads, key_dim=key_dim, value_dim=self.value_dim)
        check_sizes(num_key_value_heads=self.num_key_value_heads)
        for size in as_axes(output_shape):
            check_sizes(output_shape=size)
        if num_heads % self.num_key_value_heads:
            raise ValueError(
                "`num_heads` must be a multiple of `num_key_value_heads`. Received: "
                f"num_heads={num_heads}, num_key_value_heads={num_key_value_heads}."
            )
        self.output_shape = output_shape
        self.shares_query = shares_query
        if position is not None:
            position = positions.get_for_heads(position, dtype=self.dtype_policy)
        self.position = position
        self.use_gate = bool(use_gate)
        check_choice(("head", "heads"), qk_norm_axis=qk_norm_axis)
        self.qk_norm_axis = qk_norm_axis
        # By projection: the axes of the inputs and of the outputs of its kernel, set by `build`.
        self.axes = {}
        self.qk_norm = self.key_norm = None
        if qk_norm is not None:
            self.qk_norm = registry.copy(norms.get(qk_norm, dtype=self.dtype_policy))
            # Shared keys are normalised with the queries.
            self.key_norm = None if shares_query else registry.copy(self.qk_norm)

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = value_shape or query_shape
        key_shape = key_shape or value_shape
        heads, shared = self.num_heads, self.num_key_value_heads
        outputs = heads // self.heads_per_value, self.value_dim
        self._add_projection("query", query_shape[-1:], (heads, self.key_dim))
        if self.shares_query:
            self.axes["key"] = self.axes["query"]
        else:
            self._add_projection("key", key_shape[-1:], (shared, self.key_dim))
        if self.use_gate:
            self._add_projection("gate", query_shape[-1:], outputs)
        values = shared // self.heads_per_value, self.value_dim
        self._add_projection("value", value_shape[-1:], values)
        self._add_projection("output", outputs, as_axes(self.output_shape) or query_shape[-1:])
        if self.position is not None:
            registry.build_once(self.position, (None, heads, query_shape[1], self.key_dim))
        for norm, count in ((self.qk_norm, heads), (self.key_norm, shared)):
            if norm is not None:
                width = self.key_dim * (1 if self.qk_norm_axis == "head" else count)
                registry.build_once(norm, (None, None, width))

    def _add_projection(self, name, inputs, outputs):
        """Add the kernel and the bias of a projection from axes `inputs` to axes `outputs`."""
        self.axes[name] = tuple(inputs), tuple(outputs)
        initializer = getattr(self, f"{name}_initializer", None)
        shape = math.prod(inputs), math.prod(outputs)
        matrix = MatrixInitializer(initializer or self.kernel_initializer, shape)

        def add(kind, shape, initializer):
            names = "regularizer", "constraint"
            options = {option: getattr(self, f"{kind}_{option}") for option in names}
            weight = self.add_weight(shape, initializer, name=f"{name}_{kind}", **options)
            setattr(self, f"{name}_{kind}", weight)

        add("kernel", (*inputs, *outputs), matrix)
        if self.use_bias:
            add("bias", outputs, redraw(self.bias_initializer))

    def kernel_axes(self, name):
        """Return the input axes and the output axes of a kernel."""
        return self.axes[name]

    def kernel_names(self):
        """Return the names of the projections that have a kernel of their own."""
        return [name for name in self.axes if name != "key" or not self.shares_query]

    def kernel_of(self, name, kind="kernel"):
        """Return the kernel or bias of a projection; that of queries for shared keys."""
        if name == "key" and self.shares_query:
            name = "query"
        if kind == "kernel" and self.quantization_mode is not None:
            return self.restored(f"{name}_kernel")
        weight = getattr(self, f"{name}_{kind}")
        return self.updated(name, weight) if kind == "kernel" and name in self.updates else weight

    def derived_defaults(self):
        return {"value_dim": self.key_dim, "num_key_value_heads": self.num_heads}

    def get_config(self):
        config = super().get_config()
        if self.qk_norm is not None:  # built with the layer, whose copy makes its own
            config["qk_norm"] = registry.serialize(registry.copy(self.qk_norm))
        return config

    def check_inputs(self, query, value, key, cache):
        """Refuse tensors of a call that do not fit the kernels or each other."""
        is_step = cache is not None and len(query.shape) == 2
        rank, length = (2, ()) if is_step else (3, (None,))
        # `check_shape` is called for what does not fit at first sight alone.
        width = self.axes["query"][0][0]
        if len(query.shape) != rank or query.shape[-1] != width:
            check_shape(query, "query", (None, *length, width))
        if cache is not None:
            check_cache(cache, self.num_key_value_heads, self.key_dim, self.value_dim)
        if value is None:
            if cache is None or "index" in cache:
                raise ValueError(
                    "`value` may be None only with a complete cache; for self-attention call the "
                    "layer with `(x, x)`. Received: value=None, "
                    f"{'no cache' if cache is None else 'a cache to be extended'}."
                )
            return
        batch, width = query.shape[0], self.axes["value"][0][0]
        if len(value.shape) != rank or (value.shape[0], value.shape[-1]) != (batch, width):
            check_shape(value, "value", (batch, *length, width))
        key, width = value if key is None else key, self.axes["key"][0][0]
        if tuple(key.shape) != (*value.shape[:-1], width):
            check_shape(key, "key", (*value.shape[:-1], width))

    def project_inputs(self, query, key, value, decoding):
        """Project to heads (B, N, T, H): queries, keys and values; None stays None."""
        if value is None:
            (query,) = self.project(query, "query")
            return query, None, None
        key = value if key is None else key
        # Steps of decoding would each join the kernels again; within a loop they are joined once.
        # Its encoder is called once: to copy a kernel costs more than a product of few rows.
        joins = decoding == (loop_scope.values is not None)
        sources, heads = {"query": query, "key": key, "value": value}, {}
        is_shared = self.shares_query and key is query
        if is_shared:  # queries and keys stay one tensor, which LSH then sorts once
            del sources["key"]
        for name, x in sources.items():
            if name not in heads:
                same = [other for other in sources if sources[other] is x] if joins else [name]
                heads |= zip(same, self.project(x, *same), strict=True)
        return heads["query"], heads["query" if is_shared else "key"], heads["value"]

    def project(self, x, *names):
        """Project x (B, T, D) to heads (B, N, T, H), once for each name, in one product."""
        sizes = [self.axes[name][1] for name in names]  # (N, H)
        heads = rows_to_heads(self._multiply(x, *names), sizes, like=x)
        if self.qk_norm is None:
            return heads
        norm_of = {"query": self.qk_norm, "key": self.key_norm or self.qk_norm}
        return [
            self._normalize(x, norm_of[name]) if name in norm_of else x
            for name, x in zip(names, heads, strict=True)
        ]

    def _normalize(self, x, norm):
        """Normalise heads (B, N, T, H): each, or all N of a position together."""
        if self.qk_norm_axis == "head":
            return norm(x)
        rows = norm(merge_heads(x))
        return rows_to_heads(rows, [(x.shape[1], x.shape[3])], like=x[:, 0])[0]

    def apply_position(self, query, key, resolved):
        """Apply the position to queries and new keys; cached keys have theirs already."""
        applied = self.position(query, positions_tensor(resolved.query))
        if key is query and resolved.query is resolved.new_key:
            return applied, applied  # stays one tensor
        if resolved.new_key is None:
            return applied, key
        return applied, self.position(key, positions_tensor(resolved.new_key))

    def repeat_heads(self, key, value):
        """Repeat shared heads of keys and values, one for each head of queries."""
        repeats = self.num_heads // self.num_key_value_heads
        return ops.repeat(key, repeats, axis=1), ops.repeat(value, repeats, axis=1)

    def context_cache(self, value, key=None, key_positions=None):
        """Return a complete cache of `value` (B, S, D), for attending to it in many calls.

        With a `position` keys are cached at `key_positions` (S,) or (B, S), by default 0 .. S-1.
        """
        if key is None and loop_scope.values is None:
            key, value = self.project(value, "key", "value")
        else:
            key = value if key is None else key
            (key,), (value,) = self.project(key, "key"), self.project(value, "value")
        if self.position is not None:
            key = self.position(key, key_positions)
        return {"key": key, "value": value}

    def project_output(self, x, query):
        """Project merged heads, rows x (B * T, N * H), which the layer made of `query`.

        A gate of `query` scales them before. Return (B, T, *D), or (B, *D) for a `query` (B, D).
        """
        if self.use_gate:
            x = x * ops.sigmoid(self._multiply(query, "gate"))
        return rows_to_sequence(self._multiply(x, "output"), query, self.axes["output"][1])

    def _multiply(self, x, *names):
        """Multiply rows (B * T, D) by the joined kernels as one matrix, and add the biases."""
        if loop_scope.values is None:
            kernel, bias = self._join(names), self._join(names, "bias")
        else:
            kernel = weights_invariant(self, names, lambda: self._join(names))
            bias = loop_invariant(self, (*names, "bias"), lambda: self._join(names, "bias"))
        rows = x if len(x.shape) == 2 else ops.reshape(x, (-1, x.shape[-1]))
        y = ops.matmul(rows, kernel)
        return y if bias is None else ops.add(y, bias)

    def _join(self, names, kind="kernel"):
        """Return the kernels as one matrix, or the biases or None, in the compute dtype.

        The columns of several kernels are interleaved by the groups of heads that `rows_to_heads`
        cuts, so that each device joins only the heads that it holds.
        """
        if kind == "bias" and not self.use_bias:
            return None
        weights = [ops.cast(self.kernel_of(name, kind), self.compute_dtype) for name in names]
        if "query" in names and self.query_scale() is not None:
            query = names.index("query")  # not by `*=`, which on torch changes the weight
            weights[query] = weights[query] * self.query_scale()
        rows = (math.prod(self.axes[names[0]][0]),) if kind == "kernel" else ()
        if len(weights) > 1:
            groups = math.gcd(*(self.axes[name][1][0] for name in names))
            weights = [ops.reshape(weight, (*rows, groups, -1)) for weight in weights]
            weights = [ops.concatenate(weights, axis=-1)]
        return ops.reshape(weights[0], (*rows, -1))


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
        output_shape: int, or a tuple for several axes; by default the width of `query`.
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
        (B, T, *output_shape); then, if asked for, the scores (B, N, T, S) float32, whose rows sum
        to 1, to less with `sinks`, or to 0 where nothing may be attended; then, with `cache`, the
        new cache.

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
            num_heads,
            key_dim,
            value_dim,
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
        self.pattern.check(score=self.score)
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
        queries = None, self.num_heads, query_shape[1], self.key_dim
        self.score.build_for(queries, (None, self.num_heads, key_shape[1], self.key_dim))
        if isinstance(self.pattern, keras.layers.Layer):
            registry.build_once(self.pattern, queries, query_shape)
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
        self.check_inputs(query, value, key, cache)
        call = AttentionCall(
            query=query,
            value=value,
            key=key,
            masks={
                "value_mask": value_mask,
                "key_mask": key_mask,
                "attention_mask": attention_mask,
            },
            use_causal_mask=use_causal_mask,
            segment_ids=segment_ids,
            query_positions=query_positions,
            key_positions=key_positions,
            cache=cache,
            training=training,
        )
        return self.run(call, query_mask, return_attention_scores)

    def run(self, call, query_mask=None, return_attention_scores=False):
        """Prepare an `AttentionCall`, choose how to attend, and finish the output."""
        prepared = choose(self, self.prepare(call))
        output, scores = self.attend(prepared)
        output = merge_heads(self.combine_heads(output))  # (B * T, N * Hv)
        output = self.project_output(output, call.query)  # (B, T, D) or (B, D)
        if query_mask is not None:
            attach_keras_mask(output, query_mask, "query_mask")
        results = [output]
        if captures.record is not None:
            captures.record(self, prepared.inputs, lambda: self._scores(prepared, scores))
        if return_attention_scores:
            results.append(self._scores(prepared, scores))
        if prepared.cache is not None:
            results.append(prepared.cache)
        return results[0] if len(results) == 1 else tuple(results)

    def prepare(self, call):
        """Project an `AttentionCall` to heads, and resolve its positions, masks and cache.

        A subclass stores its data in `own` of the `Prepared` that this returns.
        """
        cache, segments, view = call.cache, None, None
        pattern = make_causal(self.pattern) if call.use_causal_mask else self.pattern
        if call.segment_ids is not None:
            segments, call = Segments.of_call(call)
        if cache is not None:
            call = check_cache_arguments(call, pattern, self.score)
        query, key, value = self.project_inputs(call.query, call.key, call.value, cache is not None)
        if cache is not None:
            pattern = without_causal_mask(pattern, query, not call.has_positions)
        resolved, has_position = NO_POSITIONS, self.position is not None
        caller_positions = call.query_positions, call.key_positions
        reads_positions = self._reads_positions(call, pattern)
        if reads_positions:
            resolved = resolve_positions(query, key, cache, caller_positions, has_position)
        if has_position:
            query, key = self.apply_position(query, key, resolved)
        if cache is not None:
            cache, view = read_cache(cache, key, value, pattern, caller_positions)
            key, value = view.key, view.value
        key_positions = resolved.key
        if key_positions is None and reads_positions:
            key_positions = resolved.new_key if view is None else view.key_positions()
        if self.num_key_value_heads < self.num_heads:
            key, value = self.repeat_heads(key, value)
        key_mask, attention_mask = masks_of_call(call, view, query, key)
        is_ordered = not call.has_positions or segments is not None
        dropout_fn, seed = self._draw(call.training, pattern)
        inputs = AttentionInputs(
            query=query,
            key=key,
            value=value,
            query_positions=resolved.query,
            key_positions=key_positions,
            score=self.score if self.query_scale() is None else UNSCALED,
            key_mask=key_mask,
            attention_mask=attention_mask,
            dropout_fn=dropout_fn,
            seed=seed,
            tile_sizes=self.tile_sizes,
            training=call.training,
        )
        if segments is not None:
            inputs = segments.restrict(inputs)
        if pattern.simple_rule is None:
            if inputs.documents is None:  # in packed rows each document has its own positions
                pattern.check(length=query.shape[2])
                if view is None or view.slot_mask is None:  # a cache may have more slots than keys
                    pattern.check(length=key.shape[2])
            pattern = pattern.for_call(inputs, call.query, self.position)
        if view is not None and view.sums is not None:
            cache = extend_sums(cache, inputs)
        return Prepared(inputs, pattern, is_ordered, view, cache)

    def _reads_positions(self, call, pattern):
        """Return True if the call needs positions, which cost a decoding step operations."""
        has_keys = call.cache is not None and "sums" not in call.cache
        is_simple = has_keys and not call.has_positions and pattern.simple_rule == "full"
        return not is_simple or self.position is not None or self.score.uses_positions

    def attend(self, prepared):
        """Return the heads (B, N, T, Hv) of a `Prepared`, and the scores or None."""
        inputs, pattern, sinks = prepared.inputs, prepared.pattern, self.sink_logits
        if prepared.implementation == "blockwise":
            output, log_weight = pattern.plan.attend(inputs, log_weight=sinks is not None)
            if sinks is not None:
                output = output * ops.cast(share_of_keys(log_weight, sinks), output.dtype)
            return output, None
        if prepared.implementation == "linear":
            view = prepared.view
            return attend_linear(inputs, pattern, None if view is None else view.sums)
        if prepared.implementation == "fused":
            return fused.attend_fused(inputs, pattern)
        if sinks is not None:
            return attend_dense_with_sinks(inputs, pattern, sinks)
        return attend_dense(inputs, pattern)

    def combine_heads(self, heads):
        """Return the heads (B, N, T, Hv) that are projected to the output: as they are."""
        return heads

    def _scores(self, prepared, scores):
        """Return `scores`, or those that a plan left out, for all slots of a cache."""
        if scores is None:
            _, scores = self.attend(prepared.replace(implementation="dense"))
        return scores if prepared.view is None else prepared.view.scatter_scores(scores)

    @property
    def takes_rows(self):
        """True if a query with a cache may be (B, D): patterns with weights read (B, T, D)."""
        return self.pattern.is_of_positions

    def query_scale(self):
        """Return the scale that `_join` puts into the kernel of the queries in a loop, else None.

        A step then has no queries to scale: its score is `UNSCALED`.
        """
        is_changed = self.position is not None or self.qk_norm is not None
        if is_changed or loop_scope.values is None:
            return None
        return self.score.kernel_scale(self.key_dim)

    def _draw(self, training, pattern):
        """Return the dropout of a call and the seed of its random numbers; None for none."""
        if not training or not (self.dropout or pattern.is_random):
            return None, None
        return self._drop if self.dropout else None, self.seed_generator.next()

    def _drop(self, weights, seed):
        return keras.random.dropout(weights, self.dropout, seed=RepeatedSeed(replica_seed(seed)))

    def compute_output_spec(self, *args, **kwargs):
        arguments = inspect.signature(self.call).bind(*args, **kwargs).arguments
        if arguments.get("cache") is not None:
            return super().compute_output_spec(*args, **kwargs)
        query, value = arguments["query"], arguments.get("value")
        self.check_inputs(query, value, arguments.get("key"), None)
        shape = (*query.shape[:-1], *self.axes["output"][1])
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not arguments.get("return_attention_scores"):
            return output
        shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        return output, keras.KerasTensor(shape, backend.result_type(self.compute_dtype, "float32"))


def choose(layer, prepared):
    """Return a `Prepared` with the implementation and the pattern to compute.

    A cache of keys needs "dense", one of sums "linear"; an `attention_mask` and positions from the
    caller need "dense" or "fused".
    """
    inputs, view, score = prepared.inputs, prepared.view, layer.score
    has_sums = view is not None and view.sums is not None
    is_ordered = prepared.is_ordered or has_sums  # sums have no key after the query
    pattern = without_causal_mask(prepared.pattern, inputs.query, is_ordered)
    can_use_plan = is_ordered and view is None and inputs.attention_mask is None
    if inputs.documents is not None and score.uses_positions:
        # Plans have positions in the row, not in the documents.
        can_use_plan = can_use_plan and score.is_relative
    may_be_linear = score.is_linear and layer.implementation != "dense" and not layer.sinks
    if has_sums or may_be_linear and can_attend_linear(inputs, pattern, can_use_plan):
        return prepared.replace(pattern=pattern, implementation="linear")
    uses_plan = can_use_plan and prefers_plan(layer.implementation, inputs, pattern)
    implementation = "blockwise" if uses_plan else "dense"
    may_be_fused = fused.IS_POSSIBLE and layer.implementation == "auto" and not layer.sinks
    if may_be_fused and view is None and fused.can_fuse(inputs, pattern, uses_plan):
        implementation = "fused"
    return prepared.replace(pattern=pattern, implementation=implementation)


def prefers_plan(implementation, inputs, pattern):
    """Return True if a layer of this `implementation` computes such inputs by a plan."""
    length, num_keys = inputs.query.shape[2], inputs.key.shape[2]
    if None not in (length, num_keys) and length > num_keys and pattern.simple_rule != "full":
        return False  # even if asked for: the first queries precede all keys
    if implementation != "auto":
        return implementation == "blockwise"
    is_short = num_keys is not None and num_keys < SHORTEST_BLOCKWISE
    return not is_short and pattern.plan.is_faster(length, num_keys)


def without_causal_mask(pattern, query, is_ordered):
    """Return `DENSE` for one causal query at the last position, else the pattern."""
    is_last = query.shape[2] == 1 and is_ordered
    return DENSE if is_last and pattern.simple_rule == "causal" else pattern
