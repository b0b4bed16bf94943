"""The embedded server under load: requests a second, latency, memory, with and without batching."""

import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

from ..common import machine as provenance
from . import requirements
from .card import add_against_argument, card_parser, execute, new_card, positive, sentence
from .serving_clients import GrpcConnection, Load, RestConnection
from .serving_model import InProcess, dates, newest, untrained
from .serving_process import (
    BATCHING,
    MemoryLog,
    first_call_seconds,
    processor_seconds,
    serving,
)

ALONE, BATCHED = "one by one", "batched"
ONE_THREAD = ["--tensorflow_intra_op_parallelism=1", "--tensorflow_inter_op_parallelism=1"]
PERCENTILES = (50, 95, 99)
METHOD = (
    "A server process with the export of a translation model ({export}), asked by {clients} "
    "clients of another process on the same cores, half over REST and half over gRPC, one sentence "
    "a request, without a pause, for {minutes:g} minutes **one by one** and **batched**. Each "
    "answer is compared with what the SavedModel says in process. Server ms is the processor time "
    "of the server process a request; memory is that of the process, its slope that of the second "
    "half. **One sentence** is timed on a server that does "
    "nothing else, in turn with the loaded SavedModel in process, {calls} times; **the start** "
    "from the start of a process to its first answer, in turn with one that loads the SavedModel "
    "and calls it once, {repetitions} times."
)


def main():
    parser = card_parser("serving", __doc__, repetitions=5)
    add = parser.add_argument
    add("--export", help="directory of versions that translate dates (default: one untrained)")
    add("--minutes", type=float, default=3.0, help="of load each (default: %(default)s)")
    add("--clients", type=positive, default=32, help="at once (default: %(default)s)")
    add("--sentences", type=positive, default=200, help="different ones (default: %(default)s)")
    add("--calls", type=positive, default=300, help="for one sentence (default: %(default)s)")
    add(
        "--server-flags",
        type=str.split,
        default=ONE_THREAD,
        help="further ones under load (default: TensorFlow on one thread): --server-flags='...'",
    )
    add_against_argument(parser)
    add("--batching", help="file of a BatchingParameters proto in place of the benchmark's")
    arguments = parser.parse_args()
    batching = pathlib.Path(arguments.batching).read_text() if arguments.batching else BATCHING
    export = arguments.export or "untrained, of dates"
    card = new_card(arguments, "The embedded server under load", METHOD, export=export)
    libraries = ("tensorflow", "grpcio", "starlette", "uvicorn", "h11", "httptools")
    card.content["versions"] = provenance.versions("keras_attn", *libraries)
    with tempfile.TemporaryDirectory() as scratch:
        results = run(arguments, batching, pathlib.Path(scratch))
    card.content.update(results, batching=batching)
    card.headline(*markdown(results, batching))
    card.write(arguments.out)
    print(card.markdown())
    # Its numbers are for a reader; a lost or wrong answer is a failure for a program, too.
    sys.exit(any(soak["errors"] or soak["num_wrong"] for soak in results["soaks"].values()))


def run(arguments, batching, scratch):
    """Return the measurements, ready for JSON."""
    texts = dates(arguments.sentences)
    export = arguments.export or untrained(scratch / "export", texts)
    version = newest(export)
    model = InProcess(version)
    expected = {text: model(text) for text in texts}
    config = scratch / "batching.config"
    config.write_text(batching)
    # As many threads as clients: what waits for a thread cannot join a batch.
    clients = arguments.clients
    flags = [f"--rest_api_num_threads={clients}", f"--grpc_max_threads={clients}"]
    flags += arguments.server_flags
    batch_flags = ["--enable_batching", f"--batching_parameters_file={config}"]
    cases, soaks = {ALONE: ([], None), BATCHED: (batch_flags, None)}, {}
    if other := arguments.against:
        cases[f"{BATCHED}, {os.path.basename(other)}"] = batch_flags, other
    for name, (more, checkout) in cases.items():
        with serving(export, scratch / f"{name}.log", *flags, *more, checkout=checkout) as server:
            soaks[name] = soak(server, expected, clients, 60 * arguments.minutes)
        print(row(name, soaks[name]), flush=True)
    with serving(export, scratch / "latency.log") as server:
        latency = one_sentence(server, model, texts, arguments.calls)
    start = [
        start_seconds(export, version, texts[0], scratch) for _ in range(arguments.repetitions)
    ]
    return {"soaks": soaks, "one_sentence": latency, "start": start}


def soak(server, expected, clients, seconds):
    """Send requests for so many seconds; a second before that warms up."""
    Load(server, expected, clients).run(1.0)
    load = Load(server, expected, clients)
    before = processor_seconds(server.process.pid)
    with MemoryLog(server.process.pid) as memory:
        took = load.run(seconds)
    after = processor_seconds(server.process.pid)
    milliseconds = 1e3 * np.array(load.seconds or [np.nan])
    return {
        "seconds": round(took, 2),
        "requests": len(load.seconds),
        "requests_per_second": len(load.seconds) / took,
        "server_ms": 1e3 * (after - before) / max(len(load.seconds), 1) if before else None,
        "percentiles_ms": dict(zip(PERCENTILES, np.percentile(milliseconds, PERCENTILES).tolist())),
        "errors": dict(load.errors),
        "num_wrong": len(load.wrong),
        "wrong": load.wrong[:10],  # some to look at
        "memory_mb": memory.samples,
        "memory_mb_per_minute": memory.slope(),
    }


def one_sentence(server, model, texts, calls):
    """Measure the seconds of each call over REST, over gRPC and in process, taken in turn."""
    contenders = {
        "REST": RestConnection(server),
        "gRPC": GrpcConnection(server),
        "in process": model,
    }
    seconds = {name: [] for name in contenders}
    for turn in range(-5, calls):  # the first five warm up
        for name, call in contenders.items():
            start = time.perf_counter()
            call(texts[turn % len(texts)])
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def start_seconds(export, version, text, scratch):
    """Seconds to the first answer of a server, and of a process that has none."""
    start = time.perf_counter()
    with serving(export, scratch / "start.log") as server:
        RestConnection(server)(text)
        served = time.perf_counter() - start
    return {"server": served, "in process": first_call_seconds(version, text)}


def markdown(results, batching):
    """Return the tables and their requirements, in Markdown."""
    soaks, latency, start = results["soaks"], results["one_sentence"], results["start"]
    batched = soaks[BATCHED]
    rate = batched["requests_per_second"]
    alone = soaks[ALONE]["requests_per_second"]
    gain = rate / alone if alone else float("nan")  # all answers were wrong
    medians = {name: 1e3 * statistics.median(values) for name, values in latency.items()}
    ratio = medians["REST"] / medians["in process"]
    starts = {name: statistics.median(each[name] for each in start) for name in start[0]}
    over = statistics.median(each["server"] / each["in process"] for each in start)
    return [
        "| | requests/s | server ms | p50 ms | p95 ms | p99 ms | requests | errors | wrong "
        "| memory MB | MB/min |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
        *(row(name, soak) for name, soak in soaks.items()),
        "",
        demand("batched", "times the requests a second of one by one", gain, at_least=2),
        demand("batched", "requests a second", rate, at_least=asked_rate()),
        demand("batched", "ms at p99", batched["percentiles_ms"][99], at_most=60),
        "",
        "| | one sentence, median ms | to the first answer, median s |",
        "| --- | --: | --: |",
        *(
            f"| {name} | {medians[name]:.1f} | {starts[key]:.1f} |"
            for name, key in (("REST", "server"), ("in process", "in process"))
        ),
        f"| gRPC | {medians['gRPC']:.1f} | |",
        "",
        demand("REST", "times the time of a call in process", ratio, at_most=1.05),
        demand("The start", "times loading and one call", over, at_most=1.5),
        "",
        "Batching parameters:",
        "",
        "```",
        *batching.splitlines(),
        "```",
    ]


def asked_rate():
    """Return the requests a second that are asked of this machine's processor."""
    return 900 if "AVX-512" in provenance.hardware() else 700


def row(name, soak):
    """One line of the table of loads."""
    times = " | ".join(f"{value:.1f}" for value in soak["percentiles_ms"].values())
    spent = "" if soak["server_ms"] is None else f"{soak['server_ms']:.2f}"
    first, last = soak["memory_mb"][0][1], soak["memory_mb"][-1][1]
    return (
        f"| {name} | {soak['requests_per_second']:.0f} | {spent} | {times} | {soak['requests']:,} "
        f"| {sum(soak['errors'].values())} | {soak['num_wrong']} | {first:.0f} to {last:.0f} "
        f"| {soak['memory_mb_per_minute']:+.2f} |"
    )


def demand(name, what, value, at_least=None, at_most=None):
    """Return a number with its requirement, as a sentence."""
    statement = f"**{name}**: {value:.2f} {what}"
    return f"- {sentence(requirements.check(name, statement, value, at_least, at_most))}"


if __name__ == "__main__":
    execute(main)
