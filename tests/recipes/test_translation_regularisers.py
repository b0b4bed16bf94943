"""Subword dropout, consistency of two passes and early stopping of the recipe of translation."""

import itertools
import json
import types
from pathlib import Path

import keras
import numpy as np
import pytest
import recipe_runs
from recipe_runs import error_of

import recipes
from keras_attn import text
from keras_attn.callbacks import Resume
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.metrics import Perplexity
from keras_attn.models import transformer
from keras_attn.text.tokenizers.sentencepiece_model import (
    BPE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    write_model,
)
from recipes.common.card import EpochSeconds, History, read_history
from recipes.common.epoch_dataset import EpochDataset
from recipes.common.settings import check_settings, save_settings
from recipes.translate.consistency import ConsistentPasses, symmetric_divergences
from recipes.translate.early_stopping import EarlyStopping
from recipes.translate.subword_dropout import Merges, SubwordDropoutBatches

WORDS = "walking walked talking talked singing singer running runner reading reader".split()
SENTENCES = [" ".join(WORDS[i * k % 10] for k in range(1, 3 + i % 5)) for i in range(41)]


@pytest.fixture(scope="module")
def tokenizer():
    return text.SentencePiece.train(SENTENCES, 61, "bpe")


@pytest.fixture(scope="module")
def plain(tokenizer):
    ids = tokenizer.encode_as_lists(SENTENCES)
    return text.TokenBatches(ids, ids[::-1], tokens_per_batch=67, shuffle=True, seed=3)


def texts_of(tokenizer, rows):
    return tokenizer.decode_as_strings([row.tolist() for row in rows])


def assert_equal(batch, expected):
    for own, other in zip(keras.tree.flatten(batch), keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(own, other)
        assert own.dtype == other.dtype


def differs(batch, other):
    return [*map(np.shape, keras.tree.flatten(batch))] != [
        *map(np.shape, keras.tree.flatten(other))
    ] or any((a != b).any() for a, b in zip(*map(keras.tree.flatten, (batch, other)), strict=True))


def rows_of(batches, epoch):
    """The rows of an epoch, without padding: (source, target, label)."""
    for index in range(len(batches)):
        inputs, labels = batches.batch(epoch, index)
        for rows in zip(inputs["source_ids"], inputs["target_ids"], labels, strict=True):
            assert not any(row[(row > 0).sum() :].any() for row in rows)
            yield tuple(tuple(row[row > 0].tolist()) for row in rows)


def test_without_dropout_the_ids_are_those_of_the_tokenizer(tokenizer, plain):
    batches = SubwordDropoutBatches(plain, tokenizer, 0.0, 97, seed=3)
    assert len(batches) == len(plain)
    rows = [*rows_of(batches, 2)]
    assert sorted(rows) == sorted(rows_of(plain, 2))
    texts = texts_of(tokenizer, [np.array(source) for source, _, _ in rows])
    assert sorted(texts) == sorted(SENTENCES)


def test_each_epoch_has_other_pieces_of_the_same_texts(tokenizer, plain):
    batches = SubwordDropoutBatches(plain, tokenizer, 0.4, 97, seed=3)
    more_pieces, texts = 0, [[], []]
    for name, rows in (("new", rows_of(batches, 0)), ("plain", rows_of(plain, 0))):
        for source, target, label in rows:
            assert label[-1] == source[-1] == tokenizer.eos_id
            assert target == (tokenizer.bos_id, *label[:-1])
            more_pieces += len(label) if name == "new" else -len(label)
            pair = texts_of(tokenizer, [np.array(source), np.array(label)])
            texts[name == "new"].append(tuple(pair))
    assert sorted(texts[0]) == sorted(texts[1])
    assert more_pieces > 0
    again = SubwordDropoutBatches(plain, tokenizer, 0.4, 97, seed=3)
    assert_equal(again.batch(1, 2), batches.batch(1, 2))
    other_seed = SubwordDropoutBatches(plain, tokenizer, 0.4, 97, seed=4)
    assert differs(other_seed.batch(1, 2), batches.batch(1, 2))
    fixed = text.TokenBatches(*[tokenizer.encode_as_lists(SENTENCES)] * 2, shuffle=False)
    fixed = SubwordDropoutBatches(fixed, tokenizer, 0.4, 97, seed=3)
    assert differs(fixed.batch(0, 0), fixed.batch(1, 0))


def test_batches_have_few_more_ids_of_padding(tokenizer):
    """Each batch keeps its number of pairs, and long batches stay long."""
    random = np.random.default_rng(0)
    sentences = [" ".join(random.choice(WORDS, n)) for n in random.integers(3, 29, 2903)]
    ids = tokenizer.encode_as_lists(sentences)
    targets = tokenizer.encode_as_lists([" ".join(reversed(s.split())) for s in sentences])
    plain = text.TokenBatches(ids, targets, tokens_per_batch=307, shuffle=True, seed=3)
    batches = SubwordDropoutBatches(plain, tokenizer, 0.2, 97, seed=3)
    assert len(batches) > 128  # several windows

    def labels_of(batches):
        return [batches.batch(1, index)[1] for index in range(len(batches))]

    def padding(labels):
        return sum((rows == 0).sum() for rows in labels) / sum(rows.size for rows in labels)

    old, new = labels_of(plain), labels_of(batches)
    assert [len(rows) for rows in new] == [len(rows) for rows in old]
    assert padding(new) < padding(old) + 0.1  # 0.2 more if the pairs stayed together
    widths = np.array([[rows.shape[1] for rows in labels] for labels in (old, new)])
    assert np.corrcoef(widths)[0, 1] > 0.95
    sources, labels = zip(*[(source, label) for source, _, label in rows_of(batches, 1)])
    written = [texts_of(tokenizer, map(np.array, side)) for side in (sources, labels)]
    assert sorted(written[0]) == sorted(sentences)
    assert [" ".join(reversed(s.split())) for s in written[0]] == written[1]  # pairs stay pairs
    # A resumed epoch begins in a later window.
    again = SubwordDropoutBatches(plain, tokenizer, 0.2, 97, seed=3)
    assert_equal(again.batch(1, 67), batches.batch(1, 67))
    assert_equal(batches.batch(1, 3)[1], new[3])


def test_the_splits_of_a_word_have_the_probabilities_of_the_paper():
    """Three letters; the best merge is that of the first two."""
    special = (("<pad>", CONTROL), ("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL))
    pieces = [(piece, 0.0, kind) for piece, kind in special]
    pieces += [(p, -float(n), NORMAL) for n, p in enumerate(("ab", "bc", "abc", "a", "b", "c"))]
    model = text.SentencePiece(write_model(pieces, BPE))
    number, p = 4001, 0.3
    ids = model.encode_as_lists(["abc"] * number)
    plain = text.TokenBatches(ids, ids, tokens_per_batch=4 * number, shuffle=False)
    labels = SubwordDropoutBatches(plain, model, p, 97, seed=0).batch(0, 0)[1]
    rows = [tuple(model.vocabulary()[i] for i in row if i > 3) for row in labels.tolist()]
    expected = {
        ("abc",): (1 - p) ** 2 + p * (1 - p) ** 2,
        ("ab", "c"): (1 - p) * p,
        ("a", "bc"): p * (1 - p) * p,
        ("a", "b", "c"): p**2,
    }
    for split, share in expected.items():
        error = (share * (1 - share) / number) ** 0.5
        assert rows.count(split) / number == pytest.approx(share, abs=4 * error)
    assert {*rows} == {*expected}


def test_without_dropout_real_sentences_have_the_ids_of_the_tokenizer():
    """Also with characters that the tokenizer does not know."""
    pages = [*Path(recipes.__file__).parent.glob("*/README.md")]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    tokenizer = text.SentencePiece.train(lines, 997, "bpe")
    lines += ["\u65e5\u672c \u8a9e x\u65e5\u672cy", "\u2581 a \u2581\u2581b", ""]
    merges = Merges(tokenizer)
    for ids in tokenizer.encode_as_lists(lines):
        assert merges.segment(ids.tolist(), itertools.repeat(0)) == ids.tolist()


def test_a_sentence_that_would_be_too_long_keeps_its_pieces(tokenizer, plain):
    longest = max(len(ids) for ids in tokenizer.encode_as_lists(SENTENCES)) + 1
    batches = SubwordDropoutBatches(plain, tokenizer, 0.9, longest, seed=3)
    widths = [batches.batch(0, index)[1].shape[1] for index in range(len(batches))]
    assert max(widths) <= longest
    labels = [[np.array(row) for *_, row in rows_of(own, 0)] for own in (batches, plain)]
    assert sorted(texts_of(tokenizer, labels[0])) == sorted(texts_of(tokenizer, labels[1]))


def test_the_rest_of_an_epoch_has_the_pieces_of_that_epoch(tokenizer, plain):
    batches = SubwordDropoutBatches(plain, tokenizer, 0.4, 97, seed=3)
    dataset = EpochDataset(batches, free_axes=(0, 1)).rest(2)
    dataset.epoch = 5
    assert_equal(dataset[1], batches.batch(5, 3))
    for _ in range(2):  # as a thread of `tf.data` reads it
        first = next(iter(dataset.data()))
        assert_equal(keras.tree.map_structure(np.asarray, first), batches.batch(5, 2))


def translator(dropout):
    keras.utils.set_random_seed(7)
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
    return transformer(vocabulary_size=13, dropout=dropout, **sizes)


def ids(rows=5, length=7):
    rng = np.random.default_rng(0)
    source, target, labels = rng.integers(1, 13, (3, rows, length))
    labels[:, 5:], labels[1, 2:] = 0, 0
    return {"source_ids": source, "target_ids": target}, labels


def numpy_loss(first, second, labels, smoothing, weight):
    """Loop over tokens as in the paper's section 2."""
    total = count = 0
    for b, t in np.ndindex(labels.shape):
        if labels[b, t] == 0:
            continue
        p, q = (np.exp(z[b, t] - z[b, t].max()) for z in (first, second))
        p, q = p / p.sum(), q / q.sum()
        target = np.full(len(p), smoothing / len(p))
        target[labels[b, t]] += 1 - smoothing
        crossentropies = -(target * np.log(p)).sum(), -(target * np.log(q)).sum()
        forwards = sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))
        backwards = sum(b * np.log(b / a) for a, b in zip(p, q, strict=True))
        total += sum(crossentropies) / 2 + weight * (forwards + backwards) / 2
        count += 1
    return total / count


def test_the_loss_is_that_of_a_loop_over_tokens():
    _, labels = ids()
    first, second = np.random.default_rng(1).normal(size=(2, 5, 7, 13)).astype("float32") * 3
    wrapper = ConsistentPasses(translator(0.0), weight=1.7)
    wrapper.compile("sgd", LabelSmoothedCrossentropy(0.1), run_eagerly=True)
    logits = np.concatenate([first, second])
    own = wrapper.compute_loss(y=labels, y_pred=keras.ops.convert_to_tensor(logits))
    expected = numpy_loss(*np.float64([first, second]), labels, 0.1, 1.7)
    assert float(own) == pytest.approx(expected, rel=1e-5)
    assert float(keras.ops.max(symmetric_divergences(first, first))) == 0
    # Logits count up to a constant of each token.
    shifts = np.arange(35, dtype="float32").reshape(5, 7, 1)
    shifted, plain = (symmetric_divergences(x, second) for x in (first + shifts, first))
    np.testing.assert_allclose(shifted, plain, rtol=1e-5, atol=1e-5)


def test_a_step_trains_on_two_passes_with_other_dropout_masks():
    inputs, labels = ids()
    wrapper = ConsistentPasses(translator(0.3), weight=2.0)
    wrapper.compile("sgd", LabelSmoothedCrossentropy(0.1), weighted_metrics=[Perplexity()])
    first, second = np.split(np.asarray(wrapper(inputs, training=True)), 2)
    assert first.shape == (5, 7, 13) and np.abs(first - second).max() > 1e-2
    assert wrapper(inputs).shape == (5, 7, 13)
    logs = wrapper.train_on_batch(inputs, labels, return_dict=True)
    assert logs["loss"] > np.log(logs["perplexity"])  # smoothing, and the divergence
    expected = LabelSmoothedCrossentropy(0.1)(labels, wrapper.model(inputs))
    assert wrapper.test_on_batch(inputs, labels)[0] == pytest.approx(float(expected), rel=1e-5)


def test_without_dropout_training_is_the_plain_one():
    inputs, labels = ids()
    losses = []
    for wrap in (lambda model: model, lambda model: ConsistentPasses(model, weight=3.0)):
        trained = wrap(translator(0.0))
        loss = LabelSmoothedCrossentropy(0.1)
        how = {"weighted_metrics": [Perplexity()], "run_eagerly": True}
        trained.compile(keras.optimizers.SGD(0.1), loss, **how)
        losses.append([trained.train_on_batch(inputs, labels) for _ in range(2)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def train(path, bleus, patience, at=0, is_loss=False):
    """Validate as a run does that begins at an epoch; return the epoch after the last one."""
    history = History(path, first=at)
    stopping = EarlyStopping(path, "val_loss" if is_loss else "val_bleu", is_loss, patience)
    stopping.set_model(types.SimpleNamespace(stop_training=False))
    if stopping.is_finished(at):
        return at, True
    for epoch in range(at, len(bleus)):
        value = bleus[epoch]
        name = "val_loss" if is_loss else "val_bleu"
        logs = {"loss": 1.0} if value is None else {"loss": 1.0, name: value}
        stopping.on_epoch_end(epoch, logs)
        history.on_epoch_end(epoch, logs)
        if stopping.model.stop_training:
            return epoch + 1, True
    return len(bleus), False


NAN = float("nan")


@pytest.mark.parametrize(
    "values, stops_after, is_loss",
    [
        ([3.0, 5.0, 4.0, 5.0, 6.0], 4, False),
        ([None, 3.0, None, 2.0, None, 3.0, None, 9.0], 6, False),
        ([3.0, NAN, NAN, 4.0], 3, False),
        ([NAN, NAN, NAN], 2, False),
        ([NAN, 1.0, 2.0, 3.0], None, False),
        ([3.0, 2.0, 2.5, 2.0, 1.0], 4, True),
    ],
)
def test_training_stops_after_validations_without_a_better_value(
    monkeypatch, tmp_path, capsys, values, stops_after, is_loss
):
    """Also if each epoch is trained by a process of its own."""
    monkeypatch.setattr("recipes.translate.early_stopping.worker_of", lambda model: (0, 1))
    expected = (stops_after or len(values), stops_after is not None)
    assert train(tmp_path / "straight.csv", values, 2, is_loss=is_loss) == expected
    assert ("Stopped after epoch" in capsys.readouterr().out) == (stops_after is not None)
    path, epoch, stopped = tmp_path / "resumed.csv", 0, False
    while not stopped and epoch < len(values):
        _, stopped = train(path, values[: epoch + 1], 2, at=epoch, is_loss=is_loss)
        epoch += 1
    assert (epoch, stopped) == expected
    # A run that is started again after it has stopped trains no more; with more patience it does.
    if stopped:
        assert train(path, values, 2, at=epoch, is_loss=is_loss) == (epoch, True)
        assert train(path, values[:epoch], 9, at=epoch, is_loss=is_loss) == (epoch, False)


def write_pairs(directory):
    for split, number in (("train", 41), ("val", 5)):
        for language, side in (("en", SENTENCES), ("de", SENTENCES[::-1])):
            (directory / f"{split}.{language}").write_text("\n".join([*side[:number], ""]))
    return directory


def arguments(directory, out):
    sizes = "--num-layers 1 --with hidden_dim=8 num_heads=2 intermediate_dim=12 --beams 1"
    how = "--tokenizer bpe --vocabulary-size 61 --tokens-per-batch 512 --max-length 5"
    return ["--data-dir", directory, "--out", out, *sizes.split(), *how.split(), "--dropout", "0.1"]


class Stopped(Exception):
    """The death of a run."""


@pytest.mark.slow
def test_a_run_with_all_options_resumes_and_stops_early(monkeypatch, tmp_path):
    """Killed within its second epoch and after its third."""
    common = arguments(write_pairs(tmp_path), tmp_path / "out")
    common += ["--subword-dropout", "0.1", "--consistency", "2.5", "--patience", "2"]
    common += ["--epochs", "9", "--average-last", "2", "--checkpoint-steps", "1"]
    # No translation of so small a model has a BLEU.
    bleus = iter([1.0, 5.0, 4.0, 3.0, 9.0])
    monkeypatch.setattr(
        "recipes.translate.training.callbacks.Bleu",
        lambda *args, **how: keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: logs.update(val_bleu=next(bleus))
        ),
    )
    monkeypatch.setattr("recipes.translate.training.TranslationRun._write_card", lambda *args: None)
    on_epoch_end, on_train_batch_end = Resume.on_epoch_end, Resume.on_train_batch_end

    def die_after_the_third_epoch(self, epoch, logs=None):
        on_epoch_end(self, epoch, logs)
        if epoch == 2:
            raise Stopped

    def die_in_the_second_epoch(self, batch, logs=None):
        on_train_batch_end(self, batch, logs)
        if self._epoch == 1 and batch == 0:
            raise Stopped

    for name, death in (
        ("on_train_batch_end", die_in_the_second_epoch),
        ("on_epoch_end", die_after_the_third_epoch),
    ):
        with monkeypatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(Resume, name, death)
            recipe_runs.run("translate", *common)
    assert recipe_runs.run("translate", *common) == 0
    rows = read_history(tmp_path / "out" / "history.csv")
    assert [row["val_bleu"] for row in rows] == [1, 5, 4, 3]
    assert all(row["processor_seconds"] > 0 for row in rows)
    assert keras.saving.load_model(tmp_path / "out" / "model.keras").name == "transformer"
    kept = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert (kept["subword_dropout"], kept["consistency"]) == (0.1, 2.5)
    assert "patience" not in kept
    assert recipe_runs.run("translate", *common) == 0  # and trains no more
    assert next(bleus) == 9


@pytest.mark.parametrize(
    "options, said",
    [
        ("--subword-dropout 1", "--subword-dropout must be at least 0 and below 1"),
        ("--subword-dropout -0.1", "--subword-dropout must be at least 0 and below 1"),
        ("--subword-dropout nan", "--subword-dropout must be at least 0 and below 1"),
        ("--subword-dropout 0.1 --tokenizer unigram", "only --tokenizer bpe has"),
        ("--subword-dropout 0.1 --tokenizer characters", "and --tokenizer characters."),
        ("--subword-dropout 0.1 --packing 64", "--subword-dropout and --packing exclude each"),
        ("--consistency -1", "--consistency must be at least 0. Received: --consistency -1.0."),
        ("--consistency inf", "--consistency must be finite"),
        ("--patience 0", "--patience must be at least 1. Received: --patience 0."),
    ],
)
def test_values_that_do_not_fit_are_refused(capsys, tmp_path, options, said):
    common = ("--data-dir", write_pairs(tmp_path), "--out", tmp_path / "out")
    assert said in error_of(capsys, "translate", *common, *options.split())
    assert not (tmp_path / "out").exists()


def test_prepared_pairs_and_dates_have_no_subword_dropout(capsys, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    common = ("--out", tmp_path / "out", "--subword-dropout", "0.1")
    said = error_of(capsys, "translate", *common, "--data-dir", tmp_path)
    assert "--subword-dropout is for text, and prepared pairs are token ids" in said
    assert "and --tokenizer characters." in error_of(capsys, "translate", *common)


NEW_OPTIONS = ("subword_dropout", "consistency")


def test_a_run_of_an_earlier_version_resumes_without_the_options(tmp_path):
    path = tmp_path / "settings.json"
    plain = recipe_runs.parse("translate").identity()
    save_settings(path, {k: v for k, v in plain.items() if k not in NEW_OPTIONS})
    check_settings(path, plain, tmp_path)
    save_settings(path, plain)
    changed = recipe_runs.parse("translate", "--consistency", "1.5").identity()
    with pytest.raises(ValueError, match="Received: consistency=None, now 1.5"):
        check_settings(path, changed, tmp_path)


def test_processor_time_of_a_resumed_epoch_has_that_of_its_first_steps(monkeypatch, tmp_path):
    """Each step takes a second, each validation 100; step 3 of epoch 1 is trained twice."""
    now = [0.0]
    monkeypatch.setattr("recipes.common.card.time.process_time", lambda: now[0])
    path = tmp_path / "checkpoint" / "step_seconds.csv"

    def steps(seconds, epoch, number):
        seconds.on_epoch_begin(epoch)
        for batch in range(number):
            now[0] += 1
            seconds.on_train_batch_end(batch)

    def end(seconds, epoch):
        now[0] += 100
        logs = {}
        seconds.on_epoch_end(epoch, logs)
        return logs["processor_seconds"]

    seconds = EpochSeconds(path)
    steps(seconds, 0, 5)
    assert end(seconds, 0) == 5
    steps(seconds, 1, 3)
    now[0] = 1000.0  # the clock of another process
    seconds = EpochSeconds(path, first=1, done=2)
    steps(seconds, 1, 3)
    assert end(seconds, 1) == 5
    steps(seconds, 2, 5)
    assert end(seconds, 2) == 5
    # A checkpoint of the epoch before, if the last one was not on the disk yet.
    seconds = EpochSeconds(path, first=1, done=4)
    steps(seconds, 1, 1)
    assert end(seconds, 1) == 5
    path.unlink()
    seconds = EpochSeconds(path, first=1, done=4)  # of an earlier version, which has no such file
    steps(seconds, 1, 1)
    assert end(seconds, 1) == 1
