"""Folders written by `to_hugging_face` have the tensors and options that made the model."""

import json
import os

import checkpoint_folders
import keras
import numpy as np
import oracles
import pytest
import safetensors.numpy
from marks import slow_but

from keras_attn import (
    depth,
    layers,
    memory,
    models,
    norms,
    patterns,
    positions,
    residuals,
    scores,
)
from keras_attn.convert import from_hugging_face, to_hugging_face
from keras_attn.convert.hugging_face import writing
from keras_attn.convert.hugging_face.checkpoint import StoredModel
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.tensor_files import INDEX, SINGLE, list_tensors, write_tensors
from keras_attn.convert.hugging_face.tokenizer import read_tokenizer
from keras_attn.convert.hugging_face.weights import Fold
from keras_attn.models.papers.decoder import untied_head
from keras_attn.ops.activations import gelu_tanh
from keras_attn.text import SentencePiece, Template


def sizes(**options):
    defaults = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
    return {**defaults, **options}


OWN = {
    "albert": (
        models.bert,
        {"vocabulary_size": 13, "max_length": 7, "depth": depth.Recurrent, "embedding_dim": 5},
    ),
    "modernbert": (models.modern_bert, {"vocabulary_size": 13, "window": 4}),
    "big_bird": (
        models.bert,
        {"vocabulary_size": 13, "max_length": 7, "scaled": True, "num_segments": 1},
    ),
    "longformer": (
        models.longformer,
        {
            **{"vocabulary_size": 13, "max_length": 7, "window": [4, 2], "num_global": 0},
            **{"global_projections": True, "pad_id": 2},
        },
    ),
    "vit": (models.vit, {"num_classes": 3, "image_shape": (4, 4, 1), "patch_size": 2}),
    "marian": (
        models.transformer,
        {
            "vocabulary_size": 13,
            "position": positions.Sinusoidal(layout="concat"),
            "residual": residuals.PostNorm(norm=norms.LayerNorm(1e-5)),
        },
    ),
    "mixtral": (models.mixtral, {"vocabulary_size": 13, "num_experts": 3}),
    "gpt_oss": (models.gpt_oss, {"vocabulary_size": 13, "num_experts": 5, "key_dim": 4}),
    # The table is multiplied by the root of the width, here without rounding.
    "t5": (
        models.t5,
        {
            **{"vocabulary_size": 13, "num_layers": 1, "hidden_dim": 16},
            **{"gated": True, "activation": "gelu"},  # with gates "gelu" is another one
        },
    ),
    # Each block has distances of its own.
    "umt5": (models.t5, {"vocabulary_size": 13, "hidden_dim": 16, "num_decoder_layers": 3}),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", OWN)
def test_models_of_papers_are_written(family, tmp_path):
    make, options = OWN[family]
    model = make(**sizes(**options))
    assert to_hugging_face(model, tmp_path / "out") == family
    again, _ = from_hugging_face(tmp_path / "out")
    shape = [1 if size is None else size for size in model.inputs[0].shape]
    x = np.ones([5 if i == 1 and len(shape) == 2 else n for i, n in enumerate(shape)], "int32")
    x = {name: x for name in model.input if name != "segment_ids"}
    np.testing.assert_array_equal(np.array(model(x)), np.array(again(x)))


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_any_table_becomes_one_that_the_norm_of_bloom_makes_it_of(tied, tmp_path):
    """The means of its rows are lost, which no output depends on."""
    score = scores.DotProduct() + scores.ALiBi()
    feed_forward = layers.FeedForward(20, activation=gelu_tanh)
    attention = layers.MultiHeadAttention(5, 1, score=score, pattern="causal")
    residual = residuals.PreNorm(norm=norms.LayerNorm(1e-5))
    block = layers.TransformerBlock(attention, feed_forward, residual=residual)
    head = None if tied else untied_head(13, "glorot_uniform")
    embedding = layers.TokenEmbedding(13, 5, scaled=False, pad_id=None)
    model = models.CausalLanguageModel(embedding, depth.Stack([block]), head=head)
    oracles.scramble(model)
    assert to_hugging_face(model, tmp_path / "out") == "bloom"
    tensors = safetensors.numpy.load_file(tmp_path / "out" / SINGLE)
    names = ("word_embeddings", "word_embeddings_layernorm")
    rows, gain = (tensors[f"transformer.{name}.weight"].astype("float64") for name in names)
    rows -= rows.mean(axis=1, keepdims=True)
    normalized = gain * rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + 1e-5)
    table = embedding.table.numpy()
    expected = table - table.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(normalized, expected, rtol=1e-5, atol=1e-6)
    again, _ = from_hugging_face(tmp_path / "out")
    x = np.array([[3, 0, 4, 12, 7, 7, 1]])
    expected = np.array(model(x))
    np.testing.assert_allclose(np.array(again(x)), expected, atol=2e-6 * np.abs(expected).max())


@pytest.mark.slow
def test_old_names_of_sizes_of_a_bloom(checkpoint, tmp_path):
    case = checkpoint("bloom")
    names = {"hidden_size": "n_embed", "n_layer": "num_hidden_layers"}
    names["n_head"] = "num_attention_heads"
    config = {names.get(name, name): value for name, value in case.config.items()}
    checkpoint_folders.write_folder(tmp_path, config, case.weights)
    model, _ = from_hugging_face(tmp_path)
    assert checkpoint_folders.difference(model, case.arrays) <= checkpoint_folders.TOLERANCE


@pytest.mark.slow
def test_a_classifier_of_the_last_token_keeps_its_classes_and_its_padding(tmp_path):
    model = causal_classifier(dropout=0.3)
    oracles.scramble(model)
    assert to_hugging_face(model, tmp_path / "out") == "gpt2"
    again, _ = from_hugging_face(tmp_path / "out")
    assert (again.pooling, again.num_classes, again.pad_id) == ("last", 3, 0)
    x = np.array([[3, 5, 4, 0], [3, 0, 5, 7]])
    np.testing.assert_array_equal(np.array(model(x)), np.array(again(x)))
    other, _ = from_hugging_face(tmp_path / "out", pad_id=4)
    padded, short = np.array([[3, 5, 4, 4]]), np.array([[3, 5]])
    np.testing.assert_allclose(np.array(other(padded)), np.array(again(short)), 1e-5, 1e-6)


def bert_classifier(**options):
    bert = models.bert(13, **sizes(num_layers=1, max_length=7))
    parts = ("embedding", "encoder", "position", "segment", "norm")
    return models.Classifier(**{name: getattr(bert, name) for name in parts}, **options)


@pytest.mark.slow
@pytest.mark.parametrize("pooling, mode", [("first", "cls_token"), ("mean", "mean_tokens")])
def test_a_sentence_encoder_keeps_its_pooling(pooling, mode, tmp_path):
    model = bert_classifier(num_classes=None, pooling=pooling)
    to_hugging_face(model, tmp_path / "out")
    again, _ = from_hugging_face(tmp_path / "out")
    assert again.pooling == pooling and again.pooler is None
    # sentence-transformers reads the pooling of a folder with modules, and else takes the mean.
    modules = json.loads((tmp_path / "out/modules.json").read_text())
    assert [module["path"] for module in modules] == ["", "1_Pooling"]
    options = json.loads((tmp_path / "out/1_Pooling/config.json").read_text())
    assert [name for name, value in options.items() if value is True] == [f"pooling_mode_{mode}"]
    assert options["pooling_mode_mean_tokens"] is (pooling == "mean")  # by default true
    x = np.array([[3, 5, 4, 0]])
    np.testing.assert_array_equal(np.array(model(x)), np.array(again(x)))
    # transformers makes a pooler, which it would draw at random.
    assert "pooler.dense.weight" in safetensors.numpy.load_file(tmp_path / "out" / SINGLE)


def tiny_t5(**options):
    return models.t5(13, **sizes(num_layers=1, **options), start_id=0)


def misfit(make, **options):
    return lambda: make(13, **sizes(num_layers=1, **options))


def experts_of_probability():
    model = models.mixtral(13, **sizes(num_layers=1))
    model.depth.blocks[0].feed_forward.router = "probability"
    return model


def causal_classifier(num_classes=3, pattern="causal", **options):
    gpt = models.gpt(13, **sizes(num_layers=1, max_length=7))
    attention = layers.MultiHeadAttention(2, 4, pattern=pattern)
    bidirectional = depth.Stack([layers.TransformerBlock(attention, layers.FeedForward(11))])
    encoder = gpt.depth if pattern == "causal" else bidirectional
    arguments = {"position": gpt.position, "pooling": "last", "use_bias": False, **options}
    return models.Classifier(gpt.embedding, encoder, num_classes, **arguments)


def causal_parts():
    attention = layers.MultiHeadAttention(2, 4, pattern="causal")
    stack = depth.Stack([layers.TransformerBlock(attention, layers.FeedForward(11))])
    return layers.TokenEmbedding(13, 8), stack


def segments(pattern="causal", residual="post_norm", tied=True, **options):
    """A model with the parts of a Transformer-XL of clusters."""
    embedding, other = (layers.AdaptiveEmbedding(13, 8, [5], 2) for _ in range(2))
    attention = layers.MultiHeadAttention(2, 4, score="relative", pattern=pattern, use_bias=False)
    block = layers.TransformerBlock(attention, layers.FeedForward(11), residual=residual)
    head = layers.AdaptiveSoftmax(embedding if tied else other)
    return models.CausalLanguageModel(embedding, depth.Stack([block]), head=head, **options)


UNFIT = {
    "hashes beside full attention": (
        misfit(models.reformer, axial_shape=(3, 5), attention=("full",)),
        "`model.depth.blocks.0.attention.pattern` must be a `BlockLocal1D` or an `LSH`, as in "
        "a model of reformer. Received: model.depth.blocks.0.attention.pattern=Causal().",
    ),
    "scaled embeddings": (
        misfit(models.reformer, axial_shape=(3, 5), attention=("local",)),
        "must be False, as in a model of reformer. Received: model.embedding.scaled=",
    ),
    "no clusters": (misfit(models.transformer_xl), "`model.embedding` has no cutoffs. "),
    "a compressed memory": (
        lambda: segments(memory=memory.CompressiveMemory(4, 2)),
        "`model.memory` must be SegmentMemory(4), as in a model of transfo-xl. ",
    ),
    "another table": (
        lambda: segments(tied=False),
        "must be an `AdaptiveSoftmax` of the model's embedding. ",
    ),
    "norms before sublayers": (
        lambda: segments(residual="pre_norm"),
        "`model.depth.block[0].residual` must be PostNorm, as in a model of transfo-xl. ",
    ),
    "a window": (
        lambda: segments(pattern=patterns.Local(3)),
        "`model.depth.block[0].attention.pattern` must be Causal(), as in a model of ",
    ),
    "classes of a mean": (
        lambda: bert_classifier(
            num_classes=3, pooling="mean", pooler=keras.layers.Dense(8, "tanh", name="pooler")
        ),
        "`model.pooling` must be 'first', as in a model of bert. Received: model.pooling='mean'.",
    ),
    "a pattern": (
        misfit(models.bert, pattern=patterns.Local(3, causal=False)),
        "`model.encoder.block[0].attention.pattern` must be Dense(), as in a model of bert. "
        "Received: model.encoder.block[0].attention.pattern=Local(3, causal=False).",
    ),
    "a window in one layer": (
        lambda: models.gpt(13, **sizes(pattern=lambda i: patterns.Local(3) if i else "causal")),
        "`model.depth.block[1].attention.pattern` must be Causal(), as in a model of gpt2. ",
    ),
    "an activation": (misfit(models.bert, activation="selu"), "Received: activation=<function "),
    "a depth": (lambda: models.universal_transformer(13, **sizes(num_layers=1)), ""),
    "experts": (experts_of_probability, "router` must be 'renormalized', as in a model of mixtral"),
    "a pooling": (
        lambda: models.vit(3, (4, 4, 1), 2, **sizes(pooling="mean")),
        "`model.embedding.class_token` must be True",
    ),
    "positions": (
        lambda: models.CausalLanguageModel(*causal_parts(), position="sinusoidal"),
        "must have `Learned` positions, `Rotary` ones or `ALiBi` in its attention, the score "
        "`Relative` or the depth `Reversible`. Received: model.position=Sinusoidal(), ",
    ),
    "a decoder's norms": (
        lambda: models.EncoderDecoder(
            *(tiny_t5().embedding, None, tiny_t5().encoder, tiny_t5(epsilon=1e-3).decoder),
            start_id=0,
        ),
        "`model.decoder.block[0].residual.norm.epsilon` must be 1e-06, as in a model of t5. ",
    ),
    "other sinusoids": (
        lambda: models.transformer(13, **sizes(num_layers=1)),
        "`model.position.layout` must be 'concat', as in a model of marian. ",
    ),
    "a first token that is padding": (
        lambda: models.t5(13, **sizes(num_layers=1), pad_id=2),
        "A model whose targets begin with padding must have a `start_id`",
    ),
}


@pytest.mark.parametrize("part", slow_but(["a pattern"], UNFIT))
def test_a_part_that_no_family_has_is_named(part, tmp_path):
    make, expected = UNFIT[part]
    with pytest.raises(ValueError, match="Received: ") as caught:
        to_hugging_face(make(), tmp_path / "out")
    assert expected in str(caught.value) and not list(tmp_path.iterdir())


def test_shards_hold_the_tensors_of_one_file(checkpoint, tmp_path):
    case, out = checkpoint("gpt2"), tmp_path / "out"
    out.mkdir()
    write_tensors(out, list_tensors(case.folder), shard_size=2000)
    index = json.loads((out / INDEX).read_text())
    files = sorted(set(index["weight_map"].values()))
    assert files[0] == f"model-00001-of-{len(files):05}.safetensors" and len(files) > 3
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in case.weights.values())
    for file in files:
        held = safetensors.numpy.load_file(out / file).values()
        assert len(held) == 1 or sum(value.nbytes for value in held) <= 2000
    tensors = list_tensors(out)
    for key, value in case.weights.items():
        np.testing.assert_array_equal(tensors[key][1](), value, key)


def test_a_run_that_ends_early_leaves_no_folder(checkpoint, tmp_path, monkeypatch):
    """The configuration, without which nothing loads a folder, is the last file."""
    seen = []

    def fail(folder, name, content):
        seen.extend(os.listdir(folder))
        raise OSError("No space left on device")

    monkeypatch.setattr(writing, "write_file", fail)
    with pytest.raises(OSError, match="No space"):
        to_hugging_face(checkpoint("gpt2").model, tmp_path / "out")
    assert seen == [SINGLE] and not list(tmp_path.iterdir())


def test_a_folder_that_exists_is_kept(checkpoint, tmp_path):
    with pytest.raises(ValueError, match="`folder` must not exist yet"):
        to_hugging_face(checkpoint("gpt2").model, tmp_path)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"folder": ""}, "`folder` must be a path"),
        ({"tokenizer": "gpt2"}, "`tokenizer` must be a tokenizer .* tokenizer='gpt2'"),
        ({"generation_config": "greedy"}, "`generation_config` must be a dict"),
    ],
)
def test_arguments_of_another_type_are_refused(arguments, message, checkpoint, tmp_path):
    with pytest.raises(ValueError, match=message):
        to_hugging_face(checkpoint("gpt2").model, **{"folder": tmp_path / "out", **arguments})
    assert not list(tmp_path.iterdir())


def test_weights_that_are_no_numbers_are_refused():
    stored = StoredModel(Config("folder", {"model_type": "gpt2"}), "model.", ("head",))
    for name in ("head.bias", "bias"):
        stored.transfer(name, Fold([keras.Variable([1.0, np.nan])], (2,)))
    assert [*stored.tensors] == ["head.bias", "model.bias"]
    with pytest.raises(ValueError, match="finite.*'model.bias'"):
        stored.tensors["model.bias"][1]()


def test_quantized_weights_are_refused():
    stored = StoredModel(Config("folder", {"model_type": "gpt2"}))
    with pytest.raises(ValueError, match="write the model before it is quantized.*'x' of int8"):
        stored.transfer("x", Fold([keras.Variable([1, 2], dtype="int8")], (2,)))


def test_a_tokenizer_and_options_of_generation_are_written_beside(checkpoint, tmp_path):
    model = checkpoint("llama").model
    trained = SentencePiece.train(["the cat sat", "a dog ran"], 25)
    start = (trained.bos_id,)
    tokenizer = SentencePiece(trained.to_bytes(), Template(start, start))
    to_hugging_face(model, tmp_path / "out", tokenizer, {"do_sample": True})
    again, lines = read_tokenizer(tmp_path / "out"), ["the dog", "a cat  ran"]
    assert again.template == tokenizer.template
    for ours, theirs in zip(again.encode(lines), tokenizer.encode(lines), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    options = json.loads((tmp_path / "out/config.json").read_text())
    ids = [options[f"{name}_token_id"] for name in ("pad", "bos", "eos")]
    assert ids == [tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id]
    generation = (tmp_path / "out/generation_config.json").read_text()
    assert json.loads(generation) == {"do_sample": True}
    wide = SentencePiece(trained.to_bytes(), special_tokens={"<more>": 29})
    with pytest.raises(ValueError, match="vocabulary_size=30 for a model of 29."):
        to_hugging_face(model, tmp_path / "other", wide)


def test_a_weight_that_the_family_lacks_must_be_zero():
    stored = StoredModel(Config("folder", {"model_type": "qwen2"}))
    stored.transfer_zero(keras.Variable([0.0, 0.0]))
    with pytest.raises(ValueError, match="must be 0: checkpoints of qwen2 have no such weight"):
        stored.transfer_zero(keras.Variable([0.0, -2.0]))


@pytest.mark.parametrize("scale", [None, 3.0])
def test_a_fold_is_inverted(scale):
    """Three variables of other shapes share a tensor with other axes."""
    random = np.random.default_rng(0)
    tensor = random.normal(size=(15, 2, 7)).astype("float32")
    variables = [keras.Variable(np.zeros((2, 7, 5), "float32")) for _ in range(3)]
    scales = None if scale is None else (scale, 1.0, 1 / scale)
    fold = Fold(variables, tensor.shape, (1, 2, 0), scales, offset=1.0)
    fold.assign(tensor)
    parts = tensor.transpose(1, 2, 0).reshape(2, 7, 3, 5)
    for index, factor in enumerate(scales or (1, 1, 1)):
        expected = (parts[:, :, index] + 1) * factor - 1
        np.testing.assert_allclose(variables[index].numpy(), expected, atol=1e-6)
    if scale is None:
        np.testing.assert_array_equal(fold.tensor(), tensor)
    np.testing.assert_allclose(fold.tensor(), tensor, atol=1e-6)
