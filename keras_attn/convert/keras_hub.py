"""Conversion of KerasHub's Transformer layers to `TransformerBlock`s.

The functions read the attributes of the layer that they receive; KerasHub is never imported.
"""

import numpy as np
from keras import ops

from keras_attn.compat.keras_hub_layers import hub_sublayers
from keras_attn.convert.comparison import compare_outputs
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.norms import LayerNorm
from keras_attn.residuals import PostNorm, PreNorm

FLOAT32_TOLERANCE = 1e-5


def from_keras_hub_encoder(layer):
    """Build a block with the weights and the outputs of a KerasHub `TransformerEncoder`.

    The block takes over sizes, activation, epsilon, dropout, dtype policy and the place of the
    norms. Before it is returned, both layers compute a padded batch, and the outputs are compared.

        encoder = keras_hub.layers.TransformerEncoder(intermediate_dim=64, num_heads=8)
        encoder.build((None, None, 32))
        block = keras_attn.convert.from_keras_hub_encoder(encoder)

    A pre-norm stack of keras_attn ends with a norm; in KerasHub the user adds that norm.

    Args:
        layer: a built `keras_hub.layers.TransformerEncoder`.

    Returns:
        A built `TransformerBlock`, from (B, T, D) to (B, T, D).

    Raises:
        ValueError: if `layer` is not such a layer, is not built, or computes something else.

    Differs from the paper: like KerasHub's layer, it applies dropout to attention weights too.

    Reference: [KerasHub](https://keras.io/keras_hub/api/modeling_layers/transformer_encoder/),
        `TransformerEncoder`, version 0.32.
    """
    block = _build_block(layer, "TransformerEncoder", pattern="dense")
    x, mask = _sample(block.attention, seed=0)
    _compare(layer(x, padding_mask=mask), block(x, padding_mask=mask), layer)
    return block


def from_keras_hub_decoder(layer):
    """Build a causal block with the weights and the outputs of a KerasHub `TransformerDecoder`.

    As `from_keras_hub_encoder`. The block has cross-attention if the layer was built with it; both
    are then called as `layer(x, context)`.

        decoder = keras_hub.layers.TransformerDecoder(intermediate_dim=64, num_heads=8)
        decoder.build((None, None, 32), (None, None, 48))
        block = keras_attn.convert.from_keras_hub_decoder(decoder)

    Args:
        layer: a built `keras_hub.layers.TransformerDecoder`.

    Returns:
        A built `TransformerBlock`, from (B, T, D) and the context (B, S, D) to (B, T, D).

    Raises:
        ValueError: if `layer` is not such a layer, is not built, or computes something else.

    Differs from the paper: like KerasHub's layer, it applies dropout to attention weights too.

    Reference: [KerasHub](https://keras.io/keras_hub/api/modeling_layers/transformer_decoder/),
        `TransformerDecoder`, version 0.32.
    """
    block = _build_block(layer, "TransformerDecoder", pattern="causal")
    x, mask = _sample(block.attention, seed=0)
    if block.cross_attention is None:
        theirs, ours = layer(x, decoder_padding_mask=mask), block(x, padding_mask=mask)
    else:
        context, context_mask = _sample(block.cross_attention, seed=1, of="value")
        theirs = layer(x, context, decoder_padding_mask=mask, encoder_padding_mask=context_mask)
        ours = block(x, context, padding_mask=mask, context_padding_mask=context_mask)
    _compare(theirs, ours, layer)
    return block


def _build_block(layer, kind, pattern):
    """Return a block of the layer's sizes with its weights."""
    hub = hub_sublayers(layer)
    is_built = "self_attention" in hub and layer.built
    if not is_built or ("cross_attention" in hub) != (kind == "TransformerDecoder"):
        raise ValueError(f"`layer` must be a built KerasHub `{kind}`. Received: layer={layer!r}.")
    crosses = hub.get("cross_attention") is not None
    kernels = {"kernel_initializer": layer.kernel_initializer, "dtype": layer.dtype_policy}

    def attention(name, pattern):
        return MultiHeadAttention(
            hub[name].num_heads,
            hub[name].key_dim,
            pattern=pattern,
            dropout=layer.dropout,
            bias_initializer=layer.bias_initializer,
            **kernels,
        )

    residual = PreNorm if layer.normalize_first else PostNorm
    norm = LayerNorm(layer.layer_norm_epsilon, dtype=layer.dtype_policy)
    block = TransformerBlock(
        attention("self_attention", pattern),
        FeedForward(layer.intermediate_dim, activation=layer.activation, **kernels),
        cross_attention=attention("cross_attention", "dense") if crosses else None,
        residual=residual(norm=norm, dtype=layer.dtype_policy),
        dropout=layer.dropout,
        dtype=layer.dtype_policy,
        name=layer.name,
    )
    projections = [hub["self_attention"].query_dense]
    if crosses:
        projections.append(hub["cross_attention"].value_dense)
    block.build(*((None, None, projection.kernel.shape[0]) for projection in projections))
    copies = [
        (block.attention, "self_attention"),
        (block.attention_residual.norm, "self_attention_norm"),
        (block.feed_forward_residual.norm, "feed_forward_norm"),
    ]
    if crosses:
        copies.append((block.cross_attention, "cross_attention"))
        copies.append((block.cross_attention_residual.norm, "cross_attention_norm"))
    for ours, name in copies:
        ours.set_weights(hub[name].get_weights())
    dense = [hub["intermediate_dense"], hub["output_dense"]]
    block.feed_forward.set_weights([w for theirs in dense for w in theirs.get_weights()])
    return block


def _sample(attention, seed, of="query"):
    """Return random input (2, 5, D) and a mask that ends the second row early."""
    width = getattr(attention, f"{of}_kernel").shape[0]
    x = np.random.default_rng(seed).standard_normal((2, 5, width)).astype("float32")
    return ops.convert_to_tensor(x), ops.convert_to_tensor(np.arange(5) < np.array([[5], [3]]))


def _compare(theirs, ours, layer):
    difference, tolerance = compare_outputs(theirs, ours, layer.compute_dtype, FLOAT32_TOLERANCE)
    if not difference <= tolerance:
        raise ValueError(
            "`layer` and the block with its weights compute different outputs, so the conversion "
            f"is refused. Received: layer={layer!r}, whose output differs by {difference:.2g} of "
            f"its largest value, where {tolerance:.2g} is allowed."
        )
