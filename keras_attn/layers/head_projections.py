"""The projections of multi-head attention."""

import math

import keras
from keras import ops

from keras_attn import registry
from keras_attn.backend.loop_invariants import in_loop_invariants, loop_invariant
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import rows_to_heads, rows_to_sequence


class HeadProjections(registry.ArgumentRepr, keras.layers.Layer):
    """Projections of queries, keys and values to heads, and of heads to the output.

        Q = X W_q + b_q,   K = Y W_k + b_k,   V = Y W_v + b_v,   out = [head_1 ...] W_o + b_o

    Kernels have the shapes and the order of `keras.layers.MultiHeadAttention`. With
    `shares_query`, keys are projected as queries are. Projections of the same tensor are one
    product. Time O(T D N H).
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim,
        *,
        num_key_value_heads,
        use_bias,
        output_shape,
        kernel_initializer,
        bias_initializer,
        output_initializer,
        kernel_regularizer,
        bias_regularizer,
        kernel_constraint,
        bias_constraint,
        shares_query,
        **kwargs,
    ):
        super().__init__(**kwargs)
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
        if shares_query and self.num_key_value_heads != num_heads:
            raise ValueError(
                "A score that shares queries and keys needs as many heads of both. Received: "
                f"num_heads={num_heads}, num_key_value_heads={num_key_value_heads}."
            )
        self.use_bias = use_bias
        self._output_shape = output_shape
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self._shares_query = shares_query

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = value_shape or query_shape
        key_shape = key_shape or value_shape
        heads, shared = self.num_heads, self.num_key_value_heads
        output_shape = self._output_shape or query_shape[-1]
        self._add_projection("query", (query_shape[-1], heads, self.key_dim))
        if not self._shares_query:
            self._add_projection("key", (key_shape[-1], shared, self.key_dim))
        self._add_projection("value", (value_shape[-1], shared, self.value_dim))
        self._add_projection("output", (heads, self.value_dim, output_shape), num_input_axes=2)

    def _add_projection(self, name, shape, num_input_axes=1):
        initializer = self.kernel_initializer
        if name == "output" and self.output_initializer is not None:
            initializer = self.output_initializer
        matrix = (math.prod(shape[:num_input_axes]), math.prod(shape[num_input_axes:]))
        kernel = self.add_weight(
            shape,
            registry.MatrixInitializer(initializer, matrix),
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            name=f"{name}_kernel",
        )
        setattr(self, f"{name}_kernel", kernel)
        bias = None
        if self.use_bias:
            bias = self.add_weight(
                shape[num_input_axes:],
                registry.redraw(self.bias_initializer),
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
                name=f"{name}_bias",
            )
        setattr(self, f"{name}_bias", bias)

    def derived_defaults(self):
        return {"value_dim": self.key_dim, "num_key_value_heads": self.num_heads}

    def project_inputs(self, query, key, value, decoding):
        """Project to heads (B, N, T, H): queries, keys and values; None stays None."""
        if value is None:
            return *self.project(query, "query"), None, None
        key = value if key is None else key
        # Decoding would join the kernels at each step, which costs more than separate products.
        joins = not decoding or in_loop_invariants()
        if self._shares_query and key is query:
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
        """Project x (B, T, D) to the heads (B, N, T, H) of each named projection, in one product."""
        return rows_to_heads(self._multiply(x, *names), self._head_counts(names), like=x)

    def project_output(self, x):
        """Project the merged heads x (B, T, N * H) to the output (B, T, D)."""
        return rows_to_sequence(self._multiply(x, "output"), like=x)

    def _head_counts(self, names):
        """Return (heads, size) of each named projection."""
        return [tuple(self.kernel_of(name).shape[1:]) for name in names]

    def _multiply(self, x, *names):
        """Multiply rows (B * T, D) by the joined kernels as one matrix, and add the biases."""
        kernel, bias = loop_invariant(self, names, lambda: self._join(names, x))
        y = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel)
        return y if bias is None else ops.add(y, bias)

    def _join(self, names, x):
        """Return the kernels side by side as a matrix, and the biases, in the dtype of x."""
        kernels = [ops.reshape(self.kernel_of(name), (x.shape[-1], -1)) for name in names]
        kernel = kernels[0] if len(kernels) == 1 else ops.concatenate(kernels, axis=-1)
        if not self.use_bias:
            return ops.cast(kernel, x.dtype), None
        biases = [ops.reshape(self.kernel_of(name, "bias"), (-1,)) for name in names]
        bias = biases[0] if len(biases) == 1 else ops.concatenate(biases, axis=-1)
        return ops.cast(kernel, x.dtype), ops.cast(bias, x.dtype)

    def kernel_of(self, name, kind="kernel"):
        """Return the kernel or bias of a projection; that of queries for shared keys."""
        name = "query" if name == "key" and self._shares_query else name
        return getattr(self, f"{name}_{kind}")

    def get_config(self):
        serialize = keras.initializers.serialize
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "num_key_value_heads": self.num_key_value_heads,
            "use_bias": self.use_bias,
            "output_shape": self._output_shape,
            "kernel_initializer": serialize(self.kernel_initializer),
            "bias_initializer": serialize(self.bias_initializer),
            "output_initializer": serialize(self.output_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
        }
