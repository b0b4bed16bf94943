"""A memory whose oldest inputs are compressed before they are forgotten."""

import math

import keras
from keras import ops

from keras_attn.attention.softmax import at_least_float32, attend_logits, query_keys
from keras_attn.backend.replicas import mean_over_replicas
from keras_attn.initializers import MatrixInitializer
from keras_attn.layers import MultiHeadAttention
from keras_attn.memory.segment_memory import Memory, join_states, keep_last
from keras_attn.ops.checks import check_choice, check_numbers, check_shape, check_sizes, check_that
from keras_attn.ops.shapes import ceil_div, size
from keras_attn.ops.sorting import row_starts, take_rows
from keras_attn.registry import LayerValue, register


@register
class CompressiveMemory(Memory, LayerValue):
    """Keep the last inputs of each layer, and older ones in groups, each compressed to one slot.

        m_l' = SG(last M of [m_l; h_l]),   c_l' = SG(last C of [c_l; f_l(the older ones)]),
        h_l the input of layer l,   SG stops the gradient

        f_l(x_1 .. x_r) = W_1 x_1 + ... + W_r x_r + b,   or the mean or maximum of x_1 .. x_r

    Layers attend to [c_l; m_l; h_l]: a compressed slot is a key like others, one position long. The
    state has the entries of a `SegmentMemory`, with `memory` (B, L, C + M + r - 1, D), and the
    number of its slots that are compressed, `compressed_memory_length` (B,). Only whole groups of
    r = `rate` inputs are compressed, so up to r - 1 more than M inputs wait.

    The weights of f_l learn from a loss of their own, which is added in training if a `depth` is
    given: |A_l(h_l, x) - A_l(h_l, f_l(x))|^2 for the inputs x that are compressed now. A_l is the
    attention of layer l by content, without positions. The loss is a mean over queries, heads and
    components, and a sum over layers. Its gradient reaches W and b only, and no other loss does.

    Reading n tokens in segments of T takes time O(n (T + C + M)), and L layers reach L (M + r C)
    tokens back. Memory O(B L (C + M) D).

    Use it for texts with references farther back than a `SegmentMemory` can hold.

    Args:
        memory_length: int. Number M of inputs that each layer keeps as they are.
        compressed_length: int. Number C of compressed slots of each layer.
        rate: int. Number r of inputs that become one slot.
        compression: "convolution", with weights for each layer, "mean" or "max".
        loss_weight: float. Factor of the loss of the convolution.
        kernel_initializer: of the convolution.

    Call arguments:
        memory, memory_length, compressed_memory_length: the state before the segment: (B, L, M, D)
            for any M, and int32 (B,).
        hidden, padding_mask, depth: as `extend`, by which the state is a dict.

    Returns:
        The next state: (B, L, C + M + r - 1, D), and twice int32 (B,).

    Raises:
        ValueError: if a length is below 0, `rate` < 1, or another argument is out of its range; in
            training, if a layer's attention is no `MultiHeadAttention`.

    Example:
        >>> import keras_attn
        >>> from keras import ops
        >>> memory = keras_attn.memory.CompressiveMemory(4, 5, rate=2, compression="mean")
        >>> state = memory.initial(batch_size=1, num_layers=2, hidden_dim=8)
        >>> state = memory.extend(state, hidden=ops.ones((1, 2, 8, 8)))
        >>> state["memory_length"].numpy().tolist()  # four inputs, and four others in two slots
        [6]

    Differs from the paper: inputs wait for a whole group. The loss is a mean, not a norm, and its
        logits are divided by the root of the size of a head. Two other compressions are left out:
        a dilated convolution, and the most attended inputs.

    Reference: [Rae et al., 2019](https://arxiv.org/abs/1911.05507), sections 3.1 and 3.2,
        algorithms 1 and 2.
    """

    depends_on_config_only = False  # it adds a loss
    lengths = ("memory_length", "compressed_memory_length")
    weight_axes = {"kernel": (), "bias": ()}

    def __init__(
        self,
        memory_length,
        compressed_length,
        rate=3,
        compression="convolution",
        loss_weight=1.0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**{"autocast": False, **kwargs})
        check_sizes(0, memory_length=memory_length, compressed_length=compressed_length)
        check_sizes(rate=rate)
        check_choice(("convolution", "mean", "max"), compression=compression)
        check_numbers(0, loss_weight=loss_weight)
        self.memory_length = int(memory_length)
        self.compressed_length = int(compressed_length)
        self.rate = int(rate)
        self.compression = compression
        self.loss_weight = loss_weight
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    @property
    def num_slots(self):
        """Number of slots of each layer: compressed ones, and inputs."""
        return self.compressed_length + self.memory_length + self.rate - 1

    def initial(self, batch_size, num_layers, hidden_dim, dtype="float32"):
        memory = ops.zeros((batch_size, num_layers, self.num_slots, hidden_dim), dtype)
        return {
            "memory": memory,
            **{name: ops.zeros((batch_size,), "int32") for name in self.lengths},
        }

    def extend(self, state, hidden, padding_mask=None, depth=None):
        states = self(**state, hidden=hidden, padding_mask=padding_mask, depth=depth)
        return dict(zip(("memory", *self.lengths), states, strict=True))

    def build(self, memory_shape):
        if self.compression == "convolution":
            _, count, _, width = memory_shape
            matrix = self.rate * width, width
            initializer = MatrixInitializer(
                self.kernel_initializer, matrix, (matrix[0], count, width), count, (1, 0, 2)
            )
            self.kernel = self.add_weight((count, *matrix), initializer, name="kernel")
            self.bias = self.add_weight((count, 1, width), "zeros", name="bias")

    def call(
        self,
        memory,
        memory_length,
        compressed_memory_length,
        hidden,
        padding_mask=None,
        depth=None,
        training=None,
    ):
        check_shape(compressed_memory_length, "compressed_memory_length", (hidden.shape[0],))
        states, real, filled, length = join_states(memory, memory_length, hidden, padding_mask)
        states, end = ops.stop_gradient(states), size(states, 2)
        if real is not None:
            states = keep_last(states, end, real)
        # Now the last `total` states of a row are real, and of these the first are compressed.
        total = filled + length
        compressed = ops.clip(ops.cast(compressed_memory_length, "int32"), 0, filled)
        first = end - total + compressed  # the oldest input
        groups = ops.maximum(total - compressed - self.memory_length, 0) // self.rate  # (B,)
        most = ceil_div(size(hidden, 2), self.rate)
        groups = ops.minimum(groups, most)
        offset = ops.arange(most * self.rate, dtype="int32")
        is_old = offset < ops.expand_dims(groups * self.rate, 1)
        old = _take(states, ops.minimum(ops.expand_dims(first, 1) + offset, end - 1))
        # Zero what is in no group: NaN times 0 is NaN.
        old = ops.where(ops.expand_dims(is_old, (1, 3)), old, 0)  # (B, L, G r, D)
        new = self._compress(old)  # (B, L, G, D)
        learns = self.compression == "convolution" and self.loss_weight > 0
        if training and learns and depth is not None:
            is_new = ops.arange(most, dtype="int32") < ops.expand_dims(groups, 1)
            loss = reconstruction_loss(depth, hidden, padding_mask, (old, is_old), (new, is_new))
            self.add_loss(self.loss_weight * loss)
        rest = total - compressed - groups * self.rate
        # Indices in [states; new] of the next slots: from the last slot back these are inputs, the
        # new compressed states, and the old ones. `back` counts from the last compressed one.
        back = ops.arange(self.num_slots - 1, -1, -1, dtype="int32") - ops.expand_dims(rest, 1)
        new_source = end + ops.expand_dims(groups, 1) - 1 - back
        old_source = ops.expand_dims(first + groups, 1) - 1 - back
        compressed_source = ops.where(back < ops.expand_dims(groups, 1), new_source, old_source)
        sources = ops.where(back < 0, end - 1 - ops.expand_dims(rest, 1) - back, compressed_source)
        kept = _take(ops.concatenate([states, new], axis=2), ops.maximum(sources, 0))
        rest = ops.minimum(rest, self.num_slots)
        compressed = ops.minimum(compressed + groups, self.compressed_length)
        compressed = ops.minimum(compressed, self.num_slots - rest)
        return ops.stop_gradient(kept), rest + compressed, compressed

    def _compress(self, x):
        """Compress each group of `rate` states: (B, L, G r, D) -> (B, L, G, D)."""
        batch, count, _, width = x.shape
        batch = size(x, 0) if batch is None else batch
        groups = size(x, 2) // self.rate
        if self.compression == "convolution":
            x = ops.reshape(x, (batch, count, groups, self.rate * width))
            product = ops.einsum("blgr,lrd->blgd", x, ops.cast(self.kernel, x.dtype))
            return product + ops.cast(self.bias, x.dtype)
        x = ops.reshape(x, (batch, count, groups, self.rate, width))
        return ops.mean(x, axis=3) if self.compression == "mean" else ops.max(x, axis=3)

    def call_products(self, output_shape, memory, hidden, **others):
        """Return the multiply-adds of the compression, without those of its loss."""
        if self.compression != "convolution":
            return 0
        batch, count, length, width = hidden
        return batch * count * ceil_div(length, self.rate) * self.rate * width**2

    def compute_output_spec(self, memory, memory_length, *args, **kwargs):
        batch, count, _, width = memory.shape
        kept = keras.KerasTensor((batch, count, self.num_slots, width), memory.dtype)
        return kept, *(keras.KerasTensor((batch,), "int32") for _ in range(2))


def _take(states, indices):
    """Take states (B, L, S', D) of (B, L, S, D) by their indices (B, S') in each row."""
    return take_rows(states, row_starts(states) + ops.expand_dims(indices, 1))


def reconstruction_loss(depth, hidden, padding_mask, old, new):
    """Compare attention to `old` states with attention to the `new` ones that replace them.

        sum over layers l of the mean of |A_l(SG(h_l), SG(old_l)) - A_l(SG(h_l), new_l)|^2

    A_l is the attention of block l by content, with its weights frozen, so that the gradient
    reaches the new states only. The mean is over heads, components and those real queries whose row
    has old states.

    Args:
        depth: a `Stack`.
        hidden: (B, L, T, D), the inputs of its blocks, from which they make queries.
        padding_mask: bool (B, T), True where a query is real, or None.
        old, new: pairs of states (B, L, S, D) and a mask (B, S) of those that there are.
    """
    is_counted = ops.any(old[1], axis=1, keepdims=True)  # (B, 1)
    is_counted = ops.broadcast_to(is_counted, (size(hidden, 0), size(hidden, 2)))
    if padding_mask is not None:
        is_counted = ops.logical_and(is_counted, ops.cast(padding_mask, "bool"))
    hidden, total = ops.stop_gradient(hidden), 0.0
    for layer, block in enumerate(depth.blocks):
        attend = _attention_by_content(block, hidden[:, layer])
        wanted = ops.stop_gradient(attend(old[0][:, layer], old[1]))
        squares = ops.square(attend(new[0][:, layer], new[1]) - wanted)
        squares = ops.mean(squares, axis=(1, 3))  # (B, T)
        weights = ops.cast(is_counted, squares.dtype)
        total = total + mean_over_replicas(squares * weights, ops.sum(weights))
    return total


def _attention_by_content(block, x):
    """Return a function that attends from x (B, T, D) to states by a block's frozen weights.

    It maps states (B, S, D) and their mask (B, S) to heads (B, N, T, Hv), at least float32.
    """
    attention, residual = block.attention, block.residual
    is_known = isinstance(attention, MultiHeadAttention)
    check_that(is_known, "a `MultiHeadAttention`, for a memory that learns", attention=attention)
    repeats = attention.num_heads // attention.num_key_value_heads

    def heads(x, *names):
        variables = [*attention.variables, *residual.variables]
        frozen = [(variable, ops.stop_gradient(variable.value)) for variable in variables]
        with keras.StatelessScope(frozen):
            return attention.project(residual.before(x), *names)

    (query,) = heads(x, "query")

    def attend(states, mask):
        key, value = heads(states, "key", "value")
        if repeats > 1:
            key, value = ops.repeat(key, repeats, axis=1), ops.repeat(value, repeats, axis=1)
        logits = query_keys(query, key) / math.sqrt(attention.key_dim)
        output, _ = attend_logits(logits, value, ops.expand_dims(mask, (1, 2)))
        return at_least_float32(output)

    return attend
