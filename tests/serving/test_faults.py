"""Faults under load: no answer is lost, and each is that of the version that gave it."""

import concurrent.futures
import contextlib
import http.client
import itertools
import shutil
import time

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
from traffic import Refusal, Traffic, over_grpc, over_rest

TIMEOUT_MS = 4000


class Served:
    """Server with batching, and its base path."""

    def __init__(self, server, base, toys, waiting):
        self.server, self.base, self.toys, self.waiting = server, base, toys, waiting
        self.newest = 1

    def unpublished(self):
        """Write a complete version beside the base path; return its directory and number."""
        self.newest += 1
        elsewhere = self.base.parent / "unpublished"
        elsewhere.mkdir(exist_ok=True)
        self.toys.export_small(elsewhere, self.newest)
        return elsewhere / str(self.newest), self.newest

    def publish(self):
        """Write a new version into the base path and return its number."""
        folder, version = self.unpublished()
        folder.rename(self.base / str(version))
        return version

    def status(self, version):
        _, body = self.server.json("GET", f"/v1/models/toy/versions/{version}")
        return body["model_version_status"][0]


@pytest.fixture(scope="module")
def served(start_server, toys, tmp_path_factory, waiting):
    base = tmp_path_factory.mktemp("faults") / "base"
    base.mkdir()
    toys.export_small(base, 1)
    config = base.parent / "batching.config"
    config.write_text(
        "max_batch_size { value: 5 } max_enqueued_batches { value: 1 } "
        "num_batch_threads { value: 1 }"
    )
    with start_server(
        "--model_name=toy",
        f"--model_base_path={base}",
        "--file_system_poll_wait_seconds=0.05",
        "--max_num_load_retries=1000000",
        "--load_retry_interval_micros=100000",
        f"--rest_api_timeout_in_ms={TIMEOUT_MS}",
        "--rest_api_num_threads=16",
        "--enable_batching",
        f"--batching_parameters_file={config}",
    ) as server:
        yield Served(server, base, toys, waiting)


def never_goes_back(traffic):
    return all(answers == sorted(answers) for answers in traffic.answers)


@pytest.mark.point(n=17)
def test_swaps_lose_no_request(served):
    before = served.newest
    with Traffic(served.server) as traffic:
        for _ in range(3):
            traffic.wait_for_answers(2, of=served.publish())
            shutil.rmtree(served.base / str(served.newest - 1))
    assert never_goes_back(traffic)
    assert set(traffic.counts()) <= set(range(before, before + 4))
    states = served.server.states()
    assert states.pop(before + 3) == "AVAILABLE" and set(states.values()) == {"END"}


def test_a_version_copied_slowly_is_loaded_when_complete(served):
    """A slow copy: first the directory, then file by file."""
    old = served.publish()
    with Traffic(served.server) as traffic:
        traffic.wait_for_answers(of=old)
        source, version = served.unpublished()
        target = served.base / source.name
        target.mkdir()
        for file in sorted(path for path in source.rglob("*") if path.is_file()):
            destination = target / file.relative_to(source)
            destination.parent.mkdir(exist_ok=True)
            content = file.read_bytes()
            for size in (0, len(content) // 2, len(content)):
                destination.write_bytes(content[:size])
                traffic.wait_for_answers()
        traffic.wait_for_answers(of=version)
    assert never_goes_back(traffic)
    assert set(traffic.counts()) <= {old - 1, old, version}


@pytest.mark.point(n=17)
def test_a_broken_version_leaves_the_old_one_serving(served):
    old = served.publish()
    with Traffic(served.server) as traffic:
        traffic.wait_for_answers(of=old)
        folder, version = served.unpublished()
        next(folder.glob("variables/variables.data*")).unlink()
        folder.rename(served.base / str(version))
        served.waiting(lambda: served.server.states().get(version))
        served.waiting(lambda: served.status(version)["status"]["error_code"] != "OK")
        assert served.status(version)["state"] != "AVAILABLE"
        assert served.status(version)["status"]["error_message"]
        traffic.wait_for_answers()
        # A good one follows.
        traffic.wait_for_answers(of=served.publish())
    assert never_goes_back(traffic)
    assert version not in traffic.counts()


@pytest.mark.point(n=17)
def test_an_emptied_base_path_unloads_until_it_fills(served):
    old = served.publish()
    with Traffic(served.server, refusals=["404", "NOT_FOUND"]) as traffic:
        traffic.wait_for_answers(of=old)
        for folder in served.base.iterdir():
            shutil.rmtree(folder)
        traffic.wait_for_answers(of="404")
        new = served.publish()
        traffic.wait_for_answers(of=new)
    for answers in traffic.answers:
        runs = [key for key, _ in itertools.groupby(isinstance(a, int) for a in answers)]
        assert runs == [True, False, True], "refused from the first to the last moment without"
    assert set(traffic.counts()) <= {old - 1, old, new, "404", "NOT_FOUND"}


def refused(health):
    try:
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=30)
    except grpc.RpcError as error:
        # What comes in at the very moment of the stop is cancelled.
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        return True
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    return False


def test_sigterm_lets_running_requests_finish_and_is_seen_by_watchers(
    start_server, toys, tmp_path, waiting
):
    toys.export(tmp_path, 1)
    flags = ["--model_name=toy", f"--model_base_path={tmp_path}"]
    flags.append("--enable_grpc_healthcheck_service")
    with start_server(*flags) as server, server.channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        watched = health.Watch(health_pb2.HealthCheckRequest(service="PredictionService"))
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        left = health.Watch(health_pb2.HealthCheckRequest())  # one that does not stay
        assert next(left).status == health_pb2.HealthCheckResponse.SERVING
        left.cancel()
        predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
        steps = 100_000
        start = time.monotonic()
        server.predict({"signature_name": "slow", "instances": [steps]})
        steps = int(steps * max(2.0 / (time.monotonic() - start), 1))
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "toy", "slow"
        request.inputs["steps"].CopyFrom(tf.make_tensor_proto([steps]))

        def quick(number):
            """Return the error of the first request that the server refuses."""
            while True:
                try:
                    assert over_rest(server, f"{number}") == 1
                except (ConnectionError, http.client.RemoteDisconnected) as error:
                    return error

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            body = {"signature_name": "slow", "instances": [steps]}
            over_http = [pool.submit(server.predict, body) for _ in range(2)]
            calls = [predict.future(request, timeout=60) for _ in range(2)]
            others = [pool.submit(quick, number) for number in range(2)]
            time.sleep(0.5)
            assert not any(running.done() for running in [*over_http, *calls, *others])
            server.process.terminate()
            assert next(watched).status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert not any(running.done() for running in [*over_http, *calls])
            with pytest.raises(StopIteration):
                next(watched)
            waiting(lambda: refused(health), 10)
            for running in over_http:
                assert running.result() == (200, {"predictions": [steps]})
            for running in calls:
                assert list(running.result().outputs["count"].int_val) == [steps]
            for running in others:
                running.result()
        with pytest.raises(Refusal, match="UNAVAILABLE"):
            over_grpc(predict, "late")
        # Long before the grace is over: who watches does not hold the server up.
        assert server.process.wait(timeout=15) == 0
        assert "Traceback" not in server.log.read_text()
        with contextlib.suppress(ConnectionError):
            pytest.fail(f"answered after its end: {server.request('GET', '/v1/models/toy')}")
