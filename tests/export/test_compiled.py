"""Exports that compile their decoding for a few shapes, against the plain export."""

import itertools
import os
import shutil
from unittest import mock

import numpy as np
import oracles
import pytest
import tensorflow as tf
from each import check_each

from keras_attn import export, models, text
from keras_attn.commands.export import main
from keras_attn.export.saved_model_files import COMPILATION_FILE, read_compilation
from keras_attn.generation import Beam, Greedy, Sample
from serving.servable import Servable

pytestmark = pytest.mark.slow

SENTENCES = ["the cat sat on the mat", "a dog ran over the hill", "the dog sat"]
TEXTS = ["the cat ran", "", "the dog sat", "a hill", "zebra \U0001f600 好", "the dog sat " * 9]
# Rows that fit a bucket, are padded to one, and fit none.
BATCHES = [TEXTS, TEXTS[:1], TEXTS[1:2], TEXTS[:2], TEXTS[2:5], TEXTS[5:], []]
MAX_LENGTH = 7
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 13}


def random_model(make, *arguments, seed=3, **sizes):
    model = make(*arguments, **SIZES, **sizes)
    oracles.scramble(model, seed)
    return model


@pytest.fixture(scope="module")
def tokenizer():
    return text.SentencePiece.train(SENTENCES * 3, vocabulary_size=36)


def random_batch(rows, width, seed=0):
    """Ids and lengths, of which some are shorter than the row."""
    random = np.random.default_rng(seed)
    ids = random.integers(4, 19, (rows, width)).astype("int32")
    lengths = random.integers(1, width + 1, rows) if width else np.zeros(rows)
    return ids, lengths.astype("int32")


def as_arrays(outputs):
    return {name: value.numpy() for name, value in outputs.items()}


def assert_same(outputs, expected):
    """Equal texts and ids, scores to 1e-5."""
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(outputs[name], value, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(outputs[name], value)


@pytest.fixture(scope="module")
def exported(tokenizer, tmp_path_factory):
    """The directory of a translator's export, which holds the plain functions too."""
    folder = tmp_path_factory.mktemp("exports")
    random_model(models.transformer, tokenizer.vocabulary_size).save(folder / "model.keras")
    tokenizer.save(folder / "tokenizer.model")
    command = ["saved_model", str(folder / "model.keras"), str(folder / "versions")]
    command += ["--tokenizer", str(folder / "tokenizer.model"), f"--max-length={MAX_LENGTH}"]
    options = ["--compile=xla", "--batches", "3", "--lengths", "11"]  # compiled at every load
    assert main([*command, "--beams=1", *options]) == 0
    return str(folder / "versions/1")


@pytest.fixture(scope="module")
def signatures(exported):
    return tf.saved_model.load(exported).signatures


def test_texts_are_those_of_the_plain_function(signatures):
    def check(*batch):
        texts = tf.constant(batch, tf.string)
        expected = as_arrays(signatures["plain"](text=texts))
        assert_same(as_arrays(signatures["serving_default"](text=texts)), expected)

    check_each(check, BATCHES)


def test_ids_are_those_of_the_plain_function(signatures):
    def check(rows, width):
        ids, lengths = random_batch(rows, width)
        expected = as_arrays(signatures["plain_ids"](source_ids=ids, source_lengths=lengths))
        outputs = signatures["ids"](source_ids=ids, source_lengths=lengths)
        assert_same(as_arrays(outputs), expected)

    check_each(check, [(0, 5), (1, 3), (2, 7), (3, 11), (3, 12), (5, 4)])


def test_an_id_outside_the_vocabulary_is_refused_as_by_the_plain_function(signatures, tokenizer):
    size = tokenizer.vocabulary_size
    for token, name in itertools.product((-1, size), ("ids", "plain_ids")):
        ids, lengths = np.array([[5, token, 7]], "int32"), np.array([3], "int32")
        message = rf"must be in \[0, {size}\).*{token}"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            signatures[name](source_ids=ids, source_lengths=lengths)


def test_the_embedded_server_gives_the_same(exported, signatures):
    """For a batch that fits a bucket and for one that fits none."""
    servable = Servable("words", 1, exported)
    signature = servable.signatures["serving_default"]
    names = [signature.outputs[name].name for name in ("score", "translation")]
    for batch in (TEXTS[1:4], TEXTS):
        score, translation = servable.run({signature.inputs["text"].name: batch}, names)
        expected = as_arrays(signatures["plain"](text=tf.constant(batch)))
        assert_same({"score": score, "translation": translation}, expected)
    servable.close()


def test_inspect_tells_what_is_compiled_and_compares_it(exported, capsys):
    inspection = export.inspect(exported)
    plain_names = {"ids": "plain_ids", "serving_default": "plain"}
    assert inspection.compiled == {
        "compiler": "xla",
        "batches": [3],
        "lengths": [11],
        "parallel": 1,
        "plain_names": plain_names,
    }
    assert inspection.faults == inspection.unservable == []
    names = {"attention", *plain_names, *plain_names.values()}
    assert inspection.outcomes == dict.fromkeys(names, "same")
    assert inspection.serving_version == "2.10"
    assert export.unservable_ops(exported) == ["_XlaMustCompile"]
    with mock.patch.object(export, "inspect", {exported: inspection}.__getitem__):
        assert main(["inspect", exported]) == 0
    printed = capsys.readouterr().out
    assert "ids, serving_default, for 3 rows of 11 tokens\n" in printed
    assert "--xla_cpu_compilation_enabled" in printed


def test_a_damaged_record_of_the_compilation_is_reported(exported, tmp_path, capsys):
    copied = shutil.copytree(exported, tmp_path / "5")
    (copied / COMPILATION_FILE).write_text("[]")
    assert main(["inspect", str(copied)]) == 2
    assert "record of the compilation is damaged" in capsys.readouterr().err


def recorded_shapes(directory):
    """Return the shapes of ids in the recorded requests."""
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    file = f"{directory}/assets.extra/tf_serving_warmup_requests"
    shapes = set()
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        log = PredictionLog.FromString(record).predict_log
        if log.request.model_spec.signature_name == "ids":
            assert set(log.response.outputs) == {"ids", "score"}
            shapes.add(tuple(d.size for d in log.request.inputs["token_ids"].tensor_shape.dim))
    return shapes


def test_a_quantized_causal_model_continues_as_the_plain_function_by_a_seed(tokenizer, tmp_path):
    """A seed's draws depend on the number of rows, which is that of the bucket for 3."""
    sizes = {**SIZES, "hidden_dim": 32, "intermediate_dim": 53}
    model = models.gpt(tokenizer.vocabulary_size, **sizes, max_length=17)
    oracles.scramble(model, 5, 0.3)
    directory = export.saved_model(
        model,
        tmp_path,
        tokenizer=tokenizer,
        strategy=Sample(0.7, top_k=5, seed=1),
        max_length=MAX_LENGTH,
        quantize="int8",
        compile="xla",
        buckets=export.Buckets((3,), (5, 99)),
    )
    signatures = tf.saved_model.load(directory).signatures
    assert read_compilation(directory)["lengths"] == [5, 11]  # as far as a prompt is read
    assert recorded_shapes(directory) >= {(3, 5), (3, 11)}
    for batch in (TEXTS[1:4], TEXTS[:4], []):
        texts = tf.constant(batch, tf.string)
        expected = as_arrays(signatures["plain"](text=texts))
        assert_same(as_arrays(signatures["serving_default"](text=texts)), expected)
    assert set(signatures) == {"ids", "plain", "plain_ids", "score", "serving_default"}


def test_the_parts_of_a_batch_have_the_beams_of_the_plain_function(tmp_path):
    model = random_model(models.transformer, 19, seed=11)
    directory = export.saved_model(
        model,
        tmp_path,
        strategy=Beam(3),
        max_length=MAX_LENGTH,
        compile="xla",
        buckets=export.Buckets((1, 2), (5,), parallel=2),
    )
    lines = export.inspect(directory).report()
    assert any(line.endswith("for 1, 2 rows of 5 tokens, in 2 parts at once") for line in lines)
    signatures = tf.saved_model.load(directory).signatures

    def check(rows):
        ids, lengths = random_batch(rows, 5, seed=rows)
        outputs, expected = (
            as_arrays(signatures[name](source_ids=ids, source_lengths=lengths))
            for name in ("ids", "plain_ids")
        )
        assert_same(outputs, expected)

    check_each(check, [(rows,) for rows in range(6)])  # 1 is one part, and 5 fit none


def test_what_xla_cannot_compile_or_compiles_to_other_outputs_is_refused(tmp_path, monkeypatch):
    """The second time the compiled decoding gets another end of the rows than the plain one."""

    class Strings(Greedy):
        def decode(self, model, inputs, options):
            ids, scores = super().decode(model, inputs, options)
            return tf.strings.length(tf.strings.as_string(ids)), scores

    def wrong(buckets, compiled, plain, pad_id):
        return lambda ids, lengths: compiled(ids[:, :1], tf.minimum(lengths, 1))

    model = random_model(models.gpt, 19, max_length=9)
    options = {"compile": "xla", "buckets": export.Buckets((1,), (5,)), "max_length": 3}
    with pytest.raises(ValueError, match="XLA cannot compile.*export it without") as error:
        export.saved_model(model, tmp_path / "export", strategy=Strings(), **options)
    assert "\n" not in str(error.value)
    monkeypatch.setattr(export.Buckets, "dispatch", wrong)
    with pytest.raises(ValueError, match="must give the outputs of the plain one"):
        export.saved_model(model, tmp_path / "export", **options)
    assert not os.listdir(tmp_path)
