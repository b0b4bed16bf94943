"""The page for Prometheus (util/prometheus_exporter.cc, servables/tensorflow/util.cc)."""

import prometheus_client
import pytest
import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.config_files import read_metrics_path
from serving.metrics import Distribution

PREFIX = ":tensorflow:serving:"


def samples(server, path):
    """(name, labels) to value."""
    status, headers, content = server.request("GET", path)
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
    }


def key(name, **labels):
    return name, frozenset(labels.items())


def test_a_distribution_prints_as_the_histogram_of_the_library():
    registry = prometheus_client.CollectorRegistry()
    bounds = [10 * 1.8**power for power in range(32)]
    histogram = prometheus_client.Histogram(
        "ours", "Distribution of x.", ("a", "b"), buckets=bounds, registry=registry
    )
    wanted = (3.0, 10.0, 18.0, 18.1, 5e4, 1e12)
    for value in wanted:
        histogram.labels("c", "d").observe(value)
    ours = Distribution("ours", "x", ("a", "b"), 10, 1.8, 33, prometheus_client.CollectorRegistry())
    ours.observe(wanted[:2], "c", "d")
    ours.observe(wanted[2:], "c", "d")
    printed = prometheus_client.generate_latest(registry)
    assert b'le="18.0"} 3.0' in printed
    assert prometheus_client.generate_latest(ours.registry) == printed


@pytest.mark.point(n=22)
def test_requests_runs_batches_and_loads_are_counted(start_server, toys, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    toys.export(base, 1)
    (tmp_path / "monitoring.config").write_text('prometheus_config { enable: true path: "/m" }')
    flags = [
        "--model_name=toy",
        f"--model_base_path={base}",
        f"--monitoring_config_file={tmp_path / 'monitoring.config'}",
        "--enable_batching",
    ]
    with start_server(*flags) as server:
        for _ in range(3):
            assert server.predict({"instances": ["a", "b"]})[0] == 200
        assert server.predict({"instances": [1]})[0] == 400
        assert server.predict({"instances": ["a"]}, "made-up")[0] == 404
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "toy"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a"]))
        with server.channel() as channel:
            prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=30)
        metrics = samples(server, "/m")
        assert server.request("GET", "/monitoring/prometheus/metrics")[0] == 404

    assert metrics[key(PREFIX + "request_count", model_name="toy", status="OK")] == 4
    assert metrics[key(PREFIX + "request_count", model_name="toy", status="INVALID_ARGUMENT")] == 1
    assert not any(("model_name", "made-up") in labels for _, labels in metrics)
    rest = {"model_name": "toy", "API": "predict", "entrypoint": "REST"}
    grpc = {"model_name": "toy", "API": "Predict", "entrypoint": "GRPC"}
    runtime = {"model_name": "toy", "API": "Predict", "runtime": "TF1"}
    assert metrics[key(PREFIX + "request_latency_count", **rest)] == 3
    assert metrics[key(PREFIX + "request_latency_count", **grpc)] == 1
    assert metrics[key(PREFIX + "runtime_latency_count", **runtime)] == 4
    # Microseconds: the runs are part of the requests, and take longer than one.
    spent = sum(metrics[key(PREFIX + "request_latency_sum", **labels)] for labels in (rest, grpc))
    assert 4 < metrics[key(PREFIX + "runtime_latency_sum", **runtime)] < spent < 60e6
    assert metrics[key(PREFIX + "batching_session:processed_batch_size_sum")] == 7
    assert metrics[key(PREFIX + "batching_session:wrapped_run_count")] == 4
    attempts = ":tensorflow:cc:saved_model:load_attempt_count"
    assert metrics[key(attempts, model_path=str(base / "1"), status="success")] == 1


@pytest.mark.parametrize(
    "text, path",
    [
        ("prometheus_config { enable: true }", "/monitoring/prometheus/metrics"),
        ('prometheus_config { enable: true, path: "/a" }', "/a"),
        ('prometheus_config { path: "/a" }', None),
        ("", None),
    ],
)
def test_the_configuration_sets_the_path(tmp_path, text, path):
    file = tmp_path / "monitoring.config"
    file.write_text(text)
    assert read_metrics_path(file) == path


@pytest.mark.parametrize(
    "text, message",
    [
        ("prometheus { }", "is not a MonitoringConfig text proto"),
        ('prometheus_config { enable: true path: "a" }', "must start with a slash"),
    ],
)
def test_wrong_monitoring_configurations_are_refused(tmp_path, text, message):
    file = tmp_path / "monitoring.config"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_metrics_path(file)


@pytest.mark.point(n=22)
def test_metrics_are_off_by_default(server):
    assert server.request("GET", "/monitoring/prometheus/metrics")[0] == 404
