"""The checkpoints of the golden files, each converted once."""

import functools
from typing import NamedTuple

import checkpoint_folders
import keras
import pytest

from keras_attn.convert import from_hugging_face


class Checkpoint(NamedTuple):
    """A golden file as a folder, and the model of that folder, which tests leave unchanged."""

    folder: object
    config: dict
    weights: dict
    arrays: dict
    model: keras.Model


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """Function from a golden file's name to its `Checkpoint`; a process converts each file once."""

    @functools.cache
    def checkpoint(name):
        config, weights, arrays = checkpoint_folders.load_golden(name)
        folder = tmp_path_factory.mktemp(name)
        checkpoint_folders.write_folder(folder, config, weights)
        return Checkpoint(folder, config, weights, arrays, from_hugging_face(folder)[0])

    return checkpoint
