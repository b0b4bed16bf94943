"""Kernels in integers: what they are rounded to, and quantized models in files and clones."""

import keras
import numpy as np
import pytest
from catalogue_models import MODELS, inputs_of, make, make_all_blocks

from keras_attn import convert, layers, models
from keras_attn.quantized_kernels import QuantizedKernels
from keras_attn.sublayers import all_sublayers

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
# Other causal blocks have the kernels of those in the models.
MAKE = {
    "layers.DifferentialAttention": lambda: make("layers.DifferentialAttention"),
    "other blocks": lambda: make_all_blocks(False),
    **MODELS,
}
FAST = ["models.mixtral"]
OTHERS = [name for name in MAKE if name not in FAST]


def rounded(kernel, axes, largest):
    """W' by loops over the outputs of a kernel."""
    kernel = np.moveaxis(kernel, axes, range(len(axes)))
    rows = kernel.reshape(np.prod(kernel.shape[: len(axes)]), -1)
    columns = []
    for column in rows.T:
        scale = largest / np.abs(column).max()
        columns.append(np.round(column * scale) / scale)
    return np.moveaxis(np.stack(columns, 1).reshape(kernel.shape), range(len(axes)), axes)


@pytest.mark.parametrize("mode, largest", [("int8", 127), ("int4", 7)])
def test_a_layer_computes_with_rounded_kernels(mode, largest):
    x = np.random.default_rng(0).normal(size=(2, 5, 7)).astype("float32")
    attention = layers.MultiHeadAttention(3, 2, position="rotary")
    experts = layers.MixtureOfExperts(layers.FeedForward(11), 3)
    for layer, call in ((attention, lambda y: y(x, x)), (experts, lambda y: y(x))):
        call(layer)
        other = type(layer).from_config(layer.get_config())
        call(other)
        other.set_weights(layer.get_weights())
        for name, axes in layer.summed_axes().items():
            kernel, axes = getattr(other, name), np.atleast_1d(axes)
            kernel.assign(rounded(keras.ops.convert_to_numpy(kernel), axes, largest))
        layer.quantize(mode)
        np.testing.assert_allclose(call(layer), call(other), atol=1e-6)
        assert {str(w.dtype) for w in layer.weights} == {"float32", "int8"}
        with pytest.raises(ValueError, match=f"quantized once. Received: .* in {mode}"):
            layer.quantize(mode)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
@pytest.mark.parametrize(
    "name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_a_quantized_model_comes_back_quantized(name, tmp_path):
    model = MAKE[name]()
    inputs, _ = inputs_of(model)
    model = getattr(model, "model", model)
    if getattr(model, "memory", None) is not None:
        inputs |= model.initial_memory(2)
    model.quantize("int8")
    layers.quantize_kernels(model, "int8")
    parts = all_sublayers(model).values()
    kernels = [part for part in parts if isinstance(part, QuantizedKernels)]
    assert all(part.quantization_mode == "int8" for part in kernels)
    paths = [weight.path for weight in model.weights]
    assert len(set(paths)) == len(paths)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    outputs = keras.tree.flatten(model(inputs))
    for other in (loaded, clone):
        for wanted, received in zip(outputs, keras.tree.flatten(other(inputs)), strict=True):
            np.testing.assert_array_equal(wanted, received)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
@pytest.mark.parametrize("mode", ["int4", "float8"])
def test_other_modes_and_filters(mode, tmp_path):
    model = models.llama(13, **SIZES, num_key_value_heads=1)
    model.quantize(mode, filters="gate|attention")
    block = model.depth.blocks[0]
    assert block.feed_forward.gate.quantization_mode == mode
    assert block.feed_forward.intermediate.quantization_mode is None
    assert block.attention.quantization_mode == (None if mode == "float8" else mode)
    model.save(tmp_path / "model.keras")
    ids = np.array([[5, 7, 3]])
    np.testing.assert_array_equal(
        model(ids), keras.models.load_model(tmp_path / "model.keras")(ids)
    )


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_conversions_and_adapters_need_floats(tmp_path):
    model = models.gpt(13, **SIZES)
    model.quantize("int8")
    with pytest.raises(ValueError, match="before `model.quantize`. Received: 3 quantized layers"):
        convert.to_hugging_face(model, tmp_path / "folder")
    with pytest.raises(ValueError, match="before `model.quantize`. Received: 3 quantized layers"):
        layers.add_lora(model, 2)
    with pytest.raises(ValueError, match="`mode` must be one of 'int8', 'int4'"):
        layers.quantize_kernels(model, "float8")


def test_adapters_are_merged_before_a_model_is_quantized():
    model = models.gpt(13, **SIZES)
    layers.add_lora(model, 2)
    with pytest.raises(ValueError, match="`model` must have no adapters"):
        model.quantize("int8")
    with pytest.raises(ValueError, match="call `layers.merge_lora.*adapters of query, value"):
        model.depth.blocks[0].attention.quantize("int8")


def test_a_frozen_model_is_written_as_an_unfrozen_one(tmp_path):
    model = models.bert(13, **SIZES)
    model.encoder.trainable = False
    convert.to_hugging_face(model, tmp_path / "folder")
    loaded, *_ = convert.from_hugging_face(tmp_path / "folder")
    ids = np.array([[5, 7, 3]])
    np.testing.assert_allclose(model(ids), loaded(ids), atol=1e-6)
