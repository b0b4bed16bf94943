"""What the server counts, by TensorFlow Serving's names, as a page for Prometheus.

The measures are the process's, like those of the real server; times are in microseconds.
"""

import contextlib
import threading
import time

import prometheus_client
from prometheus_client.metrics_core import Metric

from .config_protos import read_config

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_registry = prometheus_client.CollectorRegistry()
prometheus_client.disable_created_metrics()


class Count:
    """A number that grows, without the `_total` that the library adds to every counter's name.

    Args:
        name: string.
        text: string. What is counted.
        labels: strings, the labels' names.
    """

    def __init__(self, name, text, labels=()):
        self._name, self._text, self._labels = name, text, labels
        self._lock = threading.Lock()
        self._values = {}
        _registry.register(self)

    def add(self, *labels):
        """Counts one more of these label values."""
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + 1

    def collect(self):
        """The library's protocol for what it collects."""
        metric = Metric(self._name, self._text, "unknown")
        with self._lock:
            values = dict(self._values)
        for labels, value in values.items():
            metric.add_sample(self._name, dict(zip(self._labels, labels)), value)
        yield metric


def _distribution(name, text, labels, scale, growth, count):
    bounds = [scale * growth**power for power in range(count - 1)]
    return prometheus_client.Histogram(name, text, labels, buckets=bounds, registry=_registry)


REQUEST_COUNT = Count(
    ":tensorflow:serving:request_count", "The total number of requests.", ("model_name", "status")
)
REQUEST_LATENCY = _distribution(
    ":tensorflow:serving:request_latency",
    "Distribution of wall time (in microseconds) for a request.",
    ("model_name", "API", "entrypoint"),
    *(10, 1.8, 33),
)
RUNTIME_LATENCY = _distribution(
    ":tensorflow:serving:runtime_latency",
    "Distribution of wall time (in microseconds) for the TensorFlow runtime.",
    ("model_name", "API", "runtime"),
    *(10, 1.8, 33),
)
LOAD_ATTEMPTS = Count(
    ":tensorflow:cc:saved_model:load_attempt_count",
    "The number of times that loading a SavedModel was tried.",
    ("model_path", "status"),
)
QUEUING_LATENCY = _distribution(
    ":tensorflow:serving:batching_session:queuing_latency",
    "Distribution of wall time (in microseconds) in a batching queue.",
    ("thread_pool_name",),
    *(100, 1.2, 52),
)
WRAPPED_RUNS = Count(
    ":tensorflow:serving:batching_session:wrapped_run_count", "The number of batches run."
)
BATCH_SIZE = _distribution(
    ":tensorflow:serving:batching_session:processed_batch_size",
    "Distribution of the rows of a batch, filling included.",
    (),
    *(1, 2, 14),
)


class Record:
    """One request on its way: told whom it is for, it counts itself in the end.

    Args:
        entrypoint: string. "REST" or "GRPC".
        api: string. What was asked for.
    """

    def __init__(self, entrypoint, api=""):
        self.entrypoint, self.api, self.model = entrypoint, api, ""
        self._start = time.perf_counter()

    def end(self, code):
        """Counts the request; its time too, if it went well.

        Args:
            code: `Code` of the answer.
        """
        REQUEST_COUNT.add(self.model, code.name)
        if code == 0:
            micros = 1e6 * (time.perf_counter() - self._start)
            REQUEST_LATENCY.labels(self.model, self.api, self.entrypoint).observe(micros)


@contextlib.contextmanager
def runtime(model, api):
    """Measures a run of a model's graph; one that fails is not measured."""
    start = time.perf_counter()
    yield
    RUNTIME_LATENCY.labels(model, api, "TF1").observe(1e6 * (time.perf_counter() - start))


def page():
    """Everything as text, in bytes."""
    return prometheus_client.generate_latest(_registry)


def read_metrics_path(path=None):
    """Where a `MonitoringConfig` file wants the page for Prometheus.

    Args:
        path: string or None. The file, if there is one.

    Returns:
        String, or None for no page.

    Raises:
        ValueError: if the file cannot be read or parsed, or names no path of a URL.
    """
    if not path:
        return None
    config = read_config(path, "MonitoringConfig").prometheus_config
    if not config.enable:
        return None
    page = config.path or "/monitoring/prometheus/metrics"
    if not page.startswith("/"):
        raise ValueError(f"{path}: path must start with a slash. Received: {page!r}")
    return page
