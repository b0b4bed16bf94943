"""Batches of images as tokens."""

import functools

import numpy as np


class ShuffledBatches:
    """Epochs of `steps` batches of a shuffled split, each continuing where the last one ended.

    A pass over the split ends when all images were read, not with an epoch; the order of a pass
    depends on the seed and on the number of the pass alone.

    Args:
        images: an `Images`.
        batch_size: int.
        steps: int. Batches of an epoch.
        seed: int.
        encode: function of images (B, H, W, C) and labels (B,) that returns inputs and targets.
    """

    def __init__(self, images, batch_size, steps, seed, encode):
        self._images, self._batch_size, self._steps, self._seed = images, batch_size, steps, seed
        self._encode = encode

    def __len__(self):
        return self._steps

    def batch(self, epoch, index):
        places = self._places(epoch * self._steps + index)
        return self._encode(self._images.take(places), self._images.take_labels(places))

    def _places(self, step):
        numbers = np.arange(step * self._batch_size, (step + 1) * self._batch_size)
        passes, places = np.divmod(numbers, len(self._images))
        images = np.empty_like(places)
        for number in np.unique(passes):
            order = _order(len(self._images), self._seed, int(number))
            images[passes == number] = order[places[passes == number]]
        return images


class OrderedBatches:
    """One pass over a split; the last batch may be smaller."""

    def __init__(self, images, batch_size, encode):
        self._images, self._batch_size, self._encode = images, batch_size, encode

    def __len__(self):
        return -(-len(self._images) // self._batch_size)

    def batch(self, epoch, index):
        first, end = index * self._batch_size, (index + 1) * self._batch_size
        places = np.arange(first, min(end, len(self._images)))
        return self._encode(self._images.take(places), self._images.take_labels(places))


@functools.lru_cache(maxsize=2)
def _order(size, seed, number):
    return np.random.RandomState([seed, number]).permutation(size)
