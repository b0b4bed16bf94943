"""Images: scikit-learn's digits, CIFAR-10, or ImageNet of 32 by 32 pixels."""

import hashlib
import math
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..common import files
from ..common.files import SPLITS
from .shapes import DATASETS

# Share of the images for each split that the data set does not hold out itself.
HELD_OUT = 0.1
MOST_HELD_OUT = 5000
_BLOCK = 4096  # images

_SHAPE = DATASETS["cifar10"].image_shape
_SIZE = math.prod(_SHAPE)


class Images(NamedTuple):
    """Images (N, H, W, C) of an array, in a given order, and the array's labels (N,) if known."""

    array: np.ndarray
    order: np.ndarray
    labels: np.ndarray | None = None

    def __len__(self):
        return len(self.order)

    def take(self, places):
        """Return the images at `places` of the order, which wraps around."""
        return np.ascontiguousarray(self.array[self._index(places)])

    def take_labels(self, places):
        """Return the labels, int32 (n,), of the images at `places`; None if they have none."""
        return None if self.labels is None else self.labels[self._index(places)].astype("int32")

    def _index(self, places):
        return self.order[np.asarray(places) % len(self)]


def shrink(images, factor):
    """Return the means of `images` (B, H, W, C) over squares of `factor` by `factor`, rounded."""
    number, height, width, channels = images.shape
    squares = images.reshape(number, height // factor, factor, width // factor, factor, channels)
    return np.rint(squares.mean(axis=(2, 4))).astype("int32")


def read_images(dataset, data_dir=None, seed=0):
    """Read the three splits of a data set, a dict of `Images`, drawn by a seed.

    Args:
        dataset: one of `DATASETS`. Of `digits` a tenth is for each of `valid` and `test`; the
            others have a test split, and `valid` is at most a tenth of their training images.
        data_dir: str. Directory with the files of the other data sets.
        seed: int.

    Raises:
        ValueError: if a file is missing, empty or damaged, or of another data set.
        ImportError: if `digits` are asked for and scikit-learn is not installed.
    """
    random = np.random.RandomState(seed)
    if dataset == "digits":
        images, labels = _digits()
        order = random.permutation(len(images))
        held_out = int(len(images) * HELD_OUT)
        parts = order[2 * held_out :], order[:held_out], order[held_out : 2 * held_out]
        named = zip(SPLITS, parts, strict=True)
        return {name: Images(images, part, labels) for name, part in named}
    (train, labels), (test, test_labels) = (_cifar10 if dataset == "cifar10" else _imagenet32)(
        data_dir
    )
    order = random.permutation(len(train))
    held_out = min(MOST_HELD_OUT, int(len(train) * HELD_OUT))
    if not held_out:
        raise ValueError(
            "A tenth of the images to train on must be held out. "
            f"Received: {len(train)} in {data_dir}."
        )
    return {
        "train": Images(train, order[held_out:], labels),
        "valid": Images(train, order[:held_out], labels),
        "test": Images(test, np.arange(len(test)), test_labels),
    }


def digest(splits):
    """Return the SHA-256 of all images and labels of the splits that `read_images` returns."""
    sha256 = hashlib.sha256()
    for split in ("train", "test"):  # `valid` shares the array of `train`
        array, _, labels = splits[split]
        for start in range(0, len(array), _BLOCK):  # an array in a file may exceed the memory
            sha256.update(np.ascontiguousarray(array[start : start + _BLOCK]))
        if labels is not None:
            sha256.update(np.ascontiguousarray(labels))
    return sha256.hexdigest()


def _digits():
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            "The digits come with the package scikit-learn: pip install 'keras_attn[recipes]'"
        ) from error
    digits = load_digits()
    return digits.images.astype("uint8")[..., None], digits.target


def find_files(dataset, data_dir):
    """Return the paths of a data set's files: of the training, and of the test.

    Raises:
        ValueError: if one is missing.
    """
    if dataset == "imagenet32":
        return _find_arrays(data_dir, "train"), _find_arrays(data_dir, "val")
    if Path(data_dir, "data_batch_1").is_file():
        raise ValueError(
            f"The files in {data_dir} are CIFAR-10's Python version, whose pickles are not read; "
            "put its binary version there, data_batch_1.bin and so on."
        )
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    *train, test = (files.find(data_dir, name) for name in names)
    return train, [test]


def _find_arrays(data_dir, beginning):
    directory = Path(data_dir)
    if not directory.is_dir():
        raise ValueError(f"There is no such directory. Received: data_dir={str(data_dir)!r}")
    paths = sorted(p for p in directory.glob(f"{beginning}*") if p.suffix in (".npy", ".npz"))
    if not paths:
        raise ValueError(f"There is no file {beginning}*.npy or {beginning}*.npz in {data_dir}.")
    return paths


def _cifar10(data_dir):
    train, (test,) = find_files("cifar10", data_dir)
    train, test = map(_cifar10_batch, train), _cifar10_batch(test)
    return tuple(map(np.concatenate, zip(*train, strict=True))), test


def _cifar10_batch(path):
    content, size = files.read(path), 1 + _SIZE
    if len(content) % size:
        raise ValueError(
            f"The file {path} must have {size} bytes for each image: a label, and {_SIZE} values. "
            f"Received: {len(content)} bytes."
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    if records[:, 0].max() > 9:
        raise ValueError(
            f"The file {path} must have labels up to 9. Received: {records[:, 0].max()}."
        )
    return _pixels(records[:, 1:]), records[:, 0]


def _imagenet32(data_dir):
    splits = []
    for paths in find_files("imagenet32", data_dir):
        arrays = [_array(path) for path in paths]
        splits.append((arrays[0] if len(arrays) == 1 else np.concatenate(arrays), None))
    return splits


def _array(path):
    """Return the images in a file of NumPy: the array `data`, or the only one."""
    try:
        # Memory-mapped: a .npy file has gigabytes.
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            with array:
                names = array.files
                array = array["data" if "data" in names else names[0]] if names else np.zeros(0)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"The file {path} is not a complete .npy or .npz file: {error}") from error
    if array.dtype == np.uint8 and array.size and array.shape[1:] in (_SHAPE, (_SIZE,)):
        return array if array.shape[1:] == _SHAPE else _pixels(array)
    raise ValueError(
        f"The file {path} must have an array of uint8 of shape (images, 32, 32, 3), or (images, "
        f"{_SIZE}) channel by channel. Received: {array.dtype} of shape {array.shape}."
    )


def _pixels(planes):
    """Return images (N, 32, 32, 3) of rows (N, 3072) that hold one channel after another."""
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
