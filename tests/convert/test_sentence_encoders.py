"""Sentence encoders: vectors of sentence-transformers, in Python, in an export and written back.

`make_sentence_goldens.py` wrote the folders with the vectors.
"""

import json
import pathlib
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from checkpoint_folders import TOLERANCE

from keras_attn import export, layers, models, text
from keras_attn.convert import from_hugging_face, to_hugging_face
from keras_attn.export.saved_model_files import read_saved_model

GOLDEN = pathlib.Path(__file__).parent / "golden_sentences"
MODULES, POOLING = "modules.json", "1_Pooling/config.json"
DENSE, SETTINGS = "2_Dense/config.json", "config_sentence_transformers.json"
LENGTH = "sentence_bert_config.json"


def unpack(name, folder):
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as file:
        file.extractall(folder)
    return folder


def change(folder, name, **options):
    """Change options of a JSON file, without those that are None."""
    path = folder / name
    values = {**json.loads(path.read_text()), **options}
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))


def golden(folder):
    with np.load(folder / "vectors.npz") as file:
        return json.loads((folder / "texts.json").read_text()), dict(file)


def vectors(model, tokenizer, texts, prompt=None):
    inputs = {"token_ids": tokenizer.encode(texts, prompt=prompt)[0]}
    if "prompt_lengths" in model.input:
        inputs["prompt_lengths"] = tokenizer.prompt_lengths(texts, prompt)
    return np.asarray(model(inputs))


def check(theirs, ours):
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= TOLERANCE * np.abs(theirs).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_vectors_are_those_of_sentence_transformers(name, tmp_path):
    folder = unpack(name, tmp_path / name)
    texts, arrays = golden(folder)
    model, tokenizer = from_hugging_face(folder)
    for key, theirs in arrays.items():
        # The prompts of both kinds of texts have the kinds' names.
        prompt = None if key == "default" else key.removeprefix("prompt ")
        check(theirs, vectors(model, tokenizer, texts, prompt))
    without = vectors(model, tokenizer, texts, "document")  # "" in both folders
    assert np.abs(without - arrays["query"]).max() > 1e-2

    functions = export.SentenceEmbedder(model, tokenizer).signatures
    check(arrays["default"], functions["serving_default"](texts)["features"].numpy())
    check(arrays["prompt query"], functions["embed"](texts, ["query"])["features"].numpy())
    check(arrays["document"], functions["embed_document"](texts)["features"].numpy())
    with pytest.raises(tf.errors.InvalidArgumentError, match="one of query, document"):
        functions["embed"](texts, ["missing"])

    to_hugging_face(model, tmp_path / "written", tokenizer=tokenizer)
    again, read = from_hugging_face(tmp_path / "written")
    assert read.get_config() == tokenizer.get_config()
    settings = json.loads((tmp_path / "written/tokenizer_config.json").read_text())
    assert settings["model_max_length"] == tokenizer.max_length
    np.testing.assert_array_equal(
        vectors(again, read, texts, "query"), vectors(model, tokenizer, texts, "query")
    )


@pytest.mark.slow
def test_an_export_has_an_optional_prompt(tmp_path):
    model, tokenizer = from_hugging_face(unpack("encoder", tmp_path / "encoder"))
    directory = export.saved_model(model, tmp_path / "export", tokenizer=tokenizer)
    assert set(export.inspect(directory).outcomes.values()) == {"same"}
    signatures = read_saved_model(directory).signature_def
    (default,) = tf.make_ndarray(signatures["embed"].defaults["prompt"])
    assert default == b"" and not signatures["serving_default"].defaults


@pytest.mark.slow
@pytest.mark.parametrize(
    "lengths, expected",
    [
        ({"max_seq_length": 9}, 9),
        ({"max_seq_length": 999}, 131),  # of the positions
        ({}, 120),
        ({"model_max_length": 10**30}, 131),
    ],
)
def test_the_length_is_the_old_option_or_the_least_new_one(lengths, expected, tmp_path):
    folder = unpack("encoder", tmp_path / "encoder")
    if "model_max_length" in lengths:
        change(folder, "tokenizer_config.json", **lengths)
    else:
        change(folder, LENGTH, **lengths)
    _, tokenizer = from_hugging_face(folder)
    assert tokenizer.max_length == expected
    assert tokenizer.encode(["a " * 200])[0].shape == (1, expected)


def test_golden_outputs_are_compared_before_the_pooling(tmp_path):
    folder = unpack("encoder", tmp_path / "encoder")
    plain = unpack("encoder", tmp_path / "plain")
    for name in (MODULES, POOLING):
        (plain / name).unlink()
    features, _ = from_hugging_face(plain)
    ids = np.random.default_rng(5).integers(5, 11, (2, 13))
    golden = {"input_token_ids": ids, "columns": np.arange(3), "mask": np.ones(2, bool)}
    outputs = np.asarray(features({"token_ids": ids}))[:, :3]
    np.savez(folder / "keras_attn_golden.npz", outputs=outputs, **golden)
    model, _ = from_hugging_face(folder)
    assert model.pooling != features.pooling
    np.savez(folder / "keras_attn_golden.npz", outputs=outputs + 1e-2, **golden)
    with pytest.raises(ValueError, match="outputs differ from those in 'keras_attn_golden.npz'"):
        from_hugging_face(folder)


@pytest.mark.parametrize("name", ["deberta-v2", "llama"])
def test_only_prompts_make_features_a_sentence_encoder(name, tmp_path):
    sizes = {"num_layers": 1, "num_heads": 3, "hidden_dim": 12}
    words = text.WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])
    if name == "llama":
        whole, pooling, tokenizers = models.llama(13, pad_id=0, **sizes), "last", [None]
        encoder = whole.depth
    else:
        whole, pooling = models.bert(13, num_segments=0, **sizes), "first"
        encoder, tokenizers = whole.encoder, [None, text.SentenceTokenizer(words, 9)]
    parts = {part: getattr(whole, part, None) for part in ("embedding", "position", "norm")}
    model = models.Classifier(**parts, encoder=encoder, num_classes=None, pooling=pooling)
    ids = np.array([[3, 5, 7, 0, 0], [5, 1, 2, 4, 11]])
    for tokenizer in tokenizers:
        folder = tmp_path / f"{name} {tokenizer is None}"
        assert to_hugging_face(model, folder, tokenizer=tokenizer) == name
        files = {path.name for path in folder.iterdir()}
        pooling_files = {"1_Pooling", MODULES}
        assert files & pooling_files == (set() if tokenizer is None else pooling_files)
        again, _ = from_hugging_face(folder)
        np.testing.assert_array_equal(again(ids), model(ids))


def test_a_decoder_without_a_tokenizer_has_the_padding_of_its_configuration(tmp_path):
    folder = unpack("decoder", tmp_path / "decoder")
    for path in folder.glob("*token*.json"):
        path.unlink()
    change(folder, "config.json", pad_token_id=7)
    model, tokenizer = from_hugging_face(folder)
    ids = np.array([[3, 7, 5, 2, 7, 7], [3, 2, 5, 2, 3, 5]])
    inputs = {"token_ids": ids}
    if "prompt_lengths" in model.input:
        inputs["prompt_lengths"] = np.zeros(2, "int32")
    alone = {
        name: value[:1, :4] if value.ndim == 2 else value[:1] for name, value in inputs.items()
    }
    assert tokenizer is None
    check(np.asarray(model(alone)), np.asarray(model(inputs))[:1])


ROUTER = [{"type": "sentence_transformers.base.modules.router.Router", "path": ""}]
STATIC = [{"type": "sentence_transformers.models.StaticEmbedding", "path": ""}]
REFUSED = {
    "a router": (MODULES, ROUTER, "The module 'Router' of modules.json is not converted"),
    "static embeddings": (MODULES, STATIC, "The module 'StaticEmbedding' of modules.json"),
    "no pooling": (MODULES, [{"type": "x.Transformer", "path": ""}], "then a Pooling, not Trans"),
    "a path above": (MODULES, [{"type": "x.Transformer", "path": "../x"}], "The path '../x'"),
    "modules cut": (MODULES, "[{", "'modules.json' is cut or damaged"),
    "an unknown pooling": (POOLING, {"pooling_mode": "median"}, r"The pooling \['median'\] of"),
    "pooling cut": (POOLING, "{", "'1_Pooling/config.json' is cut or damaged"),
    "an activation": (
        DENSE,
        {"activation_function": "torch.nn.modules.activation.Mish", "in_features": 48},
        "The activation 'Mish' of 2_Dense/config.json is not converted",
    ),
    "a dense layer of tokens": (
        DENSE,
        {"module_input_name": "token_embeddings"},
        "module_input_name='token_embeddings' of 2_Dense/config.json is not converted",
    ),
    "no sizes": (DENSE, {}, "The option in_features of the sentence encoder is"),
    "another width": (
        DENSE,
        {"in_features": 48, "out_features": 8},
        "'linear.weight' has the shape",
    ),
    "an unknown default": (SETTINGS, {"default_prompt_name": "x"}, "default_prompt_name of the"),
    "a prompt of numbers": (SETTINGS, {"prompts": {"query": 3}}, "The option prompts of the"),
    "a cut of words": (SETTINGS, {"truncate_dim": "5"}, "The option truncate_dim of the"),
    "a cross-encoder": (SETTINGS, {"model_type": "CrossEncoder"}, "A CrossEncoder of sentence-tr"),
    "a length of words": (LENGTH, {"max_seq_length": "9"}, "The option max_seq_length of the"),
    "a chat template": (
        LENGTH,
        {"processing_kwargs": {"x": 1}},
        "processing_kwargs=.* is not conv",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_converted_is_refused_in_a_sentence(name, tmp_path):
    folder = unpack("encoder", tmp_path / "encoder")
    file, content, message = REFUSED[name]
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / file).write_text(text)
    with pytest.raises(ValueError, match=f"{message}.*Received: folder="):
        from_hugging_face(folder)


def test_layers_that_no_module_has_are_not_written(tmp_path):
    model, tokenizer = from_hugging_face(unpack("encoder", tmp_path / "encoder"))
    *_, truncate = model.pooler.layers
    assert isinstance(truncate, layers.Truncate)
    model.pooler.layers[0].activation = abs
    with pytest.raises(ValueError, match="The activation of a `Projection` must be one of"):
        to_hugging_face(model, tmp_path / "written", tokenizer=tokenizer)
