"""Outputs of a model for each batch, also where two devices train it."""

import pytest
from other_backend import run_on

PROGRAM = """
import json
import keras, numpy as np
import tensorflow as tf

device = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
from recipes.algorithmic.options import RecipeOptions
from recipes.algorithmic.parity_run import ParityRun
from recipes.fine_tune.encoded_texts import EncodedTexts, TextBatches
from recipes.fine_tune.task import outputs_of

options = ["--task", "parity", "--hidden-dim", "3", "--num-layers", "2", "--train-length", "5"]
run = ParityRun(RecipeOptions.parse([*options, "--strategy", "mirrored"]))
assert run.devices.num_replicas_in_sync == 2
evaluated = run.evaluate()["trained lengths"]
with run.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
x = np.arange(6, dtype="float32").reshape(3, 2)
texts = EncodedTexts({"x": x}, np.full(3, 2), np.arange(3), np.ones(3))

class Batches(TextBatches):
    def batch(self, epoch, index):
        inputs, *others = super().batch(epoch, index)
        return inputs["x"], *others

outputs = [found.tolist() for found, _ in outputs_of(model, Batches(texts, 2))]
expected = (x @ model.get_weights()[0]).tolist()
print(json.dumps([outputs, expected, evaluated]))
"""


@pytest.mark.slow
def test_each_row_has_one_output_where_two_devices_share_the_model():
    outputs, expected, evaluated = run_on("tensorflow", PROGRAM)
    assert [len(rows) for rows in outputs] == [2, 1]
    for (found,), (value,) in zip(sum(outputs, []), expected, strict=True):
        assert abs(found - value) < 1e-5
    assert 0 <= evaluated["value"] <= 1
