"""The recipe from the command line: a whole run, its masking, bad input."""

import keras
import numpy as np
import oracles
import pytest
import recipe_runs
from marks import slow
from recipe_runs import card

from keras_attn.text.batches.datasets import Rows
from recipes.masked_language_model.batches import MaskedSegments, mask_tokens
from recipes.masked_language_model.training import MaskedLanguageModelRun
from recipes.text.corpus import Corpus

SMALL = [
    *("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "16", "--intermediate-dim", "32"),
    *("--context", "11", "--batch-size", "16", "--steps", "8", "--epochs", "2"),
    *("--learning-rate", "0.003", "--tokenizer", "characters", "--dropout", "0"),
]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "text.txt"
    path.write_text("abcd" * 1000)
    return path


def run(text, out, *options):
    return recipe_runs.run("masked_language_model", *SMALL, "--text", text, "--out", out, *options)


def parse(*options):
    return recipe_runs.parse("masked_language_model", *options)


@pytest.mark.slow
def test_a_run_learns_and_writes_card_and_export(text, tmp_path, capsys):
    """In a periodic text the neighbours tell a masked letter, its frequency does not."""
    assert run(text, tmp_path, "--steps", "400") == 0
    entries = card(tmp_path)
    result = entries["results"]["test"]
    assert result["value"] > result["baseline"] + 0.1
    assert f"masked_accuracy {result['value']:.4g}" in capsys.readouterr().out
    masked, filled = entries["examples"][0]
    assert "[MASK]" in masked and "[MASK]" not in filled
    names = ("model.keras", "curve.png", "history.csv", "tokenizer.model", "export/1")
    assert all((tmp_path / name).exists() for name in names)
    model = keras.saving.load_model(tmp_path / "model.keras")
    assert model.count_params() == entries["parameters"]
    assert run(text, tmp_path, "--steps", "400", "--mask-rate", "0.3") == 2
    assert "started with other options" in capsys.readouterr().err


@pytest.mark.slow
def test_the_perplexity_counts_each_masked_token_alike(text, tmp_path):
    """Though the last batch has fewer of them."""
    run = MaskedLanguageModelRun(parse("--text", text, "--out", tmp_path, *SMALL))
    oracles.scramble(run.model, scale=0.7)
    segments, losses = run._segments("test"), []
    for index in range(len(segments)):
        inputs, targets = segments.batch(0, index)
        log_probs = np.asarray(keras.ops.log_softmax(run.model(inputs)))
        losses.append(-np.take_along_axis(log_probs, targets[..., None], -1)[targets > 0])
    assert len({len(part) for part in losses}) > 1
    perplexity = run.evaluate()["test"]["perplexity"]
    assert perplexity == pytest.approx(np.exp(np.concatenate(losses).mean()), rel=1e-4)


@pytest.mark.parametrize("model", ["modern_bert", slow("longformer"), slow("perceiver")])
def test_other_models_read_both_sides(text, tmp_path, model):
    options = parse("--text", text, "--out", tmp_path, *SMALL, "--model", model)
    built = MaskedLanguageModelRun(options).model
    oracles.scramble(built, scale=0.7)
    ids = np.tile(np.arange(11) % 4 + 4, (3, 1))
    ids[[1, 2], [4, 6]] = 8  # the mask, before and after the place 5
    unchanged, before, after = np.asarray(built({"token_ids": ids}))[:, 5]
    assert min(np.abs(unchanged - before).max(), np.abs(unchanged - after).max()) > 1e-4


def test_a_corpus_without_a_test_split_is_refused_before_the_training(text, tmp_path, monkeypatch):
    def load(texts, options, load=Corpus.load):
        corpus = load(texts, options)
        corpus.ids["test"] = corpus.ids["test"].part(0, 0)
        return corpus

    monkeypatch.setattr(Corpus, "load", load)
    with pytest.raises(ValueError, match="must have tokens. Received: no test"):
        MaskedLanguageModelRun(parse("--text", text, "--out", tmp_path / "out", *SMALL))


def test_masking_has_the_shares_of_the_paper():
    """15 % are targets: 8 of 10 masked, 1 random, 1 unchanged; never padding or marks."""
    ids = np.random.default_rng(1).integers(0, 97, (101, 103))
    tokens, targets = mask_tokens(ids, 0.15, 97, 4, np.random.default_rng(2))
    chosen = targets > 0
    assert not chosen[ids < 4].any()
    np.testing.assert_array_equal(tokens[~chosen], ids[~chosen])
    np.testing.assert_array_equal(targets[chosen], ids[chosen])
    assert abs(chosen.sum() / (ids >= 4).sum() - 0.15) < 0.01
    masked, same = (tokens == 97)[chosen].mean(), (tokens == ids)[chosen].mean()
    assert abs(masked - 0.8) < 0.04 and abs(same - 0.1) < 0.03
    assert tokens[chosen & (tokens != 97)].min() >= 4 and tokens.max() == 97


def test_at_least_one_real_token_of_a_row_is_a_target():
    ids = np.array([[0, 5, 6], [0, 0, 0], [4, 1, 6]])
    _, targets = mask_tokens(ids, 1e-9, 7, 4, np.random.default_rng(0))
    assert targets.tolist() == [[0, 5, 0], [0, 0, 0], [4, 0, 0]]
    _, targets = mask_tokens(np.zeros((1, 3), int), 0.5, 7, 4, np.random.default_rng(0))
    assert not targets.any()


def test_ordered_segments_hold_the_whole_text():
    options = parse("--context", "5", "--batch-size", "3")
    ids = np.arange(4, 4 + 37)
    segments = MaskedSegments(ids, options, mask_id=99, first_id=4)
    read = []
    for index in range(len(segments)):
        inputs, targets = segments.batch(0, index)
        read.append(np.where(targets > 0, targets, inputs["token_ids"]).ravel())
    read = np.concatenate(read)
    np.testing.assert_array_equal(read[:37], ids)
    assert not read[37:].any() and len(read) == len(segments) * 15
    drawn = MaskedSegments(ids, options, 99, 4, steps=2)
    assert len(drawn) == 2
    batches = [drawn.batch(*place)[1].tolist() for place in ((0, 0), (0, 1), (1, 0))]
    again = MaskedSegments(ids, options, 99, 4, steps=2).batch(1, 0)[1].tolist()
    assert batches[2] == again and batches[0] != batches[1] != batches[2] != batches[0]


@pytest.mark.parametrize("rows, steps", [(Rows(2, 2, 1), None), (Rows(6, 3, 2), 3)])
def test_a_process_makes_its_rows_of_the_whole_batch(rows, steps):
    options = parse("--context", "5", "--batch-size", "7")
    ids = np.random.default_rng(0).integers(4, 97, 53)
    segments = MaskedSegments(ids, options, mask_id=97, first_id=4, steps=steps)
    for index in range(len(segments)):
        expected, batch = rows.cut(segments.batch(1, index)), segments.batch(1, index, rows)
        keras.tree.map_structure(np.testing.assert_array_equal, batch, expected)


def test_a_process_reads_no_other_rows():
    class Counted(np.ndarray):
        read = 0

        def __getitem__(self, cut):
            Counted.read += 1
            return np.asarray(self)[cut]

    options = parse("--context", "5", "--batch-size", "8")
    segments = MaskedSegments(np.full(97, 5).view(Counted), options, 9, 4, steps=1)
    segments.batch(0, 0, Rows(4, 4, 2))
    assert Counted.read == 2


def test_bad_options_are_reported(capsys):
    with pytest.raises(SystemExit):
        parse("--mask-rate", "1")
    assert "--mask-rate must be above 0 and below 1" in capsys.readouterr().err
