"""The schedule in closed form."""

import keras
import pytest

from keras_attn.optimizers import Noam


@pytest.mark.parametrize("hidden_dim, warmup_steps, scale", [(512, 4000, 1.0), (128, 100, 2.0)])
def test_closed_form(hidden_dim, warmup_steps, scale):
    schedule = Noam(hidden_dim, warmup_steps, scale)
    peak = scale / (hidden_dim * warmup_steps) ** 0.5
    # Keras's first step is 0 and the paper's is 1.
    assert float(schedule(0)) == pytest.approx(peak / warmup_steps, rel=1e-6)
    assert float(schedule(warmup_steps // 2 - 1)) == pytest.approx(peak / 2, rel=1e-6)
    assert float(schedule(warmup_steps - 1)) == pytest.approx(peak, rel=1e-6)
    assert float(schedule(4 * warmup_steps - 1)) == pytest.approx(peak / 2, rel=1e-6)


def test_from_peak():
    schedule = Noam.from_peak(0.005, warmup_steps=2000)
    rates = [float(schedule(step)) for step in (0, 500, 1998, 2000, 2500, 6000, 1999)]
    assert max(rates) == rates[-1] == pytest.approx(0.005, rel=1e-6)


def test_config_round_trip_with_an_optimizer():
    optimizer = keras.optimizers.Adam(Noam.from_peak(0.01, 50))
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    variable = keras.Variable([1.0])
    again.build([variable])
    assert float(again.learning_rate) == pytest.approx(0.01 / 50, rel=1e-6)
    again.apply([keras.ops.ones((1,))], [variable])
    assert float(again.learning_rate) == pytest.approx(2 * 0.01 / 50, rel=1e-6)


@pytest.mark.parametrize("name", ["hidden_dim", "warmup_steps", "scale"])
def test_arguments_must_be_positive(name):
    with pytest.raises(ValueError, match=f"`{name}`.*Received: {name}=0"):
        Noam(**{"hidden_dim": 8, name: 0})


@pytest.mark.parametrize("name", ["peak", "warmup_steps"])
def test_a_peak_must_be_positive(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a number above 0. Received: {name}=-4"):
        Noam.from_peak(**{"peak": 0.1, name: -4})
