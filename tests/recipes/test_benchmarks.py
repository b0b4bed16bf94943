"""The harness, on contenders whose cost is known."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest
from contenders import broken, dying, failing_late, missing, printing, sleeping
from fork_server import ROOT

from recipes.benchmarks import harness, parity, worker
from recipes.benchmarks.card import Card, checkout, execute, not_negative, positive
from recipes.benchmarks.harness import (
    Contender,
    beside,
    compare,
    compare_twins,
    measure,
    typical,
)
from recipes.common import machine as provenance
from recipes.common.machine import peak_memory, resident_memory, restart_peak

SUPPORT = ROOT / "tests" / "support"


@pytest.fixture(autouse=True, scope="module")
def quick():
    """No settling, and workers that find the contenders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "SETTLE_SECONDS", 0.0)
        patch.setattr(harness, "PROBE_SIZE", 32)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), str(ROOT)]))
        yield


def target(function):
    return f"{function.__module__}:{function.__name__}"


def contender(function, name=None, **options):
    return Contender(name or function.__name__, target(function), options)


def quietly(*contenders, **arguments):
    return measure(contenders, log=lambda text: None, **{"minimum_seconds": 0.0, **arguments})


@pytest.mark.slow
def test_contenders_of_tests_start_without_keras():
    """Else each of their processes takes seconds."""
    code = "import recipes.benchmarks.worker, contenders, sys; print('keras' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "False\n"


@pytest.mark.slow
def test_the_twin_of_a_contender_runs_the_code_of_another_checkout(tmp_path):
    """That of this checkout and the other one are timed in turn, without other libraries."""
    code = "def sleeping(seconds): return Task(lambda: time.sleep(2 * seconds))"
    header = "import time\nfrom recipes.benchmarks.workload import Task\n"
    (tmp_path / "contenders.py").write_text(f"{header}{code}\n")
    own = contender(sleeping, "keras_attn sleeps", seconds=0.01)
    both = beside([own, contender(sleeping, "peer", seconds=0.01)], str(tmp_path))
    assert [each.name for each in both] == [own.name, f"{own.name}, {tmp_path.name}"]
    assert beside(both, None) == both
    rows, skipped = quietly(*both, repetitions=3)
    assert not skipped and min(rows[1]["seconds"]) >= 0.02
    (comparison,) = compare_twins(rows, both)
    assert (comparison["name"], comparison["peer"]) == (both[0].name, both[1].name)
    assert compare_twins([], []) == []


def test_a_folder_without_benchmarks_is_no_checkout(tmp_path):
    with pytest.raises(argparse.ArgumentTypeError, match="must be the folder of a checkout"):
        checkout(str(tmp_path))
    assert checkout(f"{ROOT}/tests/..") == str(ROOT)


@pytest.fixture(scope="module")
def measured(quick):
    """Rows of two contenders, and why four others have none."""
    others = map(contender, (missing, broken, dying, failing_late, printing))
    return quietly(contender(sleeping, "fast", seconds=0.001), *others, repetitions=2)


@pytest.mark.slow
def test_contenders_that_cannot_run_are_skipped_with_a_reason(measured):
    rows, skipped = measured
    assert [row["name"] for row in rows] == ["fast", "printing"]
    assert skipped == {
        "missing": "a_library_that_nobody_has is not installed",
        "broken": "it failed with ValueError: no such size",
        "dying": "its process ended with exit code 7",
        "failing_late": "it failed with ValueError: too late",
    }


@pytest.mark.slow
def test_the_peak_is_of_this_process_and_starts_again():
    if resident_memory() is None:
        pytest.skip("this system does not tell the peak memory of a process")
    much = bytearray(200 << 20)
    assert peak_memory() > 200
    code = "from recipes.common.machine import peak_memory; print(peak_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert float(done.stdout) < 100, "not the parent's"
    del much
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    assert resident_memory() == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, rel=0.02)
    if restart_peak():
        assert peak_memory() < resident_memory() + 50


def test_a_peak_that_cannot_be_restarted_is_not_of_the_calls(monkeypatch):
    monkeypatch.setattr(worker, "restart_peak", lambda: False)
    _, _, report = worker.prepare(target(printing), {}, 0.0)
    assert report["memory_mb"] is None


def test_of_several_processes_the_one_of_median_time_is_reported():
    reports = [{"first_call": {"seconds": s}, "facts": {"n": s}} for s in (3.0, 1.0, 2.0)]
    assert typical(reports)["facts"] == {"n": 2.0}
    assert typical([*reports, {"skipped": "it failed"}]) == {"skipped": "it failed"}


def timings(**seconds):
    return [
        {"name": name, "seconds": list(values), "median_seconds": sorted(values)[len(values) // 2]}
        for name, values in seconds.items()
    ]


def test_compare_takes_the_fastest_peer_and_ratios_within_a_turn():
    # The machine is ten times slower in the second turn; ours is twice as fast in every turn.
    rows = timings(ours=(1, 10, 1), theirs=(2, 20, 2), slower=(3, 30, 3))
    result = compare(rows, "ours", ["slower", "theirs", "absent"], at_least=1.1)
    assert result == {"name": "ours", "peer": "theirs", "ratio": 2, "at_least": 1.1, "met": True}
    assert compare(rows, "slower", ["theirs"], at_least=0.7)["met"] is False
    assert compare(rows, "ours", ["theirs"])["met"] is None
    assert compare(rows, "ours", ["absent"]) is None
    assert compare(rows, "absent", ["ours"]) is None


@pytest.mark.slow
def test_card_says_everything_in_both_files(measured, tmp_path):
    """With further columns, a headline and bounds."""
    rows, skipped = measured
    columns = {"first letter": lambda row: row["name"][0]}
    card = Card("example", "An example", "Sleeping.", unit="naps", columns=columns)
    demand = {"name": "nap", "statement": "**nap** holds 3 MB", "at_most": 2, "met": False}
    card.add("one nap", rows, skipped, [compare(rows, "fast", ["fast"], 2.0), None, demand])
    card.headline("What it shows.")
    text = card.write(tmp_path)
    assert text == (tmp_path / "example.md").read_text()
    for part in ("# An example", "| fast |", "naps/s", "not met", "GiB", "python 3"):
        assert part in text
    assert "missing is not in the table: a_library_that_nobody_has is not installed." in text
    assert text.index("What it shows.") < text.index("## one nap")
    assert "- **nap** holds 3 MB (at most 2 is asked: not met)." in text
    header, rule, fastest, row = (line for line in text.splitlines() if line.startswith("|"))
    assert header.endswith("| first letter |") and row.endswith("| f |")
    assert len({line.count("|") for line in (header, rule, fastest, row)}) == 1
    content = json.loads((tmp_path / "example.json").read_text())
    assert content["groups"][0]["rows"][0]["seconds"] == rows[0]["seconds"]
    assert content["groups"][0]["comparisons"][0]["met"] is False


def test_a_card_without_a_row_replaces_no_other_one(tmp_path, capsys):
    card = Card("example", "An example", "Sleeping.")
    card.add("one nap", [], {"nap": "it failed"})
    assert "nap is not in the table" in card.write(tmp_path)
    assert not list(tmp_path.iterdir())
    assert "no contender has run so far, no card is written." in capsys.readouterr().err


@pytest.mark.parametrize("error", [ValueError("no such run"), FileNotFoundError(2, "None", "x")])
def test_bad_input_is_a_sentence_and_exit_code_2(error, capsys):
    def main():
        raise error

    with pytest.raises(SystemExit) as end:
        execute(main)
    assert end.value.code == 2
    assert capsys.readouterr().err in (f"{__name__}: no such run\n", f"{__name__}: x: None\n")


@pytest.mark.parametrize(
    ("kind", "text"), [(positive, "0"), (positive, "-3"), (positive, "x"), (not_negative, "-1")]
)
def test_numbers_that_are_too_small_are_refused(kind, text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"is expected. Received: {text}"):
        kind(text)
    assert positive("7") == 7 and not_negative("0") == 0


def test_the_hardware_names_the_accelerators_of_the_backend(monkeypatch):
    devices = [types.SimpleNamespace(platform="gpu", device_kind="H100")] * 2
    devices.append(types.SimpleNamespace(platform="cpu", device_kind="cpu"))
    keras = types.SimpleNamespace(config=types.SimpleNamespace(backend=lambda: "jax"))
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(devices=lambda: devices))
    assert provenance.hardware().endswith(" GiB, 2 x H100")
    monkeypatch.delitem(sys.modules, "keras")
    assert provenance.hardware().endswith(" GiB")


def test_contenders_run_on_the_cores_that_are_asked_for():
    """The others, and the threads of NumPy, stay out of a measurement on one core."""
    code = (
        "import os, subprocess, sys, numpy; from recipes.common import machine\n"
        "machine.restrict_cores(None); machine.restrict_cores(1)\n"
        "print(*(len(os.sched_getaffinity(int(x))) for x in os.listdir('/proc/self/task')))\n"
        "look = 'import os; print(len(os.sched_getaffinity(0)))'\n"
        "subprocess.run([sys.executable, '-c', look]); print(machine.hardware())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    *counts, hardware = done.stdout.splitlines()
    assert set(" ".join(counts).split()) == {"1"} and ", 1 core, " in hardware
    with pytest.raises(ValueError, match="`cores` needs Linux and as many cores. Received: 1000"):
        provenance.restrict_cores(1000)


def test_parity_ends_with_1_where_a_test_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["parity", "--out", str(tmp_path)])
    for result, code in (("passed", False), ("skipped: no torch", False), ("failure: 3", True)):
        monkeypatch.setattr(parity, "run_tests", lambda folder, r=result: [("test_a one", r)])
        assert parity.main() == code
    text = parity.markdown([("test_a one", "passed"), ("test_b", "skipped: no torch")])
    assert "1 of 2 passed." in text
    assert "| test_a one | passed |" in text and "| test_b | skipped: no torch |" in text
    assert all((parity.ROOT / "tests" / "peers" / f"{name}.py").exists() for name in parity.TESTS)
