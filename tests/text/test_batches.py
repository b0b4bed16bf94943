"""Batches by tokens: nothing lost, nothing over budget, the same again from a seed."""

import collections
import importlib
import sys

import keras
import numpy as np
import pytest
from sentences import sentence_pairs

from keras_attn.text import PackedBatches, TokenBatches

PAD, BOS, EOS = 0, 2, 3


def rows(batches):
    """(source, target) of every row of the batches, as lists of ids without padding or marks."""
    for inputs, labels in batches:
        arrays = (inputs["source_ids"], inputs["target_ids"], labels)
        assert all(array.dtype == np.int32 for array in arrays)
        for source, target, label in zip(*map(np.asarray, arrays), strict=True):
            source, target, label = (
                [i for i in ids if i != PAD] for ids in (source, target, label)
            )
            assert source[-1] == label[-1] == EOS and target[0] == BOS
            assert target[1:] == label[:-1]
            yield source[:-1], label[:-1]


def numbers(batches):
    """The pairs of each batch, by number, in order."""
    return [[source[0] - 1000 for source, _ in rows([batch])] for batch in batches]


def epoch_of(batches, epoch):
    batches.epoch = epoch
    return numbers(batches[i] for i in range(len(batches)))


@pytest.mark.parametrize(
    "tokens, multiple, shuffle", [(32, 1, True), (300, 4, False), (1000, 8, True)]
)
def test_every_pair_comes_once_and_whole_within_the_budget(tokens, multiple, shuffle):
    """All batches but one are full: one more row of their longest class would not fit."""
    sources, targets = sentence_pairs()
    batches = TokenBatches(sources, targets, tokens, multiple=multiple, shuffle=shuffle)
    epoch = [batches[i] for i in range(len(batches))]
    expected = [(s.tolist(), t.tolist()) for s, t in zip(sources, targets, strict=True)]
    assert sorted(rows(epoch)) == expected
    small = 0
    for inputs, labels in epoch:
        assert inputs["target_ids"].shape == labels.shape
        for ids in inputs.values():
            assert ids.size <= tokens and ids.shape[1] % multiple == 0
        for ids in (*inputs.values(), labels):
            real = ids != PAD
            assert (np.sort(real, axis=1)[:, ::-1] == real).all()
        width = max(side.shape[1] for side in inputs.values())
        small += (len(labels) + 1) * width <= tokens
    assert small <= 1


def test_epochs_are_a_function_of_seed_and_epoch():
    pairs = sentence_pairs()
    one, other = (TokenBatches(*pairs, 200, seed=5) for _ in range(2))
    straight = [epoch_of(one, epoch) for epoch in range(3)]
    assert epoch_of(other, 2) == straight[2]
    assert epoch_of(other, 0) == straight[0]
    assert straight[0] != straight[1] != straight[2]
    assert epoch_of(TokenBatches(*pairs, 200, seed=6), 0) != straight[0]


def test_every_epoch_has_as_many_batches_of_the_same_sizes():
    batches = TokenBatches(*sentence_pairs(), 200)
    sizes = [collections.Counter(map(len, epoch_of(batches, epoch))) for epoch in range(5)]
    assert all(size == sizes[0] for size in sizes)
    assert sizes[0].total() == len(batches)


def test_shuffling_changes_who_meets_whom_and_the_order_of_lengths():
    batches = TokenBatches(*sentence_pairs(1500), 1000)
    first, second = epoch_of(batches, 0), epoch_of(batches, 1)

    def companions(epoch):
        return {frozenset((a, b)) for batch in epoch for a in batch for b in batch if a < b}

    kept = len(companions(first) & companions(second)) / len(companions(first))
    assert kept < 0.5
    batches.epoch = 0
    widths = [batches[i][0]["source_ids"].shape[1] for i in range(len(batches))]
    # Sorted widths would follow the batch's number; shuffled ones do not.
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.5


def test_without_shuffling_batches_go_from_short_to_long_in_every_epoch():
    sources, targets = sentence_pairs()
    batches = TokenBatches(sources, targets, 200, shuffle=False)
    first = epoch_of(batches, 0)
    assert epoch_of(batches, 1) == first
    longest = [max(len(sources[i]), len(targets[i])) for batch in first for i in batch]
    assert longest == sorted(longest)


def test_padding_does_not_exceed_max_length():
    pairs = [np.arange(4, 13)], [np.arange(4, 8)]  # 10 and 5 with the mark
    inputs, _ = TokenBatches(*pairs, 64, max_length=10, multiple=8)[0]
    assert inputs["source_ids"].shape == (1, 10) and inputs["target_ids"].shape == (1, 8)
    inputs, labels = TokenBatches([[]], [[]], 8, multiple=1)[0]  # marks alone
    assert inputs["source_ids"].tolist() == labels.tolist() == [[EOS]]
    assert inputs["target_ids"].tolist() == [[BOS]]


def test_the_ids_of_another_tokenizer_may_be_given():
    pairs = [[0, 5], [7]], [[2], [8, 3, 3]]  # 0, 2 and 3 are texts of this tokenizer
    ids = {"pad_id": 9, "bos_id": 11, "eos_id": 13}
    inputs, labels = TokenBatches(*pairs, 64, multiple=1, shuffle=False, **ids)[0]
    assert inputs["source_ids"].tolist() == [[0, 5, 13], [7, 13, 9]]
    assert inputs["target_ids"].tolist() == [[11, 2, 9, 9], [11, 8, 3, 3]]
    assert labels.tolist() == [[2, 13, 9, 9], [8, 3, 3, 13]]
    inputs, labels = PackedBatches(None, pairs[1], 16, 8, shuffle=False, **ids)[0]
    rows = inputs["token_ids"].tolist()
    assert rows == [[11, 8, 3, 3, 11, 2, 9, 9], [9] * 8]
    assert labels.tolist() == [[8, 3, 3, 13, 2, 13, 9, 9], [9] * 8]
    assert inputs["segment_ids"].tolist() == [[1, 1, 1, 1, 2, 2, 0, 0], [0] * 8]


@pytest.mark.parametrize(
    "sources, targets, options, message",
    [
        ([[5]], [[5], [6]], {}, "Received: 1 and 2"),
        ([], [], {}, "at least one"),
        ([[5]] * 2 + [[5] * 8], [[5]] * 3, {"max_length": 8}, "source of item 3 has 9 .*=8"),
        ([[5]] * 2, [[5], [5] * 20], {"max_length": 8}, "target of item 2 has 21 .*=8"),
        ([[5], [5] * 30], [[5]] * 2, {"tokens_per_batch": 16}, "pair 2 takes.*tokens_per_batch=16"),
        ([[5]], [[5]], {"multiple": 0}, "Received: multiple=0"),
        (None, [[5]], {}, "`sources` must be a list of sentences. Received: sources=None"),
        ([[5]], [[5]], {"tokens_per_batch": 1e4}, "Received: tokens_per_batch=10000.0"),
        ([np.array([5.7])], [[5]], {}, "`sources` must be lists of token ids, integers"),
        ([[4], [5.7]], [[5], [6]], {}, r"integers.*Received: sources\[1\]=\[5.7\]"),
    ],
)
def test_bad_arguments_are_named(sources, targets, options, message):
    with pytest.raises(ValueError, match=message):
        TokenBatches(sources, targets, **options)


def test_dataset_gives_the_same_batches_and_takes_an_epoch_a_pass():
    pairs = sentence_pairs()
    expected = [epoch_of(TokenBatches(*pairs, 200), epoch) for epoch in range(2)]
    batches = TokenBatches(*pairs, 200)
    dataset = batches.as_dataset()
    assert dataset.cardinality().numpy() == len(batches)
    assert [spec.shape.as_list() for spec in (dataset.element_spec[1],)] == [[None, None]]
    assert [numbers(dataset), numbers(dataset)] == expected
    assert batches.epoch == 2
    batches.epoch = 1
    assert numbers(dataset) == expected[1]


class Recorder(keras.Model):
    """Learns nothing, but notes which pairs each step gets."""

    def train_step(self, data):
        self.seen += numbers([data])
        return {"loss": 0.0}


def fitted(pairs, initial_epoch, epochs):
    batches = TokenBatches(*pairs, 200)
    batches.epoch = initial_epoch
    model = Recorder()
    model.seen = []
    model.compile(run_eagerly=True)
    data = batches.as_dataset()
    model.fit(data, shuffle=False, initial_epoch=initial_epoch, epochs=epochs, verbose=0)
    return list(map(list, model.seen))


def test_a_resumed_fit_sees_what_an_undisturbed_one_sees():
    pairs = sentence_pairs(50)
    undisturbed = TokenBatches(*pairs, 200)
    expected = [epoch_of(undisturbed, epoch) for epoch in range(3)]
    assert fitted(pairs, 0, 3) == sum(expected, [])
    assert fitted(pairs, 2, 3) == expected[2]


def test_batches_need_no_tensorflow(monkeypatch):
    for name in ("tensorflow", "tensorflow_text"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "keras_attn.text.batches.token_batches")
    anew = importlib.import_module("keras_attn.text.batches.token_batches").TokenBatches
    assert anew is not TokenBatches
    assert anew([np.array([5])], [np.array([6])], multiple=1)[0][1].tolist() == [[6, EOS]]
