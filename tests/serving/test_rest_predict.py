"""Predict in JSON (util/json_tensor.cc and the texts of json_tensor_test.cc)."""

import base64
import gzip
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from serving.errors import ServingError
from serving.json_inputs import read_inputs


def row(signature, *instances):
    return {"signature_name": signature, "instances": list(instances)}


def column(signature, inputs):
    return {"signature_name": signature, "inputs": inputs}


def error(server, body):
    status, answer = server.predict(body)
    assert list(answer) == ["error"]
    return status, answer["error"]


@pytest.mark.point(n=10)
def test_rows_of_values_and_of_objects_give_the_same(server):
    texts = ["a", "über", "日本語 🎉", ""]
    expected = [
        {"translation": f"00000007:{text}", "score": -len(text.encode()) / 10} for text in texts
    ]
    plain = server.predict({"instances": texts})
    named = server.predict({"instances": [{"text": text} for text in texts]})
    assert plain == named == (200, {"predictions": expected})


@pytest.mark.point(n=10)
def test_column_form_with_and_without_names(server):
    status, answer = server.predict({"inputs": {"text": ["a", "b"]}})
    assert status == 200
    assert answer["outputs"]["translation"] == ["00000007:a", "00000007:b"]
    assert server.predict({"inputs": ["a", "b"]}) == (status, answer)


@pytest.mark.point(n=12)
def test_a_single_output_is_unwrapped(server):
    assert server.predict(row("as_text", "p", "q")) == (200, {"predictions": ["p", "q"]})
    assert server.predict(column("as_text", ["p"])) == (200, {"outputs": ["p"]})


@pytest.mark.point(n=9)
def test_a_body_may_be_compressed_by_gzip(server):
    body, headers = gzip.compress(b'{"instances": ["a"]}'), {"Content-Encoding": "gzip"}
    path = "/v1/models/toy:predict"
    status, _, answer = server.request("POST", path, body, headers)
    assert (status, json.loads(answer)) == server.predict({"instances": ["a"]})
    status, _, answer = server.request("POST", path, body[:-9], headers)
    assert status == 400 and list(json.loads(answer)) == ["error"]


def test_an_empty_column_is_an_empty_batch(server):
    assert server.predict(column("as_text", [])) == (200, {"outputs": []})


@pytest.mark.point(n=10)
@pytest.mark.point(n=12)
def test_several_inputs_in_rows_and_columns(server):
    status, answer = server.predict(row("numbers", {"a": 1.5, "b": 2}, {"b": -3, "a": 1}))
    assert status == 200
    assert answer["predictions"] == [{"sum": 3.5, "twice": 4}, {"sum": -2.0, "twice": -6}]
    status, answer = server.predict(column("numbers", {"a": [1, 2], "b": [3, 4]}))
    assert answer["outputs"] == {"sum": [4.0, 6.0], "twice": [6, 8]}


@pytest.mark.point(n=10)
def test_extra_columns_are_ignored_and_extra_row_keys_are_refused(server):
    extra = {"a": [1], "b": [3], "c": [5]}
    assert server.predict(column("numbers", extra))[0] == 200
    status, message = error(server, row("numbers", {"a": 1, "b": 2, "c": 3}))
    assert status == 400
    assert "JSON object: does not have named input: c" in message


@pytest.mark.point(n=9)
@pytest.mark.parametrize(
    "body, message",
    [
        ("", "JSON Parse error: The document is empty"),
        ("   ", "JSON Parse error: The document is empty"),
        ("instances = [1, 2]", "JSON Parse error: "),
        ('{"instances": [1, 2', "JSON Parse error: "),
        ('{"instances": 1 2', "JSON Parse error: "),
        ('{"instances" 1}', "JSON Parse error: "),
        ("{instances: 1}", "JSON Parse error: "),
        ('{"instances": ["a]}', "JSON Parse error: "),
        ('{"instances": [1e999]}', "JSON Parse error: Number too big to be stored in double."),
        ('{"instances": [' + "9" * 5000 + "]}", "JSON Parse error: Number too big"),
        ("[1, 2]", "JSON Value: [1, 2] Is not object"),
        ('"text"', 'JSON Value: "text" Is not object'),
        ("{}", "Missing 'inputs' or 'instances' key"),
        ('{"signature_name": 100}', "'signature_name' key must be a string value."),
        ('{"instances": ["a"], "inputs": ["a"]}', "expecting only one of 'inputs' or 'instances'"),
        ('{"instances": "a"}', "Expecting 'instances' to be an list/array"),
        ('{"instances": []}', "No values in 'instances' array"),
        ('{"instances": ["\\ud800"]}', "The surrogate pair in string is invalid."),
        ('{"instances": [{"b64": "*"}]}', "Unable to base64 decode"),
        ('{"instances": [{"text": {"b64": 1}}]}', "not formatted correctly for base64 data"),
        ("[" * 100000, "JSON Parse error:"),
    ],
)
def test_malformed_requests_are_refused(server, body, message):
    status, text = error(server, body)
    assert status == 400
    assert message in text


@pytest.mark.point(n=4)
@pytest.mark.parametrize("quoted", [b'["\\ud800"]', b'["\xff"]', b'"\xff"', b'"\xed\xa0\x80"'])
def test_errors_are_utf8_whatever_they_quote(server, quoted):
    body = b'{"signature_name": ' + quoted + b', "inputs": [1]}'
    status, _, content = server.request("POST", "/v1/models/toy:predict", body)
    assert status == 400
    assert list(json.loads(content.decode())) == ["error"]


@pytest.mark.point(n=9)
def test_errors_quote_the_value(server):
    _, text = error(server, {"signature_name": 100})
    assert text.startswith("JSON Value: {") and '"signature_name": 100' in text


def test_long_values_in_errors_are_cut(server):
    _, text = error(server, {"instances": ["a" * 10], "inputs": list(range(10000))})
    assert 256 <= len(text) < 256 + 150


@pytest.mark.point(n=10)
@pytest.mark.parametrize(
    "body, message",
    [
        (row("numbers", 1), "instances is a plain list, but expecting list of objects"),
        (row("numbers", {"a": 1}), "keys must be equal to: a,b"),
        (column("numbers", {"a": [1]}), "Missing named input: b in 'inputs' object."),
        (column("numbers", [1]), "inputs is a plain value/list, but expecting an object"),
        (row("as_text", {"x": "a"}, "b"), "Expecting object but got list at item 1"),
        (row("as_text", "b", {"x": "a"}), "Expecting value/list but got object at item 1"),
        (row("echo", [1, 2, 3], [1, 2]), "Expecting tensor size: 3 but got: 2"),
        (row("echo", [[1, 2], [3, 4]], [1, 2, 3, 4]), "Expecting shape [2,2] but got: [4]"),
        (row("echo", [[1, 2], [3]]), "Encountered list at unexpected size: 1 at level: 1"),
        (row("echo", [1, [2]]), "Encountered list at unexpected level: 1 expected < 1"),
        (row("echo", [[1], 2]), "found at incorrect level: 2 in the JSON DOM"),
        (column("echo", {"x": [[1], [2, 3]]}), "Encountered list at unexpected size: 2"),
    ],
)
def test_wrong_shapes_are_refused(server, body, message):
    status, text = error(server, body)
    assert status == 400
    assert message in text


@pytest.mark.point(n=11)
@pytest.mark.parametrize(
    "name, value, dtype, shown",
    [
        ("double", "1", "double", 'JSON Value: "1" Type: String'),
        ("double", True, "double", "JSON Value: true Type: True"),
        ("double", None, "double", "JSON Value: null Type: Null"),
        ("double", {"a": 1}, "double", "Type: Object"),
        ("long", 1.0, "int64", "JSON Value: 1.0 Type: Number"),
        ("long", 2**63, "int64", f"JSON Value: {2**63} Type: Number"),
        ("long", False, "int64", "Type: False"),
        ("byte", 2**31, "uint8", "Type: Number"),
        ("flag", 1, "bool", "JSON Value: 1 Type: Number"),
    ],
)
def test_wrong_types_are_refused(server, name, value, dtype, shown):
    inputs = {"double": [1.0, 2.0], "long": [1, 2], "byte": [1, 2], "flag": [True, False]}
    inputs[name] = [inputs[name][0], value]
    status, text = error(server, column("types", inputs))
    assert status == 400
    assert text.endswith(f"is not of expected type: {dtype}")
    assert shown in text


@pytest.mark.parametrize("value", [0.2, 1 / 3, 16777217.0, 1e-30, 3.4028235e38, 123456.789, 5.0])
def test_a_float32_is_written_with_six_digits_or_nine(server, value):
    _, answer = server.predict(column("echo", {"x": value}))
    written = answer["outputs"]
    assert np.float32(written) == np.float32(value)
    digits = f"{np.float32(value):.6g}"
    if np.float32(digits) != np.float32(value):
        digits = f"{np.float32(value):.9g}"
    assert written == float(digits)


@pytest.mark.point(n=11)
def test_nan_and_infinity_round_trip(server):
    _, _, content = server.request(
        "POST",
        "/v1/models/toy:predict",
        '{"signature_name": "echo", "inputs": {"x": [NaN, Infinity, -Infinity, 1e300]}}',
    )
    assert b"NaN" in content and b"-Infinity" in content
    numbers = json.loads(content)["outputs"]
    assert math.isnan(numbers[0])
    assert numbers[1:] == [math.inf, -math.inf, math.inf]


@pytest.mark.point(n=11)
def test_bytes_after_the_document_are_ignored(server):
    status, answer = server.predict('{"signature_name": "as_text", "instances": ["a"]} and more')
    assert (status, answer) == (200, {"predictions": ["a"]})


@pytest.mark.point(n=11)
@pytest.mark.point(n=12)
def test_base64_round_trips(server):
    data = bytes(range(256))
    sent = {"b64": base64.b64encode(data).decode()}
    assert server.predict(row("as_bytes", sent)) == (200, {"predictions": [sent]})
    unpadded = {"b64": sent["b64"].rstrip("=")}
    assert server.predict(row("as_bytes", {"x": unpadded})) == (200, {"predictions": [sent]})
    _, _, content = server.request("POST", "/v1/models/toy:predict", row("as_text", sent))
    assert b"\xfe\xff" in content, "a string output is written as it is"


def test_tensors_of_any_rank_round_trip(server):
    nested = [[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]
    assert server.predict(column("echo", {"x": nested})) == (200, {"outputs": nested})
    assert server.predict(column("echo", {"x": [[], []]})) == (200, {"outputs": [[], []]})
    assert server.predict(row("echo", 1.0, 2.0)) == (200, {"predictions": [1.0, 2.0]})


def test_more_dimensions_than_a_tensor_has_are_refused(server):
    status, _ = error(server, '{"signature_name": "echo", "inputs": ' + "[" * 300 + "]" * 300 + "}")
    assert status == 400


@pytest.mark.point(n=12)
def test_outputs_without_rows_need_the_column_form(server):
    assert server.predict(column("total", [1, 2])) == (200, {"outputs": 3.0})
    status, text = error(server, row("total", 1, 2))
    assert (status, text) == (400, "Tensor name: total has no shape information ")
    status, text = error(server, row("uneven", 1, 2))
    assert status == 400
    assert "has inconsistent batch size: " in text


@pytest.mark.point(n=5)
@pytest.mark.point(n=11)
@pytest.mark.point(n=12)
def test_half_precision_is_refused_in_json(server):
    status, text = error(server, row("half", 1.0))
    assert (status, text) == (400, "Failed to write JSON value for tensor type: half")
    status, text = error(server, column("takes_bfloat16", [1.0]))
    assert (status, text) == (501, "Conversion of JSON Value: 1.0 to type: bfloat16")


@pytest.mark.point(n=7)
def test_an_unknown_signature_is_refused(server):
    message = 'Serving signature name: "nope" not found in signature def'
    assert error(server, row("nope", 1)) == (400, message)


@pytest.mark.point(n=4)
def test_an_error_of_the_graph_is_reported(server):
    status, text = error(server, row("fails", -1.0))
    assert status == 400
    assert "assertion failed: [not positive]" in text
    assert server.predict(row("fails", 1.0)) == (200, {"predictions": [1.0]})


@pytest.mark.parametrize("form", ["instances", "inputs"])
@pytest.mark.parametrize("rank", [64, 65, 254])
def test_more_dimensions_than_an_array_has_are_refused(form, rank):
    value = 1.0
    for _ in range(rank):
        value = [value]
    if rank == 64:
        inputs, _ = read_inputs({form: value}, {"x": tf.float32})
        assert inputs["x"].shape == (1,) * 64
        return
    with pytest.raises(ServingError, match=f"Input x must have at most 64 dimensions.*: {rank}$"):
        read_inputs({form: value}, {"x": tf.float32})
