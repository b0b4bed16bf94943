"""Requests and outputs that an export carries for warm-up: kinds that no other file exports."""

import sys

import pytest
import tensorflow as tf

from keras_attn import export, models
from keras_attn.export.golden_outputs import write_warmup_records

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}


@pytest.mark.slow
def test_records_of_a_model_of_states_match_a_fresh_load(assert_warmup_records_match, tmp_path):
    model = models.gtrxl(3, {"policy": 2}, **SIZES, memory_length=5)
    directory = export.saved_model(model, tmp_path)
    signatures = tf.saved_model.load(directory).signatures
    assert set(signatures) == {"initial_memory", "step", "serving_default"}
    assert_warmup_records_match(directory, signatures)


def test_outputs_that_vary_from_run_to_run_are_not_recorded(warmup_records, tmp_path):
    model, specs = models.bert(13, **SIZES, max_length=5), [tf.TensorSpec([None], tf.int32, "x")]
    signatures = {
        "same": tf.function(lambda x: {"y": x + 1}, specs),
        "random": tf.function(lambda x: {"y": tf.random.uniform(tf.shape(x))}, specs),
    }
    write_warmup_records(str(tmp_path), signatures, model)
    outputs = {name: outputs for name, (_, outputs) in warmup_records(tmp_path).items()}
    assert outputs["same"]["y"] > 1 and outputs["random"] == {}


def test_a_missing_package_is_named_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis.prediction_log_pb2", None)
    with pytest.raises(ImportError, match=r"pip install 'keras_attn\[export\]'"):
        export.saved_model(models.bert(13, **SIZES, max_length=5), tmp_path / "export")
    assert not (tmp_path / "export").exists()
