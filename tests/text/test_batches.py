"""Batches by tokens: nothing lost, nothing over budget, the same again from a seed."""

import collections
import gzip
import importlib
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from sentences import sentence_pairs

from keras_attn.text import PackedBatches, SentencePiece, TokenBatches

MULTI30K = Path(__file__).resolve().parents[3] / "shared" / "data" / "multi30k"
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


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("multiple", [1, 4])
def test_every_pair_comes_once_and_whole(shuffle, multiple):
    sources, targets = sentence_pairs()
    batches = TokenBatches(sources, targets, 200, multiple=multiple, shuffle=shuffle)
    found = sorted(rows(batches[i] for i in range(len(batches))))
    expected = [(s.tolist(), t.tolist()) for s, t in zip(sources, targets, strict=True)]
    assert found == expected


def test_padding_stands_at_the_end_only():
    batches = TokenBatches(*sentence_pairs(), 200)
    for i in range(len(batches)):
        inputs, labels = batches[i]
        for ids in (inputs["source_ids"], inputs["target_ids"], labels):
            real = ids != PAD
            assert (np.sort(real, axis=1)[:, ::-1] == real).all()


@pytest.mark.parametrize("tokens", [32, 100, 1000])
@pytest.mark.parametrize("multiple", [1, 3, 8])
def test_no_side_exceeds_the_budget_and_widths_are_multiples(tokens, multiple):
    batches = TokenBatches(*sentence_pairs(), tokens, multiple=multiple)
    for i in range(len(batches)):
        inputs, labels = batches[i]
        assert inputs["target_ids"].shape == labels.shape
        for ids in inputs.values():
            assert ids.size <= tokens
            assert ids.shape[1] % multiple == 0


def test_all_batches_but_one_are_full():
    """Full: one more row of the batch's longest class would not fit."""
    batches = TokenBatches(*sentence_pairs(), 300, multiple=4)
    small = 0
    for i in range(len(batches)):
        ids = batches[i][0]
        width = max(side.shape[1] for side in ids.values())
        small += (len(ids["source_ids"]) + 1) * width <= 300
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
    batches = TokenBatches(*sentence_pairs(3000), 1000)
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


def test_empty_sentences_are_their_marks():
    inputs, labels = TokenBatches([[]], [[]], 8, multiple=1)[0]
    assert inputs["source_ids"].tolist() == [[EOS]]
    assert inputs["target_ids"].tolist() == [[BOS]] and labels.tolist() == [[EOS]]


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


def test_a_sentence_of_exactly_max_length_is_taken():
    assert len(TokenBatches([[5] * 7], [[5]], max_length=8)) == 1


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


def fitted(pairs, initial_epoch, epochs, as_dataset):
    batches = TokenBatches(*pairs, 200)
    batches.epoch = initial_epoch
    model = Recorder()
    model.seen = []
    model.compile(run_eagerly=True)
    model.fit(
        batches.as_dataset() if as_dataset else batches,
        shuffle=False,
        initial_epoch=initial_epoch,
        epochs=epochs,
        verbose=0,
    )
    return list(map(list, model.seen))


@pytest.mark.parametrize("as_dataset", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_resumed_fit_sees_what_an_undisturbed_one_sees(as_dataset):
    pairs = sentence_pairs(200)
    undisturbed = TokenBatches(*pairs, 200)
    expected = [epoch_of(undisturbed, epoch) for epoch in range(3)]
    assert fitted(pairs, 0, 3, as_dataset) == sum(expected, [])
    assert fitted(pairs, 2, 3, as_dataset) == expected[2]


def test_batches_need_no_tensorflow(monkeypatch):
    for name in ("tensorflow", "tensorflow_text"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "keras_attn.text.batches.token_batches")
    anew = importlib.import_module("keras_attn.text.batches.token_batches").TokenBatches
    assert anew is not TokenBatches
    assert anew([np.array([5])], [np.array([6])], multiple=1)[0][1].tolist() == [[6, EOS]]


@pytest.mark.slow
@pytest.mark.skipif(not MULTI30K.is_dir(), reason="needs Multi30k")
def test_little_of_multi30k_is_padding():
    def lines(language):
        content = (MULTI30K / f"train.lc.norm.tok.{language}.gz").read_bytes()
        return gzip.decompress(content).decode().split("\n")[:-1]

    english, german = lines("en"), lines("de")
    tokenizer = SentencePiece.train(english + german, 8000, "bpe")
    pairs = tokenizer.encode_as_lists(english), tokenizer.encode_as_lists(german)
    batches = TokenBatches(*pairs, 4096)
    real = total = 0
    for i in range(len(batches)):
        for ids in batches[i][0].values():
            real += np.count_nonzero(ids)
            total += ids.size
    assert real == sum(len(row) + 1 for side in pairs for row in side)
    assert real / total > 0.9
    # Few batches are needed: each is as full as padding allows.
    assert len(batches) * 4096 < 1.2 * max(sum(len(row) + 1 for row in side) for side in pairs)
