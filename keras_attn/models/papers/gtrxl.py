"""The Gated Transformer-XL (Parisotto et al., 2019)."""

import keras

from keras_attn import depth, layers, memory
from keras_attn.models.assembly import declare_axes
from keras_attn.models.state_models import SequenceModel
from keras_attn.ops.shapes import head_size
from keras_attn.registry import with_python_numbers


@with_python_numbers
def gtrxl(
    state_shape,
    heads=None,
    num_layers=12,
    num_heads=8,
    hidden_dim=512,
    intermediate_dim=1024,
    memory_length=512,
    dropout=0.0,
    residual="gate",
    embedding=None,
    name="gtrxl",
):
    """Build the Gated Transformer-XL, a memory for actors whose gates start near the identity.

        y = g_1(x, relu(RelativeAttention(LN([memory; x])))),  x = g_2(y, relu(FFN(LN(y))))

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | relative | causal | in the score | pre + GRU gate | stack | segment | any |

    `embedding` maps states (B, T, *state_shape) to vectors, by default by a dense layer, and the
    `heads`, such as `{"policy": 18, "value": 1}`, make the outputs. Another gate is
    `residual=Gate("output", bias=1.0)`; `Gate("sum")` makes it the paper's TrXL-I, "post_norm" the
    Transformer-XL.

    Cost: for a segment of T states after M others, time O(L T D (T + M + F)) and memory O(L (T (N
    (T + M) + F) + M D)).

    Use it for agents that must remember earlier observations.

    Args:
        state_shape: int or tuple of ints. Shape of one state.
        heads: dict of an output's name and the number of its units, or its layer; by
            default the only output is that of the blocks.
        num_layers, num_heads, hidden_dim, intermediate_dim: as `gpt`.
        memory_length: int. Inputs that each layer remembers.
        dropout: float. Dropout rate of the attention weights and of the sublayers' outputs.
        residual: name or object of the residual axis.
        embedding: a layer from states (B, T, *state_shape) to (B, T, D); by default a dense one.

    Returns:
        A `SequenceModel`, from states (B, T, *state_shape) to a dict of its heads' outputs
        (B, T, units).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.gtrxl(5, {"policy": 4, "value": 1}, num_layers=2,
        ...     num_heads=2, hidden_dim=8, intermediate_dim=16, memory_length=6)
        >>> sorted(model.output)
        ['memory', 'memory_length', 'policy', 'value']

    Differs from the paper: states are embedded by a dense layer, where its agents see images.

    Reference: [Parisotto et al., 2019](https://arxiv.org/abs/1910.06764), sections 3.1 and 3.2,
        figure 1.
    """

    def block(index):
        size = head_size(hidden_dim, num_heads)
        return layers.TransformerBlock(
            layers.MultiHeadAttention(
                num_heads, size, score="relative", pattern="causal", use_bias=False, dropout=dropout
            ),
            layers.FeedForward(intermediate_dim),
            residual=residual,
            dropout=dropout,
        )

    return SequenceModel(
        state_shape,
        embedding=embedding or declare_axes(keras.layers.Dense(hidden_dim), kernel=(), bias=()),
        depth=depth.Stack(block, num_layers, name="depth"),
        memory=memory.SegmentMemory(memory_length),
        heads=heads,
        name=name,
    )
