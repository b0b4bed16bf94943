"""What holds for all models: later tokens, padding, steps with caches, configurations, training."""

import json

import keras
import numpy as np
import pytest
from decoding_models import decode_eagerly
from keras import ops
from marks import all_slow, slow, slow_but
from models import formulas
from models.builders import IDS, MODELS, build, built, inputs_of, new, whole_pass
from models.formulas import T

from keras_attn.memory import StatefulSegments

ALONE = ("gtrxl", "vit", "decision_transformer")  # files of their own test what they read
BOTH_SIDES = ("bert", "modern_bert", "longformer", "big_bird", "perceiver")
PAIRS = ("transformer", "universal_transformer", "universal_transformer convolution", "t5")
PAIRS += ("t5 gated", "switch_transformer", "super_resolution_transformer")
CAUSAL = tuple(n for n in MODELS if n not in (*ALONE, *BOTH_SIDES, *PAIRS))


def written(inputs):
    """Return the name of the input that a model continues."""
    return "target_ids" if "target_ids" in inputs else "token_ids"


# Variants of which a file of their own tests the formula, or which share their paths.
VARIANTS = ("transformer_xl adaptive", "t5 gated", "mistral", "image_transformer pixels")
VARIANTS += ("sparse_transformer per head", "image_transformer")
CONVOLUTION = "universal_transformer convolution"
READ = [name for name in (*CAUSAL, *PAIRS) if name not in (*VARIANTS, CONVOLUTION)]


@pytest.mark.parametrize("name", [*READ, slow(CONVOLUTION)])
def test_later_tokens_have_no_influence(name):
    """Reformer's hashes in one chunk: in short ones, later tokens choose among past keys."""
    row, _, changed = whole_pass(name)
    np.testing.assert_allclose(changed[:6], row[:6], atol=1e-4)
    assert np.all(np.abs(changed[6:] - row[6:]).max(axis=-1) > 1e-3)


PADDED = ("bert", "t5", "longformer", "big_bird", "perceiver", "universal_transformer")
PADDED += (CONVOLUTION, "switch_transformer")


@pytest.mark.parametrize("name", slow_but(("bert", "t5"), PADDED))
def test_padding_and_other_rows_have_no_influence(name):
    model = built(name)
    inputs = inputs_of(model)
    lengths = {key: np.count_nonzero(ids[1]) for key, ids in inputs.items()}
    lengths["segment_ids"] = lengths[written(inputs)]
    alone = np.asarray(model({key: ids[1:2, : lengths[key]] for key, ids in inputs.items()}))
    expected = whole_pass(name)[1:2, : lengths[written(inputs)]]
    np.testing.assert_allclose(alone, expected, atol=1e-4)


STEPPED = ("gpt", "transformer_xl", "gemma", "t5", "sparse_transformer", "reformer")
STEPPED += ("universal_transformer", "compressive_transformer")
# Of the others those with parts that the ones above lack.
ALSO = ("adaptive_span_transformer", "deep_char_transformer", "sparse_transformer per head")
ALSO += ("gpt_oss", CONVOLUTION, "switch_transformer")


@pytest.mark.parametrize("name", slow_but(STEPPED, [*STEPPED, *ALSO]))
def test_steps_with_a_cache_equal_one_pass(name):
    model, expected = built(name), whole_pass(name)
    inputs = inputs_of(model)
    ids = inputs[written(inputs)]
    constants, cache = model.start(inputs, max_length=T)
    for start, end in ((0, 5), (5, 6), (6, T)):
        tokens, places = ids[:, start:end], np.arange(start, end, dtype="int32")
        logits, cache = model.step(tokens, constants, cache, places)
        real = tokens != 0
        np.testing.assert_allclose(
            np.asarray(logits)[real], expected[:, start:end][real], atol=1e-3
        )


@pytest.mark.slow
def test_greedy_texts_are_the_argmax_of_one_pass():
    """Two prompts of different lengths are decoded by attention with hashes."""
    model, prompts = built("reformer"), np.array([[5, 9, 3, 7], [8, 4, 0, 0]], "int32")
    ids, _ = decode_eagerly(model, prompts, "greedy", 4, ends=(-1,))
    for row, prompt in zip(ids, prompts, strict=True):
        prompt = prompt[prompt != 0]
        logits = np.asarray(model({"token_ids": np.concatenate([prompt, row])[None]}))[0]
        np.testing.assert_array_equal(logits[len(prompt) - 1 : -1].argmax(-1), row)


@pytest.mark.parametrize("name", MODELS)
def test_each_weight_has_its_own_initial_numbers_and_each_part_is_built(name):
    """Tables from one initializer object have different numbers.

    With an unbuilt layer, Keras on JAX retraces in each `fit`, and runs `predict` eagerly. A
    mixture's expert is the pattern of its stacked weights.
    """
    model, initial = new(name)
    unbuilt = [layer for layer in model._flatten_layers() if not layer.built]
    assert all(layer.name == "expert" for layer in unbuilt)
    assert not unbuilt or name in ("mixtral", "gpt_oss", "switch_transformer")
    random = [numbers.ravel() for numbers in initial if np.ptp(numbers) > 0]
    for index, first in enumerate(random):
        for second in random[:index]:
            count = min(len(first), len(second))
            assert np.any(first[:count] != second[:count])


def test_a_configuration_rebuilds_the_model():
    """Others are rebuilt from their files."""
    model = built("transformer_xl adaptive")
    again = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert json.dumps(again.get_config()) == json.dumps(model.get_config())
    again.set_weights(model.get_weights())
    inputs = {**inputs_of(model), **model.initial_memory(3)}
    keras.tree.map_structure(np.testing.assert_array_equal, again(inputs), model(inputs))


TRAINED = ("gpt", "reformer", "transformer_xl adaptive", "adaptive_span_transformer", "vit")
TRAINED += ("compressive_transformer", "universal_transformer", "gtrxl", "gpt_oss", "t5 gated")
TRAINED += ("switch_transformer", "perceiver", "decision_transformer")
# Compressed tokens, and as many steps as halting needs.
CHANGED = {
    "compressive_transformer": {"memory_length": 1},
    "universal_transformer": {"num_layers": 3},
}


@pytest.mark.parametrize("name", slow_but(("gpt",), TRAINED))
def test_training_in_mixed_precision_changes_every_weight(name):
    policy = "mixed_float16" if name in ("reformer", "gpt") else "mixed_bfloat16"
    keras.config.set_dtype_policy(policy)
    # Through a head of zeros no gradient would pass.
    model = formulas.scrambled(build(name, dropout=0.1, **CHANGED.get(name, {})))
    inputs = inputs_of(model)
    labels, loss = IDS, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if name == "vit":
        labels = labels[:, 0]
    if name == "decision_transformer":
        labels, loss = inputs["actions"], "mean_squared_error"
    if isinstance(model.output, dict):
        model = StatefulSegments(model, batch_size=3)
    # A step takes less time than a trace.
    model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=True)
    before = model.get_weights()
    assert np.all(np.isfinite(model.train_on_batch(inputs, labels)))
    unchanged = [
        variable.path
        for variable, old in zip(model.weights, before, strict=True)
        if variable.trainable and np.array_equal(ops.convert_to_numpy(variable), old)
    ]
    # No softmax sees what a bias adds to all keys of a query alike.
    assert [path for path in unchanged if not path.endswith("key_bias")] == []


# Two models, arguments with which what they differ in has no effect, and one that brings it back.
RELATED = {
    "mixtral": (
        {"num_experts": 1, "top_k": 1, "max_wavelength": 1e4},
        *("llama", {"epsilon": 1e-5, "num_key_value_heads": None}, {"max_wavelength": 9.0}),
    ),
    "switch_transformer": (
        {
            **{"num_experts": 1, "expert_every": 1, "gated": False, "key_dim": 5},
            **{"num_layers": 1, "num_buckets": 8},
        },
        *("t5", {"num_buckets": 8}, {"max_distance": 20}),
    ),
}


@pytest.mark.parametrize("name", all_slow(RELATED))
def test_values_without_effect_make_the_other_model(name):
    """One expert gets all tokens."""
    arguments, other, its_arguments, effect = RELATED[name]
    theirs = formulas.scrambled(build(other, **its_arguments))
    inputs = inputs_of(theirs)
    expected = np.asarray(theirs(inputs))
    for more, is_equal in (({}, True), (effect, False)):
        ours, values = build(name, **{**arguments, **more}), iter(theirs.get_weights())
        for weight in ours.weights:
            if "router" not in weight.path:
                weight.assign(np.reshape(next(values), weight.shape))
        far = np.abs(np.asarray(ours(inputs)) - expected)[inputs[written(inputs)] != 0].max()
        assert far < 1e-4 if is_equal else far > 1e-3
