"""The causal stack that Llama, Mixtral, gpt-oss, Gemma, Qwen, OLMo and Phi share."""

import keras

from keras_attn import depth, layers, norms, patterns, registry, scores
from keras_attn.initializers import redraw
from keras_attn.models import assembly
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.ops.shapes import head_size
from keras_attn.patterns.per_layer import pattern_of


def decoder(
    vocabulary_size,
    num_layers,
    num_heads,
    hidden_dim,
    feed_forward,
    position,
    *,
    dropout=0.0,
    num_key_value_heads=None,
    key_dim=None,
    score="scaled_dot",
    pattern="causal",
    sinks=False,
    has_qk_norm=False,
    qk_norm_axis="head",
    use_bias=False,
    added_position=None,
    block_type=layers.TransformerBlock,
    residual="pre_norm",
    norm=None,
    scaled=False,
    logits_cap=None,
    tied=False,
    head_bias=False,
    pad_id=0,
    name=None,
):
    """Build a causal stack with rotary positions; each paper's builder names its choices.

        x = x + SelfAttention(Norm(x)),  x = x + FFN(Norm(x));  logits = Norm(x) W

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, dropout: as `llama`.
        feed_forward: function from the initializer of kernels and the layer's index to the
            feed-forward layer of a block.
        position: function from the layer's index to the position of its attention's heads; None
            for none.
        num_key_value_heads: int. Heads of keys and values; by default `num_heads`.
        key_dim: int. Size H of a head; by default `hidden_dim` divided by `num_heads`.
        score: name or object of the score axis, of which each attention has a copy.
        pattern: name or object of a causal pattern, or a function of the layer's index.
        sinks: bool. If True, each head has a sink.
        has_qk_norm: bool. If True, queries and keys have norms.
        qk_norm_axis: as `MultiHeadAttention`.
        use_bias: bool. If True, the projections of the attention have biases.
        added_position: the position that is added to embeddings; None for none.
        block_type: function that makes a block, as `TransformerBlock` does.
        residual: name or object of the residual axis.
        norm: the norm of a residual made from a name, and of queries and keys; by default
            `RMSNorm(1e-6)`.
        scaled: bool. If True, embeddings are multiplied by the root of `hidden_dim`.
        logits_cap: float. Bound of the model's logits, which are tied then; None for none.
        tied: bool. If True, the logits share the token table.
        head_bias: bool. If True, logits that share no table have a bias.
        pad_id: int. The id of padding; None for none.
        name: str. Name of the model.

    Returns:
        A `CausalLanguageModel`.
    """
    normal = keras.initializers.RandomNormal(stddev=0.02)
    norm = norms.RMSNorm(1e-6) if norm is None else norm
    score = scores.get(score)

    def block(index):
        return block_type(
            layers.MultiHeadAttention(
                num_heads,
                head_size(hidden_dim, num_heads) if key_dim is None else key_dim,
                score=registry.copy(score),
                pattern=pattern_of(pattern, index),
                position=position(index),
                qk_norm=norm if has_qk_norm else None,
                qk_norm_axis=qk_norm_axis,
                sinks=sinks,
                num_key_value_heads=num_key_value_heads,
                use_bias=use_bias,
                kernel_initializer=normal,
            ),
            feed_forward(normal, index),
            residual=assembly.residual_of(residual, norm),
            dropout=dropout,
        )

    return CausalLanguageModel(
        embedding=layers.TokenEmbedding(
            vocabulary_size,
            hidden_dim,
            scaled,
            pad_id,
            embeddings_initializer=normal,
            logits_cap=logits_cap,
        ),
        position=added_position,
        depth=depth.Stack(block, num_layers, name="depth"),
        head=None if tied else untied_head(vocabulary_size, normal, head_bias),
        name=name,
    )


@registry.with_python_numbers
def untied_head(vocabulary_size, initializer, use_bias=False):
    """Return a float32 layer of logits with weights of its own."""
    return keras.layers.Dense(
        vocabulary_size,
        use_bias=use_bias,
        kernel_initializer=redraw(initializer),
        dtype="float32",
        name="head",
    )


def windows_in_turn(window):
    """Return the function from a layer's index to its pattern: a window first, then all keys."""
    return lambda index: "causal" if index % 2 else patterns.Local(window)
