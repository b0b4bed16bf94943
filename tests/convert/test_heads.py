"""Heads in folders of Hugging Face: the way back of what a run of fine-tuning trains."""

import json
import shutil

import checkpoint_folders
import keras
import numpy as np
import oracles
import pytest
import safetensors.numpy
import tensorflow as tf

from keras_attn import export, models, text
from keras_attn.commands.convert import main
from keras_attn.convert import from_hugging_face, read_labels, to_hugging_face
from keras_attn.convert.hugging_face.tensor_files import SINGLE

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
IDS = np.array([[4, 5, 3, 10], [7, 3, 0, 0]])
LABELS = ["первый", "second", "3"]


@pytest.fixture(scope="module")
def bert():
    return models.bert(11, max_length=5, **SIZES)


def parts(model):
    names = ("embedding", "position", "segment", "norm", "dropout")
    encoder = getattr(model, "depth", None) or model.encoder
    return {"encoder": encoder, **{name: getattr(model, name, None) for name in names}}


def classifier(model, num_classes, **options):
    made = models.Classifier(**parts(model), num_classes=num_classes, **options)
    oracles.scramble(made, scale=0.5)
    return made


def numbers(model, ids=IDS):
    return np.asarray(model({"token_ids": ids}), "float64")


def written(model, folder, **options):
    """Write a folder; return its configuration and its tensors."""
    to_hugging_face(model, folder, **options)
    config = json.loads((folder / "config.json").read_text())
    return config, safetensors.numpy.load_file(folder / SINGLE)


@pytest.mark.parametrize("name", ["first", "several"])
def test_classes_by_the_bare_first_token_are_written_with_a_pooler(bert, name, tmp_path):
    """The pooler is tanh(x / 2^14), of which the classes take 2^14 times as much."""
    model = classifier(bert, 3, multi_label=name == "several")
    config, tensors = written(model, tmp_path / name, labels=LABELS)
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == dict(zip("012", LABELS, strict=True))
    problem = "multi_label_classification" if name == "several" else None
    assert config.get("problem_type") == problem
    states = models.Part(model.input, model.encoder_output)
    first = numbers(states)[:, 0]
    pooled = np.tanh(first @ tensors["bert.pooler.dense.weight"].T)
    logits = pooled @ tensors["classifier.weight"].T.astype("float64") + tensors["classifier.bias"]
    expected = numbers(model)
    np.testing.assert_allclose(logits, expected, atol=4e-6 * np.abs(expected).max())
    assert not tensors["bert.pooler.dense.bias"].any()
    again, _ = from_hugging_face(tmp_path / name)
    assert again.multi_label == (name == "several")
    np.testing.assert_allclose(numbers(again), expected, atol=4e-6 * np.abs(expected).max())


def test_features_of_granite_have_no_factor_of_the_logits(tmp_path):
    """The logits of transformers are products of the features, over `logits_scaling`."""
    config, tensors, arrays = checkpoint_folders.load_golden("granite")
    table = tensors.pop("lm_head.weight", tensors["model.embed_tokens.weight"])
    config = {**config, "architectures": ["GraniteModel"], "pad_token_id": None}
    folder = checkpoint_folders.write_folder(tmp_path / "granite", config, tensors)
    features = numbers(from_hugging_face(folder)[0], arrays["input_token_ids"])
    logits = features @ table.T.astype("float64") / config["logits_scaling"]
    expected = arrays["outputs"][:, -1]
    difference = np.abs(logits[:, arrays["columns"]] - expected).max()
    assert difference <= 5e-6 * np.abs(expected).max()


def test_a_bart_without_a_head_has_tied_logits_without_a_bias(tmp_path):
    config, tensors, arrays = checkpoint_folders.load_golden("bart")
    bias = tensors.pop("final_logits_bias")[:, arrays["columns"]]
    tensors = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    config = {**config, "architectures": ["BartModel"]}
    folder = checkpoint_folders.write_folder(tmp_path / "bart", config, tensors)
    model, _ = from_hugging_face(folder)
    arrays["outputs"] = arrays["outputs"] - bias
    assert checkpoint_folders.difference(model, arrays) <= checkpoint_folders.TOLERANCE


def test_the_question_of_a_longformer_is_global(tmp_path):
    """transformers takes the tokens before the first separator, six of each row."""
    folder = checkpoint_folders.GOLDEN.parent / "golden_globals"
    config, tensors, arrays = checkpoint_folders.load_golden("longformer_answers", folder)
    folder = checkpoint_folders.write_folder(tmp_path / "longformer", config, tensors)
    with pytest.raises(ValueError, match="A Longformer with answers needs `num_global`, "):
        from_hugging_face(folder)
    model, _ = from_hugging_face(folder, num_global=6)
    assert checkpoint_folders.difference(model, arrays) <= checkpoint_folders.TOLERANCE
    other, _ = from_hugging_face(folder, num_global=5)
    assert checkpoint_folders.difference(other, arrays) > 1e-3
    config, again = written(model, tmp_path / "again")
    assert config["architectures"] == ["LongformerForQuestionAnswering"]
    assert again.keys() == tensors.keys()


def test_a_t5_without_a_head_has_tied_logits(tmp_path):
    config, tensors, arrays = checkpoint_folders.load_golden("t5")
    config = {**config, "architectures": ["T5Model"]}
    folder = checkpoint_folders.write_folder(tmp_path / "t5", config, tensors)
    model, _ = from_hugging_face(folder)
    assert checkpoint_folders.difference(model, arrays) <= checkpoint_folders.TOLERANCE


def test_what_no_class_of_both_sides_has_is_refused(checkpoint, tmp_path):
    both = checkpoint("bart_classifier").model.encoder
    for options, wanted in (
        (
            {"num_classes": 3, "pooling": "first"},
            "`model.pooling` must be Pool, as in a model of bart",
        ),
        ({"num_classes": None}, "a Bart with a decoder has no class with features"),
    ):
        model = models.Classifier(None, both, **options, pooler=keras.layers.Dense(7, "relu"))
        with pytest.raises(ValueError, match=wanted):
            to_hugging_face(model, tmp_path / "out")


@pytest.mark.parametrize("name", ["bart_classifier", "t5_answers"])
def test_classes_and_answers_of_both_sides_are_found_by_their_tensors(name, checkpoint, tmp_path):
    case = checkpoint(name)
    config = {**case.config, "architectures": None}
    folder = checkpoint_folders.write_folder(tmp_path / name, config, case.weights)
    model, _ = from_hugging_face(folder)
    assert checkpoint_folders.difference(model, case.arrays) <= checkpoint_folders.TOLERANCE


@pytest.mark.slow
def test_classes_by_the_mean_are_the_vectors_of_a_sentence_encoder(bert, tmp_path):
    """So is a number by the last token of a decoder, whose class in transformers has no bias."""
    gpt = models.gpt(11, max_length=5, pad_id=0, **SIZES)
    cases = {
        "mean": (classifier(bert, 3, pooling="mean"), LABELS, "mean_tokens"),
        "last": (classifier(gpt, 1, pooling="last"), ["stars"], "lasttoken"),
    }
    for name, (model, labels, flag) in cases.items():
        config, _ = written(model, tmp_path / name, labels=labels)
        assert config["architectures"][0].endswith("Model") and read_labels(tmp_path / name)
        modules = json.loads((tmp_path / name / "modules.json").read_text())
        kinds = [module["type"].rpartition(".")[2] for module in modules]
        assert kinds == ["Transformer", "Pooling", "Dense"]
        pooling = json.loads((tmp_path / name / "1_Pooling/config.json").read_text())
        assert [k for k, on in pooling.items() if on is True] == [f"pooling_mode_{flag}"]
        dense = json.loads((tmp_path / name / "2_Dense/config.json").read_text())
        assert dense["activation_function"] == "torch.nn.modules.linear.Identity"
        tensors = safetensors.numpy.load_file(tmp_path / name / "2_Dense" / SINGLE)
        kernel, bias = model.head.get_weights()
        np.testing.assert_array_equal(tensors["linear.weight"], kernel.T)
        np.testing.assert_array_equal(tensors["linear.bias"], bias)
        again, _ = from_hugging_face(tmp_path / name)
        np.testing.assert_allclose(numbers(again, IDS[:1]), numbers(model, IDS[:1]), atol=1e-6)


def test_names_that_do_not_fit_are_refused(bert, tmp_path):
    for model, labels, wanted in (
        (classifier(bert, 3), ["a", "b"], "a list of 3 different strings"),
        (classifier(bert, 3), ["a", "b", "a"], "a list of 3 different strings"),
        (bert, ["a"], "None for a model without classes"),
    ):
        with pytest.raises(ValueError, match=f"`labels` must be {wanted}. Received: labels="):
            to_hugging_face(model, tmp_path / "out", labels=labels)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_run_that_tags_words_goes_to_a_folder_and_into_an_export(tmp_path, capsys):
    """The names and the tokenizer beside the model go along, and come back."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "runs"]
    tokenizer = text.WordPiece(words)
    bert = models.bert(len(words), max_length=9, **SIZES)
    head = keras.layers.Dense(3, dtype="float32", name="head")
    model = models.MaskedLanguageModel(**parts(bert), head=head)
    oracles.scramble(model, scale=0.5)
    run, folder = tmp_path / "run", tmp_path / "folder"
    run.mkdir()
    model.save(run / "model.keras")
    tokenizer.save(run / "tokenizer.model")
    (run / "labels.json").write_text(json.dumps({"labels": LABELS}))
    assert main(["to-hugging-face", str(run / "model.keras"), str(folder)]) == 0
    assert "a checkpoint of bert with labels and tokenizer" in capsys.readouterr().out
    assert read_labels(folder) == LABELS
    again, read = from_hugging_face(folder)
    np.testing.assert_array_equal(*(x.encode_as_lists(["a dog"]) for x in (read, tokenizer)))
    np.testing.assert_allclose(numbers(again, IDS % 8), numbers(model, IDS % 8), atol=1e-6)
    assert main([str(folder), str(tmp_path / "b.keras"), "--export", str(tmp_path / "out")]) == 0
    tagger = export.TextTagger(model, tokenizer, LABELS)
    expected = tagger.text(["a dog runs"])["labels"].numpy().tolist()
    (path,) = (tmp_path / "out").iterdir()
    signature = tf.saved_model.load(path).signatures["tag"]
    assert signature(text=tf.constant(["a dog runs"]))["labels"].numpy().tolist() == expected
    shutil.rmtree(folder)
    (run / "labels.json").write_text("[")
    assert main(["to-hugging-face", str(run / "model.keras"), str(folder)]) == 2
    assert "The file of labels is no JSON. Received: " in capsys.readouterr().err


@pytest.mark.slow
def test_heads_of_a_folder_survive_a_file_and_give_states(checkpoint, tmp_path):
    """A head's model has parts of a model for tokens, whose graph is another one."""
    for name in ("bert_untied", "bert_answers", "bert_labels"):
        case = checkpoint(name)
        inputs = {k[6:]: v for k, v in case.arrays.items() if k.startswith("input_")}
        case.model.save(tmp_path / f"{name}.keras")
        again = keras.models.load_model(tmp_path / f"{name}.keras")
        np.testing.assert_allclose(again(inputs), case.model(inputs), atol=1e-6)
        assert getattr(again, "multi_label", None) == (True if name == "bert_labels" else None)
    encoder = export.TokenEncoder(checkpoint("bert_answers").model)
    features = encoder.encode([[5, 4, 9]], [3])["features"].numpy()[0]
    kernel, bias = checkpoint("bert_answers").model.head.get_weights()
    logits = encoder.logits([[5, 4, 9]], [3])["logits"].numpy()[0]
    np.testing.assert_allclose(features @ kernel + bias, logits, atol=1e-5)
