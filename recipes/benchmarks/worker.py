"""Process of one contender: `python -m recipes.benchmarks.worker TARGET OPTIONS`.

It builds and warms the contender, prints one JSON line, then answers every line of its input with
the cost per call of one repetition, and ends when its input ends.
"""

import importlib
import json
import math
import os
import sys
import time
import traceback

from ..common.machine import peak_memory, resident_memory, restart_peak, versions

DISTRIBUTIONS = (
    "keras_attn",
    "tensorflow",
    "keras",
    "keras_hub",
    "jax",
    "torch",
    "ctranslate2",
    "onnxruntime",
    "transformers",
    "local_attention",
    "reformer_pytorch",
    "x_transformers",
)
WARM_UP_CALLS = 2


def cost(function, calls=1):
    """Measure wall time and processor time per call, and the process's peak memory in calls."""
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(calls):
        function()
    return {
        "seconds": (time.perf_counter() - wall) / calls,
        "cpu_seconds": (time.process_time() - processor) / calls,
        "peak_mb": peak_memory(),
    }


def prepare(target, options, minimum_seconds):
    """Build and warm a contender; return its call, the calls per repetition and a report."""
    start = time.perf_counter()
    module, function = target.split(":")
    task = getattr(importlib.import_module(module), function)(**options)
    build_seconds = time.perf_counter() - start
    before = resident_memory() if restart_peak() else None
    first_call = cost(task.call)
    warm_seconds = min(cost(task.call)["seconds"] for _ in range(WARM_UP_CALLS))
    report = {
        # Memory of the calls, tracing and compiling included, without that of building; None where
        # the system cannot tell them apart.
        "memory_mb": before and peak_memory() - before,
        "units": task.units,
        "facts": task.facts,
        "build_seconds": build_seconds,
        "first_call": first_call,
        "versions": versions(*filter(sys.modules.__contains__, DISTRIBUTIONS)),
    }
    return task.call, max(1, math.ceil(minimum_seconds / warm_seconds)), report


def main(target, options, minimum_seconds):
    # Libraries print to standard output; it is moved away so that only answers travel there.
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(message):
        print(json.dumps(message), file=channel)

    try:
        call, calls, report = prepare(target, json.loads(options), float(minimum_seconds))
        answer(report)
        for _ in sys.stdin:
            answer(cost(call, calls))
    except ModuleNotFoundError as error:
        answer({"skipped": f"{error.name} is not installed"})
    except Exception as error:  # Whatever a peer raises must not end the other contenders.
        reason = f"it failed with {type(error).__name__}: {error}".splitlines()[0]
        answer({"skipped": reason, "traceback": traceback.format_exc(limit=-3)})


if __name__ == "__main__":
    main(*sys.argv[1:])
