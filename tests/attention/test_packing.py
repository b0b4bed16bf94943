"""Who stands in whose sequence, and where: against loops over the tokens of a row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_attn.attention.masks import check_segments, same_segment, segment_positions

ROWS = st.lists(st.integers(0, 3), min_size=7, max_size=7)


@settings(deadline=None, max_examples=30)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_positions_count_what_stands_before_in_the_same_sequence(rows):
    segment_ids = np.array(rows, "int32")
    expected = np.zeros_like(segment_ids)
    for b, row in enumerate(rows):
        for t, segment in enumerate(row):
            expected[b, t] = row[:t].count(segment) if segment else 0
    np.testing.assert_array_equal(segment_positions(ops.convert_to_tensor(segment_ids)), expected)


@settings(deadline=None, max_examples=30)
@given(ROWS, st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_tokens_meet_those_of_a_segment_of_the_same_number_and_padding_nobody(queries, keys):
    found = same_segment(ops.convert_to_tensor([queries]), ops.convert_to_tensor([keys]))
    expected = [[i == j != 0 for j in keys] for i in queries]
    np.testing.assert_array_equal(found, [expected])


@pytest.mark.parametrize(
    "segment_ids, message",
    [
        (np.ones((2, 4), "int32"), r"`segment_ids`.*`token_ids`, \(2, 3\).*\(2, 4\)"),
        (np.ones(3, "int32"), r"`segment_ids`.*\(None, None\).*\(3,\)"),
    ],
)
def test_bad_segments(segment_ids, message):
    with pytest.raises(ValueError, match=message):
        check_segments(segment_ids, np.ones((2, 3), "int32"), "segment_ids", "token_ids")
