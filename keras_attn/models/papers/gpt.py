"""GPT-2 (Radford et al., 2019)."""

import math

import keras

from keras_attn import depth, layers, norms, positions, registry, scores
from keras_attn.models import assembly
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.ops.activations import gelu_tanh
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import head_size
from keras_attn.patterns.per_layer import pattern_of


def gpt(
    vocabulary_size,
    num_layers=12,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=3072,
    dropout=0.1,
    max_length=1024,
    pattern="causal",
    activation=gelu_tanh,
    epsilon=1e-5,
    pad_id=0,
    name="gpt",
    score="scaled_dot",
    position="learned",
    residual="pre_norm",
):
    """Build GPT-2, a causal stack that predicts the next token.

        x = x + CausalSelfAttention(LN(x)),  x = x + FFN(LN(x));  logits = LN(x) E^T

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | causal | learned | pre | stack | KV cache | LM |

    Cost: time O(L T D (T + F)), and memory O(L T (N T + F)) with the matrices of scores.

    Use it for generating text, and as the base of a language model of your own.

    Args:
        vocabulary_size: int. Number of tokens V, the id of padding included.
        num_layers: int. Number of blocks L.
        num_heads: int. Number of heads N of each attention; it divides `hidden_dim`.
        hidden_dim: int. Width D.
        intermediate_dim: int. Width F of the feed-forward layers.
        dropout: float. Dropout rate of the embeddings, of the attention weights and of the
            sublayers' outputs.
        max_length: int. Number of learned positions.
        pattern: name or object of a causal pattern, or a function of the layer's index.
        activation: name or function, of the feed-forward layers.
        epsilon: float. Of the norms.
        pad_id: int. The id of padding; None for none.
        score: name or object of the score axis, of which each attention has a copy.
        position: "learned", or a name or object of the position axis; one that acts on heads, such
            as "rotary", is that of each attention. None for none, as with `ALiBi`.
        residual: name or object of the residual axis. An object holds its norm; one made from a
            name has the model's.

    Returns:
        A `CausalLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.gpt(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> model.output.shape
        (None, None, 100)

    Differs from the paper: by default token id 0 is padding, not a token.

    Reference: [Radford et al., 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf),
        section 2.3.
    """
    check_sizes(num_layers=num_layers)
    score, norm = scores.get(score), norms.LayerNorm(epsilon)
    normal = keras.initializers.RandomNormal(stddev=0.02)
    # Each layer adds twice to the residual stream; the scale keeps its variance that of one sum.
    into_residual = keras.initializers.RandomNormal(stddev=0.02 / math.sqrt(2 * num_layers))
    init = {"kernel_initializer": normal, "output_initializer": into_residual}

    position, position_of_heads = assembly.split_position(
        position, learned=lambda: positions.Learned(max_length, embeddings_initializer=normal)
    )

    def block(index):
        return layers.TransformerBlock(
            layers.MultiHeadAttention(
                num_heads,
                head_size(hidden_dim, num_heads),
                score=registry.copy(score),
                pattern=pattern_of(pattern, index),
                position=position_of_heads(),
                dropout=dropout,
                **init,
            ),
            layers.FeedForward(intermediate_dim, activation, **init),
            residual=assembly.residual_of(residual, norm),
            dropout=dropout,
        )

    return CausalLanguageModel(
        embedding=layers.TokenEmbedding(
            vocabulary_size, hidden_dim, pad_id=pad_id, scaled=False, embeddings_initializer=normal
        ),
        position=position,
        depth=depth.Stack(block, num_layers, name="depth"),
        dropout=dropout,
        name=name,
    )
