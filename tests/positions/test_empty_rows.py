"""Rows without a position: what has positions takes them too, eagerly and in graphs."""

import numpy as np
import pytest
import tensorflow as tf
from marks import all_slow

from keras_attn import models
from keras_attn.positions import Axial, ImageCoordinates, Learned, Rotary, Sinusoidal, Timestep

D = 6
LAYERS = [
    Learned(11),
    Axial((3, 5), (2, 4)),
    ImageCoordinates(1, 5, 1),
    ImageCoordinates(1, 5, 1, encoding="sinusoidal"),
    Sinusoidal(),
    Timestep(),
    Rotary(),
]


@pytest.mark.parametrize("layer", [LAYERS[0], *all_slow(LAYERS[1:])])
def test_a_row_may_have_no_position(layer):
    run = tf.function(layer, [tf.TensorSpec((None, None, D))], autograph=False)
    x = np.random.default_rng(0).normal(size=(2, 3, D)).astype("float32")
    np.testing.assert_allclose(run(x), layer(x), atol=1e-6)
    for rows, length in ((2, 0), (0, 3), (0, 0)):
        assert layer(x[:rows, :length]).shape == run(x[:rows, :length]).shape == (rows, length, D)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "transformer"])
def test_a_model_takes_rows_without_tokens(name):
    build = getattr(models, name)
    model = build(11, num_layers=1, num_heads=2, hidden_dim=D, intermediate_dim=7)
    inputs = {key: np.zeros((2, 0), "int32") for key in model.input if "segment" not in key}
    assert model(inputs).shape == model.predict(inputs, verbose=0).shape == (2, 0, 11)
