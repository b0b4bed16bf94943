"""The Compressive Transformer (Rae et al., 2019)."""

from keras_attn import memory
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.models.papers.transformer_xl import transformer_xl


def compressive_transformer(
    vocabulary_size,
    num_layers=12,
    num_heads=8,
    hidden_dim=512,
    intermediate_dim=2048,
    dropout=0.1,
    attention_dropout=0.0,
    memory_length=512,
    compressed_length=None,
    rate=3,
    compression="convolution",
    clamp_length=None,
    name="compressive_transformer",
):
    """Build the Compressive Transformer: Transformer-XL that compresses what it would forget.

        x = LN(x + RelativeAttention(x, [c; SG(m); x])),  x = LN(x + FFN(x));  logits = x E^T

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | relative | causal | in the score | post | stack | compressive | LM, reconstruction |

    `keras_attn.memory.StatefulSegments(model)` keeps the memory between the batches of `fit`, which
    adds the loss of the compression. Inputs that leave the memory m of each layer are compressed
    and join c, so that L layers reach L (M + r C) tokens back, at the cost of M + C keys.

    Cost: for a segment of T tokens, time O(L T D (T + M + C + F)) and memory O(L (T (N (T + M + C)
    + F) + (M + C) D)).

    Use it for language models of books, with references far beyond a segment.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `transformer_xl`.
        dropout, attention_dropout, clamp_length: as `transformer_xl`.
        memory_length: int. Inputs M that each layer remembers as they are.
        compressed_length: int. Compressed slots C of each layer; by default M.
        rate: int. Number r of inputs that become one slot.
        compression: "convolution", "mean" or "max".

    Returns:
        A `CausalLanguageModel` with a memory, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.compressive_transformer(vocabulary_size=100, num_layers=2,
        ...     num_heads=2, hidden_dim=8, intermediate_dim=16, memory_length=4, rate=2)
        >>> model.initial_memory(batch_size=1)["memory"].shape  # 4 compressed, 4 and 1 as they are
        TensorShape([1, 2, 9, 8])

    Differs from the paper: as `transformer_xl` and `keras_attn.memory.CompressiveMemory`.

    Reference: [Rae et al., 2019](https://arxiv.org/abs/1911.05507), section 3.
    """

    sizes = num_layers, num_heads, hidden_dim, intermediate_dim, dropout, attention_dropout
    model = transformer_xl(vocabulary_size, *sizes, memory_length, clamp_length)
    return CausalLanguageModel(
        embedding=model.embedding,
        depth=model.depth,
        memory=memory.CompressiveMemory(
            memory_length,
            memory_length if compressed_length is None else compressed_length,
            rate,
            compression,
        ),
        dropout=dropout,
        name=name,
    )
