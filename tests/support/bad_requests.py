"""Malformed requests for `tests/serving/test_bad_requests.py`, made by hypothesis.

They are about the signatures of `tests/serving/toy_models.py`.
"""

import json

from hypothesis import strategies as st
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    predict_pb2,
)

INPUTS = {
    "": ["text"],
    "serving_default": ["text"],
    "numbers": ["a", "b"],
    "types": ["double", "long", "byte", "flag"],
    "echo": ["x"],
    "as_bytes": ["x"],
    "as_text": ["x"],
    "half": ["x"],
    "takes_bfloat16": ["x"],
    "total": ["x"],
    "uneven": ["x"],
    "fails": ["x"],
    "classify": ["inputs"],
    "regress": ["inputs"],
}

# Bodies of which it is known what the answer must be.

texts = st.text(st.characters(codec=None), max_size=20)
integers = st.integers() | st.sampled_from([2**31, 2**63, 2**64, -(2**63) - 1, 10**400])
leaves = st.none() | st.booleans() | integers | st.floats() | texts
values = st.recursive(
    leaves | st.fixed_dictionaries({"b64": texts | leaves}),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
good = {"signature_name": "echo", "instances": [[1.5, 2.0], [3.0, 4.0]]}
good_body = json.dumps(good).encode()


def body(signature, **content):
    return json.dumps({"signature_name": signature, **content}).encode()


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


truncated = st.integers(0, len(good_body) - 1).map(lambda end: good_body[:end])
not_an_object = values.filter(lambda value: not isinstance(value, dict)).map(
    lambda value: json.dumps(value).encode()
)
wrong_leaf = leaves.filter(lambda value: not is_number(value)).map(
    lambda value: body("echo", instances=[[1.0, value]])
)
not_an_integer = leaves.filter(
    lambda value: type(value) is not int or not -(2**31) <= value < 2**31
).map(lambda value: body("numbers", instances=[{"a": 1.0, "b": value}]))
too_big = st.sampled_from(["1e999", "-1e400", "9" * 400, "1" + "0" * 309, "9" * 5000]).map(
    lambda number: b'{"signature_name": "echo", "inputs": [%s]}' % number.encode()
)
ragged = (
    st.lists(st.integers(0, 4), min_size=2, max_size=5)
    .filter(lambda sizes: len(set(sizes)) > 1)
    .flatmap(
        lambda sizes: st.sampled_from(["instances", "inputs"]).map(
            lambda key: body("echo", **{key: [[1.0] * size for size in sizes]})
        )
    )
)
nested = st.tuples(st.integers(300, 50_000), st.sampled_from([("[", "]"), ('{"x":', "}")])).map(
    lambda pair: (
        b'{"signature_name": "echo", "inputs": '
        + (pair[1][0] * pair[0] + "1" + pair[1][1] * pair[0]).encode()
        + b"}"
    )
)
wrong_signature = texts.filter(lambda name: name not in INPUTS and name != "slow").map(
    lambda name: body(name, instances=[1.0])
)
wrong_keys = st.dictionaries(texts, leaves, max_size=3).map(
    lambda instance: body("numbers", instances=[instance])
)
not_base64 = (
    st.text("*#é=", min_size=1)
    .filter(lambda text: text.strip("="))
    .map(lambda text: body("as_text", instances=[{"b64": text}]))
)
not_utf8 = st.binary(min_size=1, max_size=9).map(
    lambda junk: b'{"signature_name": "\xff' + junk.replace(b'"', b"") + b'", "inputs": [1]}'
)
BAD = {
    "truncated": truncated,
    "not_an_object": not_an_object,
    "wrong_leaf": wrong_leaf,
    "not_an_integer": not_an_integer,
    "too_big": too_big,
    "ragged": ragged,
    "nested": nested,
    "wrong_signature": wrong_signature,
    "wrong_keys": wrong_keys,
    "not_base64": not_base64,
    "not_utf8": not_utf8,
}


@st.composite
def documents(draw):
    """A body that is nearly right: of a request's words, with values that may fit or not."""
    signature = draw(st.sampled_from(list(INPUTS)) | values)
    names = INPUTS.get(signature, ["x"]) if isinstance(signature, str) else ["x"]
    rows = st.dictionaries(st.sampled_from(names) | texts, values, max_size=5)
    fitting = st.fixed_dictionaries({name: values for name in names})
    numbers = st.lists(st.floats() | integers, max_size=4)
    content = values | rows | fitting | st.lists(values | rows | fitting, max_size=4) | numbers
    document = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "signature_name": st.just(signature),
                "instances": content,
                "inputs": content,
                "examples": content,
                "context": content,
            },
        )
    )
    content = json.dumps(document, ensure_ascii=draw(st.booleans()))
    content = content.encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(start + 5, len(content))))
        content = content[:start] + draw(st.binary(max_size=5)) + content[end:]
    return content


# gRPC.

PREDICTION, MODEL = "/tensorflow.serving.PredictionService/", "/tensorflow.serving.ModelService/"
METHODS = {
    PREDICTION + "Predict": predict_pb2.PredictRequest,
    PREDICTION + "Classify": classification_pb2.ClassificationRequest,
    PREDICTION + "MultiInference": inference_pb2.MultiInferenceRequest,
    PREDICTION + "GetModelMetadata": get_model_metadata_pb2.GetModelMetadataRequest,
    MODEL + "GetModelStatus": get_model_status_pb2.GetModelStatusRequest,
}
valid_texts = st.text(max_size=9)
dimensions = st.sampled_from([0, 1, 2, 3, -1, -2, 2**31, 10**9, 2**62, -(2**63), 2**63 - 1])
FIELDS = {
    "float_val": st.floats(width=32),
    "double_val": st.floats(),
    "int_val": st.integers(-(2**31), 2**31 - 1),
    "int64_val": st.integers(-(2**63), 2**63 - 1),
    "bool_val": st.booleans(),
    "half_val": st.integers(0, 2**31 - 1),
    "uint32_val": st.integers(0, 2**32 - 1),
    "string_val": st.binary(max_size=9),
    "scomplex_val": st.floats(width=32),
}


@st.composite
def tensors(draw):
    tensor = predict_pb2.PredictRequest().inputs["x"]
    tensor.dtype = draw(st.sampled_from(types_pb2.DataType.values()) | st.integers(0, 2**31 - 1))
    for size in draw(st.lists(dimensions, max_size=4) | st.just([2])):
        tensor.tensor_shape.dim.add(size=size)
    tensor.tensor_shape.unknown_rank = draw(st.sampled_from([False] * 9 + [True]))
    field = draw(st.sampled_from([*FIELDS, "tensor_content", "none"]))
    if field == "tensor_content":
        tensor.tensor_content = draw(st.binary(max_size=33))
    elif field != "none":
        getattr(tensor, field).extend(draw(st.lists(FIELDS[field], max_size=4)))
    return tensor


@st.composite
def predict_requests(draw):
    request = predict_pb2.PredictRequest()
    fill_spec(draw, request.model_spec)
    names = INPUTS.get(request.model_spec.signature_name, ["x"])
    if draw(st.booleans()):
        names = draw(st.lists(st.sampled_from([*names, "x"]) | valid_texts, max_size=3))
    for name in names:
        request.inputs[name].CopyFrom(draw(tensors()))
    request.output_filter.extend(draw(st.just([]) | st.lists(valid_texts, max_size=3)))
    return PREDICTION + "Predict", request.SerializeToString()


def fill_spec(draw, spec):
    spec.name = draw(st.sampled_from(["toy"] * 8 + ["foo", ""]) | valid_texts)
    spec.signature_name = draw(st.sampled_from([*INPUTS, "nope"]))
    choice = draw(st.integers(0, 9))
    if choice == 0:
        spec.version.value = draw(st.integers(-(2**63), 2**63 - 1))
    elif choice == 1:
        spec.version_label = draw(valid_texts)


@st.composite
def other_requests(draw):
    method = draw(st.sampled_from(list(METHODS)))
    request = METHODS[method]()
    if hasattr(request, "model_spec") and draw(st.booleans()):
        fill_spec(draw, request.model_spec)
    if hasattr(request, "metadata_field"):
        request.metadata_field.extend(draw(st.lists(valid_texts, max_size=2)))
    if hasattr(request, "tasks"):
        for _ in range(draw(st.integers(0, 2))):
            fill_spec(draw, request.tasks.add(method_name=draw(valid_texts)).model_spec)
    if hasattr(request, "input"):
        for values_ in draw(st.lists(st.lists(st.floats(width=32), max_size=3), max_size=3)):
            example = request.input.example_list.examples.add()
            example.features.feature[draw(valid_texts)].float_list.value.extend(values_)
    return method, request.SerializeToString()


@st.composite
def broken_messages(draw):
    method, content = draw(predict_requests() | other_requests())
    start = draw(st.integers(0, len(content)))
    return method, content[:start] + draw(st.binary(max_size=9)) + content[start + 3 :]
