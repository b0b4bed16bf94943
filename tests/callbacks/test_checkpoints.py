"""Checkpoint files are complete or absent, for one worker and for several."""

import errno
import os
import resource

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
        checkpoints.write(number, whole(*arrays(number)), keep, epoch=number)
    return checkpoints


def whole(*arrays):
    """The values of variables that one process holds."""
    return [(array.shape, {None: array}) for array in arrays]


def epoch(checkpoints, number):
    with checkpoints.read(number) as state:
        return state.numbers["epoch"]


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
    with checkpoints.read(9) as state:
        assert state.numbers == {"epoch": 9} and state.shapes == [(2, 3), ()]
        for number, expected in enumerate(arrays(9)):
            np.testing.assert_array_equal(state.read(number), expected)


class TestWorkers:
    def test_each_worker_reads_its_own_file(self, tmp_path):
        one = write(tmp_path, 1, **first())
        Checkpoints(tmp_path, **second()).write(1, whole(*arrays(5)), 2, epoch=5)
        files = [f"checkpoint-00000001-worker-{w}-of-2.npz" for w in (0, 1)]
        assert names(tmp_path) == ["checkpoint-00000001-of-2.json", *files]
        assert epoch(one, 1) == 1
        assert epoch(Checkpoints(tmp_path, **second()), 1) == 5

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


def shards(directory, workers, *numbers, keep=2, missing=()):
    """Each worker writes its rows of one variable; the `missing` ones are killed before the last
    number."""
    for number in numbers:
        rows = np.split(np.full((4, 3), number, "float32"), workers)
        for worker, part in enumerate(rows):
            if number == numbers[-1] and worker in missing:
                continue
            start = worker * len(part)
            values = [((4, 3), {((start, start + len(part)), (0, 3)): part})]
            checkpoints = Checkpoints(directory, worker, workers, "shard")
            checkpoints.write(number, values, keep, epoch=number)


def reader(directory, worker=0, workers=1):
    return Checkpoints(directory, worker, workers, "shard")


class TestShards:
    @pytest.mark.parametrize("workers", [1, 2, 4])
    def test_any_number_of_workers_reads_all_of_the_state(self, tmp_path, workers):
        shards(tmp_path, 4, 1, 2, 3)
        assert sum(name.endswith(".json") for name in names(tmp_path)) == 2
        for worker in range(workers):
            checkpoints = reader(tmp_path, worker, workers)
            assert checkpoints.numbers() == [2, 3] and checkpoints.newest() == 3
            with checkpoints.read(3) as state:
                np.testing.assert_array_equal(state.read(0), np.full((4, 3), 3))

    def test_another_number_of_workers_replaces_the_files_of_the_first(self, tmp_path):
        shards(tmp_path, 4, 1, 2, missing=[3])  # killed in the second checkpoint
        (tmp_path / "checkpoint-00000002-shard-3-of-4.partial.npz").write_bytes(b"half")
        for worker in range(2):
            assert reader(tmp_path, worker, 2).newest() == 1
            reader(tmp_path, worker, 2).prepare(1)
        files = [f"checkpoint-00000001-shard-{w}-of-4.npz" for w in range(4)]
        assert names(tmp_path) == ["checkpoint-00000001-of-4.json", *files]
        shards(tmp_path, 2, 2, 3)
        assert reader(tmp_path).numbers() == [2, 3]
        shards(tmp_path, 2, 4)
        assert not any("00000001" in name for name in names(tmp_path))

    def test_one_worker_of_tensorflow_reads_shards_and_several_do_not(self, tmp_path):
        shards(tmp_path, 4, 1)
        with Checkpoints(tmp_path).read(1) as state:
            np.testing.assert_array_equal(state.read(0), np.ones((4, 3)))
        with pytest.raises(ValueError, match="saved by 4 workers.*Received: 2 workers"):
            Checkpoints(tmp_path, **second())
        write(tmp_path / "own", 1, **first())
        with pytest.raises(ValueError, match="saved by 2 workers.*same backend"):
            reader(tmp_path / "own", 0, 2)

    @pytest.mark.parametrize("worker", [0, 2])
    @pytest.mark.parametrize("numbers", [(1,), (1, 2)])
    def test_a_lost_shard_is_refused_and_nothing_changes(self, tmp_path, worker, numbers):
        """Without the manifest it is one that was never written."""
        shards(tmp_path, 4, *numbers)
        name = f"checkpoint-0000000{numbers[-1]}-shard-{worker}-of-4.npz"
        (tmp_path / name).unlink()
        before = names(tmp_path)
        then = "start from the beginning" if numbers == (1,) else "resume from .*1-shard-0-of-4.npz"
        manifest = f"checkpoint-0000000{numbers[-1]}-of-4.json"
        with pytest.raises(ValueError, match=f"{name} is missing; .*delete {manifest} to {then}"):
            reader(tmp_path).newest()
        assert names(tmp_path) == before
        (tmp_path / manifest).unlink()
        assert reader(tmp_path).newest() == (1 if len(numbers) == 2 else None)

    def test_a_cut_shard_is_refused(self, tmp_path):
        shards(tmp_path, 4, 1, 2)
        path = tmp_path / "checkpoint-00000002-shard-3-of-4.npz"
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(ValueError, match="shard-3-of-4.npz is cut or was replaced; restore it"):
            reader(tmp_path).newest()

    def test_an_altered_shard_is_refused_and_the_remedy_helps(self, tmp_path):
        shards(tmp_path, 4, 1, 2)
        path = tmp_path / "checkpoint-00000002-shard-3-of-4.npz"
        damage(path)
        remedy = "delete it and checkpoint-00000002-of-4.json to resume from .*1-shard-0-of-4.npz"
        with pytest.raises(ValueError, match=f"shard-3-of-4.npz is damaged.*; {remedy}"):
            with reader(tmp_path).read(2) as state:
                state.read(0)
        path.unlink()
        (tmp_path / "checkpoint-00000002-of-4.json").unlink()
        assert reader(tmp_path).newest() == 1

    def test_a_damaged_manifest_is_refused(self, tmp_path):
        shards(tmp_path, 2, 1)
        (tmp_path / "checkpoint-00000001-of-2.json").write_text('{"checkpoint')
        with pytest.raises(ValueError, match="00000001-of-2.json is damaged.*start from the begin"):
            reader(tmp_path).newest()


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


def test_a_file_that_exceeds_the_size_limit_is_removed(tmp_path):
    """A real limit, which stops the archive as it is written, ends what is said the same way."""
    checkpoints = write(tmp_path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(OSError, match="Cannot write checkpoint-00000002.npz.*File too large"):
            checkpoints.write(2, whole(np.ones(1_000_000)), 2)
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
