"""Reversible blocks, whose inputs are recomputed from their outputs."""

import keras
from keras import backend, ops

from keras_attn.backend.remat import reversible
from keras_attn.depth.stack import Stack, refuse_batch_norm
from keras_attn.layers.transformer_block import TransformerBlock
from keras_attn.ops.checks import check_choice
from keras_attn.registry import build_once, register
from keras_attn.residuals import PreNorm


@register
class Reversible(Stack):
    """A stack of reversible blocks: training keeps the last activations only.

        y_1 = x_1 + Attention(LN(x_2)),   y_2 = x_2 + FFN(LN(y_1))

    Both streams begin as x; at the end they are averaged or concatenated, and normalised. The
    backward pass recovers x_2 = y_2 - FFN(LN(y_1)), then x_1, and recomputes each sublayer for its
    gradient, with the same dropout and hashes. Memory for activations is O(B T D) for any number
    of blocks, plus that of one sublayer; time is a third more than that of a `Stack`. The streams
    are float32 at least, to be recovered by subtraction. Other backends than TensorFlow recover no
    inputs: they keep each sublayer's input and recompute the rest.

    Use it for deep stacks on long sequences, when activations do not fit into memory.

    Args:
        block, num_layers: as `Stack`; the blocks are `TransformerBlock`s with
            `residual="pre_norm"`, or with another residual that ends in the same sum.
        remat: must be False: the backward pass recomputes activations anyway.
        drop: as `Stack`; what both sublayers of a block add is multiplied by b_l.
        join: "mean", or "concatenate", which makes the output twice as wide.

    Call arguments and returns:
        As `Stack`, without a memory and `return_hidden_states`, which need activations that are
        not kept; with `join="concatenate"` (B, T, 2 D).

    Raises:
        ValueError: if a block is no `TransformerBlock` with `residual="pre_norm"` or computes
            anything else, `join` is unknown, or `remat` is True.

    Example:
        >>> import keras, keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> stack = keras_attn.depth.Reversible(lambda index: TransformerBlock(
        ...     MultiHeadAttention(2, 8), FeedForward(32), residual="pre_norm"), 6)
        >>> stack(keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: the streams end as their mean; the authors' end side by side.

    Reference: [Kitaev et al., 2020](https://arxiv.org/abs/2001.04451), section 3;
        [Gomez et al., 2017](https://arxiv.org/abs/1707.04585), section 3.
    """

    def __init__(self, block, num_layers=None, join="mean", **kwargs):
        super().__init__(block, num_layers, **kwargs)
        check_choice(("mean", "concatenate"), join=join)
        if self.remat:
            raise ValueError(
                "`remat` does not fit a reversible stack, which recomputes its activations in any "
                "case. Received: remat=True."
            )
        for index, layer in enumerate(self.blocks):
            refuse_batch_norm(self, layer)
            if not _only_adds(layer):
                residual = getattr(layer, "residual", None)
                raise ValueError(
                    "`block` must give a `TransformerBlock` with `residual='pre_norm'`, whose sum "
                    "can be undone; neither may override how outputs are added. "
                    f"Received: {layer!r} with residual={residual!r} at {index}."
                )
        self.join = join

    def build(self, x_shape, context_shape=None):
        build_once(self.norm, self._joined_shape(x_shape))
        super().build(x_shape, context_shape)

    num_recomputations = 1
    num_kept_states = 2

    def _joined_shape(self, x_shape):
        return (*x_shape[:-1], (2 if self.join == "concatenate" else 1) * x_shape[-1])

    def _run(self, x, calls, keep_outputs):
        if keep_outputs or any(call.memory is not None for call in calls):
            raise ValueError(
                "`memory` and `return_hidden_states` need the inputs or outputs of each block, "
                "which a reversible stack does not keep. Received: "
                f"{'return_hidden_states=True' if keep_outputs else 'a memory'}."
            )
        steps, extras = [], []
        scales = self._row_scales(x, calls[0])
        for block, call, scale in zip(self.blocks, calls, scales, strict=True):
            sublayers, extra = block.sublayers(x, call)
            steps += [_step(*sublayer, scale) for sublayer in sublayers]
            extras.append(extra)
        # In low precision, subtraction could not recover what was added to a stream.
        first = second = ops.cast(x, backend.result_type(self.compute_dtype, "float32"))
        context = calls[0].context
        if extras[0]:
            for step in steps:
                first, second = second, first + ops.cast(step(second, context), first.dtype)
        else:
            operands = () if context is None else (context,)
            first, second = reversible(steps, first, second, operands, add_loss=self.add_loss)
        side_by_side = self.join == "concatenate"
        x = ops.concatenate([first, second], axis=-1) if side_by_side else (first + second) / 2
        return ops.cast(x, self.compute_dtype), extras

    def compute_output_spec(self, x, *args, **kwargs):
        spec = super().compute_output_spec(x, *args, **kwargs)
        if isinstance(spec, tuple):
            return spec
        return keras.KerasTensor(self._joined_shape(x.shape), dtype=spec.dtype)


def _only_adds(block):
    """Return True if a block applies its sublayers in turn, and adds the output of each."""
    if type(block).apply is not TransformerBlock.apply:
        return False
    kinds = ("attention", "cross_attention", "feed_forward")
    residuals = [getattr(block, f"{kind}_residual", None) for kind in kinds]
    classes = [type(residual) for residual in residuals if residual is not None]
    return all((c.after, c.call) == (PreNorm.after, PreNorm.call) for c in classes)


def _step(residual, sublayer, scale):
    def step(x, context=None):
        y = sublayer(residual.before(x), context)
        return y if scale is None else ops.cast(y, scale.dtype) * scale

    return step
