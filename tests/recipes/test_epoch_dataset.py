"""Batches of `EpochDataset` are those of the trained epoch, from any batch on."""

import keras
import numpy as np

from recipes.common.epoch_dataset import EpochDataset


class Numbers:
    """Batch i of epoch e holds 100 e + i, in i + 1 rows."""

    def __len__(self):
        return 5

    def batch(self, epoch, index):
        x = np.full((index + 1, 1), 100 * epoch + index, "float32")
        return {"x": x}, x


class Seen(keras.Model):
    """Remembers the sums of the batches that it was trained on."""

    def __init__(self):
        super().__init__()
        self.scale = self.add_weight((), "ones")
        self.last = self.add_weight((), "zeros", trainable=False)

    def call(self, inputs):
        self.last.assign(keras.ops.sum(inputs["x"]))
        return inputs["x"] * self.scale


def trained(first, done, epochs):
    model, values = Seen(), []
    model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=True)

    class Keep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            values.append(float(model.last.numpy()))

    numbers = EpochDataset(Numbers(), free_axes=(0,)).rest(done)
    model.fit(
        numbers.data(),
        initial_epoch=first,
        epochs=epochs,
        callbacks=[numbers.epoch_callback(), Keep()],
        shuffle=False,
        verbose=0,
    )
    return values


def sums(epoch, begin):
    return [(i + 1) * (100.0 * epoch + i) for i in range(begin, 5)]


def test_fit_reads_the_batches_of_each_epoch():
    first, done, epochs = 2, 3, 4
    expected = [x for epoch in range(first, epochs) for x in sums(epoch, done)]
    assert trained(first, done, epochs) == expected


def test_without_tensorflow_data_is_a_keras_dataset(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    numbers = EpochDataset(Numbers()).rest(3)
    assert numbers.data() is numbers and isinstance(numbers, keras.utils.PyDataset)
    numbers.epoch = 7
    assert [float(numbers[i][1].sum()) for i in range(len(numbers))] == sums(7, 3)
