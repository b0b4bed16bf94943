"""Blocks from KerasHub's layers. KerasHub itself is never imported: its layers are read."""

import numpy as np
from keras import ops

from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.residuals import PostNorm, PreNorm

# Largest difference of outputs, relative to the largest output, by the layer's compute dtype.
TOLERANCE = {"float16": 2.0**-7, "bfloat16": 2.0**-4}
FLOAT32_TOLERANCE = 1e-5


def from_keras_hub_encoder(layer):
    """A block with the weights and the outputs of a KerasHub `TransformerEncoder`.

    Sizes, activation, epsilon, dropout, dtype policy and the place of the norms are taken over.
    Before the block is returned, both compute a padded batch, and the outputs are compared.

        encoder = keras_hub.layers.TransformerEncoder(intermediate_dim=64, num_heads=8)
        encoder.build((None, None, 32))
        block = keras_attn.convert.from_keras_hub_encoder(encoder)

    A pre-norm stack of ours ends with a norm that KerasHub leaves to the user.

    Args:
        layer: a built `keras_hub.layers.TransformerEncoder`.

    Returns:
        A built `TransformerBlock`.

    Raises:
        ValueError: if `layer` is no such layer, is not built, or computes something else.

    Differs from the paper: as KerasHub's layer, it drops attention weights, too.

    Reference: [KerasHub](https://keras.io/keras_hub/api/modeling_layers/transformer_encoder/),
        `TransformerEncoder`, version 0.32.
    """
    block = _block(layer, "TransformerEncoder", pattern="dense")
    x, mask = _sample(block.attention, seed=0)
    _compare(layer(x, padding_mask=mask), block(x, padding_mask=mask), layer)
    return block


def from_keras_hub_decoder(layer):
    """A causal block with the weights and the outputs of a KerasHub `TransformerDecoder`.

    As `from_keras_hub_encoder`; with cross-attention if the layer was built with it. Where
    KerasHub's layer is called as `layer(x, context)`, so is the block.

        decoder = keras_hub.layers.TransformerDecoder(intermediate_dim=64, num_heads=8)
        decoder.build((None, None, 32), (None, None, 48))
        block = keras_attn.convert.from_keras_hub_decoder(decoder)

    Args:
        layer: a built `keras_hub.layers.TransformerDecoder`.

    Returns:
        A built `TransformerBlock`.

    Raises:
        ValueError: if `layer` is no such layer, is not built, or computes something else.

    Differs from the paper: as KerasHub's layer, it drops attention weights, too.

    Reference: [KerasHub](https://keras.io/keras_hub/api/modeling_layers/transformer_decoder/),
        `TransformerDecoder`, version 0.32.
    """
    block = _block(layer, "TransformerDecoder", pattern="causal")
    x, mask = _sample(block.attention, seed=0)
    if block.cross_attention is None:
        theirs, ours = layer(x, decoder_padding_mask=mask), block(x, padding_mask=mask)
    else:
        context, context_mask = _sample(block.cross_attention, seed=1, of="value")
        theirs = layer(x, context, decoder_padding_mask=mask, encoder_padding_mask=context_mask)
        ours = block(x, context, padding_mask=mask, context_padding_mask=context_mask)
    _compare(theirs, ours, layer)
    return block


def _block(layer, kind, pattern):
    """A block of the layer's sizes with its weights."""
    is_attention = hasattr(layer, "_self_attention_layer") and layer.built
    is_decoder = hasattr(layer, "_cross_attention_layer")  # None where built without a context
    if not is_attention or is_decoder != (kind == "TransformerDecoder"):
        raise ValueError(f"`layer` must be a built KerasHub `{kind}`. Received: layer={layer!r}.")
    hub_cross = getattr(layer, "_cross_attention_layer", None)
    policy = layer.dtype_policy

    def attention(hub, pattern):
        return MultiHeadAttention(
            hub.num_heads,
            hub.key_dim,
            pattern=pattern,
            dropout=layer.dropout,
            kernel_initializer=layer.kernel_initializer,
            bias_initializer=layer.bias_initializer,
            dtype=policy,
        )

    residual = PreNorm if layer.normalize_first else PostNorm
    block = TransformerBlock(
        attention(layer._self_attention_layer, pattern),
        FeedForward(
            layer.intermediate_dim,
            activation=layer.activation,
            kernel_initializer=layer.kernel_initializer,
            dtype=policy,
        ),
        cross_attention=None if hub_cross is None else attention(hub_cross, "dense"),
        residual=residual(epsilon=layer.layer_norm_epsilon, dtype=policy),
        dropout=layer.dropout,
        dtype=policy,
        name=layer.name,
    )
    widths = [layer._self_attention_layer.query_dense.kernel.shape[0]]
    if hub_cross is not None:
        widths.append(hub_cross.value_dense.kernel.shape[0])
    block.build(*((None, None, width) for width in widths))
    for name in ("self_attention", "cross_attention", "feedforward"):
        _move(layer, block, name)
    return block


def _move(layer, block, name):
    """The weights of one sublayer and of its norm, if the layer has that sublayer."""
    ours = {"self_attention": "attention", "feedforward": "feed_forward"}.get(name, name)
    if getattr(block, ours) is None:
        return
    if name == "feedforward":
        dense = layer._feedforward_intermediate_dense, layer._feedforward_output_dense
        weights = [weight for each in dense for weight in each.get_weights()]
    else:
        weights = getattr(layer, f"_{name}_layer").get_weights()
    getattr(block, ours).set_weights(weights)
    norm = getattr(layer, f"_{name}_layer_norm")
    getattr(block, f"{ours}_residual").norm.set_weights(norm.get_weights())


def _sample(attention, seed, of="query"):
    """Random input (2, 5, D) and a mask that ends the second row early."""
    width = getattr(attention, f"{of}_kernel").shape[0]
    x = np.random.default_rng(seed).standard_normal((2, 5, width)).astype("float32")
    return ops.convert_to_tensor(x), ops.convert_to_tensor(np.arange(5) < np.array([[5], [3]]))


def _compare(theirs, ours, layer):
    theirs, ours = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in (theirs, ours))
    difference = float(np.max(np.abs(theirs - ours)) / np.max(np.abs(theirs)))
    tolerance = TOLERANCE.get(layer.compute_dtype, FLOAT32_TOLERANCE)
    if not difference <= tolerance:
        raise ValueError(
            f"`layer` computes something else than the block made of it, so nothing was moved. "
            f"Received: layer={layer!r}, whose output differs by {difference:.2g} of its largest "
            f"value, where {tolerance:.2g} is allowed."
        )
