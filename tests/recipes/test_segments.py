"""Each token of a text is read and predicted as often as the protocol says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.text import SegmentStreams
from recipes.epoch_dataset import EpochDataset
from recipes.text.segments import EndlessSegments, StridedWindows


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


@pytest.mark.parametrize("in_order", [True, False])
def test_each_pass_reads_every_segment_once(in_order):
    """In epochs that do not fit the passes, from whichever epoch it goes on."""
    steps, rows, context = 5, 2, 3
    streams = SegmentStreams(np.arange(1, 44), rows, context)
    assert len(streams) == 7

    def read(first, number):
        epochs = EpochDataset(EndlessSegments(streams, steps, in_order, seed=11))
        data, found = epochs.data(), []
        for epochs.epoch in range(first, first + number):
            found += [inputs["token_ids"].numpy().tolist() for inputs, _ in data]
        return found

    whole = read(0, 6)
    segments = [batch["token_ids"].tolist() for batch, _ in map(streams.__getitem__, range(7))]
    assert read(3, 3) == whole[3 * steps :]
    passes = [whole[start : start + 7] for start in range(0, 28, 7)]
    assert all(sorted(one) == sorted(segments) for one in passes)
    assert all((one == segments) == in_order for one in passes)
    assert in_order or passes[0] != passes[1]
