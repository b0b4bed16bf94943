"""Checkpoint files are complete or absent, for one worker and for several."""

import errno
import os
import resource
import signal
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn.callbacks import Resume
from keras_attn.callbacks.checkpoints import Checkpoints


def arrays(number):
    return [np.full((2, 3), number, "float32"), np.array(number)]


def write(directory, *numbers, keep=2, **worker):
    checkpoints = Checkpoints(directory, **worker)
    for number in numbers:
        checkpoints.write(number, arrays(number), keep, epoch=number)
    return checkpoints


def names(directory):
    return sorted(os.listdir(directory))


def first(workers=2):
    return {"worker": 0, "workers": workers}


def second(workers=2):
    return {"worker": 1, "workers": workers}


def test_only_the_newest_checkpoints_stay(tmp_path):
    checkpoints = write(tmp_path, 7, 8, 9, 10, keep=3)
    assert names(tmp_path) == [f"checkpoint-{n:08d}.npz" for n in (8, 9, 10)]
    assert checkpoints.numbers() == [8, 9, 10]
    found, values = checkpoints.read(9)
    assert values == {"epoch": 9}
    for array, expected in zip(found, arrays(9), strict=True):
        np.testing.assert_array_equal(array, expected)


class TestWorkers:
    def test_each_worker_reads_its_own_file(self, tmp_path):
        one = write(tmp_path, 1, **first())
        Checkpoints(tmp_path, **second()).write(1, arrays(5), 2, epoch=5)
        assert names(tmp_path) == [f"checkpoint-00000001-worker-{w}-of-2.npz" for w in (0, 1)]
        assert one.read(1)[1] == {"epoch": 1}
        assert Checkpoints(tmp_path, **second()).read(1)[1] == {"epoch": 5}

    @pytest.mark.parametrize(("by_one", "by_two"), [((1, 2, 3), (1, 2)), ((1, 2), (1, 2, 3))])
    def test_workers_killed_at_different_moments_resume_from_the_same_number(
        self, tmp_path, by_one, by_two
    ):
        write(tmp_path, *by_one, **first())
        write(tmp_path, *by_two, **second())
        for worker in (first(), second()):
            assert Checkpoints(tmp_path, **worker).numbers()[-1] == 2

    def test_a_number_that_only_one_worker_has_does_not_remove_earlier_ones(self, tmp_path):
        """One checkpoint of both remains, however far ahead a worker is."""
        write(tmp_path, 1, **first(), keep=1)
        write(tmp_path, 1, **second(), keep=1)
        write(tmp_path, 2, 3, 4, **first(), keep=1)
        assert Checkpoints(tmp_path, **second()).numbers() == [1]
        write(tmp_path, 2, 3, **second(), keep=1)
        assert Checkpoints(tmp_path, **first()).numbers() == [3]
        write(tmp_path, 4, **second(), keep=1)
        write(tmp_path, 5, **first(), keep=1)
        assert Checkpoints(tmp_path, **first()).numbers() == [4]

    def test_later_files_of_one_worker_are_removed_when_training_resumes(self, tmp_path):
        write(tmp_path, 1, 2, **first())
        write(tmp_path, 1, **second())
        for worker in (first(), second()):
            checkpoints = Checkpoints(tmp_path, **worker)
            checkpoints.prepare(checkpoints.numbers()[-1])
        write(tmp_path, 2, **second())  # and then the first is killed before it has written
        assert Checkpoints(tmp_path, **first()).numbers() == [1]

    def test_another_number_of_workers_is_refused(self, tmp_path):
        write(tmp_path, 1, **first(3))
        for worker in (first(2), {}):
            with pytest.raises(ValueError, match="saved by 3 workers.*Received: [12] workers"):
                Checkpoints(tmp_path, **worker)


def damage(path):
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def test_the_error_names_the_damaged_file_and_the_one_before(tmp_path):
    checkpoints = write(tmp_path, 1, 2)
    damage(tmp_path / "checkpoint-00000002.npz")
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    with pytest.raises(
        ValueError, match="00000002.npz is damaged.*delete it to resume from .*01.npz"
    ):
        checkpoints.read(2)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before
    (tmp_path / "checkpoint-00000002.npz").unlink()
    damage(tmp_path / "checkpoint-00000001.npz")
    assert checkpoints.numbers() == [1]
    with pytest.raises(
        ValueError, match="01.npz is damaged.*delete it to start from the beginning"
    ):
        checkpoints.read(1)


def test_partial_files_of_killed_processes_are_removed(tmp_path):
    write(tmp_path, 1)
    (tmp_path / "checkpoint-00000002.partial.npz").write_bytes(b"half")
    (tmp_path / "history.csv.partial").write_bytes(b"another's")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.numbers() == [1]
    checkpoints.prepare(1)
    assert names(tmp_path) == ["checkpoint-00000001.npz", "history.csv.partial"]


def model_and_data():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model, {"x": np.ones((4, 1)), "y": np.ones(4), "batch_size": 1, "verbose": 0}


def test_a_full_disk_raises_and_keeps_earlier_checkpoints(tmp_path, monkeypatch):
    """Full in the middle of the third file."""
    model, data = model_and_data()
    resume = Resume(tmp_path, every_steps=1)
    savez, handler = np.savez, signal.getsignal(signal.SIGTERM)

    def full(file, *values, **numbers):
        if numbers["batch"] == 3:
            Path(file).write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        savez(file, *values, **numbers)

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="Cannot write checkpoint-00000003.npz in.*No space") as told:
        model.fit(**data, callbacks=[resume])
    assert told.value.errno == errno.ENOSPC and str(tmp_path) in str(told.value)
    assert names(tmp_path) == ["checkpoint-00000001.npz", "checkpoint-00000002.npz"]
    assert signal.getsignal(signal.SIGTERM) == handler
    assert Resume(tmp_path).restore(model_and_data()[0]) == (0, 2)


def test_a_file_that_exceeds_the_size_limit_is_removed(tmp_path):
    """A real limit, which stops the archive as it is written, ends what is said the same way."""
    checkpoints = write(tmp_path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(OSError, match="Cannot write checkpoint-00000002.npz.*File too large"):
            checkpoints.write(2, [np.ones(1_000_000)], 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == ["checkpoint-00000001.npz"]


def test_a_directory_that_cannot_be_made_raises_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    model, data = model_and_data()
    before = model.get_weights()
    with pytest.raises(OSError, match="Cannot begin in the checkpoint directory .*file/run: Not a"):
        model.fit(**data, callbacks=[Resume(tmp_path / "file" / "run")])
    np.testing.assert_array_equal(model.get_weights()[0], before[0])


def test_a_directory_that_is_not_writable_raises_before_training(tmp_path, monkeypatch):
    model, data = model_and_data()

    def refuse(path, *arguments, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr("keras_attn.callbacks.checkpoints.open", refuse, raising=False)
    with pytest.raises(PermissionError, match="Cannot begin in.*Permission denied; earlier"):
        model.fit(**data, callbacks=[Resume(tmp_path)])
    assert names(tmp_path) == []
