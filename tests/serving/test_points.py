"""Points of conformance with TensorFlow Serving: `pytest tests/serving -m "point(n=7)"`."""

import pathlib
import re

POINTS = {
    1: "URLs of predict, classify, regress, status and metadata; versions, labels; any case",
    2: "paths and verbs that do not parse, versions beyond int64, no model name, other paths",
    3: "Content-Type of answers and errors, preflight requests, CORS only by its flag",
    4: 'the error body, {"error": "..."}, and no other key',
    5: "the HTTP status of each canonical code",
    6: "unknown models, versions and labels, in requests and in status",
    7: "unknown signatures over REST and gRPC; the default signature",
    8: "a long gRPC error is truncated",
    9: "what a predict request in JSON must have",
    10: "rows and columns: names, shapes, ragged lists, extra keys",
    11: "JSON types and dtypes, NaN, base64, bytes after the document",
    12: "answers in rows and columns: batch sizes, _bytes outputs, half precision",
    13: "gRPC names, output filter, resolved model_spec; classify and regress in tf.Examples",
    14: "the status of versions",
    15: "metadata over REST and gRPC",
    16: "which directories are versions, and which of them a policy wants",
    17: "hot swap: new before old, a broken version leaves the old one, an empty base path",
    18: "labels, ModelService, a new configuration while the server runs",
    19: "warm-up records run before a version is available",
    20: "batching: rows, padding with the first element, full queues",
    21: "sizes of messages, time limits, default ports and threads",
    22: "health and metrics only where they are asked for",
}


def test_every_point_has_a_test_and_every_marked_point_exists():
    files = sorted(pathlib.Path(__file__).parent.glob("test_*.py"))
    marks = [re.findall(r"pytest\.mark\.point\(n=(\d+)\)", path.read_text()) for path in files]
    assert {int(number) for numbers in marks for number in numbers} == set(POINTS)
