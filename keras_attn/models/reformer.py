"""The Reformer (Kitaev et al., 2020)."""

from keras_attn.depth import Reversible
from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding, TransformerBlock
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.ops.heads import head_size
from keras_attn.patterns import LSH, Local
from keras_attn.positions import Axial


def reformer(
    vocabulary_size,
    num_layers=6,
    num_heads=8,
    hidden_dim=512,
    intermediate_dim=2048,
    dropout=0.1,
    axial_shape=(32, 64),
    chunk_length=64,
    num_rounds=2,
    num_buckets=None,
    attention=("lsh",),
    feed_forward_chunks=1,
    name="reformer",
):
    """Attention among keys of the same hash, in layers that training can run backwards.

        y_1 = x_1 + LSHAttention(LN(x_2)),  y_2 = x_2 + FFN(LN(y_1));  logits = LN([y_1; y_2]) ...

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | shared QK | LSH, local | axial | pre | reversible, chunked feed-forward | - | LM |

    Args:
        axial_shape: ints, whose product is the longest sequence.
        chunk_length, num_rounds, num_buckets: as `keras_attn.patterns.LSH`.
        attention: "lsh" and "local", in the order of the layers, over and over. The authors' own
            configurations mix them; `Local` then sees `chunk_length` keys.
        feed_forward_chunks: int. As `FeedForward(chunks=)`.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.reformer(vocabulary_size=100, num_layers=2, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, axial_shape=(4, 8), chunk_length=4)
        >>> model.output.shape
        (None, None, 100)

    Differs from the paper: the streams end as their mean, so that the logits share the token table.

    Reference: [Kitaev et al., 2020](https://arxiv.org/abs/2001.04451), sections 2 and 3.
    """

    def sublayer(kind):
        pattern = (
            LSH(chunk_length, num_rounds, num_buckets) if kind == "lsh" else Local(chunk_length)
        )
        return MultiHeadAttention(
            num_heads,
            head_size(hidden_dim, num_heads),
            score="shared_qk" if kind == "lsh" else "scaled_dot",
            pattern=pattern,
            use_bias=False,
            dropout=dropout,
        )

    def block(index):
        return TransformerBlock(
            attention=sublayer(attention[index % len(attention)]),
            feed_forward=FeedForward(
                intermediate_dim, activation="gelu", dropout=dropout, chunks=feed_forward_chunks
            ),
            residual="pre_norm",
            dropout=dropout,
        )

    first = hidden_dim // 2
    dims = (first, hidden_dim - first)
    return CausalLanguageModel(
        embedding=TokenEmbedding(vocabulary_size, hidden_dim),
        position=Axial(axial_shape, dims),
        depth=Reversible(block, num_layers, name="depth"),
        dropout=dropout,
        name=name,
    )
