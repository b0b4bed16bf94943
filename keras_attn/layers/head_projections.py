"""The projections of multi-head attention."""

import math

import keras
from keras import ops

from keras_attn import norms, positions, registry
from keras_attn.attention.cache import check_cache
from keras_attn.attention.inputs import positions_tensor
from keras_attn.backend.loop_invariants import in_loop_invariants, loop_invariant
from keras_attn.initializers import MatrixInitializer, redraw
from keras_attn.layers.low_rank import LowRankKernels
from keras_attn.ops.checks import check_choice, check_shape, check_sizes
from keras_attn.ops.shapes import flatten_rows, merge_heads, rows_to_heads, rows_to_sequence


class HeadProjections(LowRankKernels):
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
        "query_kernel": (None, "model"),
        "query_bias": ("model",),
        "key_kernel": (None, "model"),
        "key_bias": ("model",),
        "gate_kernel": (None, "model"),
        "gate_bias": ("model",),
        "value_kernel": (None, "model"),
        "value_bias": ("model",),
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
        sizes = ("num_heads", "key_dim", "value_dim", "num_key_value_heads")
        check_sizes(**{name: getattr(self, name) for name in sizes})
        if output_shape is not None:
            check_sizes(output_shape=output_shape)
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
        self.qk_norm = self.key_norm = None
        if qk_norm is not None:
            self.qk_norm = registry.copy(norms.get(qk_norm, dtype=self.dtype_policy))
            # Shared keys are normalised with the queries.
            self.key_norm = None if shares_query else registry.copy(self.qk_norm)

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = value_shape or query_shape
        key_shape = key_shape or value_shape
        heads, shared = self.num_heads, self.num_key_value_heads
        self._add_projection("query", query_shape[-1:], (heads, self.key_dim))
        if not self.shares_query:
            self._add_projection("key", key_shape[-1:], (shared, self.key_dim))
        outputs = heads // self.heads_per_value, self.value_dim
        if self.use_gate:
            self._add_projection("gate", query_shape[-1:], outputs)
        values = shared // self.heads_per_value, self.value_dim
        self._add_projection("value", value_shape[-1:], values)
        self._add_projection("output", outputs, (self.output_shape or query_shape[-1],))
        if self.position is not None:
            registry.build_once(self.position, (None, heads, query_shape[1], self.key_dim))
        counts = self.num_heads, self.num_key_value_heads
        for norm, count in zip((self.qk_norm, self.key_norm), counts, strict=True):
            if norm is not None:
                width = self.key_dim * (1 if self.qk_norm_axis == "head" else count)
                registry.build_once(norm, (None, None, width))

    def _add_projection(self, name, inputs, outputs):
        """Add the kernel and the bias of a projection from axes `inputs` to axes `outputs`."""
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

    def derived_defaults(self):
        return {"value_dim": self.key_dim, "num_key_value_heads": self.num_heads}

    def get_config(self):
        config = super().get_config()
        if self.qk_norm is not None:  # built with the layer, whose copy makes its own
            config["qk_norm"] = registry.serialize(registry.copy(self.qk_norm))
        return config

    def project_inputs(self, query, key, value, decoding):
        """Project to heads (B, N, T, H): queries, keys and values; None stays None."""
        if value is None:
            return *self.project(query, "query"), None, None
        key = value if key is None else key
        # Decoding would join the kernels at each step, which costs more than separate products.
        joins = not decoding or in_loop_invariants()
        if self.shares_query and key is query:
            # Queries and keys are one tensor: plans compute what they need of both once.
            if query is value and joins:
                query, value = self.project(query, "query", "value")
            else:
                (query,), (value,) = self.project(query, "query"), self.project(value, "value")
            return query, query, value
        if key is value and joins:
            if query is value:
                return self.project(query, "query", "key", "value")
            return *self.project(query, "query"), *self.project(value, "key", "value")
        return (
            *self.project(query, "query"),
            *self.project(key, "key"),
            *self.project(value, "value"),
        )

    def project(self, x, *names):
        """Project x (B, T, D) to heads (B, N, T, H), once for each name, in one product."""
        heads = [self.kernel_axes(name)[1] for name in names]  # (N, H)
        found = rows_to_heads(self._multiply(x, *names), heads, like=x)
        if self.qk_norm is None:
            return found
        norms_of = {"query": self.qk_norm, "key": self.key_norm or self.qk_norm}
        pairs = zip(names, found, strict=True)
        return [self._normalize(x, norms_of[name]) if name in norms_of else x for name, x in pairs]

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
        if key is None:
            key, value = self.project(value, "key", "value")
        else:
            (key,), (value,) = self.project(key, "key"), self.project(value, "value")
        if self.position is not None:
            key = self.position(key, key_positions)
        return {"key": key, "value": value}

    def check_inputs(self, query, value, key, cache):
        """Refuse tensors of a call that do not fit the kernels or each other."""
        (key_width,), _ = self.kernel_axes("key")
        length = () if cache is not None and len(query.shape) == 2 else (None,)
        check_shape(query, "query", (None, *length, self.query_kernel.shape[0]))
        if cache is not None:
            check_cache(cache, self.num_key_value_heads, self.key_dim, self.value_dim)
        if value is not None:
            check_shape(value, "value", (query.shape[0], *length, self.value_kernel.shape[0]))
            key = value if key is None else key
            check_shape(key, "key", (*value.shape[:-1], key_width))
        elif cache is None or "index" in cache:
            raise ValueError(
                "`value` may be None only with a complete cache; for self-attention call the "
                "layer with `(x, x)`. Received: value=None, "
                f"{'no cache' if cache is None else 'a cache to be extended'}."
            )

    def project_output(self, x, query):
        """Project merged heads, rows x (B * T, N * H), which the layer made of `query`.

        A gate of `query` scales them before. Return (B, T, D), or (B, D) for a `query` (B, D).
        """
        if self.use_gate:
            x = x * ops.sigmoid(self._multiply(query, "gate"))
        return rows_to_sequence(self._multiply(x, "output"), like=query)

    def query_scale(self):
        """Return the factor that the kernel of the queries has in a loop; None for none.

        A step then has no queries to scale.
        """
        return None

    def _multiply(self, x, *names):
        """Multiply rows (B * T, D) by the joined kernels as one matrix, and add the biases."""
        kernel, bias = loop_invariant(self, names, lambda: self._join(names, x))
        y = ops.matmul(flatten_rows(x)[0], kernel)
        return y if bias is None else ops.add(y, bias)

    def _join(self, names, x):
        """Return the kernels for x as one matrix, and the biases, in the layer's compute dtype.

        The columns of several kernels are in the groups of heads that `rows_to_heads` cuts: where
        devices hold the heads of a model, each joins those that it has.
        """
        several = len(names) > 1
        heads = (self.kernel_axes(name)[1][0] for name in names) if several else ()
        groups = math.gcd(*heads) or 1
        scales = {"query": self.query_scale()}

        def part(name, kind, rows):
            weight = self.kernel_of(name, kind)
            if weight.shape[:-1] != (*rows, groups):
                weight = ops.reshape(weight, (*rows, groups, -1))
            return weight if scales.get(name) is None else weight * scales[name]

        def join(kind, *rows):
            parts = [part(name, kind, rows) for name in names]
            joined = ops.concatenate(parts, axis=-1) if several else parts[0]
            return ops.cast(ops.reshape(joined, (*rows, -1)), self.compute_dtype)

        return join("kernel", x.shape[-1]), join("bias") if self.use_bias else None

    def kernel_of(self, name, kind="kernel"):
        """Return the kernel or bias of a projection; that of queries for shared keys."""
        name = self._owner(name)
        weight = getattr(self, f"{name}_{kind}")
        return self.updated(name, weight) if kind == "kernel" and name in self.updates else weight

    def _owner(self, name):
        """Return the name of the projection whose weights a projection has."""
        return "query" if name == "key" and self.shares_query else name

    def kernel_names(self):
        """Return the names of the projections that have a kernel of their own."""
        names = ("query", "key", "gate", "value", "output")
        return [name for name in names if hasattr(self, f"{name}_kernel")]

    def kernel_axes(self, name):
        """Return the input axes and the output axes of a kernel."""
        shape = tuple(getattr(self, f"{self._owner(name)}_kernel").shape)
        inputs = 2 if name == "output" else 1
        return shape[:inputs], shape[inputs:]
