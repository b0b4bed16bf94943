"""The Image Transformer (Parmar et al., 2018), and the same as encoder and decoder."""

import keras

from keras_attn import depth, layers, patterns, positions
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.models.encoder_decoder import EncoderDecoder
from keras_attn.ops.checks import check_that
from keras_attn.ops.images import integers
from keras_attn.ops.logistics import num_parameters
from keras_attn.ops.shapes import head_size
from keras_attn.registry import with_python_numbers


@with_python_numbers
def image_transformer(
    vocabulary_size=258,
    image_shape=(32, 32, 3),
    num_layers=12,
    num_heads=4,
    hidden_dim=512,
    intermediate_dim=2048,
    dropout=0.3,
    pattern=None,
    num_mixtures=None,
    encoding="sinusoidal",
    key_dim=None,
    name="image_transformer",
):
    """Build the Image Transformer, which predicts an image value by value from a neighbourhood.

        x = LN(x + LocalSelfAttention(x)),  x = LN(x + FFN(x));   p(v_t | v_<t)

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | block local | coordinates | post | stack | KV cache | categorical, logistics |

    A language model of the tokens of `ImageTokens.of(model)`: the V = `vocabulary_size` - 2 values
    of each channel, padding and start.

    Cost: time O(L T D (K + F)) and memory O(L T F) for T values, each of which reads K others.

    Use it for generating images value by value, with a likelihood.

    Args:
        vocabulary_size: int. Number of values of a channel, and 2.
        image_shape: (height, width, channels).
        num_layers, num_heads, hidden_dim, intermediate_dim: as `gpt`.
        dropout: float. Dropout rate of the embeddings and of the sublayers' outputs.
        pattern: a causal pattern; by default the paper's 1-D one, `BlockLocal1D(256, 256)`. The 2-D
            one is `BlockLocal2D((32, 96), (8, 32), flange=(8, 16))`; tokens are then in its order.
        num_mixtures: int. If given, a token is a whole pixel, the outputs are the parameters of a
            `MixtureOfLogistics(num_mixtures, channels, V)`, not logits, and the labels are
            `tokens.values(images)`, not `tokens.encode(images)`.
        key_dim: int. Size of a head; by default `hidden_dim / num_heads`.
        encoding: "sinusoidal" or "learned", as `keras_attn.positions.ImageCoordinates`.

    Returns:
        A `CausalLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.image_transformer(258, (8, 8, 3), num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, num_mixtures=10)
        >>> model.output.shape
        (None, None, 100)

    Differs from the paper: one table embeds and scores the values of all channels; the position
        encodes the channel.

    Reference: [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), sections 3.1 to 3.4.
    """
    height, width, channels = integers(3, 1, image_shape=image_shape)
    pattern = causal_pattern(pattern)
    embedding, head = layers.TokenEmbedding(vocabulary_size, hidden_dim, pad_id=None), None
    if num_mixtures is not None:
        embedding = layers.PixelEmbedding(vocabulary_size - 2, channels, hidden_dim)
        # Outputs of a model are float32 under any policy.
        head = keras.layers.Dense(
            num_parameters(num_mixtures, channels), dtype="float32", name="head"
        )
        channels = 1

    def block(index):
        size = head_size(hidden_dim, num_heads) if key_dim is None else key_dim
        return layers.TransformerBlock(
            layers.MultiHeadAttention(num_heads, size, pattern=pattern),
            layers.FeedForward(intermediate_dim),
            dropout=dropout,
        )

    return CausalLanguageModel(
        embedding=embedding,
        position=image_position((height, width, channels), pattern, encoding),
        depth=depth.Stack(block, num_layers, name="depth"),
        dropout=dropout,
        head=head,
        name=name,
    )


def causal_pattern(pattern):
    """Return the pattern, by default the paper's 1-D one; raise unless it is causal."""
    pattern = patterns.BlockLocal1D(256, lookback=256) if pattern is None else patterns.get(pattern)
    check_that(pattern.causal, "causal", pattern=pattern)
    return pattern


def image_position(shape, pattern, encoding):
    """Return coordinates of an image (height, width, channels) in the order of the pattern."""
    query_shape, (height, width, channels) = None, shape
    if isinstance(pattern, patterns.BlockLocal2D):
        query_shape = pattern.query_shape
        if pattern.image_shape != (height, width * channels):
            raise ValueError(
                f"`pattern` must be of images of {(height, width * channels)}, with a column for "
                f"each token. Received: image_shape={pattern.image_shape}."
            )
    return positions.ImageCoordinates(*shape, encoding=encoding, query_shape=query_shape)


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
