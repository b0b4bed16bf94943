"""Versions, hot swap, broken versions, warm-up, stopping (core/, sources/storage_path/)."""

import concurrent.futures
import shutil
import threading
import time

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    regression_pb2,
)

from keras_attn.export.versions import find_versions
from serving.errors import ServingError
from serving.servable import Servable, warm_up

FAST_RETRY = ["--max_num_load_retries=1", "--load_retry_interval_micros=1000"]


def flags(base):
    return ["--model_name=toy", f"--model_base_path={base}", *FAST_RETRY]


def answer(server, model="toy"):
    """Return the version that answers, or the status code of a refusal."""
    status, body = server.predict({"instances": ["a"]}, model)
    return int(body["predictions"][0]["translation"].split(":")[0]) if status == 200 else status


def stream(server, stop):
    """Send requests until `stop` is set; return the versions that answered."""
    answers = []
    while not stop.is_set():
        answers.append(answer(server))
    return answers


@pytest.mark.point(n=16)
@pytest.mark.point(n=17)
def test_versions_come_and_go_under_load(start_server, toys, tmp_path, waiting):
    toys.export(tmp_path, 1)
    with start_server(*flags(tmp_path)) as server:
        stop = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            streams = [pool.submit(stream, server, stop) for _ in range(4)]
            toys.export(tmp_path, 2)
            waiting(lambda: server.states() == {2: "AVAILABLE", 1: "END"})
            toys.export(tmp_path, 10)  # newer than 2 as a number, older as a string
            waiting(lambda: server.states().get(10) == "AVAILABLE" and answer(server) == 10)
            time.sleep(0.2)
            stop.set()
            seen = [future.result() for future in streams]
        for answers in seen:
            assert answers == sorted(answers), "an old version answered after a new one"
            assert set(answers) <= {1, 2, 10} and answers[-1] == 10
        _, body = server.json("GET", "/v1/models/toy")
        assert [v["version"] for v in body["model_version_status"]] == ["10", "2", "1"]
        assert server.predict({"instances": ["a"]}, "toy/versions/2") == (
            404,
            {"error": "Servable not found for request: Specific(toy, 2)"},
        )

        # A broken newer version is shown as broken, and 10 goes on.
        toys.export(tmp_path, "unfinished")
        (tmp_path / "unfinished" / "saved_model.pb").write_bytes(b"not a graph")
        (tmp_path / "unfinished").rename(tmp_path / "11")
        waiting(lambda: server.states().get(11) == "END")
        _, body = server.json("GET", "/v1/models/toy/versions/11")
        status = body["model_version_status"][0]["status"]
        assert status["error_code"] != "OK" and status["error_message"]
        assert answer(server) == 10

        # One without its variables likewise; a good one after it takes over.
        toys.export(tmp_path, "variables-missing")
        shutil.rmtree(tmp_path / "variables-missing" / "variables")
        (tmp_path / "variables-missing").rename(tmp_path / "12")
        waiting(lambda: server.states().get(12) == "END")
        assert answer(server) == 10
        toys.export(tmp_path, 13)
        waiting(lambda: answer(server) == 13)

        # The newest goes: the one before, if it can be loaded, is back.
        for version in (11, 12, 13):
            shutil.rmtree(tmp_path / str(version))
        waiting(lambda: answer(server) == 10 and server.states()[13] == "END")

        # Nothing left: unloaded. Something again: served again.
        for version in (1, 2, 10):
            shutil.rmtree(tmp_path / str(version))
        waiting(lambda: answer(server) == 404)
        toys.export(tmp_path, 3)
        waiting(lambda: answer(server) == 3)
        assert server.stop() == 0


@pytest.mark.point(n=3)
@pytest.mark.point(n=16)
@pytest.mark.point(n=18)
def test_policies_labels_and_reload_choose_what_is_served(start_server, toys, tmp_path, waiting):
    for version in (1, 2, 3):
        toys.export(tmp_path, version)
    config = f"""
        model_config_list {{
          config {{
            name: "all" base_path: "{tmp_path}" model_platform: "tensorflow"
            model_version_policy {{ all {{}} }}
            version_labels {{ key: "stable" value: 1 }}
          }}
          config {{
            name: "two" base_path: "{tmp_path}" model_platform: "tensorflow"
            model_version_policy {{ specific {{ versions: 2 }} }}
          }}
          config {{
            name: "latest" base_path: "{tmp_path}" model_platform: "tensorflow"
            model_version_policy {{ latest {{ num_versions: 2 }} }}
          }}
        }}"""
    (tmp_path / "models.config").write_text(config)
    with start_server(
        f"--model_config_file={tmp_path / 'models.config'}",
        "--allow_version_labels_for_unavailable_models",
        "--rest_api_enable_cors_support",
    ) as server:
        waiting(lambda: list(server.states("all")) == [3, 2, 1])
        assert list(server.states("two")) == [2]
        assert list(server.states("latest")) == [3, 2]
        assert answer(server, "all") == 3
        assert answer(server, "all/versions/2") == 2
        assert answer(server, "all/labels/stable") == 1
        assert answer(server, "all/labels/canary") == 400
        assert answer(server, "two/labels/stable") == 400

        origin = {"Origin": "https://example.org"}
        _, headers, _ = server.request("GET", "/v1/models/all", headers=origin)
        assert headers["Access-Control-Allow-Origin"] == "*"
        origin["Access-Control-Request-Method"] = "POST"
        status, headers, _ = server.request("OPTIONS", "/v1/models/all:predict", headers=origin)
        assert status == 200 and headers["Access-Control-Allow-Origin"] == "*"

        def reload(*names, **labels):
            request = model_management_pb2.ReloadConfigRequest()
            for name in names:
                model = request.config.model_config_list.config.add(name=name)
                model.base_path = str(tmp_path)
                model.version_labels.update(labels)
            with server.channel() as channel:
                stub = model_service_pb2_grpc.ModelServiceStub(channel)
                return stub.HandleReloadConfigRequest(request, timeout=60)

        def refusal(*names, **labels):
            with pytest.raises(grpc.RpcError) as info:
                reload(*names, **labels)
            return info.value.code().name, info.value.details()

        # What is refused changes nothing.
        assert refusal("all", "all") == (
            "INVALID_ARGUMENT",
            "Illegal to list model all multiple times in config list",
        )
        assert refusal("all", stable=4) == (
            "FAILED_PRECONDITION",
            "Request to assign label to version 4 of model all, which is not currently available "
            "for inference",
        )
        assert answer(server, "all/labels/stable") == 1
        assert reload("new").status.error_code == 0
        assert answer(server, "new") == 3
        waiting(lambda: set(server.states("all").values()) == {"END"})
        assert answer(server, "all") == 404


@pytest.mark.point(n=16)
def test_integer_directories_are_versions(tmp_path):
    for name in ("1", "00000023", "4a", "-5", "6.0", "temp", str(2**63), str(2**63 - 1)):
        (tmp_path / name).mkdir()
    assert sorted(find_versions(tmp_path)) == [1, 23, 2**63 - 1]


@pytest.mark.point(n=19)
@pytest.mark.parametrize("records", [1000, 1001])
def test_too_many_warmup_records_are_refused(toys, tmp_path, records):
    request = predict_pb2.PredictRequest()
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a"]))
    toys.export(tmp_path, 1, warmup=[request] * records)
    servable = Servable("toy", 1, str(tmp_path / "1"))
    try:
        warm_up(servable, str(tmp_path / "1"))
        assert records == 1000
    except ServingError as error:
        assert "exceeds the maximum (1000)" in error.message and records == 1001
    finally:
        servable.close()


@pytest.mark.point(n=19)
@pytest.mark.point(n=21)
def test_a_failing_warmup_leaves_the_old_version(start_server, toys, tmp_path, waiting):
    good, bad = predict_pb2.PredictRequest(), predict_pb2.PredictRequest()
    for request, text in ((good, "text"), (bad, "wrong")):
        request.model_spec.name = "toy"
        request.inputs[text].CopyFrom(tf.make_tensor_proto(["a"]))
    other = regression_pb2.RegressionRequest()
    other.model_spec.name, other.model_spec.signature_name = "toy", "regress"
    example = other.input.example_list.examples.add()
    example.features.feature["x"].float_list.value.append(0.5)
    base = tmp_path / "base"
    base.mkdir()
    toys.export(base, 1, warmup=[good, good, other])
    with start_server(*flags(base), "--rest_api_timeout_in_ms=1000") as server:
        assert answer(server) == 1
        toys.export(base, 2, warmup=[good, bad])
        waiting(lambda: server.states().get(2) == "END")
        _, body = server.json("GET", "/v1/models/toy/versions/2")
        assert "wrong" in body["model_version_status"][0]["status"]["error_message"]
        assert answer(server) == 1

        start = time.monotonic()
        status, body = server.predict({"signature_name": "slow", "instances": [1_000_000_000]})
        assert (status, list(body)) == (504, ["error"])
        assert time.monotonic() - start < 10

        # A base path that cannot be listed for a while changes nothing.
        base.rename(tmp_path / "away")
        time.sleep(1.5)
        assert answer(server) == 1
        (tmp_path / "away").rename(base)
        toys.export(base, 3)
        waiting(lambda: answer(server) == 3)
