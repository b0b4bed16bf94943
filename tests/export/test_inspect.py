"""Inspection of exports: contents, golden outputs and damage."""

import os
import pathlib
import shutil

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from each import check_each

from keras_attn import export, models
from keras_attn.commands.export import main
from keras_attn.export.golden_outputs import outputs_match, replay
from keras_attn.export.servable_ops import serving_version

RECORDS = os.path.join("assets.extra", "tf_serving_warmup_requests")


@pytest.fixture
def copied(encoder_export, tmp_path):
    """The export's files, to be damaged."""
    return shutil.copytree(encoder_export[1], tmp_path / "3")


def test_operations_of_a_function_count_once(tmp_path):
    """The function is called twice; its own name is not an operation."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False)
    def inner(x):
        return tf.tanh(tf.tanh(x))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False)
    def outer(x):
        return tf.atan(inner(inner(x)))

    tf.saved_model.save(tf.Module(), str(tmp_path), signatures=outer)
    ops = export.inspect(tmp_path).ops
    assert (ops["Tanh"], ops["Atan"]) == (2, 1)
    assert all(hasattr(tf.raw_ops, name) for name in ops)


def test_the_newest_operation_determines_the_version():
    for names, version in (
        ({"MatMul", "SentencepieceOp"}, "2.2"),
        ({"MatMul", "FastBertNormalize"}, "2.12"),
        ({"StatelessRandomUniformV2"}, "2.4"),
        ({"MatMul", "IFFTND"}, "2.17"),  # not on the list: as new as what wrote it
    ):
        assert serving_version(names, "2.17.3") == version


def test_the_highest_of_several_versions_is_inspected(tmp_path):
    for version in ("2", "10", "9"):
        tf.saved_model.save(tf.Module(), str(tmp_path / version))
    (tmp_path / "latest").mkdir()
    assert export.inspect(tmp_path).directory == str(tmp_path / "10")


@pytest.mark.slow
def test_exchanged_weights_are_detected(copied, tmp_path, capsys):
    """Variables of another export."""
    other = models.bert(11, 1, 2, 8, 11, max_length=13)
    oracles.scramble(other, seed=1)
    other_export = export.saved_model(other, tmp_path / "other")
    shutil.rmtree(copied / "variables")
    shutil.copytree(os.path.join(other_export, "variables"), copied / "variables")
    assert main(["inspect", str(copied)]) == 1
    printed = capsys.readouterr()
    assert ", MISMATCH with the recorded hash" in printed.out
    assert "outputs      DIFFERENT from " in printed.out
    first, second = printed.err.splitlines()
    assert "the files in variables/ do not match the hash" in first
    assert "outputs differ from the recorded ones for encode, logits" in second


@pytest.mark.slow
def test_a_16_bit_model_has_a_hash_and_no_recorded_outputs(tmp_path, capsys):
    keras.config.set_dtype_policy("bfloat16")
    directory = export.saved_model(models.bert(13, 1, 2, 8, 11, max_length=5), tmp_path)
    assert main(["inspect", directory]) == 0
    assert "outputs      not recorded," in capsys.readouterr().out


def test_outputs_match_but_for_a_thousandth_of_the_greatest_finite_number():
    nan, inf = np.nan, np.inf
    for expected, outputs, is_same in (
        ([0.0, 1.0], [0.0005, 1.0], True),
        ([0.0, 1.0], [0.0, 1.0005], True),
        ([0.0, 1.0], [0.002, 1.0], False),
        ([0.0, 1.0], np.array([0.0, 1.0], "float32"), False),
        ([0.0, 1.0], [[0.0, 1.0]], False),
        ([0.0, 1.0], [0.0, nan], False),
        ([-inf, 1.0, nan], [-inf, 1.0005, nan], True),
        ([-inf, 1.0, nan], [-inf, 2.0, nan], False),
        ([-inf, 1.0, nan], [5.0, 1.0, nan], False),
        ([1000], [1000], True),
        ([1000], [1001], False),
        ([b"a"], [b"a"], True),
        ([b"a"], [b"b"], False),
    ):
        assert outputs_match(np.array(expected), np.array(outputs)) is is_same


@pytest.mark.slow
def test_each_signature_is_compared_with_its_record(copied):
    """One output of a signature is changed, those of another are not recorded."""
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    file = str(copied / RECORDS)
    records = list(tf.data.TFRecordDataset(file).as_numpy_iterator())
    with tf.io.TFRecordWriter(file) as writer:
        for record in records:
            log = PredictionLog.FromString(record)
            name = log.predict_log.request.model_spec.signature_name
            outputs = log.predict_log.response.outputs
            if name == "encode":
                outputs.clear()
            if name == "logits":
                changed = tf.make_ndarray(outputs["logits"]) + 1
                outputs["logits"].CopyFrom(tf.make_tensor_proto(changed))
            writer.write(log.SerializeToString())
    outcomes = {"encode": "runs", "logits": "differs", "serving_default": "same"}
    assert replay(str(copied)) == outcomes


def test_an_export_without_records_is_sound(copied, capsys):
    os.remove(copied / RECORDS)
    assert main(["inspect", str(copied)]) == 0
    assert "not checked" in capsys.readouterr().out


def cut(path, share=0.5):
    path.write_bytes(path.read_bytes()[: int(len(path.read_bytes()) * share)])


def overwrite(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xFF
    path.write_bytes(content)


def ask_for_another_signature(directory):
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    log = PredictionLog()
    log.predict_log.request.model_spec.signature_name = "nobody"
    with tf.io.TFRecordWriter(str(directory / RECORDS)) as writer:
        writer.write(log.SerializeToString())


DATA = "variables/variables.data-00000-of-00001"
DAMAGES = {
    "no graph": (
        lambda d: os.remove(d / "saved_model.pb"),
        "must hold a saved_model.pb, or versions",
    ),
    "graph cut": (lambda d: cut(d / "saved_model.pb"), "The file is damaged, or it is not"),
    "empty graph": (lambda d: cut(d / "saved_model.pb", 0), "The file is damaged, or it is not"),
    "no variables": (lambda d: shutil.rmtree(d / "variables"), "The variables cannot be read"),
    "index cut": (lambda d: cut(d / "variables/variables.index"), "The variables cannot be read"),
    "no numbers": (lambda d: os.remove(d / DATA), "The export cannot be loaded"),
    "numbers cut": (lambda d: cut(d / DATA), "The export cannot be loaded"),
    "records cut": (lambda d: cut(d / RECORDS), "The recorded requests are damaged"),
    "record changed": (lambda d: overwrite(d / RECORDS, 40), "The recorded requests are damaged"),
    "no such signature": (ask_for_another_signature, "must name a signature of the export"),
}


def test_damaged_files_give_one_sentence(encoder_export, tmp_path, capsys):
    def check(spoil, sentence):
        copied = pathlib.Path(shutil.copytree(encoder_export[1], tmp_path / "3"))
        spoil(copied)
        assert main(["inspect", str(copied)]) == 2
        printed = capsys.readouterr()
        assert sentence in printed.err and printed.err.count("\n") == 1
        assert printed.out == ""
        shutil.rmtree(copied)

    check_each(check, DAMAGES)


def test_a_missing_directory_or_version_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="must be an existing directory"):
        export.inspect(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="must hold a saved_model.pb, or versions"):
        export.inspect(tmp_path)
    (tmp_path / "5").mkdir()
    with pytest.raises(ValueError, match="no saved_model.pb"):
        export.inspect(tmp_path)


@pytest.mark.slow
def test_the_command_prints_the_contents(encoder_export, capsys):
    model, directory = encoder_export
    assert main(["inspect", os.path.dirname(directory)]) == 0
    printed = capsys.readouterr().out
    for line in (
        "<- token_ids: int32 [?, ?]",
        "-> features: float32 [?, ?, 8]",
        f"weights      {model.count_params():,} in ",
        "not servable none",
        "outputs      equal to the recorded ones: encode, logits",
    ):
        assert line in printed
    assert "DIFFERENT" not in printed and "MISMATCH" not in printed
