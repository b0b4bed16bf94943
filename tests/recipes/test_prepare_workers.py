"""recipes.prepare in several processes and engines: none waits for what will not come."""

import concurrent.futures.process
import itertools
import multiprocessing
import os
import signal
import time
from types import SimpleNamespace
from unittest import mock

import pytest

from recipes.prepare import pipeline, pool, steps
from recipes.prepare.__main__ import main


@pytest.fixture
def arguments(tmp_path):
    """Function of more arguments, which returns those of a small corpus of one part."""
    (tmp_path / "a.txt").write_text("\n".join(f"document {number}" for number in range(53)))
    options = ["--data-dir", tmp_path / "a.txt", "--out", tmp_path / "out"]
    how = "--documents lines --tokenizer characters --processes 1"
    return lambda more="": [*map(str, options), *how.split(), *more.split()]


def meanwhile(monkeypatch, act):
    """Act once when a worker waits; it must not wait a second time."""
    calls = itertools.count()

    def sleep(_):
        assert next(calls) == 0
        act()

    monkeypatch.setattr(time, "sleep", sleep)


FIRST, SECOND = "--worker 0 --workers 2 ", "--worker 1 --workers 2 "


@pytest.mark.parametrize("share, code", [(0.05, 0), (0.3, 2)])
def test_a_worker_that_waits_ends_with_the_corpus(arguments, monkeypatch, capsys, share, code):
    meanwhile(monkeypatch, lambda: main(arguments(FIRST)))
    assert main(arguments(f"{SECOND} --valid {share}")) == code
    said = capsys.readouterr().err
    assert (
        not said
        if code == 0
        else "was made with other options; give another --out. Received: valid=0.05, now 0.3"
        in said
    )


def test_a_worker_ends_with_the_error_of_the_first(arguments, monkeypatch, capsys):
    meanwhile(monkeypatch, lambda: main(arguments(FIRST + "--valid 1e-9")))
    assert main(arguments(SECOND + "--valid 1e-9")) == 2
    own, others = capsys.readouterr().err.splitlines()
    message = own.removeprefix("keras-attn prepare: ")
    assert "No document falls to the split valid" in message
    assert others.endswith(f"Worker 0 has ended, and must be started again first: {message}")


def test_the_first_worker_ends_with_the_error_of_another(arguments, monkeypatch, capsys, tmp_path):
    """In a part of the other, which is started again before the first."""
    size = (tmp_path / "a.txt").stat().st_size
    (tmp_path / "a.txt").write_bytes(b"a document\n" * (size // 11) + b"\xff\n")
    more = f"--strict --part {size / 2e6}"
    meanwhile(monkeypatch, lambda: main(arguments(SECOND + more)))
    assert main(arguments(FIRST + more)) == 2
    own, others = capsys.readouterr().err.splitlines()
    message = own.removeprefix("keras-attn prepare: ")
    assert "--strict allows no documents that are not UTF-8" in message
    assert others.endswith(f"Worker 1 has ended, and must be started again first: {message}")
    assert [path.name for path in tmp_path.glob("out/work/failed-*")] == ["failed-1.json"]

    def check_and_stop():
        assert not [*tmp_path.glob("out/work/failed-*")]
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "_first_passes", lambda *_: check_and_stop())
    assert main(arguments(SECOND + more)) == 130
    assert not [*tmp_path.glob("out/work/failed-*")]  # Ctrl-C is no failure


def test_ctrl_c_ends_an_idle_process_without_a_traceback(capfd):
    with pool.Pool(2) as two:
        list(two.map(os.getpgid, [(0,)]))
        (idle,) = two.memory
        (process,) = [each for each in multiprocessing.active_children() if each.pid == idle]
        os.kill(idle, signal.SIGINT)
        process.join(60)
    # Read after the pool has closed: its own thread may have waited for the process first.
    assert process.exitcode == -signal.SIGINT
    assert capfd.readouterr().err == ""


def test_a_pipeline_that_ended_starts_again(arguments, monkeypatch, tmp_path):
    def end(**_):
        (tmp_path / "out" / "tokenizer.model").write_bytes(b"a file that it has written")
        raise ValueError("The engine has ended.")

    monkeypatch.setattr(pipeline, "_beam", lambda: mock.MagicMock(Pipeline=end))
    assert main(arguments("--engine beam")) == 2
    assert main(arguments()) == 0


def test_a_pool_that_breaks_while_it_is_filled_is_one_sentence():
    def submit(*_):
        raise concurrent.futures.process.BrokenProcessPool

    broken = pool.Pool(2)
    broken._executor = SimpleNamespace(submit=submit)
    with pytest.raises(ValueError, match="was killed, perhaps for its memory"):
        list(broken.map(len, [("a",)]))
