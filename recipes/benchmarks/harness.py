"""Timing of contenders in turn, so that a drift of the machine affects all of them alike.

Every contender is a warmed process of its own (`worker.py`). In each turn every one runs one
repetition; a matrix product, timed before and after each, measures the speed of the machine at
that moment. Ratios are taken within a turn, and their median is reported.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

PROBE_SIZE = 1024
# Speed of this checkout over an earlier one's that counts as no slower.
SPEED_OF_EARLIER = 0.95
# Thread pools spin for up to 0.2 s after their last work and would slow the next contender.
SETTLE_SECONDS = 0.3


@dataclasses.dataclass(frozen=True)
class Contender:
    """One row of a card.

    Args:
        name: string. Its name on the card.
        target: string. `"package.module:function"`, a function that returns a `Task`.
        options: dict. Keyword arguments of that function, JSON only.
        backend: string. Keras's backend in its process.
        checkout: string. Folder of another checkout, whose `keras_attn` and `recipes` its process
            imports; None for this one.
    """

    name: str
    target: str
    options: dict = dataclasses.field(default_factory=dict)
    backend: str = "tensorflow"
    checkout: str | None = None


class Worker:
    """A running contender: `report` is its answer once warm, `skipped` why it cannot run."""

    def __init__(self, contender, minimum_seconds=0.0):
        command = [sys.executable, "-m", f"{__package__}.worker", contender.target]
        command += [json.dumps(contender.options), str(minimum_seconds)]
        how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        how |= {"text": True, "env": environment(contender.backend, contender.checkout)}
        how["cwd"] = contender.checkout  # `python -m` looks there first
        self.process = subprocess.Popen(command, **how)
        self.name = contender.name
        self.report = self._answer()

    @property
    def skipped(self):
        return self.report.get("skipped")

    def repeat(self):
        """Return the cost per call of one repetition; a process that dies is skipped then."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # The process has ended, and `_answer` reports how.
        answer = self._answer()
        self.report.update(skipped=answer.get("skipped"))
        return answer

    def stop(self):
        """End the process by closing its input, and discard its output."""
        self.process.communicate()

    def _answer(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        return {"skipped": f"its process ended with exit code {self.process.wait()}"}


def environment(backend="tensorflow", checkout=None):
    """Return the environment variables of a contender, with another checkout first on the path.

    `OMP_PROC_BIND` is removed: it binds all threads of a TensorFlow process that also
    holds another OpenMP library to one core. Without its variable JAX takes most of a GPU's
    memory at once, which contenders share.
    """
    variables = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2"}
    variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    path = os.environ.get("PYTHONPATH")
    if checkout is not None:
        variables["PYTHONPATH"] = os.pathsep.join([checkout, path] if path else [checkout])
    return {k: v for k, v in os.environ.items() if k != "OMP_PROC_BIND"} | variables


def measure(contenders, repetitions=7, minimum_seconds=0.15, log=print, gemm_rate=None):
    """Time warm contenders in turn.

    Args:
        contenders: list of `Contender`.
        repetitions: int. Number of turns.
        minimum_seconds: float. Least duration of a repetition, which has several calls.
        log: function of a line of text, called for each contender that is ready.
        gemm_rate: function that measures the GF/s of a matrix product; by default `gemm_probe`.

    Returns:
        `rows`, a list with a dict for each contender that ran, and `skipped`, a dict of name to
        reason for each that did not.
    """
    workers = []
    try:
        for contender in contenders:
            workers.append(Worker(contender, minimum_seconds))
            announce(workers[-1], log)
        samples = {worker.name: [] for worker in workers}
        probe = Probe(gemm_rate or gemm_probe)
        for _ in range(repetitions):
            for worker in workers:
                if not worker.skipped:
                    samples[worker.name].append(probe.around(worker.repeat))
    finally:
        for worker in workers:
            worker.stop()
    return summary({worker.name: worker.report for worker in workers}, samples)


def measure_first_calls(contenders, repetitions=3, log=print):
    """Time the first call of fresh processes in turn; return the same as `measure`.

    Beside the times the row of a contender is that of its process of median time.
    """
    reports, samples = ({contender.name: [] for contender in contenders} for _ in range(2))

    def first_call(contender):
        worker = Worker(contender)
        worker.stop()
        reports[worker.name].append(worker.report)
        announce(worker, log)
        return worker.report.get("first_call", {})

    probe = Probe(gemm_probe)
    for _ in range(repetitions):
        for contender in contenders:
            samples[contender.name].append(probe.around(lambda: first_call(contender)))
    return summary({name: typical(each) for name, each in reports.items()}, samples)


def typical(reports):
    """Return the report of median time, or the first one of a process that failed."""
    failed = [report for report in reports if report.get("skipped")]
    if failed:
        return failed[0]
    return sorted(reports, key=lambda report: report["first_call"]["seconds"])[len(reports) // 2]


def announce(worker, log):
    log(f"  {worker.name}: {worker.report.get('traceback') or worker.skipped or 'ready'}")


def summary(reports, samples):
    skipped = {name: report["skipped"] for name, report in reports.items() if report.get("skipped")}
    rows = [row(name, reports[name], samples[name]) for name in reports if name not in skipped]
    return rows, skipped


def row(name, report, samples):
    """Return the row of one contender: medians, and every sample that they come from."""
    medians = {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}
    return {
        **report,
        "name": name,
        "median_seconds": medians["seconds"],
        "units_per_second": report["units"] / medians["seconds"],
        "cpu_seconds": medians["cpu_seconds"],
        "peak_mb": medians["peak_mb"],
        "probe_gflops": medians["probe_gflops"],
        "seconds": [sample["seconds"] for sample in samples],
        "probes": [sample["probe_gflops"] for sample in samples],
    }


class Probe:
    """Speed of the machine, by the GF/s that `rate` measures, around measurements in a row."""

    def __init__(self, rate):
        self.rate = rate
        time.sleep(SETTLE_SECONDS)
        self.last = rate()

    def around(self, measurement):
        """Return the dict of `measurement`, with the mean rate around it as `probe_gflops`."""
        before = self.last
        time.sleep(SETTLE_SECONDS)
        result = measurement()
        time.sleep(SETTLE_SECONDS)
        self.last = self.rate()
        return {**result, "probe_gflops": (before + self.last) / 2}


def gemm_probe():
    """Measure the GF/s of a float32 matrix product in numpy, best of three."""
    matrix = np.ones((PROBE_SIZE, PROBE_SIZE), "float32")
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - start)
    return 2 * PROBE_SIZE**3 / best / 1e9


def compare(rows, name, peers, at_least=None):
    """Return the speed of `name` relative to the fastest of `peers`.

    Returns:
        A dict of `name`, `peer` (the fastest), `ratio` (median over turns of the ratio within a
        turn), `at_least` and `met`; None if `name` or every one of `peers` is missing.
    """
    by_name = {row["name"]: row for row in rows}
    present = [by_name[peer] for peer in peers if peer in by_name]
    if name not in by_name or not present:
        return None
    peer = min(present, key=lambda row: row["median_seconds"])
    turns = zip(peer["seconds"], by_name[name]["seconds"], strict=True)
    ratio = statistics.median(theirs / ours for theirs, ours in turns)
    met = None if at_least is None else ratio >= at_least
    return {"name": name, "peer": peer["name"], "ratio": ratio, "at_least": at_least, "met": met}


def beside(contenders, checkout):
    """Return the contenders of keras_attn, each followed by its twin in another checkout.

    Without a `checkout`, the folder of the other one, return all contenders as they are.
    """
    if checkout is None:
        return contenders
    name = os.path.basename(checkout)
    return [
        each
        for own in contenders
        if own.name.startswith("keras_attn")
        for each in (own, dataclasses.replace(own, name=f"{own.name}, {name}", checkout=checkout))
    ]


def compare_twins(rows, contenders):
    """Return the comparison of each contender with its twin, for the contenders of `beside`."""
    pairs = zip(contenders[::2], contenders[1::2], strict=True)
    return [compare(rows, own.name, [twin.name], SPEED_OF_EARLIER) for own, twin in pairs]
