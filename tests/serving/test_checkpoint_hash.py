"""Exports whose variables were exchanged, detected by TensorFlow's own hash."""

import shutil

import pytest
import tensorflow as tf

from keras_attn.export.saved_model_files import has_own_variables
from serving.errors import Code, ServingError
from serving.servable import Servable


@pytest.fixture(scope="module")
def exports(toys, tmp_path_factory):
    """A base path with the versions 1 and 2, which differ in a variable alone."""
    base = tmp_path_factory.mktemp("exports")
    for version in (1, 2):
        toys.export_small(base, version)
    return base


@pytest.fixture
def copy(exports, tmp_path):
    return shutil.copytree(exports / "1", tmp_path / "copy")


def exchange(folder, exports):
    for file in (exports / "2" / "variables").iterdir():
        shutil.copy(file, folder / "variables" / file.name)


def test_the_hash_equals_tensorflows(exports):
    hashes = {
        tf.saved_model.experimental.read_fingerprint(str(exports / version)).checkpoint_hash
        for version in "12"
    }
    assert len(hashes) == 2 and 0 not in hashes
    assert all(has_own_variables(exports / version) for version in "12")


def test_exchanged_variables_are_refused(copy, exports):
    exchange(copy, exports)
    assert not has_own_variables(copy)
    with pytest.raises(ServingError, match="variables/ are not those that it was") as info:
        Servable("toy", 1, str(copy))
    assert info.value.code == Code.DATA_LOSS


def test_one_changed_byte_is_detected(copy):
    index = copy / "variables" / "variables.index"
    content = bytearray(index.read_bytes())
    content[-1] ^= 1
    index.write_bytes(content)
    assert not has_own_variables(copy)


def test_an_unreadable_hash_is_refused(copy):
    (copy / "fingerprint.pb").write_bytes(b"\xff")
    assert not has_own_variables(copy)


@pytest.mark.parametrize("missing", ["fingerprint.pb", "variables", "the hash"])
def test_exports_without_a_hash_or_variables_pass(copy, exports, missing):
    exchange(copy, exports)
    if missing == "the hash":
        (copy / "fingerprint.pb").write_bytes(b"")
    elif missing == "variables":
        shutil.rmtree(copy / "variables")
    else:
        (copy / missing).unlink()
    assert has_own_variables(copy)
