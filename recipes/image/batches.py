"""Batches of images as tokens."""

import functools

import numpy as np
import tensorflow as tf

from keras_attn.text.datasets import dataset_of


class Batches:
    """Epochs of so many batches of a shuffled split, each going on where the other ended.

    A pass over the split is over when all images were read, not when an epoch is; each pass has an
    order of its own, which the seed and the number of the pass alone decide.

    Args:
        images: an `Images`.
        batch_size: int.
        steps: int. Batches of an epoch.
        seed: int.

    Attributes:
        epoch: the epoch that the next pass over the data set is.
    """

    def __init__(self, images, batch_size, steps, seed):
        self._images, self._batch_size, self._steps, self._seed = images, batch_size, steps, seed
        self.epoch = 0

    def as_dataset(self, labelled):
        """A dataset of what `labelled` makes of images (B, H, W, C)."""

        def one_epoch():
            first, self.epoch = self.epoch * self._steps, self.epoch + 1
            for step in range(first, first + self._steps):
                yield self._images.take(self._places(step))

        return _dataset(self._images, one_epoch, self._batch_size, self._steps, labelled)

    def _places(self, step):
        numbers = np.arange(step * self._batch_size, (step + 1) * self._batch_size)
        passes, places = np.divmod(numbers, len(self._images))
        found = np.empty_like(places)
        for number in np.unique(passes):
            order = _order(len(self._images), self._seed, int(number))
            found[passes == number] = order[places[passes == number]]
        return found


def in_order(images, batch_size, labelled):
    """A dataset of one pass over a split; its last batch may be smaller."""
    steps = -(-len(images) // batch_size)

    def one_pass():
        for step in range(steps):
            yield images.take(
                np.arange(step * batch_size, min((step + 1) * batch_size, len(images)))
            )

    return _dataset(images, one_pass, None, steps, labelled)


@functools.lru_cache(maxsize=2)
def _order(size, seed, number):
    return np.random.RandomState([seed, number]).permutation(size)


def _dataset(images, one_pass, batch_size, steps, labelled):
    signature = tf.TensorSpec((batch_size, *images.array.shape[1:]), tf.uint8)
    return dataset_of(one_pass, signature, steps).map(labelled)
