"""Early stopping that a resumed run continues."""

import keras
import numpy as np
import pytest

from keras_attn.callbacks.training_state import write_arrays
from recipes.fine_tune.best_epoch import BestEpoch

NAN = float("nan")


@pytest.mark.parametrize(
    "losses, best", [([NAN, 0.5, 0.4], 2), ([NAN, NAN, 3.0, NAN], 2), ([0.5, NAN, 0.6], 0)]
)
def test_an_epoch_without_a_finite_loss_is_not_the_best(tmp_path, capsys, losses, best):
    """Also where each epoch is trained by a run that resumes the one before it."""
    for is_resumed in (False, True):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        callback = None
        for epoch, loss in enumerate(losses):
            if callback is None or is_resumed:
                callback = BestEpoch(tmp_path / f"{is_resumed}.npz", patience=3)
                callback.set_model(model)
            callback.on_epoch_begin(epoch)
            model.set_weights([np.full((1, 1), epoch), np.zeros(1)])
            callback.on_epoch_end(epoch, {"val_loss": loss})
        callback.on_train_end()
        assert model.get_weights()[0] == best
    assert not capsys.readouterr().out


def test_without_any_finite_loss_training_ends_with_a_sentence(tmp_path, capsys):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    callback = BestEpoch(tmp_path / "best.npz", 2)
    callback.set_model(model)
    for epoch in range(3):
        model.stop_training = False
        callback.on_epoch_end(epoch, {"val_loss": NAN})
        assert model.stop_training == (epoch == 2)
    callback.on_train_end()
    assert "No epoch has a finite validation loss" in capsys.readouterr().out


def test_training_stops_after_epochs_without_a_lower_loss_and_takes_the_best_weights(tmp_path):
    """Also where each epoch is trained by a run that resumes the one before it."""
    for is_resumed in (False, True):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        path, callback = tmp_path / f"{is_resumed}.npz", None
        for epoch, loss in enumerate([3.0, 1.0, 0.5, 0.7, 0.6]):
            if callback is None or is_resumed:
                callback = BestEpoch(path, patience=2)
                callback.set_model(model)
                assert not callback.is_finished(epoch)
            model.stop_training = False
            callback.on_epoch_begin(epoch)
            model.set_weights([np.full((1, 1), epoch), np.zeros(1)])
            callback.on_epoch_end(epoch, {"val_loss": loss})
            assert model.stop_training == (epoch == 4)
        assert callback.is_finished(5)
        callback.on_train_end()
        assert model.get_weights()[0] == 2
    again = BestEpoch(path, patience=2)
    again.set_model(model)
    assert not again.is_finished(0)  # without its checkpoints the training begins anew
    again.on_epoch_end(0, {"val_loss": 4.0})
    again.on_train_end()
    write_arrays(path, model.get_weights())
    with pytest.raises(ValueError, match="must have the loss of its epoch; an earlier version"):
        BestEpoch(path, patience=2).is_finished(0)
