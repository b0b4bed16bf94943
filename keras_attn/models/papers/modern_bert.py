"""ModernBERT (Warner et al., 2024)."""

import math

import keras

from keras_attn import depth, layers, norms, patterns, positions, registry, residuals
from keras_attn.models.encoder_models import MaskedLanguageModel
from keras_attn.ops.checks import check_choice, check_sizes
from keras_attn.ops.shapes import head_size


def modern_bert(
    vocabulary_size,
    num_layers=22,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=1152,
    dropout=0.0,
    window=128,
    global_every=3,
    max_wavelength=160000,
    local_wavelength=10000,
    pad_id=0,
    name="modern_bert",
    global_layers=None,
    activation="gelu",
    head_activation="gelu",
    epsilon=1e-5,
    biases=(),
):
    """Build ModernBERT, a `bert` with rotary positions, gates and windows, for long texts.

        x = x + SelfAttention(LN(x)),  x = x + GEGLU(LN(x));  logits = LN(gelu(LN(x) W)) E^T + c

    Every third block attends to all tokens, the others to a window.

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | local, dense | rotary | pre | stack | - | masked LM |

    Cost: time O(L T D (T + F)), of which two blocks in three take O(T D (w + F)); memory
    O(L T (N T + F)) with the matrices of scores.

    Use it for classifying and tagging long texts, by features that see both sides.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim: as `gpt`.
        intermediate_dim: int. Width F of the gated feed-forward layers.
        dropout: float. Dropout rate of the sublayers' outputs.
        window: int. Width w of a window, half of it on either side of the query.
        global_every: int. The first of each `global_every` blocks attends to all tokens.
        max_wavelength, local_wavelength: floats. Base of the rotary positions in blocks that attend
            to all tokens, and in blocks with a window.
        pad_id: int. The id of padding; None for none.
        global_layers: list of the indices of the blocks that attend to all tokens, in place of
            `global_every`; None for none.
        activation, head_activation: names or functions, of the feed-forward layers and of the head.
        epsilon: float. Of the norms.
        biases: names of the parts that have biases: among "norm", "attention", "feed_forward" and
            "head".

    Returns:
        A `MaskedLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Raises:
        ValueError: if a size is below 1, or a name in `biases` is unknown.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.modern_bert(100, num_layers=2, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, window=4)
        >>> [block.attention.pattern for block in model.encoder.blocks]
        [Dense(), Local(3, causal=False)]

    Differs from the paper: with `dropout`, the outputs of the feed-forward layers are dropped too;
        rows are padded, unless `segment_ids` join several texts in a row.

    Reference: [Warner et al., 2024](https://arxiv.org/abs/2412.13663), section 2.1 and appendix A.
    """
    check_sizes(num_layers=num_layers, global_every=global_every)
    normal = keras.initializers.TruncatedNormal(stddev=0.02)
    into_residual = keras.initializers.TruncatedNormal(stddev=0.02 / math.sqrt(2 * num_layers))
    init = {"kernel_initializer": normal, "output_initializer": into_residual}
    for part in biases:
        check_choice(("norm", "attention", "feed_forward", "head"), biases=part)
    norm = norms.LayerNorm(epsilon, use_bias="norm" in biases)
    if global_layers is None:
        global_layers = range(0, num_layers, global_every)

    def block(index):
        is_global = index in global_layers
        wavelength = max_wavelength if is_global else local_wavelength
        # The norm of the embeddings takes the place of the first one.
        kind = layers.TransformerBlock if index else AttentionWithoutNormBlock
        return kind(
            layers.MultiHeadAttention(
                num_heads,
                head_size(hidden_dim, num_heads),
                pattern="dense" if is_global else patterns.Local(window // 2 + 1, causal=False),
                position=positions.Rotary(wavelength, "half"),
                use_bias="attention" in biases,
                **init,
            ),
            layers.GatedFeedForward(
                intermediate_dim, activation, use_bias="feed_forward" in biases, **init
            ),
            residual=residuals.PreNorm(norm=norm),
            dropout=dropout,
        )

    embedding = layers.TokenEmbedding(
        vocabulary_size, hidden_dim, pad_id=pad_id, scaled=False, embeddings_initializer=normal
    )
    return MaskedLanguageModel(
        embedding=embedding,
        position=None,
        segment=None,
        norm=registry.copy(norm),
        encoder=depth.Stack(block, num_layers, name="encoder"),
        head=layers.MaskedTokenHead(
            embedding,
            head_activation,
            norm=registry.copy(norm),
            kernel_initializer=normal,
            use_bias="head" in biases,
        ),
        name=name,
    )


@registry.register
class AttentionWithoutNormBlock(layers.TransformerBlock):
    """Block whose attention reads its input as it is; the other residuals are as given."""

    def _residual_of(self, sublayer, residual):
        if sublayer == "attention":
            return residuals.PreNorm(norm="none", dtype=self.dtype_policy)
        return super()._residual_of(sublayer, residual)

    @property
    def residual(self):
        # With a norm, of which the stack adds a copy at its end.
        return self.feed_forward_residual
