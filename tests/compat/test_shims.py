"""Each shim still finds the private name that it stands for.

A failure here means that a new version of Keras, TensorFlow, tf2onnx or KerasHub has renamed or
changed something private: the sentence of the assertion names the shim to correct.
"""

import inspect
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from keras.src.models import cloning

from keras_attn.compat import (
    default_methods,
    keras_fit,
    layer_variables,
    op_registry,
    unallocated,
    variable_values,
)
from keras_attn.compat.cloning import keep_ties
from keras_attn.compat.distributed_dataset import set_num_batches
from keras_attn.compat.dropout_rnn_cell import DropoutRNNCell
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.compat.keras_masks import get_keras_mask
from keras_attn.compat.keras_optimizers import SumBeforeClipping, adam_moments
from keras_attn.compat.layer_weights import remove_weight, unlocked
from keras_attn.compat.name_scopes import open_scopes
from keras_attn.compat.quantization_filters import passes_filters
from keras_attn.compat.replica_losses import in_stateless_scope
from keras_attn.compat.tensorflow_control_flow import has_gradient
from keras_attn.compat.tensorflow_tracking import track_containers


def test_flatten_layers_lists_each_layer_inside_once():
    inner = keras.layers.Dense(4)
    outer = keras.layers.Bidirectional(keras.layers.RNN(keras.layers.LSTMCell(2)))
    model = keras.Sequential([keras.Input((3, 2)), outer, keras.layers.Dense(4), inner, inner])
    layers = flatten_layers(model)
    message = "compat/keras_layers.py: `Layer._flatten_layers` no longer lists all layers inside"
    assert layers[0] is model and layers.count(inner) == 1, message
    assert any(isinstance(layer, keras.layers.LSTMCell) for layer in layers), message


def test_a_built_layer_gains_and_loses_a_weight():
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    with unlocked(layer):
        layer.more = layer.add_weight((5,), name="more")
    message = "compat/layer_weights.py: a built layer no longer"
    assert [w.name for w in layer.weights] == ["kernel", "bias", "more"], f"{message} gains one"
    with pytest.raises(ValueError):
        layer.add_weight((5,), name="another")
    remove_weight(layer, "more")
    assert layer.more is None and len(layer.variables) == 2, f"{message} loses one"


def test_a_layer_has_a_flag_weights_and_paths_of_its_own():
    inner = keras.layers.Dense(2)
    model = keras.Sequential([keras.Input((3,)), inner, keras.layers.BatchNormalization()])
    message = "compat/layer_variables.py: a layer no longer has"
    layer_variables.set_own_flag(model, False)
    assert not model.trainable and inner.trainable, f"{message} a flag of its own"
    assert layer_variables.freezable_variables(inner) == [inner.kernel, inner.bias], message
    norm = model.layers[-1]
    weights = [norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance]
    assert layer_variables.own_weights(norm) == weights, f"{message} weights of its own"
    layer_variables.set_path(inner.kernel, "a/b")
    assert inner.kernel.path == "a/b", "compat/layer_variables.py: a variable has another path"

    class Doubled(keras.layers.Layer):
        def call(self, x):
            return keras.ops.concatenate([x, x])

        @default_methods.is_default
        def compute_output_shape(self, shape):
            raise AssertionError

    shape = Doubled()(keras.Input((3,), batch_size=2)).shape
    assert shape == (4, 3), "compat/default_methods.py: Keras asks a default method for the shape"


def test_keras_clones_models_by_the_replaced_function():
    made = []

    def clone_with(model, clone):
        made.append(model)

    replaced = cloning._clone_functional_model
    try:
        keep_ties(lambda model: True, clone_with)
        inputs = keras.Input((3,))
        model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
        clone = keras.models.clone_model(model)
    finally:
        cloning._clone_functional_model = replaced
    assert made == [model], "compat/cloning.py: `clone_model` no longer calls what it replaces"
    assert len(clone.weights) == 2


def test_filters_choose_the_layers_to_quantize():
    layer = keras.layers.Dense(2, name="first")
    for filters, passes in [(None, True), ("fir", True), (["x"], False), (lambda x: False, False)]:
        assert passes_filters(layer, filters) == passes, (
            "compat/quantization_filters.py: other filters"
        )


def test_checkpoints_of_tensorflow_hold_layers_in_lists(tmp_path):
    class Holder(keras.layers.Layer):
        def __init__(self, value):
            super().__init__()
            self.parts = [{"a": keras.layers.Dense(1, kernel_initializer=value)}]
            self.parts[0]["a"].build((None, 3))
            track_containers(self)

    path = tf.train.Checkpoint(layer=Holder("ones")).save(tmp_path / "checkpoint")
    other = Holder("zeros")
    tf.train.Checkpoint(layer=other).restore(path).assert_existing_objects_matched()
    message = "compat/tensorflow_tracking.py: layers in lists are not restored"
    assert (np.asarray(other.parts[0]["a"].kernel.value) == 1).all(), message


def test_the_layers_that_make_a_variable_are_found():
    class Outer(keras.layers.Layer):
        def build(self, shape):
            self.part = keras.layers.Dense(2, kernel_initializer=initializer, name="part")
            self.part.build(shape)

    def initializer(shape, dtype):
        scopes.extend(open_scopes())
        return np.zeros(shape, dtype)

    scopes, outer = [], Outer(name="outer")
    outer.build((None, 3))
    message = "compat/name_scopes.py: the scopes of names no longer hold the layers"
    assert scopes == [("outer", outer), ("part", outer.part)], message
    assert open_scopes() == [], message


def test_the_implicit_mask_is_found():
    x = keras.layers.Embedding(5, 2, mask_zero=True)(np.array([[1, 0]]))
    mask = get_keras_mask(x)
    assert mask is not None and ops.convert_to_numpy(mask).tolist() == [[True, False]], (
        "compat/keras_masks.py: `get_keras_mask` no longer gives the mask of an `Embedding`"
    )


def test_a_stateless_scope_is_noticed():
    with keras.StatelessScope():
        inside = in_stateless_scope()
    assert (inside, in_stateless_scope()) == (True, False), (
        "compat/replica_losses.py: `in_stateless_scope` no longer notices `keras.StatelessScope`"
    )


def test_layers_are_built_without_values():
    with unallocated.without_values() as variables:
        layer = keras.layers.Dense(2, bias_initializer="ones")
        layer.build((None, 3))
    with keras.StatelessScope():
        pass  # which initializes the variables that wait for a value
    message = "compat/unallocated.py: variables get values, or wait for them in another list"
    assert layer.kernel.shape == (3, 2) and len(variables) == 2, message
    assert variable_values.stored_value(layer.kernel) is None, message
    unallocated.assign(layer.kernel, np.eye(3, 2))
    unallocated.initialize(variables)
    assert ops.convert_to_numpy(layer(np.ones((1, 3)))).tolist() == [[2, 2]], message


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1), (1, 0, 2)])
def test_a_transposed_array_is_assigned_as_it_reads(order):
    array = np.transpose(np.arange(30.0).reshape(2, 3, 5), order)
    with unallocated.without_values():
        variable = keras.Variable("zeros", array.shape)
    unallocated.assign(variable, array)
    np.testing.assert_array_equal(ops.convert_to_numpy(variable), array)


def test_a_variable_gives_its_stored_value_and_takes_another():
    variable = keras.Variable(np.ones(3), dtype="float32")
    message = "compat/variable_values.py: `Variable._value` no longer holds a variable's value"
    with keras.StatelessScope([(variable, ops.zeros(3))]):
        stored = variable_values.stored_value(variable)
        assert ops.convert_to_numpy(ops.copy(stored)).tolist() == [1, 1, 1], message
    variable_values.replace_value(variable, tf.Variable(np.full(3, 2, "float32")))
    assert ops.convert_to_numpy(variable + 0).tolist() == [2, 2, 2], message


def test_rnn_makes_dropout_masks_for_cells_of_the_class():
    source = inspect.getsource(keras.layers.RNN)
    assert "DropoutRNNCell" in source, (
        "compat/dropout_rnn_cell.py: `keras.layers.RNN` no longer recognises `DropoutRNNCell`"
    )
    message = "compat/dropout_rnn_cell.py: `DropoutRNNCell` has lost a method that `ACTCell` has"
    for name in ("get", "reset"):
        for kind in ("dropout", "recurrent_dropout"):
            assert hasattr(DropoutRNNCell, f"{name}_{kind}_mask"), message


def test_adam_has_two_moments_and_hooks_for_gradients():
    optimizer = keras.optimizers.Adam()
    variable = keras.Variable(np.zeros(3), dtype="float32")
    optimizer.apply([ops.ones(3)], [variable])
    first, second = adam_moments(optimizer, variable)
    numbers = [float(ops.convert_to_numpy(x)[0]) for x in (first, second)]
    np.testing.assert_allclose(
        numbers, [0.1, 0.001], rtol=1e-4, err_msg="compat/keras_optimizers.py: Adam's moments"
    )
    for name in ("_backend_apply_gradients", "_all_reduce_sum_gradients"):
        hook = inspect.getattr_static(keras.optimizers.Optimizer, name, None)
        signature = list(inspect.signature(getattr(SumBeforeClipping, name)).parameters)
        assert hook is not None and list(inspect.signature(hook).parameters) == signature, (
            f"compat/keras_optimizers.py: `Optimizer.{name}` is gone or has other arguments"
        )


def test_gradients_are_summed_once_before_clipping(monkeypatch):
    calls = []

    class Recorder:
        def _backend_apply_gradients(self, grads, trainable_variables):
            calls.append(grads)
            assert self._all_reduce_sum_gradients([("g", "v")]) == [("g", "v")]

        def _all_reduce_sum_gradients(self, grads_and_vars):
            return [(2 * gradient, variable) for gradient, variable in grads_and_vars]

    class Optimizer(SumBeforeClipping, Recorder):
        pass

    Optimizer()._backend_apply_gradients([1.0], ["v"])
    monkeypatch.setattr("keras_attn.compat.keras_optimizers._num_replicas", lambda: 2)
    Optimizer()._backend_apply_gradients([1.0], ["v"])
    assert calls == [[1.0], [2.0]]


def test_a_distributed_data_set_takes_its_number_of_batches():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    dataset = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.from_generator(
            lambda: iter([np.ones(2)] * 3), output_signature=tf.TensorSpec((2,))
        )
    )
    names = ("_cardinality", "_enable_get_next_as_optional")
    assert all(hasattr(dataset, name) for name in names), (
        f"compat/distributed_dataset.py: a `DistributedDataset` has no attributes {names} any more"
    )
    set_num_batches(dataset, 3)
    assert int(dataset.cardinality) == 3, (
        "compat/distributed_dataset.py: `_cardinality` no longer sets `cardinality`"
    )
    assert len(list(dataset)) == 3


def test_registered_operations_are_known():
    message = "compat/op_registry.py: `op_def_registry` no longer knows TensorFlow's operations"
    assert op_registry.is_registered("MatMul"), message
    assert not op_registry.is_registered("NoSuchOperation"), message


def test_a_loop_under_xla_has_a_gradient_for_static_shapes_only():
    gradient_exists = {}

    def function(x):
        gradient_exists[x.shape[0]] = has_gradient([x])
        return x

    spec = [tf.TensorSpec((None,), tf.float32)]
    tf.function(function, input_signature=spec, jit_compile=True).get_concrete_function()
    message = "compat/tensorflow_control_flow.py: graphs that XLA compiles are no longer noticed"
    assert gradient_exists == {None: False}, message
    spec = [tf.TensorSpec((3,), tf.float32)]
    tf.function(function, input_signature=spec, jit_compile=True).get_concrete_function()
    tf.function(function).get_concrete_function(tf.TensorSpec((None, 2)))
    assert gradient_exists == {None: True, 3: True}, message


def test_the_patched_parts_of_fit_exist():
    from keras.src.backend.tensorflow import trainer

    message = f"compat/keras_fit.py: Keras's trainer has changed; see {keras_fit.ISSUE}"
    build = trainer.TensorFlowTrainer._maybe_symbolic_build
    parameters = list(inspect.signature(build).parameters)
    assert parameters == ["self", "iterator", "data_batch"], message
    parameters = list(inspect.signature(trainer.reduce_per_replica).parameters)
    assert parameters == ["values", "strategy", "reduction"], message
    for name in ("_get_iterator", "_distribute_strategy", "_symbolic_build"):
        assert name in inspect.getsource(trainer), message


def test_keras_hub_layers_have_the_known_sublayers():
    keras_hub = pytest.importorskip("keras_hub", reason="keras-hub is not installed")
    from keras_attn.compat import keras_hub_layers

    layer = keras_hub.layers.TransformerDecoder(4, 2)
    layer.build((None, None, 6), (None, None, 6))
    sublayers = set(keras_hub_layers.hub_sublayers(layer))
    assert sublayers == set(keras_hub_layers._NAMES), (
        "compat/keras_hub_layers.py: KerasHub has renamed sublayers of `TransformerDecoder`. "
        f"Found: {sorted(sublayers)}"
    )


@pytest.mark.slow
def test_tf2onnx_converts_without_optimisation():
    pytest.importorskip("tf2onnx", reason="tf2onnx is not installed")
    from keras_attn.compat import tf2onnx_graphs

    function = tf.function(
        lambda x: {"y": tf.math.floormod(x[:, :2], 3.0) * tf.math.floordiv(x[:, 1:], 2.0)},
        input_signature=[tf.TensorSpec((None, 3), tf.float32, name="x")],
    ).get_concrete_function()
    outputs = {function.structured_outputs["y"].name: "y"}
    used = []

    def convert(graph, node, name, arguments):
        used.append(node.type)
        tf2onnx_graphs.convert_node(graph, node)

    proto, errors = tf2onnx_graphs.convert_graph(
        function,
        {"x:0": "x"},
        outputs,
        opset=17,
        handlers={name: (convert, []) for name in ("FloorMod", "FloorDiv", "StridedSlice")},
    )
    message = "compat/tf2onnx_graphs.py: tf2onnx's loader, converter or handlers have changed"
    assert not errors and [x.name for x in proto.graph.output] == ["y"], message
    assert set(used) == {"FloorMod", "FloorDiv", "StridedSlice"}, message
    from tf2onnx.onnx_opset.nn import Pad

    assert callable(Pad.version_11), message


@pytest.mark.parametrize(
    "shim, file, code",
    [
        ("seed_generators", "random.py", "seed._initial_seed is None"),
        ("torch_parameters", "layer.py", "def _track_variables(self):"),
    ],
)
def test_keras_on_torch_has_what_the_shim_uses(shim, file, code):
    source = Path(keras.__file__).parent / "src/backend/torch" / file  # not imported without torch
    assert code in source.read_text(), f"compat/{shim}.py: Keras's {file} has changed"
