"""Segments in which each row continues the row of the batch before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.text import SegmentStreams
from keras_attn.text.corpus.array_files import ArrayFiles


def distinct(*lengths):
    """Texts in which no token id occurs twice."""
    ends = np.cumsum(lengths) + 1
    return [np.arange(end - length, end) for end, length in zip(ends, lengths, strict=True)]


def read(streams, num_rows):
    """Return a list of (inputs, targets) for each text or part that each row reads."""
    rows = [[] for _ in range(num_rows)]
    shapes = set()
    for index in range(len(streams)):
        inputs, targets = streams[index]
        shapes.add((inputs["token_ids"].shape, targets.shape, inputs["reset"].shape))
        for row, ids, labels, reset in zip(
            rows, inputs["token_ids"], targets, inputs["reset"], strict=True
        ):
            real = ids != 0
            np.testing.assert_array_equal(real, labels != 0)
            assert not real[1:][~real[:-1]].any()  # padding only at the end
            if reset:
                row.append(([], []))
            if real.any():
                row[-1][0].extend(ids[real])
                row[-1][1].extend(labels[real])
    assert len(shapes) == 1
    return rows


@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_each_text_is_read_whole_once_and_in_order(data):
    lengths = data.draw(st.lists(st.integers(2, 9), min_size=1, max_size=7))
    num_rows, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    texts = distinct(*lengths)
    streams = SegmentStreams(texts, num_rows, width)
    pairs = [pair for row in read(streams, num_rows) for pair in row]
    assert len(pairs) == len(texts)
    segments = sum(-(-(length - 1) // width) for length in lengths)
    assert len(streams) == segments or num_rows > 1 and len(streams) <= segments
    for inputs, targets in pairs:
        text = next(text for text in texts if text[0] == inputs[0])
        assert inputs == text[:-1].tolist() and targets == text[1:].tolist()


@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_one_long_text_is_cut_into_equal_parts(data):
    num_rows, width = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    (text,) = distinct(data.draw(st.integers(num_rows + 1, 40)))
    rows = read(SegmentStreams(text, num_rows, width), num_rows)
    assert all(len(row) == 1 for row in rows)
    inputs, targets = ([token for row in rows for token in row[0][n]] for n in range(2))
    assert inputs == text[:-1].tolist() and targets == text[1:].tolist()
    lengths = [len(row[0][0]) for row in rows]
    assert max(lengths) - min(lengths) <= 1


def test_a_row_takes_the_next_text_as_soon_as_it_is_free_or_reads_padding():
    streams = SegmentStreams(distinct(8, 3, 3, 3), 2, 3)
    begins = [streams[i][0]["reset"].tolist() for i in range(len(streams))]
    assert begins == [[1, 1], [0, 1], [0, 1]]
    first_tokens = [streams[i][0]["token_ids"][:, 0].tolist() for i in range(len(streams))]
    assert first_tokens == [[1, 9], [4, 12], [7, 15]]
    inputs, targets = SegmentStreams(distinct(5), 3, 2)[1]
    np.testing.assert_array_equal(inputs["token_ids"], [[3, 4], [0, 0], [0, 0]])
    np.testing.assert_array_equal(targets, [[4, 5], [0, 0], [0, 0]])
    assert inputs["reset"].tolist() == [0, 0, 0]


def test_a_dataset_of_known_shape():
    streams = SegmentStreams(range(1, 24), 3, 4)
    dataset = streams.as_dataset()
    (spec, _) = dataset.element_spec
    assert spec["token_ids"].shape == (3, 4) and spec["reset"].shape == (3,)
    for _ in range(2):
        batches = list(dataset.as_numpy_iterator())
        assert len(batches) == len(streams) == int(dataset.cardinality())
        for (inputs, targets), index in zip(batches, range(len(streams)), strict=True):
            expected, labels = streams[index]
            np.testing.assert_array_equal(targets, labels)
            for name, value in expected.items():
                np.testing.assert_array_equal(inputs[name], value)
                assert inputs[name].dtype == targets.dtype == "int32"


class Unread(ArrayFiles):
    """A text in files, of which nothing may be read."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        pytest.fail("it is read")


def test_texts_in_files_are_not_read_before_their_batch():
    assert len(SegmentStreams([Unread(9), Unread(5)], 1, 4)) == 3
    assert len(SegmentStreams(Unread(9), 2, 4)) == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([1, 2, 3], 0, 2), "`batch_size`.*batch_size=0"),
        (([1, 2, 3], 1, 0), "`segment_length`.*segment_length=0"),
        (([1, 2, 3], 3, 2), "3 tokens, batch_size=3"),
        (([], 1, 2), "`texts` must have at least one text"),
        (([1.0, 2.0], 1, 2), "`texts` must be two or more integer.*float64"),
        (([[1, 2], [3]], 1, 2), r"Text 2 must be two or more integer.*\(1,\)"),
        (([[[1, 2]]], 1, 2), r"Text 1 must be two or more integer.*\(1, 2\)"),
        (([[1, 2], [4, 0, 5]], 1, 2), "Text 2 must have token ids above 0.*0 at position 1"),
        (([4, 5, -3], 1, 2), "`texts` must have token ids above 0.*-3 at position 2"),
        ((iter([[1, 2]]), 1, 2), "`texts` must be an array.*iterator"),
        (([1, [2, 3]], 1, 2), "`texts` must be two or more integer.*object"),
        (([np.arange(1, 5), Unread(1)], 1, 2), "Text 2 must be two or more token ids. Received: 1"),
        (([[1, 2], [[1], [2, 3]]], 1, 2), "Text 2 must be two or more integer.*object"),
        (([1, 2, 3], True, 2), "`batch_size`.*batch_size=True"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        SegmentStreams(*arguments)
