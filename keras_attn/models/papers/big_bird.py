"""BigBird (Zaheer et al., 2020)."""

from keras_attn import patterns
from keras_attn.models.papers.bert import bert
from keras_attn.ops.activations import gelu_tanh


def big_bird(
    vocabulary_size,
    num_layers=12,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=3072,
    dropout=0.1,
    max_length=4096,
    block_length=64,
    num_random=3,
    num_segments=2,
    pad_id=0,
    name="big_bird",
):
    """Build BigBird, a `bert` whose tokens attend to a window, to the first ones and at random.

        x = LN(x + LocalGlobalAndRandomAttention(x)),  x = LN(x + FFN(x))

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | local + global + random | learned | post | stack | - | masked LM |

    Cost: time O(L T D (b r + F)) and memory O(L T (D + F)), for blocks of b tokens: a query attends
    to about r + 4 blocks.

    Use it for long documents, in which random links connect all tokens within few layers.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `bert`.
        dropout, max_length, num_segments: as `bert`.
        block_length: int. Length b of a block: the window has three, and one is global.
        num_random: int. Number r of random blocks for each block of queries; each layer draws its
            own.
        pad_id: int. The id of padding; None for none.

    Returns:
        A `MaskedLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.big_bird(100, num_layers=1, num_heads=2, hidden_dim=8,
        ...     max_length=64, block_length=4)
        >>> model.output.shape
        (None, None, 100)

    Differs from the paper: windows and global tokens count positions, not blocks; the last block is
        not global; the heads of a layer share the random blocks.

    Reference: [Zaheer et al., 2020](https://arxiv.org/abs/2007.14062), section 2 and appendix D.
    """
    local = patterns.Local(3 * block_length // 2 + 1, causal=False)
    near = local | patterns.Global(block_length)

    def pattern(index):
        return near | patterns.Random(block_length, num_random, max_length, seed=index)

    return bert(
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        dropout,
        max_length=max_length,
        num_segments=num_segments,
        pattern=pattern,
        activation=gelu_tanh,
        pad_id=pad_id,
        name=name,
    )
