"""The Vision Transformer (Dosovitskiy et al., 2021)."""

import keras

from keras_attn import depth, layers, norms, positions, residuals
from keras_attn.models.encoder_models import Classifier
from keras_attn.ops.images import integers
from keras_attn.ops.shapes import head_size


def vit(
    num_classes=1000,
    image_shape=(224, 224, 3),
    patch_size=16,
    num_layers=12,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=3072,
    dropout=0.1,
    pooling="first",
    activation="gelu",
    epsilon=1e-6,
    name="vit",
):
    """Build the Vision Transformer, an encoder of the patches of an image.

        x = [c; patches W + b] + P;  x = x + SelfAttention(LN(x)),  x = x + FFN(LN(x))
        logits = LN(x)_0 W_c + b_c

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | dense | learned | pre | stack | - | classes |

    Cost: time O(L T D (T + F)), and memory O(L T (N T + F)) with the matrices of scores, for T
    patches.

    Use it for classifying images, and as an encoder of images.

    Args:
        num_classes: int. Number of classes.
        image_shape: (height, width, channels) of the images, in multiples of `patch_size`.
        patch_size: int. Rows, and columns, of a patch.
        num_layers, num_heads, hidden_dim, intermediate_dim: as `gpt`.
        dropout: float. Dropout rate of the embeddings, of the sublayers' outputs and of the
            feed-forward layers' hidden layer.
        pooling: "first" to classify by the output of the vector c, or "mean" for that of all
            patches, and no c.
        activation: name or function, of the feed-forward layers.
        epsilon: float. Of the norms.

    Returns:
        A `Classifier`, from images (B, height, width, channels) to logits (B, num_classes).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.vit(10, (8, 8, 1), 4, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16)
        >>> model.output.shape
        (None, 10)

    Differs from the paper: the head has no hidden layer, as in the paper's fine-tuning.

    Reference: [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929), section 3.1, table 1.
    """
    image_shape = integers(3, 1, image_shape=image_shape)

    def block(index):
        return layers.TransformerBlock(
            layers.MultiHeadAttention(num_heads, head_size(hidden_dim, num_heads)),
            layers.FeedForward(intermediate_dim, activation, dropout=dropout),
            residual=residuals.PreNorm(norm=norms.LayerNorm(epsilon)),
            dropout=dropout,
        )

    embedding = layers.PatchEmbedding(patch_size, hidden_dim, class_token=pooling == "first")
    normal = keras.initializers.RandomNormal(stddev=0.02)
    return Classifier(
        embedding=embedding,
        encoder=depth.Stack(block, num_layers, name="encoder"),
        num_classes=num_classes,
        position=positions.Learned(
            embedding.num_tokens(image_shape), embeddings_initializer=normal
        ),
        image_shape=image_shape,
        pooling=pooling,
        dropout=dropout,
        name=name,
    )
