"""Parts of variables in several files are read in any other parts."""

import numpy as np
import pytest

from keras_attn.callbacks.training_state import StoredState, index_of, write_arrays

RNG = np.random.default_rng(3)
STATE = [RNG.normal(size=(6, 10)), RNG.normal(size=(7,)), np.array(5), RNG.normal(size=(2, 3, 4))]


def cut(array, divisors):
    """Return the boxes of a grid with so many parts along each axis, and the arrays in them."""
    parts = {}
    steps = [size // parts for size, parts in zip(array.shape, divisors)]
    for place in np.ndindex(*divisors):
        box = tuple((i * step, (i + 1) * step) for i, step in zip(place, steps))
        parts[box] = array[tuple(slice(*ends) for ends in box)]
    return parts


def write(directory, grids, workers, state=STATE, **numbers):
    """Write the parts of the state, given in turn to the files of so many workers."""
    files = [[(array.shape, {}) for array in state] for _ in range(workers)]
    for number, (array, divisors) in enumerate(zip(state, grids)):
        for turn, (box, part) in enumerate(cut(array, divisors).items()):
            files[turn % workers][number][1][box] = part
    paths = [directory / f"{worker}.npz" for worker in range(workers)]
    for path, values in zip(paths, files):
        write_arrays(path, *index_of(values), **numbers)
    return paths


GRIDS = [
    ((1, 1), (1,), (), (1, 1, 1)),
    ((2, 5), (7,), (), (1, 3, 2)),
    ((3, 1), (1,), (), (2, 1, 4)),
]


@pytest.mark.parametrize("written", GRIDS)
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_any_parts_are_read_from_any_others(tmp_path, written, workers):
    with StoredState(write(tmp_path, written, workers, epoch=3)) as state:
        assert state.numbers == {"epoch": 3}
        assert state.shapes == [array.shape for array in STATE]
        for number, array in enumerate(STATE):
            np.testing.assert_array_equal(state.read(number), array)
            for grid in GRIDS:
                for box, expected in cut(array, grid[number]).items():
                    part = state.read(number, box)
                    assert part.dtype == expected.dtype
                    np.testing.assert_array_equal(part, expected)


def test_a_box_that_crosses_stored_parts_is_put_together(tmp_path):
    with StoredState(write(tmp_path, GRIDS[1], 3)) as state:
        np.testing.assert_array_equal(state.read(0, ((1, 5), (3, 9))), STATE[0][1:5, 3:9])


def test_whole_arrays_need_no_index(tmp_path):
    write_arrays(tmp_path / "whole.npz", STATE, batch=2)
    with StoredState([tmp_path / "whole.npz"]) as state:
        assert state.numbers == {"batch": 2}
        np.testing.assert_array_equal(state.read(3, ((1, 2), (0, 2), (1, 4))), STATE[3][1:, :2, 1:])


def test_parts_that_no_file_holds_are_reported(tmp_path):
    """One file is a copy of another."""
    first, second, third = write(tmp_path, GRIDS[1], 3)
    third.write_bytes(second.read_bytes())
    with StoredState([first, second, third], "delete it") as state:
        with pytest.raises(ValueError, match="0.npz lacks a part.*; delete it. Received: 42 of"):
            state.read(0)


def test_an_empty_box_that_is_not_stored_is_an_empty_array(tmp_path):
    paths = write(tmp_path, GRIDS[1], 2)
    with StoredState(paths) as state:
        part = state.read(0, ((2, 2), (0, 10)))
        assert part.shape == (0, 10) and part.dtype == STATE[0].dtype
    write_arrays(paths[0], *index_of([((0, 3), {})]))
    with StoredState(paths[:1]) as state:
        with pytest.raises(ValueError, match="lacks a part of a variable"):
            state.read(0)


@pytest.mark.parametrize("change", [{"epoch": 4}, {"state": STATE[:-1]}])
def test_files_of_two_checkpoints_are_refused(tmp_path, change):
    first, _ = write(tmp_path, GRIDS[1], 2, epoch=3)
    (tmp_path / "other").mkdir()
    _, second = write(tmp_path / "other", GRIDS[1], 2, **{"epoch": 3, **change})
    with pytest.raises(ValueError, match="0.npz and .*1.npz are not of one checkpoint"):
        StoredState([first, second])


def test_only_the_overlapping_files_are_read(tmp_path):
    """So a worker does not read the whole of a large checkpoint."""
    first, second = write(tmp_path, ((2, 1), (1,), (), (1, 1, 1)), 2)
    content = bytearray(second.read_bytes())
    content[content.index(STATE[0][3:].tobytes())] ^= 1
    second.write_bytes(content)
    with StoredState([first, second]) as state:
        np.testing.assert_array_equal(state.read(0, ((0, 3), (0, 10))), STATE[0][:3])
        with pytest.raises(ValueError, match="1.npz is damaged.*CRC"):
            state.read(0, ((2, 4), (0, 10)))
