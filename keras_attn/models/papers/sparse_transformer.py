"""The Sparse Transformer (Child et al., 2019)."""

import math
import random

import keras

from keras_attn import depth, layers, patterns, positions
from keras_attn.initializers import WaveTable
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.ops.activations import gelu_sigmoid
from keras_attn.ops.checks import check_choice, check_sizes
from keras_attn.ops.images import integers
from keras_attn.ops.shapes import head_size


def sparse_transformer(
    vocabulary_size,
    num_layers=12,
    num_heads=8,
    hidden_dim=512,
    intermediate_dim=2048,
    dropout=0.1,
    image_shape=(32, 128, 1),
    stride=None,
    summary=None,
    factors="merged",
    key_dim=None,
    remat=True,
    name="sparse_transformer",
):
    """Build the Sparse Transformer, whose queries attend to about the square root of the past keys.

        x = x + SparseSelfAttention(LN(x)),  x = x + FFN(LN(x));  logits = LN(x) E^T

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | strided, fixed | row, column, channel | pre, 1/sqrt(2N) | stack, remat | - | LM |

    A sequence is an image of (rows, columns, channels), row by row. The authors use the strided
    pattern for images, and the fixed one, selected by `summary`, for text. In our runs on text with
    contexts of 512 and 1,024 the strided one is better: see recipes/language_model.

    Cost: time O(L T D (sqrt(T) + F)) with a stride near sqrt(T), and memory O(T (sqrt(L) D + F))
    with `remat`.

    Use it for images, sound and long text as sequences of thousands of values.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `gpt`.
        dropout: float. Dropout rate of the embeddings and of the sublayers' outputs.
        image_shape: three ints. A text of so many tokens is (tokens / stride, stride, 1).
        stride: int. Stride of the pattern; by default the length of a row.
        summary: int. Summary keys at the end of each row, for `Fixed`; None for `Strided`.
        factors: "merged", both in every head; "interleaved", one after the other in the layers;
            "per_head", one in the first half of the heads and one in the other, of at least two;
            "full", all past keys, the paper's baseline. With `summary` small models predict worse
            if the factors are apart, most of all from the first columns of a row.
        key_dim: int. Size of each head's queries and keys; by default that of its values,
            `hidden_dim / num_heads`, of which the paper's model of small images has half.
        remat: bool. If True, the backward pass recomputes the blocks' activations.

    Returns:
        A `CausalLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.sparse_transformer(vocabulary_size=100, num_layers=2,
        ...     num_heads=2, hidden_dim=8, intermediate_dim=16, image_shape=(4, 6, 1))
        >>> model.output.shape
        (None, None, 100)

    Differs from the paper: the logits share the token table, and so tokens and positions begin with
        a deviation of 1 / sqrt(D), that of logits near 1, not 0.125 / sqrt(D) beside logits of
        zero; the learned tables of positions begin as waves, not as random numbers; kernels begin
        with sqrt(0.125 / d_in), as in the authors' code, not 0.125 / sqrt(d_in), but in the first
        layer of `factors="full"` keys begin as queries, of variance 6 / (sqrt(d_k) d_in); all heads
        share one set of summary keys.

    Reference: [Child et al., 2019](https://arxiv.org/abs/1904.10509), sections 4.3 and 5; products
        of queries and keys that begin near an identity: [Trockman and Kolter,
        2023](https://arxiv.org/abs/2305.09828).
    """
    check_choice(("merged", "interleaved", "per_head", "full"), factors=factors)
    size = head_size(hidden_dim, num_heads)
    key_dim = size if key_dim is None else key_dim
    check_sizes(num_layers=num_layers, key_dim=key_dim)
    if factors == "per_head" and num_heads < 2:
        raise ValueError(
            "`factors='per_head'` needs at least two heads, one for each factor. "
            f"Received: num_heads={num_heads}."
        )
    image_shape = integers(3, 1, image_shape=image_shape)
    stride = image_shape[1] * image_shape[2] if stride is None else stride
    near, far = ("local", "column") if summary is None else ("block", "summary")

    def pattern(factor):
        if summary is None:
            return patterns.Strided(stride, factor)
        return patterns.Fixed(stride, summary, factor)

    def pattern_of(index):
        if factors == "full":
            return "causal"
        if factors == "merged":
            return pattern("both")
        if factors == "interleaved":
            return pattern((near, far)[index % 2])
        first = num_heads // 2
        return patterns.PerHead([pattern(near)] * first + [pattern(far)] * (num_heads - first))

    def normal(fan_in, scale=1.0):
        return keras.initializers.RandomNormal(stddev=scale * math.sqrt(0.125 / fan_in))

    # Each layer adds twice to the residual stream; the scale keeps its variance that of one sum.
    into_residual = 1 / math.sqrt(2 * num_layers)

    # A pattern shows a head fewer keys. With all keys a head first reads those of like rows or
    # columns if keys begin as queries, by one seed: see recipes/language_model. The score of a
    # position with itself is then 6.
    shared = None
    if factors == "full":
        scale = 6 / math.sqrt(key_dim)
        shared = keras.initializers.VarianceScaling(scale, seed=random.randrange(2**31))

    def block(index):
        first_kernel = shared if index == 0 else None
        return layers.TransformerBlock(
            layers.MultiHeadAttention(
                num_heads,
                key_dim,
                size,
                pattern=pattern_of(index),
                kernel_initializer=normal(hidden_dim),
                query_initializer=first_kernel,
                key_initializer=first_kernel,
                output_initializer=normal(hidden_dim, into_residual),
            ),
            layers.FeedForward(
                intermediate_dim,
                activation=gelu_sigmoid,
                kernel_initializer=normal(hidden_dim),
                output_initializer=normal(intermediate_dim, into_residual),
            ),
            residual="pre_norm",
            dropout=dropout,
        )

    # Tied tokens that begin smaller than logits learn far more slowly, and positions that begin as
    # random vectors more slowly than waves: see recipes/language_model.
    deviation = 1 / math.sqrt(hidden_dim)
    return CausalLanguageModel(
        embedding=layers.TokenEmbedding(
            vocabulary_size,
            hidden_dim,
            scaled=False,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=deviation),
        ),
        position=positions.ImageCoordinates(
            *image_shape, embeddings_initializer=WaveTable(deviation)
        ),
        depth=depth.Stack(block, num_layers, remat=remat, name="depth"),
        dropout=dropout,
        name=name,
    )
