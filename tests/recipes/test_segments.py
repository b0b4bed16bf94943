"""Each token of a text is read and predicted as often as the protocol says."""

import functools

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.text import SegmentStreams
from keras_attn.text.batches.datasets import Rows
from recipes.text.segments import EndlessStreams, ShuffledSegments, StridedWindows


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 60), st.integers(1, 13), st.integers(1, 13), st.integers(1, 5))
def test_each_token_but_the_first_is_scored_once(length, context, stride, batch_size):
    stride = min(stride, context)
    windows = StridedWindows(np.arange(1, length + 1), context, stride, batch_size)
    scored = []
    for index in range(len(windows)):
        inputs, targets = windows.batch(0, index)
        for tokens, labels in zip(inputs["token_ids"], targets):
            places = np.flatnonzero(labels)
            assert (labels[places] == tokens[places] + 1).all()
            scored.extend(labels[places])
            if len(tokens) and tokens[0] > 1:
                assert (places >= context - stride).all()
    assert sorted(scored) == list(range(2, length + 1))


def read(batches, epochs):
    """The batches of the epochs, each token with the one after it."""
    pairs = [batches.batch(epoch, index) for epoch in epochs for index in range(len(batches))]
    return [(inputs["token_ids"], labels) for inputs, labels in pairs]


def test_streams_are_read_over_and_over():
    """In epochs that do not fit the passes, from whichever epoch a run resumes at."""
    streams = SegmentStreams(np.arange(1, 44), 2, 3)
    assert len(streams) == 7
    whole = read(EndlessStreams(streams, 5), range(6))
    expected = [streams.batch(i % 7) for i in range(30)]
    for (tokens, labels), (inputs, targets) in zip(whole, expected, strict=True):
        assert (tokens == inputs["token_ids"]).all() and (labels == targets).all()


@pytest.mark.parametrize("length", [2, 5, 44, 50])
def test_each_pass_reads_every_shuffled_segment_once(length):
    batch_size, context, steps = 3, 4, 5
    make = functools.partial(ShuffledSegments, np.arange(1, length + 1), context, batch_size, steps)
    whole = read(make(11), range(6))
    resumed = read(make(11), range(3, 6))
    assert [a.tolist() for a, _ in whole[15:]] == [a.tolist() for a, _ in resumed]
    rows = [row for tokens, _ in whole for row in tokens]
    labels = [row for _, targets in whole for row in targets]
    for row, label in zip(rows, labels, strict=True):
        assert (label[row > 0] == row[row > 0] + 1).all() and not label[row == 0].any()
    number = -(-(length - 1) // context)
    passes = [labels[start : start + number] for start in range(0, len(rows), number)]
    for one in passes[:-1] if len(rows) % number else passes:
        assert sorted(x for row in one for x in row if x) == list(range(2, length + 1))
    if number > 5:
        assert [row[0] for row in passes[0]] != [row[0] for row in passes[1]]
        assert read(make(12), [0])[0][0].tolist() != whole[0][0].tolist()


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_processes_make_the_rows_of_one(processes):
    """Six rows on four replicas: rows of zeros fill the last ones."""
    ids = np.arange(1, 60)
    streams = SegmentStreams(ids, 6, 3)
    for batches in (
        ShuffledSegments(ids, 3, 6, 7, seed=5),
        EndlessStreams(streams, 7),
        StridedWindows(ids, 3, 2, 6),
    ):
        for index in range(7):
            whole = batches.batch(2, index % len(batches))
            parts = [
                batches.batch(2, index % len(batches), Rows(4, processes, part))
                for part in range(processes)
            ]
            together = keras.tree.map_structure(lambda *x: np.concatenate(x), *parts)
            for output, expected in zip(
                keras.tree.flatten(together), keras.tree.flatten(whole), strict=True
            ):
                assert len(output) == 8 and (output[:6] == expected).all() and not output[6:].any()
