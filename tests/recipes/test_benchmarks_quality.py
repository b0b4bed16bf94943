"""The benchmark of quality: one budget for all contenders, and a score that is counted once."""

import argparse
import dataclasses
import json
import pathlib

import numpy as np
import pytest

from recipes.benchmarks import quality
from recipes.benchmarks.contenders import quality_ours, quality_torch
from recipes.benchmarks.contenders.quality import Budget, score
from recipes.common.optimizer import adam
from recipes.text.corpus import Corpus
from recipes.text.data import read_text

LETTERS = np.array(list("abcdefg"))


@pytest.fixture
def options(tmp_path):
    arguments = argparse.Namespace(
        data_dir="unread",
        train_tokens=40_000,
        num_layers=1,
        hidden_dim=16,
        dropout=0.0,
        learning_rate=0.03,
    )
    return quality.budget_options(arguments, str(tmp_path))


@pytest.fixture
def folder(options):
    """A budget of a text in which each letter follows from the one before."""
    text = "".join(LETTERS[3 * np.arange(5000) % 7])
    for split, times in (("train", 5), ("valid", 1), ("test", 1)):
        pathlib.Path(options.out, f"{split}.txt").write_text(text * times)
    corpus = Corpus.load(read_text(options.out), options)
    quality.write_budget(options.out, {"windows", "segments"}, corpus, options, 0, 1500)
    return options.out


def test_the_learning_rate_is_that_of_the_recipes(options, folder):
    budget = Budget.read(folder, "windows", 0)
    schedule = adam(options)._learning_rate
    for step in (0, 1, options.warmup_steps, options.warmup_steps + 3, options.steps):
        assert budget.rate(step) == pytest.approx(float(schedule(step)), rel=1e-5, abs=1e-9)


def test_both_kinds_have_the_same_budget_and_each_test_token_once(options, folder):
    windows, segments = (Budget.read(folder, kind, 0) for kind in ("windows", "segments"))
    for budget in (windows, segments):
        steps = budget.batches["tokens"]
        assert steps.shape == (options.steps, 16, 128) == budget.batches["targets"].shape
        assert (budget.batches["test_targets"] > 0).sum() == 1499
    assert windows.batches["resets"].all()
    # Rows continue one another until a pass of the text ends.
    resets, tokens = segments.batches["resets"], segments.batches["tokens"]
    assert resets[0] and not resets.all()
    np.testing.assert_array_equal(segments.batches["targets"][0][:, -1], tokens[1][:, 0])


def test_the_score_of_equal_logits_is_the_logarithm_of_the_vocabulary(folder):
    budget = Budget.read(folder, "windows", 0)
    equal = score(budget, lambda tokens, reset: np.zeros((*tokens.shape, 11), "float32"))
    assert equal == pytest.approx(np.log2(11))
    halved = dataclasses.replace(budget, characters_per_token=2.0)
    assert score(halved, lambda tokens, reset: np.zeros((*tokens.shape, 16))) == pytest.approx(2)


def test_the_card_compares_means_over_common_seeds():
    facts = {"parameters": 1000, "training_seconds": 7.0}
    results = {
        "keras_attn gpt": {s: {**facts, "bits_per_character": b} for s, b in ((0, 2.0), (1, 2.2))},
        "x-transformers": {0: {**facts, "bits_per_character": 1.9}},
        "Hugging Face GPT-2": {s: {**facts, "bits_per_character": 2.1} for s in (0, 1)},
    }
    row = quality.table(results)[2]
    assert row == "| keras_attn gpt | 2.100 | 0.141 | 2.000, 2.200 | 1,000 | 7 |"
    same, worse = quality.comparisons(results)
    assert "+0.000 bits per character beside Hugging Face GPT-2" in same and ": met" in same
    assert "+0.100 bits per character beside x-transformers" in worse and "not met" in worse


def test_a_run_adds_to_the_card_of_the_same_budget(folder, tmp_path, monkeypatch, capsys):
    trained = []

    def run(name, folder, seed):
        trained.append((name, seed))
        facts = {"bits_per_character": 2.0 + seed, "parameters": 7, "training_seconds": 1.0}
        return {"facts": facts, "versions": {name: "1"}}

    monkeypatch.setattr(quality, "run", run)
    ours, theirs = "keras_attn gpt", "x-transformers"

    def measure(*arguments):
        sizes = f"--data-dir {folder} --out {tmp_path} --num-layers 1 --hidden-dim 16".split()
        options = "--train-tokens 4000 --test-tokens 300".split()
        monkeypatch.setattr("sys.argv", ["quality", *sizes, *options, *arguments])
        quality.main()

    measure("--contenders", ours, "--seeds", "1", "0", "--add")
    measure("--contenders", theirs, ours, "--seeds", "0", "2", "--add")
    assert trained == [(ours, 1), (ours, 0), (theirs, 0), (theirs, 2), (ours, 2)]
    content = json.loads((tmp_path / "quality.json").read_text())
    assert list(content["results"]) == [ours, theirs]
    assert list(content["results"][ours]) == ["0", "1", "2"]
    assert {ours, theirs} <= content["versions"].keys()
    capsys.readouterr()
    measure("--contenders", ours, "--add")
    assert len(trained) == 5 and f"| {ours} | 3.000 |" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--add needs a card of the same budget"):
        measure("--add", "--dropout", "0.1")


@pytest.mark.slow
@pytest.mark.parametrize("contender", [quality_ours.transformer_xl, quality_torch.hugging_face])
def test_a_contender_learns_what_follows(contender, folder):
    if contender is quality_torch.hugging_face:
        pytest.importorskip("torch")
        pytest.importorskip("transformers")
    facts = contender(folder, 0).facts
    assert len(facts["curve"]) == 10 and facts["curve"][-1] < facts["curve"][0]
    assert facts["bits_per_character"] < 2 < np.log2(7)
    assert facts["parameters"] > 1000
