"""Transformer-XL of Hugging Face: options that golden files lack, and models of ours."""

import checkpoint_folders
import numpy as np
import oracles
import pytest

from keras_attn import depth, layers, memory, models, patterns
from keras_attn.convert import from_hugging_face, to_hugging_face

SIZES = 2, 2, 8, 11  # layers, heads, and the widths of states and of hidden layers
BIASES = ("r_w_bias", "r_r_bias")


def load(name="transformer_xl", **options):
    config, weights, arrays = checkpoint_folders.load_golden(name)
    return {**config, **options}, weights, arrays


def own(index, name):
    return f"transformer.layers.{index}.dec_attn.{name}"


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"attn_type": 1}, "attn_type=1 is not converted, only 0"),
        ({"pre_lnorm": True}, "pre_lnorm=True is not converted, only False"),
        ({"d_embed": 11}, "d_embed=11 is not converted, only 12"),
        ({"sample_softmax": 5}, "sample_softmax=5 is not converted, only -1"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False is not converted"),
        ({"tie_projs": [False, True, False]}, "tie_projs=[False, True, False] is not converted"),
        ({"tie_projs": [True]}, "tie_projs=[True] is not converted"),
        ({"mem_len": 0}, "same_length=True is not converted without a `mem_len` above 0"),
        ({"cutoffs": [18, 7]}, "`cutoffs` must grow"),
        ({"cutoffs": None}, "`cutoffs` in config.json must be a list of integers"),
        ({"clamp_len": "9"}, "`clamp_len` in config.json must be an integer, not '9'"),
        ({"div_val": 3}, "emb_layers.1.weight' has the shape (11, 6)"),
        ({"vocab_size": 31}, "emb_layers.2.weight' has the shape (11, 3)"),
        ({"n_layer": 1}, "which the model has no place for"),
    ],
)
def test_other_options_are_refused(options, expected, tmp_path):
    config, weights, _ = load(**options)
    with pytest.raises(ValueError) as caught:
        from_hugging_face(checkpoint_folders.write_folder(tmp_path, config, weights))
    assert expected in str(caught.value)


@pytest.mark.slow
def test_biases_of_all_layers_are_copied_to_each(tmp_path):
    """A checkpoint of one u and one v is one in which those of all layers are equal."""
    config, weights, arrays = load()
    shared = {f"transformer.{name}": weights[own(1, name)] for name in BIASES}
    weights.update({own(0, name): weights[own(1, name)] for name in BIASES})
    both = []
    for options, more in (({}, {}), ({"untie_r": False}, shared)):
        folder = checkpoint_folders.write_folder(
            tmp_path / str(len(both)), {**config, **options}, {**weights, **more}
        )
        model, _ = from_hugging_face(folder)
        inputs = {k.removeprefix("input_"): v for k, v in arrays.items() if "input_" in k}
        both.append(np.array(model(inputs)["logits"]))
    np.testing.assert_array_equal(*both)


@pytest.mark.slow
def test_names_of_older_files_are_read(tmp_path):
    """They have `n_token`, and copies of all tied tensors."""
    config, weights, arrays = load()
    config["n_token"] = config.pop("vocab_size")
    for index in range(3):
        table = weights[f"transformer.word_emb.emb_layers.{index}.weight"]
        weights[f"crit.out_layers.{index}.weight"] = table
    for index in (1, 2):
        projection = weights[f"transformer.word_emb.emb_projs.{index}"]
        weights[f"crit.out_projs.{index}"] = projection
    model, _ = from_hugging_face(checkpoint_folders.write_folder(tmp_path, config, weights))
    assert checkpoint_folders.difference(model, arrays) <= checkpoint_folders.TOLERANCE


@pytest.mark.slow
def test_a_longer_memory_reads_what_it_is_given(tmp_path):
    """With `same_length` the number of keys of a query is that of the memory."""
    config, weights, arrays = load()
    folder = checkpoint_folders.write_folder(tmp_path, config, weights)
    model, _ = from_hugging_face(folder, memory_length=13, clamp_length=29, dropout=0.5)
    attention = model.depth.blocks[1].attention
    assert (model.memory.memory_length, attention.pattern.window) == (13, 13)
    assert (attention.score.clamp_length, model.dropout) == (29, 0.5)
    assert checkpoint_folders.difference(model, arrays) > 1e-3


@pytest.mark.slow
def test_without_a_memory_the_model_has_logits_only(tmp_path):
    """An empty memory has the same logits."""
    config, weights, arrays = load("transformer_xl_causal")
    ids, found = arrays["input_token_ids"], []
    for length in (0, 11):
        options = {**config, "mem_len": length}
        folder = checkpoint_folders.write_folder(tmp_path / str(length), options, weights)
        model, _ = from_hugging_face(folder)
        state = model.initial_memory(2) if length else {}
        outputs = model({"token_ids": ids, **state})
        found.append(np.array(outputs["logits"] if length else outputs))
    np.testing.assert_allclose(*found, atol=checkpoint_folders.TOLERANCE * np.abs(found[0]).max())


@pytest.mark.slow
@pytest.mark.parametrize("div_val, clamp_length", [(1, None), (2, 7)])
def test_a_transformer_xl_of_the_paper_is_written(div_val, clamp_length, tmp_path):
    options = {"memory_length": 3, "clamp_length": clamp_length, "cutoffs": [5, 7]}
    model = models.transformer_xl(13, *SIZES, **options, div_val=div_val)
    oracles.scramble(model)
    assert to_hugging_face(model, tmp_path / "out") == "transfo-xl"
    again, _ = from_hugging_face(tmp_path / "out")
    inputs = {"token_ids": np.array([[3, 5, 4, 12, 9]]), **model.initial_memory(1)}
    ours, theirs = model(inputs), again(inputs)
    for name in ("logits", "memory"):
        np.testing.assert_array_equal(np.array(ours[name]), np.array(theirs[name]))


def make(pattern="causal", residual="post_norm", tied=True, **options):
    embedding, other = (layers.AdaptiveEmbedding(13, 8, [5], 2) for _ in range(2))
    attention = layers.MultiHeadAttention(2, 4, score="relative", pattern=pattern, use_bias=False)
    block = layers.TransformerBlock(attention, layers.FeedForward(11), residual=residual)
    head = layers.AdaptiveSoftmax(embedding if tied else other)
    return models.CausalLanguageModel(embedding, depth.Stack([block]), head=head, **options)


@pytest.mark.parametrize(
    "model, expected",
    [
        (lambda: models.transformer_xl(13, *SIZES), "`model.embedding` has no cutoffs. "),
        (
            lambda: make(memory=memory.CompressiveMemory(4, 2)),
            "`model.memory` must be SegmentMemory(4), as in a model of transfo-xl. ",
        ),
        (lambda: make(tied=False), "must be an `AdaptiveSoftmax` of the model's embedding. "),
        (
            lambda: make(residual="pre_norm"),
            "`model.depth.block[0].residual` must be PostNorm, as in a model of transfo-xl. ",
        ),
        (
            lambda: make(pattern=patterns.Local(3)),
            "`model.depth.block[0].attention.pattern` must be Causal(), as in a model of ",
        ),
    ],
)
def test_a_part_that_the_family_lacks_is_named(model, expected, tmp_path):
    with pytest.raises(ValueError, match="Received: ") as caught:
        to_hugging_face(model(), tmp_path / "out")
    assert expected in str(caught.value) and not list(tmp_path.iterdir())
