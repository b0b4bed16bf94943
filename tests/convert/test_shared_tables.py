"""Tables that a family shares between blocks, of models whose blocks have their own."""

import numpy as np
import oracles
import pytest
import safetensors.numpy

from keras_attn import models, scores
from keras_attn.convert import from_hugging_face, to_hugging_face

SIZES = {"vocabulary_size": 13, "num_layers": 2, "num_heads": 2, "max_length": 7, "pad_id": 1}


def encoder(score, width, directions):
    model = models.bert(
        **SIZES, hidden_dim=width, intermediate_dim=11, num_segments=0, score=score, position=None
    )
    for index, block in enumerate(model.encoder.blocks):
        for name in directions:
            table = getattr(block.attention.score, name)
            table.assign(oracles.random(*table.shape, seed=index))
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    "score, names",
    [
        (scores.Disentangled(4, 8), ("key_table", "query_table")),
        (scores.Disentangled(3, None, "position_to_content"), ("query_table",)),
    ],
)
def test_tables_of_each_block_are_projections_of_one_table(score, names, tmp_path):
    """Up to as many distances as the width, whatever training has made of them."""
    model = encoder(score, 10, names)
    assert to_hugging_face(model, tmp_path / "out") == "deberta-v2"
    tensors = safetensors.numpy.load_file(tmp_path / "out/model.safetensors")
    one = tensors["deberta.encoder.rel_embeddings.weight"]
    for index, block in enumerate(model.encoder.blocks):
        for name in names:
            layer = f"deberta.encoder.layer.{index}.attention.self.pos_{name[:-6]}_proj"
            made = one @ tensors[f"{layer}.weight"].T + tensors[f"{layer}.bias"]
            table = np.asarray(getattr(block.attention.score, name))
            np.testing.assert_array_equal(made.reshape(table.shape), table)
    again, _ = from_hugging_face(tmp_path / "out")
    for ours, theirs in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_more_distances_than_the_width_must_be_projections_of_one_table(tmp_path):
    model = encoder(scores.Disentangled(8, 12), 6, ("key_table", "query_table"))
    with pytest.raises(ValueError, match="one table of the width 6.*16 distances"):
        to_hugging_face(model, tmp_path / "trained")
    one = oracles.random(16, 6)
    for index, block in enumerate(model.encoder.blocks):
        for table in (block.attention.score.key_table, block.attention.score.query_table):
            kernel = oracles.random(6, 6, seed=index)
            table.assign(np.reshape(one @ kernel + oracles.random(6), table.shape))
    to_hugging_face(model, tmp_path / "out")
    again, _ = from_hugging_face(tmp_path / "out")
    ids = np.array([[2, 3, 5, 7, 11, 1, 1]], "int32")
    np.testing.assert_allclose(model(ids), again(ids), atol=1e-5)


def test_unequal_tables_of_mpnet_are_refused(tmp_path):
    score = scores.DotProduct() + scores.T5Bias(32, 128, bidirectional=True)
    model = models.bert(
        **SIZES,
        hidden_dim=6,
        intermediate_dim=11,
        num_segments=0,
        score=score,
        head_activation="gelu",
    )
    with pytest.raises(ValueError, match="tables of distances of all blocks must be equal"):
        to_hugging_face(model, tmp_path / "trained")
    first, second = (block.attention.score.terms[-1].table for block in model.encoder.blocks)
    second.assign(first)
    assert to_hugging_face(model, tmp_path / "out") == "mpnet"


@pytest.mark.slow
def test_a_modern_bert_with_classes_needs_its_pooler(tmp_path):
    model = models.modern_bert(13, 1, 2, 8, 11)
    parts = {name: getattr(model, name) for name in ("embedding", "encoder", "norm")}
    classifier = models.Classifier(**parts, num_classes=3)
    with pytest.raises(ValueError, match="must have its pooler.*pooler=None"):
        to_hugging_face(classifier, tmp_path / "out")
