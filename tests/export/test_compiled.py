"""Exports that compile their decoding for a few shapes, against the plain export."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest import mock

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, models, text
from keras_attn.export import __main__ as commands
from keras_attn.export.__main__ import main
from keras_attn.export.saved_model_files import COMPILATION_FILE, read_compilation
from keras_attn.generation import Greedy, Sample

# Each shape is compiled at every load.
FEW = export.Buckets((3,), (5, 11))
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


def assert_same(found, expected):
    """Equal texts and ids, scores to 1e-5."""
    assert set(found) == set(expected)
    for name, value in expected.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(found[name], value)


@pytest.fixture(scope="module")
def exported(tokenizer, tmp_path_factory):
    """Directories of the plain export and of the compiled one, of a translator."""
    folder = tmp_path_factory.mktemp("exports")
    random_model(models.transformer, tokenizer.vocabulary_size).save(folder / "model.keras")
    tokenizer.save(folder / "tokenizer.model")
    command = ["saved_model", str(folder / "model.keras"), str(folder / "versions")]
    command += ["--tokenizer", str(folder / "tokenizer.model"), f"--max-length={MAX_LENGTH}"]
    options = ["--compile=xla", "--batches", "3", "--lengths", "5", "11"]
    for more in ([], options):
        assert main([*command, "--beams=1", *more]) == 0
    return [str(folder / "versions" / number) for number in "12"]


@pytest.fixture(scope="module")
def loaded(exported):
    return [tf.saved_model.load(directory) for directory in exported]


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(len(BATCHES)))
def test_texts_are_those_of_the_plain_export(loaded, batch):
    texts = tf.constant(BATCHES[batch], tf.string)
    plain, compiled = (each.signatures for each in loaded)
    expected = as_arrays(plain["serving_default"](text=texts))
    for name in ("serving_default", "plain"):
        assert_same(as_arrays(compiled[name](text=texts)), expected)
    if batch < 2:
        expected = as_arrays(plain["attention"](text=texts))
        assert_same(as_arrays(compiled["attention"](text=texts)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("rows, width", [(0, 5), (1, 3), (2, 7), (3, 11), (3, 12), (5, 4)])
def test_ids_are_those_of_the_plain_export(loaded, rows, width):
    ids, lengths = random_batch(rows, width)
    plain, compiled = (each.signatures for each in loaded)
    expected = as_arrays(plain["ids"](source_ids=ids, source_lengths=lengths))
    for name in ("ids", "plain_ids"):
        found = compiled[name](source_ids=ids, source_lengths=lengths)
        assert_same(as_arrays(found), expected)


@pytest.mark.slow
@pytest.mark.parametrize("is_negative", [True, False])
def test_an_id_outside_the_vocabulary_is_refused_as_by_the_plain_export(
    loaded, tokenizer, is_negative
):
    size = tokenizer.vocabulary_size
    token = -1 if is_negative else size
    ids, lengths = np.array([[5, token, 7]], "int32"), np.array([3], "int32")
    for each in loaded:
        message = rf"must be in \[0, {size}\).*{token}"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            each.signatures["ids"](source_ids=ids, source_lengths=lengths)


@pytest.mark.slow
def test_the_session_loader_of_tensorflow_alone_compiles_and_gives_the_same(exported, loaded):
    """In a process of its own, whose log tells when XLA compiles for the first time."""
    program = """
        import json, os, sys
        import tensorflow as tf, tensorflow_text
        directory, texts = sys.argv[1], json.loads(sys.argv[2])
        with tf.compat.v1.Session(graph=tf.Graph()) as session:
            meta = tf.compat.v1.saved_model.load(session, ["serve"], directory)

            def run(name, batch):
                signature = meta.signature_def[name]
                names = {key: x.name for key, x in signature.outputs.items()}
                return session.run(names, {signature.inputs["text"].name: batch})

            results = [run("plain", texts[0])]
            os.write(2, b"THE PLAIN TWIN RAN\\n")
            results += [run("serving_default", batch) for batch in texts]
        assert not any(name.split(".")[0] == "keras_attn" for name in sys.modules)
        print(json.dumps([[[t.decode() for t in r["translation"]], r["score"].tolist()]
                          for r in results]))
    """
    batches = [TEXTS[1:4], TEXTS]  # fit a bucket, and none
    serve = loaded[0].signatures["serving_default"]
    expected = [as_arrays(serve(text=tf.constant(b, tf.string))) for b in [batches[0], *batches]]
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), exported[1], json.dumps(batches)],
        cwd=Path(sys.executable).parent,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout.splitlines()[-1])
    for (texts, scores), answer in zip(found, expected, strict=True):
        assert texts == [text.decode() for text in answer["translation"]]
        np.testing.assert_allclose(scores, answer["score"], rtol=1e-5, atol=1e-5)
    before, after = run.stderr.split("THE PLAIN TWIN RAN")
    compiles = "Compiled cluster using XLA"
    assert compiles not in before and compiles in after


@pytest.mark.slow
def test_inspect_tells_what_is_compiled_and_compares_every_bucket(exported, capsys):
    inspection = export.inspect(exported[1])
    plain_names = {"ids": "plain_ids", "serving_default": "plain"}
    assert inspection.compiled == {
        "compiler": "xla",
        "batches": [3],
        "lengths": [5, 11],
        "plain_names": plain_names,
    }
    assert inspection.faults == inspection.unservable == []
    names = {"attention", *plain_names, *plain_names.values()}
    assert inspection.outcomes == dict.fromkeys(names, "same")
    assert inspection.serving_version == "2.10"
    assert export.unservable_ops(exported[1]) == ["_XlaMustCompile"]
    assert export.inspect(exported[0]).compiled is None
    with mock.patch.object(commands, "inspect", {exported[1]: inspection}.__getitem__):
        assert main(["inspect", exported[1]]) == 0
    printed = capsys.readouterr().out
    assert "ids, serving_default, for 3 rows of 5, 11 tokens\n" in printed
    assert "--xla_cpu_compilation_enabled" in printed


@pytest.mark.slow
def test_records_hold_a_request_of_each_bucket(exported):
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    file = f"{exported[1]}/assets.extra/tf_serving_warmup_requests"
    shapes = set()
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        log = PredictionLog.FromString(record).predict_log
        if log.request.model_spec.signature_name == "ids":
            assert set(log.response.outputs) == {"ids", "score"}
            shapes.add(tuple(d.size for d in log.request.inputs["source_ids"].tensor_shape.dim))
    assert set(FEW.shapes) <= shapes


@pytest.mark.slow
def test_a_damaged_record_of_the_compilation_is_reported(exported, tmp_path, capsys):
    copied = shutil.copytree(exported[1], tmp_path / "5")
    (copied / COMPILATION_FILE).write_text("[]")
    assert main(["inspect", str(copied)]) == 2
    assert "record of the compilation is damaged" in capsys.readouterr().err


@pytest.mark.slow
def test_a_causal_model_continues_as_the_plain_export_by_a_seed(tokenizer, tmp_path):
    """A seed's draws depend on the number of rows, which is that of the bucket for 3."""
    model = random_model(models.gpt, tokenizer.vocabulary_size, max_length=17)
    directory = export.saved_model(
        model,
        tmp_path,
        tokenizer=tokenizer,
        strategy=Sample(0.7, top_k=5, seed=1),
        max_length=MAX_LENGTH,
        compile="xla",
        buckets=export.Buckets((3,), (5, 99)),
    )
    signatures = tf.saved_model.load(directory).signatures
    assert read_compilation(directory)["lengths"] == [5, 11]  # as far as a prompt is read
    for batch in (TEXTS[1:4], TEXTS[:4], []):
        texts = tf.constant(batch, tf.string)
        expected = as_arrays(signatures["plain"](text=texts))
        assert_same(as_arrays(signatures["serving_default"](text=texts)), expected)
    assert set(signatures) == {"ids", "plain", "plain_ids", "score", "serving_default"}


@pytest.mark.slow
def test_sampling_without_a_seed_draws_anew(tmp_path):
    model = random_model(models.gpt, 19, max_length=18)
    options = {"compile": "xla", "buckets": export.Buckets((3,), (5,)), "max_length": 13}
    directory = export.saved_model(model, tmp_path, strategy=Sample(), **options)
    loaded = tf.saved_model.load(directory)
    ids, lengths = random_batch(2, 5)
    drawn = [loaded.signatures["ids"](token_ids=ids, lengths=lengths) for _ in range(2)]
    assert (drawn[0]["ids"].numpy() != drawn[1]["ids"].numpy()).any()


@pytest.mark.slow
def test_quantized_weights_compile(tmp_path):
    model = models.transformer(37, 1, 2, 32, 53)
    oracles.scramble(model, 5, 0.3)
    options = {"quantize": "int8", "compile": "xla", "buckets": export.Buckets((3,), (5,))}
    loaded = tf.saved_model.load(export.saved_model(model, tmp_path, max_length=5, **options))
    ids, lengths = random_batch(3, 5)
    expected, found = (
        as_arrays(loaded.signatures[name](source_ids=ids, source_lengths=lengths))
        for name in ("plain_ids", "ids")
    )
    assert_same(found, expected)


@pytest.mark.slow
def test_a_strategy_that_xla_cannot_compile_is_refused(tmp_path):
    class Strings(Greedy):
        def decode(self, model, inputs, options):
            ids, scores = super().decode(model, inputs, options)
            return tf.strings.length(tf.strings.as_string(ids)), scores

    model = random_model(models.transformer, 19)
    options = {"compile": "xla", "buckets": export.Buckets((1,), (5,)), "max_length": 3}
    with pytest.raises(ValueError, match="XLA cannot compile.*export it without") as error:
        export.saved_model(model, tmp_path / "export", strategy=Strings(), **options)
    assert "\n" not in str(error.value) and not os.listdir(tmp_path)


@pytest.mark.slow
def test_a_compiled_function_with_other_outputs_is_refused(tmp_path, monkeypatch):
    """The compiled decoding gets another end of the rows than the plain one."""

    def wrong(buckets, compiled, plain, pad_id):
        return lambda ids, lengths: compiled(ids[:, :1], tf.minimum(lengths, 1))

    monkeypatch.setattr(export.Buckets, "dispatch", wrong)
    model = random_model(models.transformer, 19)
    options = {"compile": "xla", "buckets": export.Buckets((1,), (5,)), "max_length": 3}
    with pytest.raises(ValueError, match="must give the outputs of the plain one"):
        export.saved_model(model, tmp_path / "export", **options)
    assert not os.listdir(tmp_path)
