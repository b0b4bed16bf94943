"""Plants each mistake of `mistakes.toml` in a copy of the checkout and shows which test finds it.

    python tests/planted/run.py                  the fast tests find at least nine of ten
    python tests/planted/run.py --all            all tests find all
    python tests/planted/run.py --check          old texts that the code no longer has

The tests that a mistake names run first, and all others only if these do not find it. A find is a
test that fails with the mistake and passes without it; tests of hashes, prose and layout do not
count. The checkout is not changed.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import multiprocessing
import os
import queue
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mistakes.toml")
SOURCES = ("keras_attn", "recipes", "serving", "tests/support")

# Tests that would fail for a changed text rather than for what it does.
NOT_OF_BEHAVIOUR = (
    "tests/recipes/catalogue",
    "tests/pages",
    "tests/planted",
    "tests/test_architecture.py",
    "tests/test_continuous_integration.py",
    "tests/test_packaging.py",
    "tests/test_public_docs.py",
)
LEAST_SHARE = 0.9  # of the mistakes that the fast tests must find
# One process imports these and forks for each mistake.
PROCESSES = multiprocessing.get_context("forkserver")
IMPORTED = ("keras", "tensorflow", "tensorflow_text", "hypothesis", "pytest")

FAST = ("-m", "not slow")
SLOW = ("-m", "slow")
LIMITS = {"expected": 900, "all others": 6 * 3600}  # seconds; a mistake may make a loop endless


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A text that is replaced by another, and the files or folders of tests that should find it.

    The name is `area.what`; `old` occurs once in `file`.
    """

    name: str
    file: str
    old: str
    new: str
    tests: list


@dataclasses.dataclass
class Result:
    """How a mistake was found: the id of the first test that failed, or a reason why none did."""

    mistake: Mistake
    test: str = ""
    reason: str = "missed"
    stage: str = ""
    seconds: float = 0.0
    processor: float = 0.0


@dataclasses.dataclass
class Outcome:
    """Ids of the tests that failed in a run, a reason if there are none, and processor seconds."""

    failed: list
    reason: str
    processor: float


def read_mistakes(path=LIST):
    areas = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Mistake(f"{area}.{name}", **fields)
        for area, mistakes in areas.items()
        for name, fields in mistakes.items()
    ]


def complaints(mistake, root=ROOT):
    """Return sentences that say what keeps a mistake from being planted and looked for."""
    path, sentences = root / mistake.file, []
    count = path.read_text(encoding="utf-8").count(mistake.old) if path.is_file() else 0
    if count != 1:
        places = [f"{n} times in {file}" for file, n in occurrences(mistake.old, root).items()]
        now = f"It occurs {', '.join(places)}." if places else "It occurs nowhere."
        sentences.append(f"{mistake.name}: the old text must occur once in {mistake.file}. {now}")
    missing = [test for test in mistake.tests if not (root / test).exists()]
    if missing or not mistake.tests:
        sentences.append(f"{mistake.name}: no such tests: {', '.join(missing) or 'none named'}.")
    return sentences


def occurrences(text, root=ROOT):
    """Return how often each source file has a text; all white space counts as one space."""
    text, counts = _one_line(text), {}
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            count = _one_line(path.read_text(encoding="utf-8")).count(text)
            if count:
                counts[path.relative_to(root).as_posix()] = count
    return counts


def _one_line(text):
    return re.sub(r"\s+", " ", text.strip())


class Copy:
    """A copy of the checkout in a temporary folder, in which mistakes are planted one at a time."""

    def __init__(self, folder):
        self.folder = Path(folder)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():  # not one that is deleted and not committed yet
                target = self.folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)
        self._planted = 0

    @contextlib.contextmanager
    def planted(self, mistake):
        path = self.folder / mistake.file
        before, times = path.read_bytes(), path.stat()
        text = before.decode().replace(mistake.old, mistake.new)
        path.write_bytes(text.encode())
        # Python compiles a file again if its size or the second of its time differ.
        self._planted += 1
        os.utime(path, (times.st_atime, times.st_mtime + self._planted))
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, (times.st_atime, times.st_mtime))

    def run(self, tests, options, limit):
        """Run tests in a process of their own; return an `Outcome`."""
        report = self.folder / ".planted.json"
        report.unlink(missing_ok=True)
        # Forked from a server that has imported TensorFlow: a start takes no time.
        process = PROCESSES.Process(
            target=_run_tests, args=(str(self.folder), [*options, *tests], str(report))
        )
        process.start()
        process.join(limit)
        was_running = process.is_alive()
        with contextlib.suppress(ProcessLookupError):  # also servers that a test has left
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        if report.is_file():
            return Outcome(**json.loads(report.read_text()))
        return Outcome([], f"no end after {limit} s" if was_running else "ended by a signal", 0.0)


class _Recorder:
    """A plugin of pytest that keeps the ids of tests that fail, and errors of collection."""

    def __init__(self):
        self.failed, self.errors = [], []

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report):
        if report.failed:
            self.errors.append(report.nodeid)


def _run_tests(folder, arguments, report):
    """Run pytest in this new process, and write its `Outcome` to a file."""
    import pytest

    os.setsid()
    os.nice(10)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = folder
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{folder}/.hypothesis"
    sys.path[:] = [folder, *(path for path in sys.path if not Path(path).is_relative_to(ROOT))]
    with open(f"{folder}/.planted.txt", "wb") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    recorder = _Recorder()
    quiet = ("-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist")
    code = pytest.main([*quiet, *arguments], plugins=[recorder])
    reason = {0: "missed", 1: "missed", 5: "no test chosen"}.get(code, f"pytest: {code}")
    if recorder.errors:
        reason = f"no import of {recorder.errors[0]}"
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(usage.ru_utime + usage.ru_stime for usage in used)
    outcome = {"failed": recorder.failed, "reason": reason, "processor": processor}
    Path(f"{report}.part").write_text(json.dumps(outcome))
    os.replace(f"{report}.part", report)
    sys.stdout.flush()
    os._exit(0)  # Python would take seconds to free its modules


def look_for(mistake, copy, arguments):
    """Plant a mistake and run tests until one fails."""
    result, start = Result(mistake), time.monotonic()
    others = ["tests", *(f"--ignore={path}" for path in NOT_OF_BEHAVIOUR)]
    stages = [("expected", mistake.tests)]
    if not arguments.expected_only:
        stages.append(("all others", others))
    with copy.planted(mistake):
        for stage, tests in stages:
            for speed in (FAST, SLOW) if arguments.all else (FAST,):
                outcome = copy.run(tests, ("-x", *speed), LIMITS[stage])
                result.processor += outcome.processor
                if outcome.failed:
                    result.test, result.stage, result.reason = outcome.failed[0], stage, ""
                    break
                result.reason = outcome.reason
            if result.test:
                break
    result.seconds = time.monotonic() - start
    return result


def look_for_all(mistakes, arguments):
    """Return the results of all mistakes, each shown as soon as it is known."""
    results, width = [], max(len(mistake.name) for mistake in mistakes)
    with contextlib.ExitStack() as folders:
        copies = queue.SimpleQueue()
        for _ in range(min(arguments.workers, len(mistakes))):
            name = folders.enter_context(tempfile.TemporaryDirectory(prefix="planted-"))
            folders.callback(_remove_compiled, name)
            copies.put(Copy(name))

        def work(mistake):
            copy = copies.get()
            try:
                return look_for(mistake, copy, arguments)
            finally:
                copies.put(copy)

        with concurrent.futures.ThreadPoolExecutor(arguments.workers) as pool:
            for result in pool.map(work, mistakes):
                results.append(result)
                _write(results, arguments.json)
                name, where = result.mistake.name, result.test or f"- ({result.reason})"
                print(f"{name:{width}}  {result.seconds:5.0f} s  {where}", flush=True)
        failing = list(dict.fromkeys(result.test for result in results if result.test))
        if failing:  # an unchanged checkout, once more for all: a test may fail anyway
            outcome = copies.get().run(failing, (), LIMITS["all others"])
            results[-1].processor += outcome.processor
            for result in results:
                if result.test in outcome.failed:
                    print(f"{result.mistake.name}: {result.test} fails without the mistake too.")
                    result.test, result.reason = "", "its test fails anyway"
            _write(results, arguments.json)
    return results


def _write(results, path):
    """Write what is known so far to a file, if one is asked for."""
    if path:
        rows = [{**vars(result), "mistake": result.mistake.name} for result in results]
        Path(path).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _remove_compiled(folder):
    """Remove what Python has compiled from a copy into a folder that the environment names."""
    if prefix := os.environ.get("PYTHONPYCACHEPREFIX"):
        shutil.rmtree(Path(prefix, *Path(folder).parts[1:]), ignore_errors=True)


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="also slow tests; all must be found")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="mistakes, or areas of them")
    parser.add_argument(
        "--expected-only", action="store_true", help="run no tests but those that a mistake names"
    )
    parser.add_argument("--workers", type=int, default=2, help="mistakes at a time (default 2)")
    parser.add_argument("--json", metavar="FILE", help="also write the results to a file")
    parser.add_argument(
        "--check", action="store_true", help="only look for old texts that must be renewed"
    )
    return parser.parse_args(arguments)


def main():
    arguments, mistakes = parse(), read_mistakes()
    if arguments.only:
        names = {mistake.name for mistake in mistakes} | {m.name.split(".")[0] for m in mistakes}
        if unknown := set(arguments.only) - names:
            sys.exit(f"No such mistakes: {', '.join(sorted(unknown))}.")
        chosen = set(arguments.only)
        mistakes = [m for m in mistakes if chosen & {m.name, m.name.split(".")[0]}]
    sentences = [sentence for mistake in mistakes for sentence in complaints(mistake)]
    if sentences:
        sys.exit("\n".join(sentences))
    if arguments.check:
        print(f"All {len(mistakes)} old texts occur once.")
        return 0
    os.environ.update({"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"})
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS"):
        os.environ.pop(name, None)
    PROCESSES.set_forkserver_preload(IMPORTED)
    results = look_for_all(mistakes, arguments)
    count, asked = sum(bool(result.test) for result in results), 1 if arguments.all else LEAST_SHARE
    minutes = sum(result.processor for result in results) / 60
    kind = "All tests" if arguments.all else "The fast tests"
    print(
        f"{kind} find {count} of {len(results)} mistakes, {count / len(results):.0%}; asked are "
        f"{asked:.0%}. Processor time: {minutes:.1f} minutes."
    )
    return int(count < asked * len(results))


if __name__ == "__main__":
    sys.exit(main())
