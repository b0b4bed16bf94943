"""The mean of the last epochs' weights."""

import tracemalloc

import keras
import numpy as np
import pytest

from keras_attn.callbacks import AverageCheckpoints, average_checkpoints, average_weights


def make_model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dropout(0.5)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


class Record(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.weights = []

    def on_epoch_end(self, epoch, logs=None):
        self.weights.append(self.model.get_weights())


def run(model, callbacks, epochs, initial_epoch=0):
    """Call callbacks as `fit` does, with new weights after each epoch: no step is taken."""
    loop = keras.callbacks.CallbackList(callbacks, model=model)
    loop.on_train_begin()
    for epoch in range(initial_epoch, epochs):
        loop.on_epoch_begin(epoch)
        for weight in model.trainable_weights:
            weight.assign(np.random.normal(size=weight.shape))
        loop.on_epoch_end(epoch)
    loop.on_train_end()


def assert_is_mean(model, weights):
    for weight, *values in zip(model.get_weights(), *weights):
        np.testing.assert_allclose(weight, np.mean(np.float64(values), axis=0), rtol=1e-6)


def test_fit_sets_the_mean_of_the_last_epochs_and_leaves_optimizer_and_seeds_alone(tmp_path):
    model, record = make_model(), Record()
    average = AverageCheckpoints(tmp_path / "average", last=3)
    x, y = np.random.normal(size=(8, 3)), np.random.normal(size=(8, 2))
    model.run_eagerly = True
    model.fit(x, y, epochs=5, verbose=0, callbacks=[average, record])
    assert len(average.paths()) == 3
    assert_is_mean(model, record.weights[-3:])
    assert not np.allclose(record.weights[-1][0], record.weights[-2][0])
    seeds = [v for v in model.variables if "seed" in v.path]
    assert [int(v.numpy()[1]) for v in seeds] == [5]  # one step an epoch, each drew once
    assert int(model.optimizer.iterations) == 5


def test_fewer_epochs_than_last_are_all_averaged(tmp_path):
    model, record = make_model(), Record()
    run(model, [AverageCheckpoints(tmp_path, last=5), record], epochs=2)
    assert_is_mean(model, record.weights)


def test_a_resumed_run_averages_epochs_before_and_after_the_kill(tmp_path):
    model, record = make_model(), Record()

    class Kill(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(model, [AverageCheckpoints(tmp_path, last=3), record, Kill()], epochs=4)
    run(model, [AverageCheckpoints(tmp_path, last=3), record], epochs=4, initial_epoch=2)
    assert len(record.weights) == 4
    assert_is_mean(model, record.weights[-3:])


def test_a_finished_run_started_again_is_averaged_again(tmp_path):
    model, record = make_model(), Record()
    run(model, [AverageCheckpoints(tmp_path, last=2), record], epochs=3)
    again = make_model()
    run(again, [AverageCheckpoints(tmp_path, last=2)], epochs=3, initial_epoch=3)
    assert_is_mean(again, record.weights[-2:])


def test_files_of_an_earlier_run_are_removed(tmp_path):
    run(make_model(), [AverageCheckpoints(tmp_path, last=3)], epochs=4)
    model, record = make_model(), Record()
    run(model, [AverageCheckpoints(tmp_path, last=3), record], epochs=2)
    assert_is_mean(model, record.weights)


def test_processes_share_a_directory_and_not_their_files(tmp_path, monkeypatch):
    kernels = []
    for worker in range(2):
        monkeypatch.setattr(average_checkpoints, "worker_of", lambda model, w=worker: (w, 2))
        model, record = make_model(), Record()
        run(model, [AverageCheckpoints(tmp_path, last=2), record], epochs=3)
        assert_is_mean(model, record.weights[-2:])
        kernels.append(record.weights[-1][0])
    assert not np.allclose(*kernels)
    names = sorted(path.name for path in tmp_path.iterdir())
    ends = ["of-2.json", "worker-0-of-2.npz", "worker-1-of-2.npz"]
    assert names == [f"epoch-000{epoch}-{end}" for epoch in (1, 2) for end in ends]


def test_a_partial_file_is_ignored(tmp_path):
    model, record = make_model(), Record()
    (tmp_path / "epoch-0007.partial.npz").write_bytes(b"half")
    run(model, [AverageCheckpoints(tmp_path), record], epochs=2)
    assert_is_mean(model, record.weights)


def test_many_epochs_stay_in_order(tmp_path):
    """Epoch 10000 comes after 9999 although its name does not."""
    average = AverageCheckpoints(tmp_path, last=2)
    run(make_model(), [average], epochs=10001, initial_epoch=9998)
    assert [path.name for path in map(type(tmp_path), average.paths())] == [
        "epoch-9999.npz",
        "epoch-10000.npz",
    ]


def test_the_error_names_a_damaged_file(tmp_path):
    average = AverageCheckpoints(tmp_path, last=2)
    run(make_model(), [average], epochs=2)
    with open(average.paths()[0], "r+b") as file:
        file.truncate(200)
    with pytest.raises(ValueError, match="epoch-0000.npz is damaged"):
        average_weights(average.paths())


def test_sums_are_float64():
    """2^24 + 1 is lost in float32, and so would be each of a thousand small weights."""
    sets = [[np.float32([2.0**24])]] + [[np.float32([1.0])]] * 999
    expected = np.float32((2.0**24 + 999) / 1000)
    assert average_weights(sets)[0] == expected
    assert average_weights(sets)[0].dtype == np.float32


def test_the_mean_takes_three_times_the_weights_in_memory():
    """Sums of eight bytes a weight, and one set of four at a time."""
    shapes = [(100_003,)] * 9
    tracemalloc.start()
    average_weights([np.ones(shape, "float32") for shape in shapes] for _ in range(3))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak / (4 * 9 * 100_003) == pytest.approx(3, abs=0.2)


def test_integers_come_from_the_last_epoch_and_low_precision_floats_are_averaged():
    bfloat16 = keras.ops.convert_to_numpy(keras.ops.ones((1,), "bfloat16")).dtype
    sets = [
        [np.int32(step), np.float32(step).astype(bfloat16), np.bool_(step == 1)]
        for step in (1, 2, 6)
    ]
    integer, low, boolean = average_weights(sets)
    assert (integer, float(low), bool(boolean)) == (6, 3.0, False)
    assert low.dtype == bfloat16


@pytest.mark.parametrize(
    "sets, message",
    [([], "must not be empty"), ([[np.ones(2)], [np.ones(3)]], "member 1 has other shapes")],
)
def test_sets_of_different_models_are_refused(sets, message):
    with pytest.raises(ValueError, match=message):
        average_weights(sets)


def test_last_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="Received: last=0"):
        AverageCheckpoints(tmp_path, last=0)
