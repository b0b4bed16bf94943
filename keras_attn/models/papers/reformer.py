"""The Reformer (Kitaev et al., 2020)."""

from keras_attn import depth, layers, patterns, positions
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.ops.activations import gelu_tanh
from keras_attn.ops.checks import check_choice, check_that
from keras_attn.ops.shapes import head_size


def reformer(
    vocabulary_size,
    num_layers=6,
    num_heads=8,
    hidden_dim=512,
    intermediate_dim=2048,
    dropout=0.1,
    attention_dropout=0.0,
    axial_shape=(32, 64),
    axial_dims=None,
    attention=("lsh",),
    chunk_length=64,
    num_rounds=2,
    num_buckets=None,
    across_buckets=False,
    local_length=64,
    key_dim=None,
    activation=gelu_tanh,
    feed_forward_chunks=1,
    name="reformer",
):
    """Build the Reformer: attention within hash buckets, in reversible layers.

        y_1 = x_1 + LSHAttention(LN(x_2)),  y_2 = x_2 + FFN(LN(y_1));
        logits = LN((y_1 + y_2) / 2) E^T

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | shared QK | LSH, local | axial | pre | reversible, chunked feed-forward | - | LM |

    Cost: time O(L T D (num_rounds chunk_length + F)), and memory O(T (D + F)) for any number of
    layers.

    Use it for sequences of tens of thousands of tokens on one device.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `gpt`.
        dropout: float. Dropout rate of the embeddings, of the sublayers' outputs and of the
            feed-forward layers' hidden layer.
        attention_dropout: float. Dropout rate of the attention weights.
        axial_shape: ints, whose product is the longest sequence.
        axial_dims: ints, one for each axis, whose sum is `hidden_dim`; by default equal parts.
        attention: "lsh", "local" and "full", repeated over the layers. The paper has "lsh", and
            "full" as baseline; the authors' configuration for text has three "local" to one "lsh".
        chunk_length, num_rounds, num_buckets, across_buckets: as `keras_attn.patterns.LSH`.
        local_length: int. Block size of "local" layers, which attend to two blocks.
        key_dim: int. Size of each head; by default `hidden_dim / num_heads`.
        activation, feed_forward_chunks: as `keras_attn.layers.FeedForward`.

    Returns:
        A `CausalLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.reformer(vocabulary_size=100, num_layers=2, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, axial_shape=(4, 8), chunk_length=4)
        >>> model.output.shape
        (None, None, 100)

    Differs from the paper: the streams end as their mean, so that the logits share the token table
        and `Stack` can replace `Reversible`; the authors' end side by side, before logits of their
        own: `Reversible(join="concatenate")` and `CausalLanguageModel(head=)`.

    Reference: [Kitaev et al., 2020](https://arxiv.org/abs/2001.04451), sections 2 and 3; local
        layers: [reformer_enwik8.gin](https://github.com/google/trax/blob/2583058/trax/supervised/configs/reformer_enwik8.gin).
    """
    check_that(attention, "at least one of 'lsh', 'local' and 'full'", attention=attention)
    for kind in attention:
        check_choice(("lsh", "local", "full"), attention=kind)

    def pattern_of(kind):
        if kind == "full":
            return "causal"
        if kind == "local":
            return patterns.BlockLocal1D(local_length, lookback=local_length)
        return patterns.LSH(chunk_length, num_rounds, num_buckets, across_buckets=across_buckets)

    def block(index):
        kind = attention[index % len(attention)]
        return reformer_block(
            num_heads,
            head_size(hidden_dim, num_heads) if key_dim is None else key_dim,
            intermediate_dim,
            activation,
            feed_forward_chunks,
            pattern_of(kind),
            kind == "lsh",
            dropout,
            attention_dropout,
        )

    if axial_dims is None and axial_shape:
        part, last = hidden_dim // len(axial_shape), len(axial_shape) - 1
        axial_dims = [part] * last + [hidden_dim - last * part]
    return CausalLanguageModel(
        embedding=layers.TokenEmbedding(vocabulary_size, hidden_dim),
        position=positions.Axial(axial_shape, axial_dims),
        depth=depth.Reversible(block, num_layers, name="depth"),
        dropout=dropout,
        name=name,
    )


def reformer_block(
    num_heads,
    key_dim,
    intermediate_dim,
    activation,
    chunks,
    pattern,
    shares_query,
    dropout,
    attention_dropout,
    residual="pre_norm",
):
    """Return a block of the Reformer; in one by hashes queries and keys have one projection."""
    return layers.TransformerBlock(
        layers.MultiHeadAttention(
            num_heads,
            key_dim,
            score="shared_qk" if shares_query else "scaled_dot",
            pattern=pattern,
            use_bias=False,
            dropout=attention_dropout,
        ),
        layers.FeedForward(intermediate_dim, activation, dropout=dropout, chunks=chunks),
        residual=residual,
        dropout=dropout,
    )
