"""Several pairs in a row: nothing lost or cut, both sides in one segment, the same from a seed."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentences import sentence_pairs

from keras_attn.text import PackedBatches
from keras_attn.text.batches.packed_batches import FirstFit

PAD, BOS, EOS = 0, 2, 3
ROW = 32


PAIRS = sentence_pairs(300)


def made(pairs=PAIRS, tokens_per_batch=5 * ROW, **arguments):
    return PackedBatches(*pairs, tokens_per_batch, ROW, **arguments)


def segments_of(ids, numbers):
    """The tokens of each segment of a row by its number, which must count up from 1."""
    segments = {number: ids[numbers == number].tolist() for number in np.unique(numbers) if number}
    assert list(segments) == list(range(1, len(segments) + 1))
    # One after another, and padding at the end.
    whole = np.concatenate(
        [*(np.full(len(x), k) for k, x in segments.items()), [0] * (numbers == 0).sum()]
    )
    np.testing.assert_array_equal(numbers, whole)
    assert np.all(ids[numbers == 0] == PAD) and np.all(ids[numbers > 0] != PAD)
    return segments


def rows_of(batches):
    """The (source, target) of each row of an epoch, as lists of ids without marks."""
    for index in range(len(batches)):
        inputs, labels = batches[index]
        assert all(x.dtype == np.int32 and x.shape == (5, ROW) for x in (*inputs.values(), labels))
        names = "source_ids", "source_segment_ids", "target_ids", "target_segment_ids"
        for *arrays, label in zip(*(inputs[name] for name in names), labels, strict=True):
            sources, targets = segments_of(*arrays[:2]), segments_of(*arrays[2:])
            label = segments_of(label, arrays[3])
            assert sources.keys() == targets.keys()
            row = []
            for number, target in targets.items():
                assert sources[number][-1] == label[number][-1] == EOS and target[0] == BOS
                assert target[1:] == label[number][:-1]
                row.append((sources[number][:-1], target[1:]))
            yield row


def epoch_of(batches, epoch):
    batches.epoch = epoch
    return list(rows_of(batches))


@pytest.mark.parametrize("shuffle, epoch", [(False, 0), (True, 3)])
def test_every_pair_comes_once_and_whole_in_segments_of_one_number(shuffle, epoch):
    pairs = sorted(pair for row in epoch_of(made(shuffle=shuffle), epoch) for pair in row)
    assert pairs == [(s.tolist(), t.tolist()) for s, t in zip(*PAIRS, strict=True)]


def test_epochs_are_a_function_of_seed_and_epoch():
    few = sentence_pairs(60)
    one, other = made(few, seed=5), made(few, seed=5)
    straight = [epoch_of(one, epoch) for epoch in range(3)]
    assert epoch_of(other, 2) == straight[2]
    assert epoch_of(other, 0) == straight[0]
    assert straight[0] != straight[1] != straight[2]
    assert epoch_of(made(few, seed=6), 0) != straight[0]
    first, later = (made(few, shuffle=False, seed=seed) for seed in (0, 1))
    assert epoch_of(first, 0) == epoch_of(later, 4)


def test_shuffling_changes_who_shares_a_row():
    """As far as chance does among some fifty pairs of the same lengths."""
    pairs = sentence_pairs(1000, longest=8)

    def companions(epoch):
        batches = PackedBatches(*pairs, 5 * ROW, ROW)
        rows = ([source[0] for source, _ in row] for row in epoch_of(batches, epoch))
        return {frozenset((a, b)) for row in rows for a in row for b in row if a < b}

    first, second = companions(0), companions(1)
    assert len(first & second) < 0.2 * len(first)


LENGTHS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=40)


@settings(deadline=None, max_examples=50)
@given(LENGTHS)
def test_oracle_of_first_fit(lengths):
    """Pack one item after another, the longest first, each into the first row with space."""
    order = sorted(lengths, key=lambda pair: (max(pair), *pair[::-1]), reverse=True)
    rows = []
    for pair in order:
        for row in rows:
            if all(sum(side) + new <= 9 for side, new in zip(zip(*row), pair, strict=True)):
                row.append(pair)
                break
        else:
            rows.append([pair])
    sizes, counts = np.unique(lengths, axis=0, return_counts=True)
    packed = FirstFit(sizes, counts, 9)
    items = [[*zip(*map(list, packed.row(row)))] for row in range(packed.num_rows)]
    assert [[tuple(sizes[kind].tolist()) for kind, _ in row] for row in items] == rows
    expected = [(kind, n) for kind, count in enumerate(counts) for n in range(count)]
    assert sorted(item for row in items for item in row) == expected


def test_rows_of_one_side_are_nearly_full():
    """First fit opens a row only if no two others could be one: all but one are half full."""
    _, targets = PAIRS
    batches = PackedBatches(None, targets, 5 * ROW, ROW)
    numbers = np.concatenate([batches[i][0]["segment_ids"] for i in range(len(batches))])
    filled = (numbers > 0).sum(axis=1)
    assert np.sort(filled[filled > 0])[1] > ROW / 2
    assert filled.sum() == sum(len(target) + 1 for target in targets)
    assert filled.sum() / (ROW * (filled > 0).sum()) > 0.95


def test_texts_of_a_language_model():
    """A mark, the text; the text, a mark: as the target side of pairs."""
    batches = PackedBatches(None, PAIRS[1], 5 * ROW, ROW)
    unmarked_texts = []
    for i in range(len(batches)):
        inputs, labels = batches[i]
        assert sorted(inputs) == ["segment_ids", "token_ids"]
        for ids, numbers, label in zip(
            inputs["token_ids"], inputs["segment_ids"], labels, strict=True
        ):
            texts, labels_of = segments_of(ids, numbers), segments_of(label, numbers)
            for number, text in texts.items():
                assert [*text[1:], EOS] == labels_of[number] and text[0] == BOS
                unmarked_texts.append(text[1:])
    assert sorted(unmarked_texts) == [target.tolist() for target in PAIRS[1]]


def test_dataset_gives_the_same_batches_of_one_shape_and_advances():
    few = sentence_pairs(40)
    batches, other = made(few, seed=1), made(few, seed=1)
    dataset = batches.as_dataset()
    assert len(dataset) == len(other)
    assert all(spec.shape == (5, ROW) for spec in keras.tree.flatten(dataset.element_spec))
    for epoch in range(2):
        other.epoch = epoch
        for index, batch in enumerate(dataset.as_numpy_iterator()):
            keras.tree.map_structure(np.testing.assert_array_equal, batch, other[index])
        assert batches.epoch == epoch + 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (((), ()), "`sources` and `targets`"),
        ((PAIRS[0], PAIRS[1][:-1]), "`sources` and `targets`.*300 and 299"),
        ((None, [np.arange(1, 40)]), "target of item 1 has 40 tokens.*row_length=32"),
        (([np.arange(1, 40)], [np.arange(1, 4)]), "source of item 1 has 40.*row_length=32"),
        ((*PAIRS, 31), "`tokens_per_batch` must hold one row.*31.*32"),
        ((*PAIRS, 31.5), "`tokens_per_batch` must be an integer"),
        ((None,), "`sources` and `targets`.*none and none"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        PackedBatches(*arguments, row_length=ROW)
