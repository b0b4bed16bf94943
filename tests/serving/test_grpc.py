"""gRPC Predict, GetModelMetadata and GetModelStatus (predict_util.cc and its neighbours)."""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)


@pytest.fixture
def call(server):
    """Function that calls a method of either service by name."""
    with server.channel() as channel:
        stubs = (
            prediction_service_pb2_grpc.PredictionServiceStub(channel),
            model_service_pb2_grpc.ModelServiceStub(channel),
        )

        def call(method, request, timeout=60):
            stub = next(stub for stub in stubs if hasattr(stub, method))
            return getattr(stub, method)(request, timeout=timeout)

        yield call


def predict_request(signature="", filter=(), model="toy", **inputs):
    request = predict_pb2.PredictRequest(output_filter=filter)
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def refusal(call, method, request):
    with pytest.raises(grpc.RpcError) as info:
        call(method, request)
    return info.value.code().name, info.value.details()


@pytest.mark.point(n=7)
@pytest.mark.point(n=13)
def test_predict_answers_with_version_and_signature(call):
    response = call("Predict", predict_request(text=["a", "ü"]))
    assert response.model_spec.name == "toy"
    assert response.model_spec.version.value == 7
    assert response.model_spec.signature_name == "serving_default"
    # Clients read the typed fields directly.
    assert list(response.outputs["translation"].string_val) == [
        b"00000007:a",
        "00000007:ü".encode(),
    ]
    np.testing.assert_allclose(response.outputs["score"].float_val, [-0.1, -0.2], rtol=1e-6)


@pytest.mark.point(n=13)
def test_predict_by_version_and_by_signature(call):
    request = predict_request("numbers", a=np.float32([1.5]), b=np.int32([2]))
    request.model_spec.version.value = 7
    response = call("Predict", request)
    assert response.model_spec.signature_name == "numbers"
    assert tf.make_ndarray(response.outputs["sum"]) == [3.5]
    assert list(response.outputs["twice"].int_val) == [4]


def test_half_precision_round_trips(call):
    outputs = call("Predict", predict_request("half", x=np.float32([0.1, 2]))).outputs
    np.testing.assert_array_equal(tf.make_ndarray(outputs["y"]), np.float16([0.1, 2]))
    sent = tf.constant([1.5, 2], tf.bfloat16).numpy()
    outputs = call("Predict", predict_request("takes_bfloat16", x=sent)).outputs
    np.testing.assert_array_equal(tf.make_ndarray(outputs["y"]), np.float32([1.5, 2]))


def test_strings_are_bytes(call):
    data = bytes(range(256))
    outputs = call("Predict", predict_request("as_text", x=[data, b""])).outputs
    assert list(outputs["x"].string_val) == [data, b""]


@pytest.mark.point(n=13)
def test_output_filter_selects_outputs(call):
    inputs = {"a": np.float32([1]), "b": np.int32([2])}
    response = call("Predict", predict_request("numbers", ["twice"], **inputs))
    assert list(response.outputs) == ["twice"]
    code, text = refusal(call, "Predict", predict_request("numbers", ["nope"], **inputs))
    assert code == "INVALID_ARGUMENT"
    assert text.startswith("output tensor alias not found in signature: nope")
    code, text = refusal(call, "Predict", predict_request("numbers", ["sum", "sum"], **inputs))
    assert (code, text) == ("INVALID_ARGUMENT", "duplicate output tensor alias: sum")


@pytest.mark.point(n=13)
def test_input_names_must_equal_the_signature(call):
    a, b = np.float32([1]), np.int32([2])
    code, text = refusal(call, "Predict", predict_request("numbers", a=a))
    assert code == "INVALID_ARGUMENT"
    assert text == (
        "input size does not match signature: 1!=2 len({a}) != len({a,b}). Sent extra: {}. "
        "Missing but required: {b}."
    )
    code, text = refusal(call, "Predict", predict_request("numbers", a=a, b=b, c=b))
    assert "3!=2" in text and "Sent extra: {c}" in text
    code, text = refusal(call, "Predict", predict_request("numbers", a=a, c=b))
    assert code == "INVALID_ARGUMENT"
    assert text.startswith("Signature input alias: b(feed name: ")


def test_a_wrong_dtype_is_refused(call):
    code, text = refusal(call, "Predict", predict_request(text=np.float32([1])))
    assert code == "INVALID_ARGUMENT"
    assert "to be string but float is provided" in text


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: setattr(tensor.tensor_shape.dim[0], "size", 3),
        lambda tensor: setattr(tensor.tensor_shape.dim[0], "size", -1),
        lambda tensor: setattr(tensor.tensor_shape, "unknown_rank", True),
        lambda tensor: setattr(tensor, "tensor_content", b"123"),
        lambda tensor: setattr(tensor, "dtype", 99),
    ],
)
def test_a_malformed_tensor_is_refused(call, change):
    request = predict_request("echo", x=np.float32([1, 2]))
    change(request.inputs["x"])
    code, text = refusal(call, "Predict", request)
    assert code == "INVALID_ARGUMENT"
    assert text == "tensor parsing error: x"


def test_bytes_that_are_no_request_are_refused(server):
    if not server.is_ours:
        pytest.skip("the sentence is that of our server")
    with server.channel() as channel:
        for method in ("PredictionService/Predict", "ModelService/GetModelStatus"):
            with pytest.raises(grpc.RpcError) as info:
                channel.unary_unary(f"/tensorflow.serving.{method}")(b"\xff", timeout=60)
            assert info.value.code() == grpc.StatusCode.INTERNAL
            assert info.value.details() == "The bytes are not this call's request"


@pytest.mark.point(n=6)
@pytest.mark.point(n=7)
def test_unknown_signature_model_and_label_are_refused(call):
    for change, code, message in [
        ({"signature": "nope"}, "FAILED_PRECONDITION", 'Serving signature key "nope" not found.'),
        ({"model": "foo"}, "NOT_FOUND", "Servable not found for request: Latest(foo)"),
        ({"model": ""}, "INVALID_ARGUMENT", "ModelSpec has no name specified."),
    ]:
        assert refusal(call, "Predict", predict_request(text=["a"], **change)) == (code, message)
    request = predict_request(text=["a"])
    request.model_spec.version_label = "beta"
    message = "Unrecognized servable version label: beta"
    assert refusal(call, "Predict", request) == ("INVALID_ARGUMENT", message)


@pytest.mark.parametrize(
    "method, request_type",
    [
        ("Predict", predict_pb2.PredictRequest),
        ("GetModelMetadata", get_model_metadata_pb2.GetModelMetadataRequest),
        ("GetModelStatus", get_model_status_pb2.GetModelStatusRequest),
    ],
)
def test_a_missing_model_spec_is_refused(call, method, request_type):
    assert refusal(call, method, request_type()) == ("INVALID_ARGUMENT", "Missing ModelSpec")


@pytest.mark.point(n=8)
def test_long_errors_are_truncated(call):
    code, text = refusal(call, "Predict", predict_request("n" * 5000, text=["a"]))
    assert code == "FAILED_PRECONDITION"
    assert text == f'Serving signature key "{"n" * 5000}'[:1024] + "...TRUNCATED"


@pytest.mark.point(n=21)
def test_messages_beyond_four_megabytes_pass(call):
    text = "x" * (6 << 20)
    outputs = call("Predict", predict_request("as_text", x=[text])).outputs
    assert outputs["x"].string_val[0] == text.encode()


def test_far_and_missing_deadlines_are_accepted(call):
    for timeout in (None, 1e8):
        assert call("Predict", predict_request(text=["a"]), timeout=timeout).outputs


@pytest.mark.point(n=21)
def test_a_deadline_ends_a_call(call):
    request = predict_request("slow", steps=np.int32([1_000_000_000]))
    with pytest.raises(grpc.RpcError) as info:
        call("Predict", request, timeout=0.1)
    assert info.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.point(n=15)
def test_metadata_holds_the_signatures(call):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "toy"
    response = call("GetModelMetadata", request)
    assert (response.model_spec.name, response.model_spec.version.value) == ("toy", 7)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert signatures.signature_def["numbers"].inputs["b"].dtype == tf.int32.as_datatype_enum


@pytest.mark.point(n=15)
def test_wrong_metadata_fields_are_refused(call):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "toy"
    message = "GetModelMetadataRequest must specify at least one metadata_field"
    assert refusal(call, "GetModelMetadata", request) == ("INVALID_ARGUMENT", message)
    request.metadata_field.append("weights")
    message = "Metadata field weights is not supported"
    assert refusal(call, "GetModelMetadata", request) == ("INVALID_ARGUMENT", message)


@pytest.mark.point(n=14)
@pytest.mark.point(n=18)
def test_status_lists_the_versions(call):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "toy"
    (status,) = call("GetModelStatus", request).model_version_status
    assert status.version == 7
    assert status.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
    assert (status.status.error_code, status.status.error_message) == (0, "")
    request.model_spec.version.value = 50
    code, text = refusal(call, "GetModelStatus", request)
    assert (code, text) == ("NOT_FOUND", "Could not find version 50 of model toy")
