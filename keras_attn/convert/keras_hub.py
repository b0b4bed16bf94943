"""Conversion of KerasHub's Transformer layers to `TransformerBlock`s, of its backbones to models.

The functions read the attributes and weights of what they receive; KerasHub is never imported.
"""

import keras
import numpy as np
from keras import ops

from keras_attn.compat.keras_hub_layers import hub_sublayers
from keras_attn.convert.golden import compare_outputs
from keras_attn.convert.hugging_face.checkpoint import Checkpoint
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.conversion import convert
from keras_attn.convert.hugging_face.families import FAMILIES
from keras_attn.convert.keras_hub_kinds import GEMMA, GEMMA_2, KINDS, list_tensors
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.norms import LayerNorm
from keras_attn.residuals import PostNorm, PreNorm

# KerasHub's Qwen 3 differs from ours by 3e-5.
FLOAT32_TOLERANCE, ROTARY_TOLERANCE = 1e-5, 5e-4
LENGTH = 11


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


def from_keras_hub(backbone, **overrides):
    """Build a model with the weights and the outputs of a backbone of KerasHub.

    Backbones of BERT, DistilBERT, RoBERTa, GPT-2, Llama, Mistral, Qwen 2 and 3, Gemma 1 and 2, and
    BART become the models that `from_hugging_face` makes of such checkpoints. Without overrides,
    both compute a padded batch, and the outputs are compared.

        backbone = keras_hub.models.GPT2Backbone.from_preset("gpt2_base_en")
        model = keras_attn.convert.from_keras_hub(backbone, dropout=0.2)

    Args:
        backbone: a `keras_hub.models.Backbone`.
        overrides: as `from_hugging_face`.

    Returns:
        The model: a `CausalLanguageModel`, an `EncoderDecoder`, or a `Classifier` without classes,
        whose output are features.

    Raises:
        ValueError: if `backbone` is of another class, has options that our parts do not compute,
            or computes something else; or if an override is unknown.

    Differs from the paper: each family as KerasHub computes it: BERT has the approximation of GELU
        by tanh, RoBERTa no vector of segments.

    Reference: [KerasHub](https://keras.io/keras_hub/api/models/), version 0.32.
    """
    kind = _kind_of(backbone)
    options = {"model_type": kind.model_type, **kind.options(backbone.get_config())}
    config = _BackboneConfig(backbone, options)
    checkpoint = Checkpoint(config, list_tensors(backbone, kind))
    model = convert(checkpoint, FAMILIES[kind.model_type], overrides)
    if not overrides:  # which may change the outputs
        _compare_backbone(backbone, model, options)
    return model


class _BackboneConfig(Config):
    """The options of a backbone, in the place of those of a folder."""

    def __init__(self, backbone, values):
        super().__init__(None, values)
        self._backbone = backbone

    def refuse(self, problem):
        raise ValueError(f"{problem} Received: backbone={self._backbone!r}.")


def _kind_of(backbone):
    names = [cls.__name__ for cls in type(backbone).__mro__]
    if isinstance(backbone, keras.Model):
        if "GemmaBackbone" in names:
            return GEMMA_2 if backbone.get_config()["use_post_attention_norm"] else GEMMA
        for name in names:
            if name in KINDS:
                return KINDS[name]
    raise ValueError(
        "`backbone` must be a backbone of KerasHub: GemmaBackbone, "
        f"{', '.join(sorted(KINDS))}. Received: backbone={backbone!r}."
    )


def _compare_backbone(backbone, model, options):
    inputs, outputs = _sample_backbone(backbone, model, options)
    ours = model(inputs)
    is_rotary = "rope_theta" in options
    difference, tolerance = compare_outputs(
        outputs,
        ours,
        model.compute_dtype,
        ROTARY_TOLERANCE if is_rotary else FLOAT32_TOLERANCE,
    )
    if not difference <= tolerance:
        raise ValueError(
            "`backbone` and the model with its weights compute different outputs, so the "
            f"conversion is refused. Received: backbone={backbone!r}, whose output differs by "
            f"{difference:.2g} of its largest value, where {tolerance:.2g} is allowed."
        )


def _sample_backbone(backbone, model, options):
    """Return inputs of the model, and the backbone's outputs for them."""
    length = min(LENGTH, model.max_length or LENGTH)
    random = np.random.default_rng(0)

    def draw(pad_id=None):
        ids = random.integers(0, options["vocab_size"], (2, length))
        if pad_id is None:
            return ids, np.ones(ids.shape, "int32")
        ids[ids == pad_id] = pad_id + 2
        ids[1, length * 2 // 3 :] = pad_id
        return ids, (ids != pad_id).astype("int32")

    if "encoder_token_ids" in backbone.input:
        (source, source_mask), (target, target_mask) = draw(pad_id=1), draw()
        target[:, 0] = options["decoder_start_token_id"]
        theirs = backbone(
            {
                "encoder_token_ids": source,
                "encoder_padding_mask": source_mask,
                "decoder_token_ids": target,
                "decoder_padding_mask": target_mask,
            }
        )
        logits = backbone.token_embedding(theirs["decoder_sequence_output"], reverse=True)
        return {"source_ids": source, "target_ids": target}, logits
    is_causal = hasattr(model, "depth")
    ids, mask = draw(None if is_causal else model.embedding.pad_id)
    inputs = {"token_ids": ids}
    if "segment_ids" in backbone.input:
        inputs["segment_ids"] = random.integers(0, options["type_vocab_size"], ids.shape)
    theirs = backbone({**inputs, "padding_mask": mask})
    if is_causal:
        return inputs, backbone.token_embedding(theirs, reverse=True)  # with a cap if it has one
    pooled = theirs["pooled_output"] if isinstance(theirs, dict) else theirs[:, 0]
    return inputs, pooled
