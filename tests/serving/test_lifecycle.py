"""Versions, hot swap, broken versions, warm-up, stopping (core/, sources/storage_path/)."""

import time

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    regression_pb2,
)

from keras_attn.export.versions import find_versions
from serving.errors import ServingError
from serving.servable import _RUN, warm_up

FAST_RETRY = ["--max_num_load_retries=1", "--load_retry_interval_micros=1000"]


def flags(base):
    return ["--model_name=toy", f"--model_base_path={base}", *FAST_RETRY]


def answer(server, model="toy"):
    """Return the version that answers, or the status code of a refusal."""
    status, body = server.predict({"instances": ["a"]}, model)
    return int(body["predictions"][0]["translation"].split(":")[0]) if status == 200 else status


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
def test_too_many_warmup_records_are_refused(toys, tmp_path, monkeypatch):
    run = []
    monkeypatch.setitem(_RUN, "classify_log", lambda *arguments: run.append(arguments))
    for records in (1000, 1001):
        folder = tmp_path / str(records)
        folder.mkdir()
        toys.write_warmup(folder, [classification_pb2.ClassificationRequest()] * records)
    warm_up(None, str(tmp_path / "1000"))
    assert len(run) == 1000
    with pytest.raises(ServingError, match=r"exceeds the maximum \(1000\)"):
        warm_up(None, str(tmp_path / "1001"))


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
