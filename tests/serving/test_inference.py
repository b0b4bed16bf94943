"""Classify, Regress, MultiInference (classifier.cc, regressor.cc, multi_inference.cc)."""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    input_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from serving.errors import ServingError
from serving.examples import read_examples, serialized_examples

LABELS = [["00000007:0.2", "other"], ["00000007:0.5", "other"]]
CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


@pytest.fixture
def stub(server):
    with server.channel() as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def fill(request, signature=None, xs=(0.25, 0.5)):
    if signature is not None:
        request.model_spec.name, request.model_spec.signature_name = "toy", signature
    for x in xs:
        example = request.input.example_list.examples.add()
        example.features.feature["x"].float_list.value.append(x)
    return request


def task(request, signature, method, model="toy"):
    added = request.tasks.add(method_name=method)
    added.model_spec.name, added.model_spec.signature_name = model, signature


def refusal(method, request):
    with pytest.raises(grpc.RpcError) as info:
        method(request, timeout=30)
    return info.value.code().name, info.value.details()


def post(server, action, body):
    return server.json("POST", f"/v1/models/toy:{action}", body)


@pytest.mark.point(n=13)
def test_classify_over_rest(server):
    body = {"signature_name": "classify", "examples": [{"x": 0.25}, {"x": [0.5]}]}
    status, answer = post(server, "classify", body)
    assert status == 200
    assert answer == {
        "results": [
            [["00000007:0.2", 0.25], ["other", 0.75]],
            [["00000007:0.5", 0.5], ["other", 0.5]],
        ]
    }


@pytest.mark.point(n=13)
def test_regress_over_rest_with_a_context(server):
    body = {"signature_name": "regress", "context": {"x": 0.1}, "examples": [{}, {"y": "a"}]}
    assert post(server, "regress", body) == (200, {"results": [0.2, 0.2]})


@pytest.mark.point(n=13)
def test_classify_over_grpc(stub):
    response = stub.Classify(fill(classification_pb2.ClassificationRequest(), "classify"))
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("toy", 7, "classify")
    rows = [row.classes for row in response.result.classifications]
    assert [[item.label for item in row] for row in rows] == LABELS
    np.testing.assert_allclose(
        [[item.score for item in row] for row in rows], [[0.25, 0.75], [0.5] * 2]
    )


@pytest.mark.point(n=13)
def test_regress_over_grpc(stub):
    response = stub.Regress(fill(regression_pb2.RegressionRequest(), "regress"))
    assert [item.value for item in response.result.regressions] == [0.5, 1.0]


def test_multi_inference_answers_several_signatures(stub):
    request = fill(inference_pb2.MultiInferenceRequest())
    task(request, "regress", REGRESS)
    task(request, "classify", CLASSIFY)
    first, second = stub.MultiInference(request, timeout=30).results
    assert (first.model_spec.signature_name, second.model_spec.signature_name) == (
        "regress",
        "classify",
    )
    assert [item.value for item in first.regression_result.regressions] == [0.5, 1.0]
    rows = second.classification_result.classifications
    assert [[item.label for item in row.classes] for row in rows] == LABELS


@pytest.mark.parametrize(
    "signature, action, message",
    [
        ("nope", "classify", "No signature was found with the name: nope"),
        ("nope", "regress", "No signature was found with the name: nope"),
        ("numbers", "classify", "Expected one input Tensor."),
        ("echo", "classify", "No classification inputs found in SignatureDef: "),
        ("echo", "regress", "No regression inputs found in SignatureDef: "),
        ("regress", "classify", 'contain at least one of "classes" or "scores". Signature was'),
        ("classify", "regress", "Expected one output Tensor."),
    ],
)
def test_signatures_of_the_wrong_kind_are_refused(server, signature, action, message):
    status, answer = post(server, action, {"signature_name": signature, "examples": [{"x": 0.5}]})
    assert status == 400
    assert message in answer["error"]


def test_examples_that_the_model_cannot_parse_are_refused(server):
    status, answer = post(server, "regress", {"signature_name": "regress", "examples": [{"x": 1}]})
    assert status == 400
    assert "Data types don't match" in answer["error"]


@pytest.mark.parametrize(
    "body, message",
    [
        ({}, "When method is classify, key 'examples' is expected and was not found"),
        ({"examples": {}}, "Expecting 'examples' value to be an list/array"),
        ({"examples": []}, "'examples' value is an empty array"),
        ({"examples": [1]}, "Example must be JSON object but got JSON Number"),
        ({"examples": [{"x": None}]}, "Feature: x has element with unexpected JSON type: Null"),
        ({"examples": [{"x": [[1]]}]}, "Feature: x has element with unexpected JSON type: Array"),
        ({"examples": [{"x": {"a": 1}}]}, "x has element with unexpected JSON type: Object"),
        (
            {"examples": [{"x": [1, 0.5]}]},
            "Unexpected element type in feature: x expecting type: int64",
        ),
        (
            {"examples": [{"x": ["a", 1]}]},
            "Unexpected element type in feature: x expecting type: bytes",
        ),
        (
            {"examples": [{"x": 2**63}]},
            "Feature: x has uint64_t element. Only int64_t is supported.",
        ),
        (
            {"examples": [{"x": 10**400}]},
            "JSON Parse error: Number too big to be stored in double.",
        ),
        ({"context": 1, "examples": []}, "Example must be JSON object but got JSON Number"),
        ({"signature_name": 1}, "'signature_name' key must be a string value."),
    ],
)
def test_malformed_json_examples_are_refused(server, body, message):
    status, answer = post(server, "regress", body)
    assert (status, answer["error"][-len(message) :]) == (400, message)


def test_json_values_become_features():
    proto = input_pb2.Input()
    values = {"a": ["ü", {"b64": "AP8="}], "b": [True, -(2**63)], "c": [0.5, 1e300], "d": 10**20}
    read_examples({"examples": [{**values, "e": []}]}, proto)
    (row,) = serialized_examples(proto)
    feature = tf.train.Example.FromString(row).features.feature
    assert list(feature["a"].bytes_list.value) == ["ü".encode(), b"\0\xff"]
    assert list(feature["b"].int64_list.value) == [1, -(2**63)]
    assert list(feature["c"].float_list.value) == [0.5, np.inf]
    assert list(feature["d"].float_list.value) == [np.float32(1e20)]
    assert feature["e"].WhichOneof("kind") is None


def test_empty_requests_are_refused(stub):
    with pytest.raises(ServingError, match="Input is empty."):
        serialized_examples(input_pb2.Input())
    request = fill(regression_pb2.RegressionRequest(), "regress", ())
    assert refusal(stub.Regress, request) == ("INVALID_ARGUMENT", "Input is empty.")
    request = regression_pb2.RegressionRequest()
    assert refusal(stub.Regress, request) == ("INVALID_ARGUMENT", "Missing ModelSpec")


def test_wrong_multi_inference_tasks_are_refused(stub):
    for tasks, code, message in [
        ([], "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        ([("regress", "other")], "UNIMPLEMENTED", "Unsupported signature method_name: other"),
        (
            [("regress", REGRESS)] * 2,
            "INVALID_ARGUMENT",
            "Duplicate evaluation of signature: regress",
        ),
        (
            [("nope", REGRESS)],
            "INVALID_ARGUMENT",
            "Requested signature not found in model graph: nope",
        ),
        (
            [("regress", REGRESS), ("classify", CLASSIFY, "other")],
            "INVALID_ARGUMENT",
            "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        ),
        (
            [("regress", REGRESS), ("classify", CLASSIFY, "")],
            "INVALID_ARGUMENT",
            "Found ModelSpec with an empty model name.",
        ),
    ]:
        request = fill(inference_pb2.MultiInferenceRequest())
        for arguments in tasks:
            task(request, *arguments)
        assert refusal(stub.MultiInference, request) == (code, message)
