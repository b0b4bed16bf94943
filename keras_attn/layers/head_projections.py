"""The projections of multi-head attention."""

import math

import keras
from keras import ops

from keras_attn import registry
from keras_attn.backend.loop_invariants import in_loop_invariants, loop_invariant
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import flatten_rows, split_heads


class HeadProjections(keras.layers.Layer):
    """What `MultiHeadAttention` reads its heads by, and joins them by.

        Q = X W_q + b_q,   K = Y W_k + b_k,   V = Y W_v + b_v,   out = [head_1 ...] W_o + b_o

    Kernels have the shapes and the order of `keras.layers.MultiHeadAttention`. With
    `shares_query`, keys are projected as queries are. What is read from the same tensor is one
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
        initializer = registry.redraw(
            initializer
        )  # an initializer draws the same numbers every time
        matrix = (math.prod(shape[:num_input_axes]), math.prod(shape[num_input_axes:]))

        def draw(shape, dtype=None):
            return ops.reshape(initializer(matrix, dtype=dtype), shape)

        kernel = self.add_weight(
            shape,
            draw,
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

    def _heads(self, query, key, value, decoding):
        """Per-head projections (B, N, T, H); what is read from the same tensor in one product."""
        if value is None:
            return *self._project(query, "query"), None, None
        key = value if key is None else key
        if self._shares_query and key is query:
            # One tensor, by which a plan knows that they are the same.
            if query is value and (not decoding or in_loop_invariants()):
                query, value = self._project(query, "query", "value")
            else:
                (query,), (value,) = self._project(query, "query"), self._project(value, "value")
            return query, query, value
        parts = (query, "query"), (key, "key"), (value, "value")
        # Not where decoding would join the kernels anew at each step: it costs more than the products.
        if key is value and (not decoding or in_loop_invariants()):
            parts = (query, "query"), (value, "key", "value")
            if query is value:
                parts = ((query, "query", "key", "value"),)
        return [heads for part in parts for heads in self._project(*part)]

    def _project(self, x, *names):
        heads = [self._kernel(name).shape[1:] for name in names]
        widths = [math.prod(shape) for shape in heads]
        y = self._multiply(x, *names)  # (B, T, sum of widths)
        ends = [sum(widths[: i + 1]) for i in range(len(widths) - 1)]
        parts = ops.split(y, ends, axis=-1) if ends else [y]
        return tuple(split_heads(part, n) for part, (n, _) in zip(parts, heads, strict=True))

    def _multiply(self, x, *names):
        """`x` times the joined kernels of these projections as one matrix, plus their biases."""

        def join(kind, shape):
            parts = [ops.reshape(self._kernel(name, kind), shape) for name in names]
            return ops.cast(_join(parts, axis=-1), x.dtype)

        rows, unflatten = flatten_rows(x)
        y = ops.matmul(
            rows, loop_invariant(self, ("kernel", names), lambda: join("kernel", (x.shape[-1], -1)))
        )
        if self.use_bias:
            y = ops.add(y, loop_invariant(self, ("bias", names), lambda: join("bias", (-1,))))
        return unflatten(y)

    def _kernel(self, name, kind="kernel"):
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


def _join(tensors, axis):
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors, axis=axis)
