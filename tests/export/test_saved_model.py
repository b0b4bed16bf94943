"""SavedModels: equal results in Python, in a process without this package and in a session."""

import contextlib
import io
import json
import os
import sys
import textwrap
from pathlib import Path
from unittest import mock

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from fork_server import run_python

from keras_attn import export, losses, metrics, models, optimizers, positions, text
from keras_attn.commands.export import main
from keras_attn.export._saved_model import writing
from keras_attn.export.decoding_record import Decoding, read_decoding
from keras_attn.export.servable_ops import FIRST_VERSION
from keras_attn.export.versions import new_version
from keras_attn.generation import compilation

SENTENCES = ["the cat sat on the mat", "a dog ran over the hill", "the dog sat"]
TEXTS = ["the cat ran", "", "   ", "a", "zebra \U0001f600 好", "the dog sat " * 9]
MAX_LENGTH = 7


@pytest.fixture(scope="module")
def tokenizer():
    return text.SentencePiece.train(SENTENCES * 3, vocabulary_size=36)


@pytest.fixture(scope="module")
def model(tokenizer):
    """A model as after training: compiled, with an optimizer that has variables."""
    model = models.transformer(tokenizer.vocabulary_size, 1, 2, 8, 11)
    random = np.random.default_rng(3)
    for weight in model.trainable_variables:
        is_offset = weight.name == "beta" or "bias" in weight.name
        weight.assign(random.normal(0, 0.1 if is_offset else 1, weight.shape))
    # Outputs vary, since no row of the table is much longer than others, and none is padding.
    table = model.embedding.table.numpy() * np.arange(tokenizer.vocabulary_size)[:, None].clip(0, 1)
    model.embedding.table.assign(table / np.linalg.norm(table, axis=1, keepdims=True).clip(1e-9))
    loss = losses.LabelSmoothedCrossentropy()
    model.compile(optimizers.Adam(optimizers.Noam(8)), loss, metrics=[metrics.Perplexity()])
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture(scope="module")
def files(model, tokenizer, tmp_path_factory):
    """A directory with the files of model and tokenizer."""
    folder = tmp_path_factory.mktemp("files")
    model.save(folder / "model.keras")
    tokenizer.save(folder / "tokenizer.model")
    return folder


@pytest.fixture(scope="module")
def command(files):
    """The arguments of the command that exports the files."""
    return [
        "saved_model",
        str(files / "model.keras"),
        str(files / "versions"),
        "--tokenizer",
        str(files / "tokenizer.model"),
        f"--max-length={MAX_LENGTH}",
    ]


@pytest.fixture(scope="module")
def written(command):
    """The directory that the command prints, and its numbers of calls of decoding and encoding."""
    tokenizer, encode = text.SentencePiece, text.SentencePiece.encode
    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        mock.patch.object(compilation, "decode", wraps=compilation.decode) as decoded,
        mock.patch.object(tokenizer, "encode", autospec=True, side_effect=encode) as encoded,
    ):
        assert main(command) == 0
    return printed.getvalue().split()[-1], decoded.call_count, encoded.call_count


@pytest.fixture(scope="module")
def exported(written):
    return written[0]


@pytest.fixture(scope="module")
def signatures(exported):
    return tf.saved_model.load(exported).signatures


def in_fresh_process(program, *arguments, path=""):
    """Return the JSON that a program prints; keras_attn cannot be imported unless in `path`."""
    run = run_python(
        "-c",
        textwrap.dedent(program),
        *arguments,
        environment={**os.environ, "PYTHONPATH": str(path)},
        cwd=Path(sys.executable).parent,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def answers(signatures):
    """The texts and scores that the file gives."""
    outputs = signatures["serving_default"](text=tf.constant(TEXTS))
    return [text.decode() for text in outputs["translation"].numpy()], outputs["score"].numpy()


def test_the_file_gives_the_most_likely_translations(signatures, answers, model, tokenizer):
    """In one pass of the model over a translation each token is the most likely one."""
    source_ids, lengths = tokenizer.encode(TEXTS)
    outputs = signatures["ids"](source_ids=source_ids, source_lengths=lengths)
    ids, is_end = outputs["ids"].numpy(), outputs["ids"].numpy() == tokenizer.eos_id
    target_ids = np.pad(ids[:, :-1], [[0, 0], [1, 0]], constant_values=tokenizer.bos_id)
    logits = np.asarray(model({"source_ids": source_ids, "target_ids": target_ids}))
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    is_open = np.cumsum(is_end, axis=1) - is_end == 0  # up to the first end
    np.testing.assert_array_equal(ids, np.where(is_open, logs.argmax(axis=-1), tokenizer.pad_id))
    assert len({*map(tuple, ids)}) > 3
    scores = (logs.max(axis=-1) * is_open).sum(axis=1)
    np.testing.assert_allclose(outputs["score"], scores, atol=1e-4)
    has_text = lengths.numpy() > 1  # the translation of no text is none
    assert has_text.tolist() == [True, False, False, True, True, True]
    written = np.where(has_text, tokenizer.decode_as_strings(ids), "").tolist()
    assert answers[0] == written
    np.testing.assert_allclose(answers[1], scores * has_text, atol=1e-4)


@pytest.mark.slow
def test_a_process_without_keras_attn_and_the_session_loader_give_the_same_results(
    exported, answers
):
    results = in_fresh_process(
        """
        import json, sys
        import tensorflow as tf, tensorflow_text
        directory, texts = sys.argv[1], json.loads(sys.argv[2])
        loaded = tf.saved_model.load(directory)
        serve = loaded.signatures["serving_default"]
        batches = [texts, texts[:1], texts[1:2], []]
        results = []
        for batch in batches:
            output = serve(text=tf.constant(batch, tf.string))
            results.append([[t.decode() for t in output["translation"].numpy()],
                            [float(s) for s in output["score"].numpy()]])
        with tf.compat.v1.Session(graph=tf.Graph()) as session:
            meta = tf.compat.v1.saved_model.load(session, ["serve"], directory)
            signature = meta.signature_def["serving_default"]
            names = {k: v.name for k, v in signature.outputs.items()}
            output = session.run(names, {signature.inputs["text"].name: texts})
            results.append([[t.decode() for t in output["translation"]],
                            [float(s) for s in output["score"]]])
        assert not any(name.split(".")[0] == "keras_attn" for name in sys.modules)
        print(json.dumps(results))
        """,
        exported,
        json.dumps(TEXTS),
    )
    texts, scores = answers
    wanted = [range(len(TEXTS)), [0], [1], [], range(len(TEXTS))]
    for (got_texts, got_scores), rows in zip(results, wanted, strict=True):
        assert got_texts == [texts[row] for row in rows]
        np.testing.assert_allclose(got_scores, [scores[row] for row in rows], atol=1e-5)


@pytest.mark.slow
def test_signatures_sizes_and_outputs_are_reported(model, exported):
    inspection = export.inspect(exported)
    texts = {"score": ("float32", (None,)), "translation": ("string", (None,))}
    counts = dict.fromkeys(["source_lengths", "lengths"], ("int32", (None,)))
    tokens = dict.fromkeys(["source_tokens", "tokens"], ("string", (None, None)))
    weights = {"cross_attention": ("float32", (None, 1, 2, None, None))}
    assert inspection.signatures == {
        "attention": {
            "inputs": {"text": ("string", (None,))},
            "outputs": {**texts, **counts, **tokens, **weights},
        },
        "ids": {
            "inputs": {"source_ids": ("int32", (None, None)), "source_lengths": ("int32", (None,))},
            "outputs": {"ids": ("int32", (None, MAX_LENGTH)), "score": ("float32", (None,))},
        },
        "serving_default": {"inputs": {"text": ("string", (None,))}, "outputs": texts},
    }
    assert inspection.num_weights == model.count_params()
    assert inspection.weight_bytes == 4 * model.count_params()
    files = [os.path.join(top, n) for top, _, names in os.walk(exported) for n in names]
    assert inspection.file_bytes == sum(len(open(file, "rb").read()) for file in files)
    assert (inspection.written_by, inspection.tokenizer) == (tf.__version__, "SentencePiece")
    assert inspection.outcomes == dict.fromkeys(["attention", "ids", "serving_default"], "same")
    assert inspection.unservable == inspection.faults == []
    # The version is 2.10 by an operation that TensorFlow writes into every SavedModel.
    assert set(inspection.ops) <= set(FIRST_VERSION) and inspection.serving_version == "2.10"
    report = inspection.report()
    for line in (
        "<- source_ids: int32 [?, ?]",
        "-> translation: string [?]",
        "tokenizer    SentencePiece",
        "outputs      equal to the recorded ones: attention, ids, serving_default",
    ):
        assert any(line in row for row in report)


def test_ids_beyond_the_length_are_ignored(signatures, tokenizer, assert_ids_are_checked):
    """A server pads with a tensor's first element, which is a token like any other."""
    serve = signatures["ids"]
    source_ids, lengths = (x.numpy() for x in tokenizer.encode([TEXTS[0], TEXTS[3]]))
    clean = serve(source_ids=tf.constant(source_ids), source_lengths=tf.constant(lengths))
    padded = np.pad(source_ids, [[0, 0], [0, 4]])
    padded[np.arange(padded.shape[1]) >= lengths[:, None]] = source_ids[0, 0]
    dirty = serve(source_ids=tf.constant(padded), source_lengths=tf.constant(lengths))
    np.testing.assert_array_equal(clean["ids"], dirty["ids"])
    np.testing.assert_allclose(clean["score"], dirty["score"], rtol=1e-6)
    nothing = serve(source_ids=tf.constant(padded), source_lengths=tf.constant([0, 0]))
    assert not nothing["ids"].numpy().any() and not nothing["score"].numpy().any()
    names = "source_ids", "source_lengths"
    request = dict(zip(names, (source_ids[:1, : lengths[0]], lengths[:1]), strict=True))
    assert_ids_are_checked(serve, tokenizer.vocabulary_size, request, *names)


def test_unservable_ops_are_found(tmp_path, capsys):
    class Compiled(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)], jit_compile=True)
        def __call__(self, x):
            return x + 1

    class FromPython(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def __call__(self, x):
            return tf.py_function(lambda y: y, [x], tf.float32)

    class FromText(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, x):
            import tensorflow_text

            return tensorflow_text.case_fold_utf8(x)

    for module, op_name in (
        (Compiled(), "_XlaMustCompile"),
        (FromPython(), "EagerPyFunc"),
        (FromText(), "CaseFoldUTF8"),
    ):
        directory = str(tmp_path / op_name)
        tf.saved_model.save(module, directory)
        assert op_name in export.unservable_ops(directory)
    assert main(["inspect", str(tmp_path / "_XlaMustCompile")]) == 1
    assert "does not run operations in it: _XlaMustCompile." in capsys.readouterr().err


def test_each_function_is_traced_once(written, signatures):
    """One trace serves the file and its golden outputs, and one of the decoding all signatures."""
    _, decoded, encoded = written
    reads_text = {"serving_default", "attention"}
    assert decoded == 1 and encoded == len(reads_text)
    assert {*signatures} == {"ids", *reads_text}


def test_another_backend_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="by the TensorFlow backend.*Received: backend='jax'"):
        export.saved_model(model, tmp_path)


@pytest.mark.parametrize("compile", [None, "xla"])
def test_a_version_that_exists_is_refused_before_anything_is_traced(model, tmp_path, compile):
    (tmp_path / "3").mkdir()
    with (
        mock.patch.object(compilation, "decode", side_effect=AssertionError),
        pytest.raises(ValueError, match="not overwritten"),
    ):
        export.saved_model(model, tmp_path, max_length=2, version=3, compile=compile)


def test_a_strategy_of_a_model_that_does_not_decode_is_refused(tmp_path):
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
    encoder, decoder = models.bert(11, **sizes), models.gpt(11, **sizes)
    for refused, options in ((encoder, {}), (decoder, {"stream": True})):
        with pytest.raises(ValueError, match="`strategy` must be None for a model that does not"):
            export.saved_model(refused, tmp_path, strategy="beam", **options)


def test_versions_count_up_and_are_never_overwritten(tmp_path):
    for taken, expected in ((None, "1"), ("7", "8")):
        if taken:
            (tmp_path / taken).mkdir()
        with new_version(tmp_path) as (temporary, directory):
            assert os.path.basename(temporary).startswith(".") and not os.path.exists(directory)
        assert os.path.isdir(directory) and os.path.basename(directory) == expected
    with pytest.raises(ValueError, match="not overwritten"), new_version(tmp_path, 1):
        pass
    assert sorted(os.listdir(tmp_path)) == ["1", "7", "8"]


def test_an_interrupted_export_leaves_nothing(encoder_export, tmp_path, monkeypatch):
    def interrupted(module, directory, *arguments, **options):
        Path(directory, "saved_model.pb").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(tf.saved_model, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export.saved_model(encoder_export[0], tmp_path)
    assert os.listdir(tmp_path) == []


def test_the_decoding_is_recorded_where_there_is_one(exported, encoder_export, tmp_path):
    assert read_decoding(exported) == Decoding("greedy", max_length=MAX_LENGTH)
    assert read_decoding(encoder_export[1]) is None
    (tmp_path / "assets.extra").mkdir()
    for damaged in ("{", "[1]", '{"size": 3}'):
        (tmp_path / "assets.extra" / "decoding.json").write_text(damaged)
        with pytest.raises(ValueError, match="The record of the decoding is damaged"):
            read_decoding(tmp_path)


def test_the_optimizer_is_not_exported(model, exported):
    variables = dict(tf.train.list_variables(os.path.join(exported, "variables/variables")))
    saved = sum(np.prod(shape) for name, shape in variables.items() if "weights" in name)
    assert saved == model.count_params()
    assert not any("optimizer" in name for name in variables)


def test_errors(model, tokenizer, tmp_path):
    other = models.transformer(tokenizer.vocabulary_size + 1, 1, 2, 8, 11)
    with pytest.raises(ValueError, match="vocabularies of the same size"):
        export.saved_model(other, tmp_path, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="version=0"):
        export.saved_model(model, tmp_path, version=0)
    with pytest.raises(ValueError, match="max_length=0"):
        export.saved_model(model, tmp_path, max_length=0)
    with pytest.raises(ValueError, match="no saved_model.pb"):
        export.unservable_ops(tmp_path)
    with pytest.raises(ValueError, match="must be an `EncoderDecoder`.*Received: Dense"):
        export.saved_model(keras.layers.Dense(2), tmp_path / "dense")


def test_a_server_gives_the_actions_of_each_episode_alone(tmp_path, assert_warmup_records_match):
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
    model = models.decision_transformer(3, 2, **sizes, max_steps=7)
    oracles.scramble(model)
    path = export.saved_model(model, tmp_path)
    signatures = tf.saved_model.load(path).signatures
    assert_warmup_records_match(path, signatures)
    assert set(signatures) == {"act", "serving_default"}
    random, lengths = np.random.default_rng(0), np.array([5, 2, 3], "int32")
    shapes = {"returns": (3, 5), "states": (3, 5, 3), "actions": (3, 5, 2)}
    episodes = {name: random.normal(size=n).astype("float32") for name, n in shapes.items()}
    inputs = {name: tf.constant(x) for name, x in {**episodes, "lengths": lengths}.items()}
    actions = signatures["act"](**inputs)["actions"]
    for row, length in enumerate(lengths):
        alone = {name: x[row : row + 1, :length] for name, x in episodes.items()}
        np.testing.assert_allclose(actions[row, :length], model(alone)[0], atol=1e-5)


def test_the_command_refuses_versions_and_files_that_do_not_fit(command, exported, capsys):
    assert main([*command, f"--version={os.path.basename(exported)}"]) == 2
    assert "not overwritten" in capsys.readouterr().err
    assert main(["saved_model", "none.keras", command[2]]) == 2
    assert "none.keras" in capsys.readouterr().err


@pytest.mark.slow
def test_a_trained_model_loads_in_a_process_that_imports_only_the_package(model, files):
    """The file names our optimizer, schedule, loss and metric."""
    program = """
        import json, sys
        import keras, keras_attn
        print(json.dumps(keras.models.load_model(sys.argv[1]).count_params()))
    """
    root = Path(__file__).resolve().parents[2]
    assert in_fresh_process(program, files / "model.keras", path=root) == model.count_params()


@pytest.mark.parametrize("limit, expected", [(2053, 2053), (1021, 1021), (None, 1024)])
def test_by_default_a_translator_reads_all_source_positions(tmp_path, limit, expected):
    """In Python and as an export, whose buckets show how many tokens it reads."""
    position = "sinusoidal" if limit is None else positions.Learned(limit)
    model = models.transformer(10, 1, 2, 8, 11, position=position)
    buckets = export.Buckets(batches=(1,), lengths=(32, 4096))
    translator = export.IdTranslator(model, max_length=3, buckets=buckets)
    assert translator.buckets.lengths == (32, expected)
    with mock.patch.object(writing, "functions_of", side_effect=KeyError) as functions:
        with pytest.raises(KeyError):
            export.saved_model(model, tmp_path)
    assert functions.call_args.args[1].max_source_length == expected
