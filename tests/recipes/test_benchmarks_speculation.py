"""The benchmark of speculative decoding: the paper's numbers, the check of tokens, a small run."""

import argparse
import json
import os

import pytest
from language_model_runs import new_run

from recipes.benchmarks import harness, speculation, worker
from recipes.benchmarks.contenders import speculation as contenders

TARGET = speculation.target_name("graph")


def test_the_predicted_speed_up_is_that_of_the_paper():
    speed_up = speculation.predicted_speedup(0.8, tokens=5, cost=0.05)
    assert speed_up == pytest.approx((1 - 0.8**6) / ((1 - 0.8) * (5 * 0.05 + 1)))
    assert speculation.predicted_speedup(1.0, tokens=3, cost=0.5) == 4 / 2.5
    assert speculation.predicted_speedup(0.0, tokens=3, cost=0.5) == 1 / 2.5


def test_a_draft_has_layers_and_a_width():
    assert speculation.draft_size("2x128") == (2, 128)
    for text in ("2", "x8", "0x8", "2x128x3"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"is expected. Received: {text}"):
            speculation.draft_size(text)


def timings(seconds, acceptance=0.5, rounds=5, draft_seconds=0.4):
    """Rows of a target that writes 10 tokens in a second, of a draft, and of both together."""
    facts = {"tokens": 3, "calls": 1, "rounds": rounds, "written": 9 / rounds}
    facts["acceptance"] = acceptance
    each = {TARGET: (1.0, {}), "draft 1x2 alone": (draft_seconds, {}), "1x2, 3": (seconds, facts)}
    return [
        {"name": n, "seconds": [s, 2 * s], "median_seconds": s, "facts": {**own, "ids": [[1, 2]]}}
        for n, (s, own) in each.items()
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"seconds": 2.5}, "a round costs 5.00 steps of the target and writes at most 4 tokens"),
        ({"seconds": 1.5}, "0.50 accepted is too little for 3 proposals of a draft whose step"),
        ({"seconds": 1.5, "acceptance": 0.9}, "3.00 steps of the target, where the paper counts 2"),
        ({"seconds": 0.9}, None),
    ],
)
def test_a_draft_that_does_not_pay_has_a_reason(arguments, why):
    rows = timings(**arguments)
    speculation.add_costs(rows, TARGET, new_tokens=10)
    assert rows[2]["speedup"] == pytest.approx(1 / arguments["seconds"])
    assert rows[2]["draft_cost"] == 0.4 and rows[2]["paper_round"] == pytest.approx(2.2)
    assert rows[2]["round"] == pytest.approx(2 * arguments["seconds"])
    assert not any("ids" in row["facts"] for row in rows)
    statements = [check["statement"] for check in speculation.reasons(rows)]
    assert len(statements) == (why is not None) and all(why in text for text in statements)
    assert speculation.fastest(rows)["ratio"] == pytest.approx(1 / arguments["seconds"])


@pytest.fixture
def run(tmp_path):
    """A directory that holds what the benchmark reads of a run, with an untrained model."""
    for split, lines in (("train", 23), ("valid", 5), ("test", 4)):
        (tmp_path / f"{split}.txt").write_text("one two three four five\n" * lines)
    out = str(tmp_path / "run")
    untrained = new_run(tmp_path, out)
    untrained.save_settings()
    untrained.model.save(os.path.join(out, contenders.MODEL))
    return out


@pytest.mark.slow
def test_a_draft_that_is_the_model_is_always_accepted(run):
    path = os.path.join(run, contenders.MODEL)
    options = {"run": run, "batch": 3, "new_tokens": 9, "jit_compile": False}
    for strategy in speculation.STRATEGIES:
        facts = contenders.speculative(path, strategy=strategy, tokens=3, **options).facts
        assert facts["calls"] == 2 and facts["rounds"] == 2 * 2 and facts["written"] == 4
        assert facts["acceptance"] == pytest.approx(1, abs=1e-5)
    task = contenders.alone(path, strategy="greedy", **options)
    assert task.units == 6 * 9 and len(task.facts["ids"]) == 6


@pytest.mark.slow
def test_the_card_has_trained_drafts_and_other_tokens_end_with_1(run, monkeypatch, tmp_path):
    def measure(contenders, repetitions):
        """Call the contenders in this process; starting theirs takes longer."""
        rows = []
        for each in contenders:
            call, _, report = worker.prepare(each.target, each.options, 0.0)
            samples = [{**worker.cost(call), "probe_gflops": 1.0} for _ in range(repetitions)]
            rows.append(harness.row(each.name, report, samples))
        return rows, {}

    arguments = f"{run} --drafts 1x4 --steps 3 --new-tokens 7 --batches 2 --tokens 2".split()
    arguments += f"--modes graph --strategies greedy --out {tmp_path} --repetitions 1".split()
    monkeypatch.setattr("sys.argv", ["speculation", *arguments])
    monkeypatch.setattr(speculation, "measure", measure)
    assert speculation.main() == 0
    text = (tmp_path / "speculation.md").read_text()
    assert "0 of 4 continuations with a draft differ from those of target, graph" in text
    (group,) = json.loads((tmp_path / "speculation.json").read_text())["groups"]
    assert [row["name"] for row in group["rows"]] == [TARGET, "draft 1x4 alone", "1x4, 2 tokens"]

    def changed(contenders, repetitions):
        rows, skipped = measure(contenders, repetitions)
        rows[0]["facts"]["ids"][1][3] += 1
        return rows, skipped

    monkeypatch.setattr(speculation, "measure", changed)
    monkeypatch.setattr(speculation.speculation, "train_draft", None)  # the draft is kept
    assert speculation.main() == 1
