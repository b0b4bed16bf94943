"""Conversion of KerasHub's backbones to models.

The functions read the weights of the backbone that they receive; KerasHub is never imported.
"""

import keras
import numpy as np

from keras_attn.convert.comparison import compare_outputs
from keras_attn.convert.hugging_face.checkpoint import Checkpoint
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.conversion import convert
from keras_attn.convert.hugging_face.families import FAMILIES
from keras_attn.convert.keras_hub_kinds import GEMMA, GEMMA_2, KINDS
from keras_attn.convert.keras_hub_names import list_tensors

# KerasHub's Qwen 3 differs from ours by 3e-5.
FLOAT32_TOLERANCE, ROTARY_TOLERANCE = 1e-5, 5e-4
LENGTH = 11


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
        _compare(backbone, model, options)
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


def _compare(backbone, model, options):
    inputs, outputs = _sample(backbone, model, options)
    ours = model(inputs)
    is_rotary = "rope_theta" in options
    difference, tolerance = compare_outputs(
        *(outputs, ours, model.compute_dtype),
        ROTARY_TOLERANCE if is_rotary else FLOAT32_TOLERANCE,
    )
    if not difference <= tolerance:
        raise ValueError(
            "`backbone` and the model with its weights compute different outputs, so the "
            f"conversion is refused. Received: backbone={backbone!r}, whose output differs by "
            f"{difference:.2g} of its largest value, where {tolerance:.2g} is allowed."
        )


def _sample(backbone, model, options):
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
                **{"encoder_token_ids": source, "encoder_padding_mask": source_mask},
                **{"decoder_token_ids": target, "decoder_padding_mask": target_mask},
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
