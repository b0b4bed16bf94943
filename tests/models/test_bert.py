import keras
import numpy as np
import oracles
import pytest

from keras_attn.models import bert

SIZES = {
    "vocabulary_size": 17,
    "num_layers": 2,
    "num_heads": 3,
    "hidden_dim": 6,
    "intermediate_dim": 11,
    "max_length": 7,
}
IDS = np.array([[5, 7, 16, 9, 3], [8, 4, 3, 0, 0]])
SEGMENTS = np.array([[0, 0, 0, 1, 1], [0, 1, 1, 0, 0]])


@pytest.fixture(scope="module")
def model():
    model = bert(**SIZES)
    oracles.scramble(model, scale=0.5)
    return model


@pytest.mark.parametrize("segments", [SEGMENTS, None])
def test_output_equals_the_formula(model, segments):
    table = oracles.numpy_of(model.embedding.table)
    x = table[IDS] + oracles.numpy_of(model.position.table)[:5]
    x = (
        x
        + oracles.numpy_of(model.segment.table)[
            np.zeros_like(IDS) if segments is None else segments
        ]
    )
    x = oracles.layer_norm(x, *oracles.norm_weights(model.norm), 1e-12)
    for layer in model.encoder.blocks:
        x = oracles.block(
            x,
            oracles.block_weights(layer),
            (IDS != 0)[:, None, None],
            epsilon=1e-12,
            activation=oracles.gelu,
        )
    kernel, bias = map(oracles.numpy_of, model.head.dense.weights)
    x = np.vectorize(oracles.gelu)(x @ kernel + bias)
    x = oracles.layer_norm(x, *oracles.norm_weights(model.head.norm), 1e-12)
    expected = x @ table.T + oracles.numpy_of(model.head.bias)
    inputs = {"token_ids": IDS} if segments is None else {"token_ids": IDS, "segment_ids": segments}
    np.testing.assert_allclose(model(inputs), expected, atol=1e-4)


def test_padding_has_no_influence(model):
    before, real = np.asarray(model({"token_ids": IDS})), IDS != 0
    after = np.asarray(model({"token_ids": np.pad(IDS, ((0, 0), (0, 2)))}))
    np.testing.assert_allclose(after[:, :5][real], before[real], atol=1e-5)


def test_every_token_attends_to_every_other(model):
    before = np.asarray(model({"token_ids": IDS[:1]}))
    for t in range(5):
        changed = IDS[:1].copy()
        changed[0, t] = 11
        after = np.asarray(model({"token_ids": changed}))
        assert np.all(np.any(after != before, axis=-1))


def test_encoder_output_is_available_as_features(model):
    features = keras.Model(model.input, model.get_layer("encoder").output)
    found = features({"token_ids": IDS, "segment_ids": SEGMENTS})
    assert found.shape == (2, 5, 6)
    np.testing.assert_allclose(
        model.head(found), model({"token_ids": IDS, "segment_ids": SEGMENTS}), atol=1e-5
    )


def test_the_head_scores_by_the_table_of_the_input(model):
    assert model.head.embedding is model.embedding
    assert len([w for w in model.weights if tuple(w.shape) == (17, 6)]) == 1
