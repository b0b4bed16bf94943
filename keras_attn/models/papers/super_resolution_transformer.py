"""The Image Transformer as encoder and decoder (Parmar et al., 2018)."""

from keras_attn import depth, layers, positions
from keras_attn.models.encoder_decoder import EncoderDecoder
from keras_attn.models.papers.image_transformer import causal_pattern, image_position
from keras_attn.ops.images import integers
from keras_attn.ops.shapes import head_size


def super_resolution_transformer(
    vocabulary_size=258,
    source_shape=(8, 8, 3),
    image_shape=(32, 32, 3),
    num_encoder_layers=4,
    num_layers=8,
    num_heads=8,
    hidden_dim=512,
    intermediate_dim=2048,
    dropout=0.1,
    pattern=None,
    encoding="sinusoidal",
    name="super_resolution_transformer",
):
    """Build the Image Transformer for super-resolution, from a small image to a large one.

        encoder block: x = LN(x + SelfAttention(x)),  x = LN(x + FFN(x)),  over the whole source
        decoder block: that of `image_transformer`, with attention to the encoded source between

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | block local, cross | image coordinates | post | stack | KV cache | categorical |

    Tokens as in `image_transformer`: the source's are those of `ImageTokens(source_shape)`, the
    target's those of `ImageTokens.of(model)`, and the target begins with `start_id`: pass it to
    `generate` as `bos_id`.

    Cost: that of `image_transformer`, and time O(L S D (S + T + F)) for the S values of the source.

    Use it for enlarging small images with plausible details.

    Args:
        vocabulary_size: int. Number of values of a channel, and 2.
        source_shape, image_shape: (height, width, channels) of the small and the large image.
        num_encoder_layers, num_layers: ints. Number of blocks of the encoder, and of the decoder.
        num_heads, hidden_dim, intermediate_dim: as `transformer`.
        dropout: float. Dropout rate of the embeddings and of the sublayers' outputs.
        pattern, encoding: as `image_transformer`.

    Returns:
        An `EncoderDecoder`, from source ids (B, S) and target ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.super_resolution_transformer(258, (2, 2, 1), (4, 4, 1), 1, 1,
        ...     num_heads=2, hidden_dim=8, intermediate_dim=16)
        >>> source = keras_attn.models.ImageTokens((2, 2, 1)).encode([[[[3], [255]], [[0], [9]]]])
        >>> tokens = keras_attn.models.ImageTokens.of(model)
        >>> ids, _ = keras_attn.generation.generate(model, source, "sample", tokens.length,
        ...     bos_id=tokens.start_id, eos_id=-1)
        >>> tokens.decode(ids).shape
        TensorShape([1, 4, 4, 1])

    Differs from the paper: one table embeds and scores the values of all channels of both images.

    Reference: [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), sections 3.1 to 3.3 and 5.3.
    """
    source_shape = integers(3, 1, source_shape=source_shape)
    image_shape = integers(3, 1, image_shape=image_shape)
    pattern = causal_pattern(pattern)

    def attention(pattern):
        return layers.MultiHeadAttention(
            num_heads, head_size(hidden_dim, num_heads), pattern=pattern
        )

    def block(pattern, cross_attention=None):
        return layers.TransformerBlock(
            attention(pattern),
            layers.FeedForward(intermediate_dim),
            cross_attention=cross_attention,
            dropout=dropout,
        )

    return EncoderDecoder(
        embedding=layers.TokenEmbedding(vocabulary_size, hidden_dim, pad_id=None),
        position=image_position(image_shape, pattern, encoding),
        source_position=positions.ImageCoordinates(*source_shape, encoding=encoding),
        encoder=depth.Stack(lambda index: block("dense"), num_encoder_layers, name="encoder"),
        decoder=depth.Stack(
            lambda index: block(pattern, attention("dense")), num_layers, name="decoder"
        ),
        dropout=dropout,
        name=name,
    )
