"""The projections of multi-head attention."""

import math

import keras
from keras import ops

from keras_attn.backend.loop_invariants import in_loop_invariants, loop_invariant
from keras_attn.initializers import MatrixInitializer, redraw
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.kernel_layer import KernelLayer
from keras_attn.ops.shapes import rows_to_heads, rows_to_sequence


class HeadProjections(KernelLayer):
    """Projections of queries, keys and values to heads, and of heads to the output.

        Q = X W_q + b_q,   K = Y W_k + b_k,   V = Y W_v + b_v,   out = [head_1 ...] W_o + b_o

    Kernels have the shapes and the order of `keras.layers.MultiHeadAttention`. Projections of the
    same tensor are one product. Time O(T D N H).
    """

    # Number of heads of queries, and of keys, that share a head of values.
    heads_per_value = 1
    # True if keys are projected by the kernel of the queries.
    shares_query = False
    query_bias = key_bias = value_bias = output_bias = None

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim,
        *,
        num_key_value_heads,
        output_shape,
        query_initializer=None,
        value_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.query_initializer = keras.initializers.get(query_initializer)
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

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = value_shape or query_shape
        key_shape = key_shape or value_shape
        heads, shared = self.num_heads, self.num_key_value_heads
        self._add_projection("query", query_shape[-1:], (heads, self.key_dim))
        if not self.shares_query:
            self._add_projection("key", key_shape[-1:], (shared, self.key_dim))
        heads, shared = heads // self.heads_per_value, shared // self.heads_per_value
        self._add_projection("value", value_shape[-1:], (shared, self.value_dim))
        width = self.output_shape or query_shape[-1]
        self._add_projection("output", (heads, self.value_dim), (width,))

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
        heads = [tuple(self.kernel_of(name).shape[1:]) for name in names]  # (N, H)
        return rows_to_heads(self._multiply(x, *names), heads, like=x)

    def project_output(self, x):
        """Project the merged heads x (B, T, N * H) to the output (B, T, D)."""
        return rows_to_sequence(self._multiply(x, "output"), like=x)

    def _multiply(self, x, *names):
        """Multiply rows (B * T, D) by the joined kernels as one matrix, and add the biases."""
        kernel, bias = loop_invariant(self, names, lambda: self._join(names, x))
        y = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel)
        return y if bias is None else ops.add(y, bias)

    def _join(self, names, x):
        """Return the kernels side by side as a matrix, and the biases, in the dtype of x."""

        def join(kind, shape):
            parts = [ops.reshape(self.kernel_of(name, kind), shape) for name in names]
            joined = parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)
            return ops.cast(joined, x.dtype)

        return join("kernel", (x.shape[-1], -1)), join("bias", (-1,)) if self.use_bias else None

    def kernel_of(self, name, kind="kernel"):
        """Return the kernel or bias of a projection; that of queries for shared keys."""
        name = "query" if name == "key" and self.shares_query else name
        return getattr(self, f"{name}_{kind}")
