"""Models and parts of them that are called without their optional inputs."""

import keras
import numpy as np
import pytest

from keras_attn import layers, models

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 11}
IDS = np.array([[5, 7, 3, 11, 2]])


def test_a_part_is_called_saved_and_cloned_without_optional_inputs(tmp_path):
    bert = models.bert(13, **SIZES)
    features = models.Part(bert.input, bert.get_layer("encoder").output)
    wanted = keras.Model(bert.input, bert.get_layer("encoder").output)(
        {"token_ids": IDS, "segment_ids": 0 * IDS}
    )
    features.save(tmp_path / "part.keras")
    clone = keras.models.clone_model(features)
    clone.set_weights(features.get_weights())
    loaded = keras.models.load_model(tmp_path / "part.keras")
    for part in (features, loaded, clone):
        assert type(part) is models.Part
        for inputs in (IDS, {"token_ids": IDS}, {"token_ids": IDS, "segment_ids": 0 * IDS}):
            np.testing.assert_allclose(part(inputs), wanted, atol=1e-6)
        np.testing.assert_allclose(part.predict({"token_ids": IDS}, verbose=0), wanted, atol=1e-6)
    features.compile("sgd", "mse")
    before = bert.encoder.get_weights()
    features.fit({"token_ids": IDS}, np.zeros((1, 5, 6)), verbose=0)
    assert any((x != y).any() for x, y in zip(before, bert.encoder.get_weights(), strict=True))


def test_a_part_of_one_input_or_of_several_outputs():
    vit = models.vit(3, (8, 8, 1), 4, **SIZES)
    part = models.Part(vit.input, [vit.get_layer("pool").output, vit.output])
    pooled, logits = part(np.ones((2, 8, 8, 1), "float32"))
    assert pooled.shape == (2, 6) and logits.shape == (2, 3)
    x = keras.Input((4,))
    assert models.Part(x, keras.layers.Dense(3)(x))(np.ones((2, 4))).shape == (2, 3)


@pytest.mark.parametrize("build", [models.bert, models.longformer, models.big_bird])
def test_a_backbone_of_an_own_model_needs_no_segments(build, tmp_path):
    backbone = build(13, **SIZES)
    ids = keras.Input((None,), dtype="int32")
    own = keras.Model(ids, keras.layers.Dense(2)(backbone({"token_ids": ids})))
    own.save(tmp_path / "own.keras")
    loaded = keras.models.load_model(tmp_path / "own.keras")
    np.testing.assert_allclose(own(IDS), loaded(IDS), atol=1e-6)
    np.testing.assert_allclose(
        backbone({"token_ids": IDS}), backbone({"token_ids": IDS, "segment_ids": 0 * IDS})
    )


def test_shapes_of_models_and_models_of_each_of_several():
    bert = models.bert(13, **SIZES)
    assert bert.compute_output_shape((3, 5)) == (3, 5, 13)
    assert bert.compute_output_shape({"token_ids": (None, 5)}) == (None, 5, 13)
    ids = keras.Input((3, 5), dtype="int32")
    assert keras.layers.TimeDistributed(bert)(ids).shape == (None, 3, 5, 13)


@keras.saving.register_keras_serializable("tests")
class TokenClassifier(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding, self.dense = layers.TokenEmbedding(13, 6), keras.layers.Dense(2)

    def call(self, ids):
        return self.dense(self.embedding(ids))


def test_a_subclassed_model_of_token_ids_is_loaded_with_its_weights(tmp_path):
    model = TokenClassifier()
    outputs = model(IDS)
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "model.keras")(IDS), outputs)
