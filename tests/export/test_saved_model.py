"""Exports: the same answers in Python, in a fresh process and through the session loader."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from keras_attn import export, models, text
from keras_attn.generation import Beam, Greedy, Sample

SENTENCES = ["the cat sat on the mat", "a dog ran over the hill", "the dog sat"]
QUESTIONS = ["the cat ran", "", "   ", "a", "zebra \U0001f600 好", "the dog sat " * 9]
MAX_LENGTH = 7


@pytest.fixture(scope="module")
def tokenizer():
    return text.SentencePiece.train(SENTENCES * 3, vocabulary_size=36)


@pytest.fixture(scope="module")
def model(tokenizer):
    model = models.transformer(tokenizer.vocabulary_size, 2, 2, 8, 11)
    random = np.random.default_rng(3)
    for weight in model.trainable_variables:
        weight.assign(random.normal(0, 0.5, weight.shape))
    return model


@pytest.fixture(scope="module")
def exported(model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("export")
    return export.saved_model(
        model, path, tokenizer=tokenizer, strategy=Beam(3), max_length=MAX_LENGTH
    )


@pytest.fixture(scope="module")
def expected(model, tokenizer):
    translator = export.Translator(model, tokenizer, Beam(3), MAX_LENGTH)
    return translator.translate(QUESTIONS, batch_size=2)


def in_fresh_process(program, *arguments):
    """What a program prints as JSON that has TensorFlow and TensorFlow Text, and nothing of ours."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=os.path.dirname(os.path.abspath(sys.executable)),
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_fresh_process_and_session_loader_give_the_same_answers(exported, expected):
    answers = in_fresh_process(
        """
        import json, sys
        import tensorflow as tf, tensorflow_text
        directory, questions = sys.argv[1], json.loads(sys.argv[2])
        loaded = tf.saved_model.load(directory)
        serve = loaded.signatures["serving_default"]
        batches = [questions, questions[:1], questions[1:2], []]
        answers = []
        for batch in batches:
            output = serve(text=tf.constant(batch, tf.string))
            answers.append([[t.decode() for t in output["translation"].numpy()],
                            [float(s) for s in output["score"].numpy()]])
        with tf.compat.v1.Session(graph=tf.Graph()) as session:
            meta = tf.compat.v1.saved_model.load(session, ["serve"], directory)
            signature = meta.signature_def["serving_default"]
            names = {k: v.name for k, v in signature.outputs.items()}
            output = session.run(names, {signature.inputs["text"].name: questions})
            answers.append([[t.decode() for t in output["translation"]],
                            [float(s) for s in output["score"]]])
        assert not any(name.split(".")[0] == "keras_attn" for name in sys.modules)
        print(json.dumps(answers))
        """,
        exported,
        json.dumps(QUESTIONS),
    )
    texts, scores = expected
    wanted = [range(len(QUESTIONS)), [0], [1], [], range(len(QUESTIONS))]
    for (got_texts, got_scores), rows in zip(answers, wanted, strict=True):
        assert got_texts == [texts[row] for row in rows]
        np.testing.assert_allclose(got_scores, [scores[row] for row in rows], atol=1e-5)


def test_empty_texts_have_a_defined_answer(expected):
    texts, scores = expected
    for row in (1, 2):
        assert (texts[row], scores[row]) == ("", 0.0)
    assert all(score < 0 for row, score in enumerate(scores) if row not in (1, 2))


def test_signatures_are_named_and_dynamic(exported):
    signatures = tf.saved_model.load(exported).signatures
    assert set(signatures) == {"serving_default", "ids", "attention"}
    inputs = {
        name: {k: (v.dtype, v.shape.rank) for k, v in s.structured_input_signature[1].items()}
        for name, s in signatures.items()
    }
    assert inputs["serving_default"] == inputs["attention"] == {"text": (tf.string, 1)}
    assert inputs["ids"] == {"source_ids": (tf.int32, 2), "source_lengths": (tf.int32, 1)}
    assert {k: v.dtype for k, v in signatures["serving_default"].structured_outputs.items()} == {
        "translation": tf.string,
        "score": tf.float32,
    }
    for signature in signatures.values():
        for spec in signature.structured_input_signature[1].values():
            assert all(size is None for size in spec.shape)


def test_lengths_decide_what_is_padding(exported, tokenizer):
    """A server pads with a tensor's first element, which is a token like any other."""
    loaded = tf.saved_model.load(exported)
    serve = loaded.signatures["ids"]
    source_ids, lengths = (x.numpy() for x in tokenizer.encode([QUESTIONS[0], QUESTIONS[3]]))
    clean = serve(source_ids=tf.constant(source_ids), source_lengths=tf.constant(lengths))
    padded = np.pad(source_ids, [[0, 0], [0, 4]])
    padded[np.arange(padded.shape[1]) >= lengths[:, None]] = source_ids[0, 0]
    dirty = serve(source_ids=tf.constant(padded), source_lengths=tf.constant(lengths))
    np.testing.assert_array_equal(clean["ids"], dirty["ids"])
    np.testing.assert_allclose(clean["score"], dirty["score"], rtol=1e-6)
    nothing = serve(source_ids=tf.constant(padded), source_lengths=tf.constant([0, 0]))
    assert not nothing["ids"].numpy().any() and not nothing["score"].numpy().any()


@pytest.mark.parametrize("strategy", [Greedy(), Sample(top_k=3), Beam(2)])
def test_only_ops_that_the_server_runs(model, tokenizer, strategy, tmp_path):
    directory = export.saved_model(model, tmp_path, tokenizer=tokenizer, strategy=strategy)
    assert export.unservable_ops(directory) == []


def test_unservable_ops_are_found(tmp_path):
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

            return tensorflow_text.normalize_utf8(x)

    for module, found in (
        (Compiled(), "_XlaMustCompile"),
        (FromPython(), "EagerPyFunc"),
        (FromText(), "NormalizeUTF8"),
    ):
        directory = str(tmp_path / found)
        tf.saved_model.save(module, directory)
        assert found in export.unservable_ops(directory)


def test_versions_are_published_whole_and_never_overwritten(model, tmp_path, monkeypatch):
    first = export.saved_model(model, tmp_path, max_length=3)
    assert os.path.basename(first) == "1"
    (tmp_path / "7").mkdir()
    assert os.path.basename(export.saved_model(model, tmp_path, max_length=3)) == "8"
    with pytest.raises(ValueError, match="not overwritten"):
        export.saved_model(model, tmp_path, max_length=3, version=1)
    before = sorted(os.listdir(tmp_path))

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(tf.saved_model, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export.saved_model(model, tmp_path, max_length=3)
    assert sorted(os.listdir(tmp_path)) == before


def test_the_optimizer_is_not_exported(model, tmp_path):
    model.compile("adam", "sparse_categorical_crossentropy")
    directory = export.saved_model(model, tmp_path, max_length=3)
    saved = sum(
        np.prod(shape)
        for name, shape in tf.train.list_variables(os.path.join(directory, "variables/variables"))
        if "weights" in name
    )
    assert saved == model.count_params()
    names = [n for n, _ in tf.train.list_variables(os.path.join(directory, "variables/variables"))]
    assert not any("optimizer" in name for name in names)


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


def test_the_command_exports_a_saved_model(model, tokenizer, expected, tmp_path, capsys):
    from keras_attn.export.__main__ import main

    model.save(tmp_path / "model.keras")
    tokenizer.save(tmp_path / "tokenizer.model")
    arguments = [
        "saved_model",
        str(tmp_path / "model.keras"),
        str(tmp_path / "versions"),
        "--tokenizer",
        str(tmp_path / "tokenizer.model"),
        "--beams=3",
        f"--max-length={MAX_LENGTH}",
    ]
    assert main(arguments) == 0
    directory = capsys.readouterr().out.split()[-1]
    loaded = tf.saved_model.load(directory)
    answers = loaded.signatures["serving_default"](text=tf.constant(QUESTIONS))
    assert [text.decode() for text in answers["translation"].numpy()] == expected[0]
    assert main([*arguments, "--version=1"]) == 2
    assert "not overwritten" in capsys.readouterr().err
    assert main(["saved_model", str(tmp_path / "none.keras"), str(tmp_path)]) == 2
    assert "none.keras" in capsys.readouterr().err


def test_a_trained_model_loads_where_only_the_package_is_imported(model, tokenizer, tmp_path):
    """The recipe's own file names our optimizer, schedule and loss."""
    from keras_attn import losses, metrics, optimizers

    trained = models.transformer(tokenizer.vocabulary_size, 1, 2, 8, 11)
    loss = losses.LabelSmoothedCrossentropy()
    trained.compile(optimizers.Adam(optimizers.Noam(8)), loss, metrics=[metrics.Perplexity()])
    ids = np.array([[5, 6, 3]])
    trained.fit({"source_ids": ids, "target_ids": ids}, ids, verbose=0)
    trained.save(tmp_path / "model.keras")
    program = """
        import json, sys
        sys.path.insert(0, sys.argv[2])
        import keras, keras_attn
        print(json.dumps(keras.models.load_model(sys.argv[1]).count_params()))
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    assert in_fresh_process(program, tmp_path / "model.keras", root) == trained.count_params()
