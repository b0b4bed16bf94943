"""ACT with caches and a memory, in `fit`, in files, under low precision; refused arguments."""

import keras
import numpy as np
import oracles
import pytest
from act_depths import CONTEXT, REAL, VARIANTS, B, D, T, X, block, built, oracle
from keras import ops

from keras_attn.depth import ACT
from keras_attn.memory import SegmentMemory


@pytest.mark.slow
@pytest.mark.parametrize("variant, grows", [(VARIANTS[0], False), (VARIANTS[1], True)])
def test_cached_steps_equal_one_pass(variant, grows):
    layer = built(3, variant=variant, position="timestep", block_arguments={"cross": True})
    whole = layer(X, CONTEXT)
    cache = layer.initial_cache(B, None if grows else T + 2)
    context_cache, start = layer.context_cache(ops.array(CONTEXT)), 0
    for length in (2, 1, 2):
        part = X[:, start : start + length]
        step, cache = layer(part, cache=cache, context_cache=context_cache)
        np.testing.assert_allclose(step, whole[:, start : start + length], atol=5e-5)
        start += length
    assert layer.losses == []


@pytest.mark.slow
def test_segments_with_memory_equal_one_pass():
    layer, memory = built(3, block_arguments={"score": "relative"}), SegmentMemory(T)
    whole = layer(X)
    state = memory.initial(B, layer.num_layers, D)
    for start, end in ((0, 2), (2, 5)):
        part, read = layer(X[:, start:end], **state)
        np.testing.assert_allclose(part, whole[:, start:end], atol=5e-5)
        state = memory.extend(state, read)


@pytest.mark.slow
def test_fit_shows_steps_and_learns_to_take_fewer():
    layer = built(max_steps=4, ponder_loss=1.0, name="think")
    inputs = keras.Input((None, D))
    model = keras.Model(inputs, layer(keras.layers.Masking()(inputs)))
    model.compile(keras.optimizers.SGD(0.5), jit_compile=False)
    x = np.where(REAL[..., None], X, 0).astype("float32")
    expected = oracle(layer, x)[1][REAL].mean()
    layer(x, padding_mask=REAL)
    assert int(layer.steps_taken.variables[1]) == 0, "a call outside of training counted"
    metrics = model.evaluate(x, np.zeros(B), verbose=0, return_dict=True)
    assert metrics["think_steps"] == pytest.approx(expected)
    layer(x, padding_mask=REAL)
    assert metrics["loss"] == pytest.approx(float(layer.losses[0]), rel=1e-5)
    logs = model.fit(x, np.zeros(B), validation_data=(x, np.zeros(B)), epochs=3, verbose=0).history
    assert logs["think_steps"][0] == pytest.approx(expected)
    assert logs["val_think_steps"][-1] < logs["think_steps"][0]


@pytest.mark.slow
def test_mixed_bfloat16():
    reference = built(position="timestep")
    keras.config.set_dtype_policy("mixed_bfloat16")
    layer = built(position="timestep")
    output = layer(X, padding_mask=REAL)
    assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
    assert keras.backend.standardize_dtype(layer.losses[0].dtype) == "float32"
    expected = reference(X, padding_mask=REAL)
    np.testing.assert_allclose(oracles.numpy_of(output), expected, atol=0.1)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"max_steps": 0}, "`max_steps`.*max_steps=0"),
        ({"max_steps": 2, "epsilon": -1}, "`epsilon`.*epsilon=-1"),
        ({"max_steps": 2, "ponder_loss": "much"}, "`ponder_loss`.*'much'"),
        ({"max_steps": 2, "variant": "basic"}, "`variant`.*tensor2tensor.*'basic'"),
        ({"max_steps": 2, "position": "here"}, "position='here'.*timestep"),
        ({"max_steps": 2, "remat": True}, "`remat`.*remat=True"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        ACT(block(), **arguments)


def test_mask_of_wrong_shape_raises():
    with pytest.raises(ValueError, match=r"`padding_mask`.*\(3, 5\).*\(3, 4\)"):
        built()(X, padding_mask=REAL[:, :4])
