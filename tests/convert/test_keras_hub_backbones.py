"""Backbones of KerasHub, converted, give the backbones' outputs."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_attn import patterns
from keras_attn.convert import from_keras_hub

hub = keras_hub.models
SIZES = {"vocabulary_size": 29, "num_layers": 2, "hidden_dim": 12, "intermediate_dim": 18}
HEADS = {**SIZES, "num_heads": 3, "max_sequence_length": 23}
GROUPS = {**SIZES, "hidden_dim": 24, "num_query_heads": 4, "num_key_value_heads": 2}
HEAD = {**GROUPS, "hidden_dim": 12, "head_dim": 6}
LLAMA_3 = {
    **{"rope_frequency_adjustment_factor": 8.0, "rope_low_freq_factor": 1.0},
    **{"rope_high_freq_factor": 4.0, "rope_pretraining_sequence_length": 16},
}
GEMMA_2 = {
    **{"use_post_ffw_norm": True, "use_post_attention_norm": True},
    **{"attention_logit_soft_cap": 1.5, "final_logit_soft_cap": 3.0},
    **{"use_sliding_window_attention": True, "sliding_window_size": 5},
}
CASES = {
    "bart": (hub.BartBackbone, HEADS),
    "bert": (hub.BertBackbone, HEADS),
    "distilbert": (hub.DistilBertBackbone, HEADS),
    "roberta": (hub.RobertaBackbone, HEADS),
    "gpt2": (hub.GPT2Backbone, HEADS),
    "llama": (hub.Llama3Backbone, {**GROUPS, **LLAMA_3}),
    "llama_tied": (hub.LlamaBackbone, {**GROUPS, "tie_word_embeddings": True}),
    "mistral": (hub.MistralBackbone, {**GROUPS, "sliding_window": 5}),
    "qwen2": (hub.QwenBackbone, GROUPS),
    "qwen3": (hub.Qwen3Backbone, HEAD),
    "gemma": (hub.GemmaBackbone, HEAD),
    "gemma2": (hub.GemmaBackbone, {**HEAD, **GEMMA_2}),
}
# Options that KerasHub 0.32 has and does not compute.
LEFT_OUT = {
    "llama": (hub.LlamaBackbone, {**GROUPS, "rope_position_scaling_factor": 4.0}),
    "gemma2": (hub.GemmaBackbone, {**HEAD, **GEMMA_2, "query_head_dim_normalize": False}),
}


def backbone(name, cases=CASES):
    """Return a small backbone, with noise on every weight."""
    make, arguments = cases[name]
    model, random = make(**arguments), np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + 0.2 * random.standard_normal(weight.shape))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_backbone_is_converted(name):
    """The conversion itself compares outputs, which depend on each weight."""
    theirs = backbone(name)
    assert from_keras_hub(theirs).count_params() >= theirs.count_params()


@pytest.mark.slow
def test_each_weight_of_a_backbone_is_copied():
    """Also those of a pooler, on which the outputs that are compared do not depend."""
    theirs = backbone("bert")
    model = from_keras_hub(theirs)
    for weight in theirs.weights:
        weight.assign(1.5 * weight)
    changed = from_keras_hub(theirs)
    pairs = zip(changed.get_weights(), model.get_weights(), strict=True)
    assert all(np.abs(new - old).max() > 0 for new, old in pairs if np.abs(old).max() > 0)


@pytest.mark.slow
def test_overrides_change_the_model():
    model = from_keras_hub(backbone("gpt2"), max_length=41, pattern=patterns.Local(5), dropout=0.3)
    assert model.max_length == 41 and model.dropout == 0.3
    assert isinstance(model.depth.blocks[0].attention.pattern, patterns.Local)


@pytest.mark.slow
def test_another_activation_of_the_backbone_is_seen():
    theirs = backbone("bert")
    for layer in theirs.transformer_layers:
        layer._feedforward_intermediate_dense.activation = keras.activations.relu
    with pytest.raises(ValueError, match="compute different outputs.*Received: backbone="):
        from_keras_hub(theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT_OUT)
def test_an_option_that_the_backbone_does_not_compute_is_seen(name):
    with pytest.raises(ValueError, match="compute different outputs.*Received: backbone="):
        from_keras_hub(backbone(name, LEFT_OUT))


@pytest.mark.parametrize("other", [3, keras_hub.layers.TransformerEncoder(8, 2)])
def test_other_objects_are_refused(other):
    with pytest.raises(ValueError, match="`backbone` must be a backbone of KerasHub: Gemma"):
        from_keras_hub(other)


def test_a_backbone_without_a_family_is_refused():
    theirs = hub.AlbertBackbone(29, 1, 2, 1, 8, 12)
    with pytest.raises(ValueError, match="Received: backbone=<AlbertBackbone"):
        from_keras_hub(theirs)
