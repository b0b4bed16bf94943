"""The document and the position of each token of a packed row, against loops over tokens."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_attn.attention.segments import check_segments, find_documents, same_segment

ROWS = st.lists(st.integers(0, 3), min_size=7, max_size=7)


@settings(deadline=None, max_examples=12)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_a_run_of_equal_ids_is_a_document_whose_positions_begin_at_0(rows):
    segment_ids = np.array(rows, "int32")
    numbers, positions = np.zeros((2, *segment_ids.shape), "int32")
    for b, row in enumerate(rows):
        first = 0
        for t, segment in enumerate(row):
            if row[first] != segment:
                first = t
            if segment:
                numbers[b, t], positions[b, t] = first + 1, t - first
    documents = find_documents(ops.convert_to_tensor(segment_ids))
    np.testing.assert_array_equal(documents[0], numbers)
    np.testing.assert_array_equal(documents[1], positions)


@settings(deadline=None, max_examples=30)
@given(ROWS, st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_tokens_attend_to_those_of_the_same_segment_and_padding_to_none(queries, keys):
    allowed = same_segment(ops.convert_to_tensor([queries]), ops.convert_to_tensor([keys]))
    expected = [[i == j != 0 for j in keys] for i in queries]
    np.testing.assert_array_equal(allowed, [expected])


@pytest.mark.parametrize(
    "segment_ids, message",
    [
        (np.ones((2, 4), "int32"), r"`segment_ids`.*`token_ids`, \(2, 3\).*\(2, 4\)"),
        (np.ones(3, "int32"), r"`segment_ids`.*\(None, None\).*\(3,\)"),
        (
            [[1, 2, 0], [2, 2, 1]],
            "`segment_ids` must be 1, 2, .. in.*Received: 1 after 2, in row 1",
        ),
        ([[1, 2, 0], [1, 0, 1]], "Received: 1 after 1, in row 1"),
        ([[1, -1, 0], [1, 0, 1]], "Received: -1 after 1, in row 0"),
        ([[1, 2**32 + 1, 1], [1, 1, 1]], "Received: 1 after 2147483647, in row 0"),
    ],
)
def test_bad_segments(segment_ids, message):
    with pytest.raises(ValueError, match=message):
        check_segments(np.array(segment_ids), np.ones((2, 3), "int32"), "segment_ids", "token_ids")


@pytest.mark.slow
def test_ids_that_do_not_grow_are_an_error_in_a_graph_too():
    ids = tf.ones((1, 5), tf.int32)
    check = tf.function(lambda x: check_segments(x, ids, "segment_ids", "token_ids"))
    padded = [[0, 3, 3, 7, 0]]
    np.testing.assert_array_equal(check(tf.constant(padded)), padded)
    for segment_ids in ([[1, 1, 2, 1, 0]], [[1, 1, -1, 2, 2]]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="`segment_ids` must be 1, 2"):
            check(tf.constant(segment_ids))
    with pytest.raises(tf.errors.InvalidArgumentError):  # of a layer alone
        find_documents(tf.constant([[1, 1, -1, 2, 2]]))
