"""Metrics for Prometheus, by TensorFlow Serving's names.

They are global to the process, like those of the real server; times are in microseconds.
"""

import bisect
import itertools
import math
import threading
import time

import prometheus_client
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from .errors import Code

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_registry = prometheus_client.CollectorRegistry()
prometheus_client.disable_created_metrics()


class Count:
    """Counter without the `_total` that the library adds to every counter's name."""

    def __init__(self, name, text, labels=()):
        self._name, self._text, self._labels = name, text, labels
        self._lock = threading.Lock()
        self._values = {}
        _registry.register(self)

    def add(self, *labels):
        """Count one more of these label values."""
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + 1

    def collect(self):
        """Yield the samples: the library's protocol for collectors."""
        metric = Metric(self._name, self._text, "unknown")
        with self._lock:
            values = [*self._values.items()]
        for labels, value in values:
            metric.add_sample(self._name, dict(zip(self._labels, labels)), value)
        yield metric


class Distribution:
    """Histogram by labels: the library's is searched from its first bound on at each value."""

    def __init__(self, name, of, labels, scale, growth, count, registry=_registry):
        self._name, self._text, self._labels = name, f"Distribution of {of}.", labels
        self._bounds = [scale * growth**power for power in range(count - 1)]
        self._lock = threading.Lock()
        self._values = {} if labels else {(): self._new()}
        self.registry = registry
        registry.register(self)

    def _new(self):
        return [[0] * (len(self._bounds) + 1), 0.0]

    def observe(self, values, *labels):
        """Count values of these label values."""
        with self._lock:
            known = self._values.get(labels)
            if known is None:
                known = self._values[labels] = self._new()
            counts, total = known
            for value in values:
                counts[bisect.bisect_left(self._bounds, value)] += 1
                total += value
            known[1] = total

    def collect(self):
        """Yield the samples: the library's protocol for collectors."""
        metric = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        bounds = [floatToGoString(x) for x in [*self._bounds, math.inf]]
        with self._lock:
            values = [
                (labels, [*counts], total) for labels, (counts, total) in self._values.items()
            ]
        for labels, counts, total in values:
            metric.add_metric(labels, [*zip(bounds, itertools.accumulate(counts))], total)
        yield metric


_SERVING = ":tensorflow:serving:"
_BATCHING = f"{_SERVING}batching_session:"
_TIME = "wall time (in microseconds)"
REQUEST_COUNT = Count(
    f"{_SERVING}request_count", "The total number of requests.", ("model_name", "status")
)
REQUEST_LATENCY = Distribution(
    f"{_SERVING}request_latency",
    f"{_TIME} for a request",
    *(("model_name", "API", "entrypoint"), 10, 1.8, 33),
)
RUNTIME_LATENCY = Distribution(
    f"{_SERVING}runtime_latency",
    f"{_TIME} for the TensorFlow runtime",
    *(("model_name", "API", "runtime"), 10, 1.8, 33),
)
LOAD_ATTEMPTS = Count(
    ":tensorflow:cc:saved_model:load_attempt_count",
    "The number of times that loading a SavedModel was tried.",
    ("model_path", "status"),
)
QUEUING_LATENCY = Distribution(
    f"{_BATCHING}queuing_latency",
    f"{_TIME} in a batching queue",
    *(("thread_pool_name",), 100, 1.2, 52),
)
WRAPPED_RUNS = Count(f"{_BATCHING}wrapped_run_count", "The number of batches run.")
BATCH_SIZE = Distribution(
    f"{_BATCHING}processed_batch_size", "the rows of a batch, filling included", (), 1, 2, 14
)


class RequestRecord:
    """Metrics of one request, from its arrival on; `entrypoint` is "REST" or "GRPC"."""

    def __init__(self, entrypoint, api=""):
        self.entrypoint, self.api, self.model = entrypoint, api, ""
        self._start = time.perf_counter()

    def end(self, code):
        """Count the request by the `Code` of its answer, and its time if that is OK."""
        REQUEST_COUNT.add(self.model, code.name)
        if code == Code.OK:
            micros = 1e6 * (time.perf_counter() - self._start)
            REQUEST_LATENCY.observe([micros], self.model, self.api, self.entrypoint)


class measure_runtime:
    """Context that measures a run of a model's graph, unless it fails."""

    def __init__(self, model, api):
        self._labels = model, api, "TF1"

    def __enter__(self):
        self._start = time.perf_counter()

    def __exit__(self, kind, *_):
        if kind is None:
            RUNTIME_LATENCY.observe([1e6 * (time.perf_counter() - self._start)], *self._labels)


def page():
    """Return all metrics as Prometheus reads them, in bytes."""
    return prometheus_client.generate_latest(_registry)
