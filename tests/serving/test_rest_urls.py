"""Paths, verbs and error bodies of the REST API (http_rest_api_handler.cc, http_server.cc)."""

import json

import pytest

from serving.errors import Code, ServingError

BODY = {"instances": ["a"]}


@pytest.mark.point(n=2)
@pytest.mark.parametrize(
    "method, path",
    [
        ("GET", "/v1/foo"),
        ("POST", "/v1/foo"),
        ("GET", "/v1/"),
        ("GET", "/v1/models/debug/model_name"),
        ("POST", "/v1/models"),
        ("GET", "/v1/models/toy:predict"),
        ("GET", "/v1/models/toy/version/7:predict"),
        ("POST", "/v1/models/toy/version/7:predict"),
        ("POST", "/v1/models/toy/versions/HELLO:predict"),
        ("POST", "/v1/models/toy/versions/-1:predict"),
        ("POST", "/v1/models/toy/metadata"),
        ("POST", "/v1/models/toy"),
        ("POST", "/v1/models/toy/label/stable:predict"),
        ("POST", "/v1/models/toy/versions/7/labels/stable:predict"),
        ("POST", "/v1/models/toy:translate"),
        ("PUT", "/v1/models/toy:predict"),
        ("DELETE", "/v1/models/toy"),
    ],
)
def test_malformed_paths_and_verbs_are_refused(server, method, path):
    status, answer = server.json(method, path, json.dumps(BODY))
    assert status == 400
    assert answer == {"error": f"Malformed request: {method} {path}"}


@pytest.mark.point(n=2)
def test_a_version_beyond_int64_is_refused(server):
    status, _, content = server.request("POST", f"/v1/models/toy/versions/{2**63}:predict", BODY)
    assert status == 400
    # The real server sends this status without a body.
    message = f"Failed to convert version: {2**63} to numeric."
    assert content == b"" or json.loads(content) == {"error": message}


@pytest.mark.point(n=2)
@pytest.mark.parametrize("digits", [2**63 - 1, "0" * 5000 + "8"])
def test_a_version_that_fits_int64_is_looked_up(server, digits):
    status, answer = server.json("POST", f"/v1/models/toy/versions/{digits}:predict", BODY)
    assert status == 404
    version = str(digits).lstrip("0")
    assert answer == {"error": f"Servable not found for request: Specific(toy, {version})"}


@pytest.mark.point(n=2)
def test_a_missing_model_name_is_refused(server):
    assert server.json("GET", "/v1/models") == (400, {"error": "Missing model name in request."})


@pytest.mark.point(n=2)
@pytest.mark.point(n=22)
@pytest.mark.parametrize("path", ["/", "/index", "/v2/models/toy", "/v1", "/healthz"])
def test_a_path_outside_the_api_is_not_found_and_not_json(server, path):
    status, headers, _ = server.request("GET", path)
    assert status == 404
    assert "json" not in headers["content-type"]


@pytest.mark.point(n=1)
@pytest.mark.parametrize(
    "path",
    [
        "/V1/Models/toy:predict",
        "/v1/models/toy/versions/7:predict",
        "/v1/models/toy/versions/007:predict",
        "/v1/models/toy/VERSIONS/7:predict",
        "/v1/models/%74oy:predict",
        "/v1/models/toy:predict?key=value",
    ],
)
def test_paths_match_in_any_case_with_versions_and_escapes(server, path):
    status, answer = server.json("POST", path, BODY)
    assert status == 200, answer
    assert answer["predictions"][0]["translation"].endswith(":a")


@pytest.mark.point(n=1)
def test_the_name_is_decoded_after_the_path_is_split(server):
    status, answer = server.json("POST", "/v1/models/to%2Fy%3A:predict", BODY)
    assert status == 404
    assert answer == {"error": "Servable not found for request: Latest(to/y:)"}


@pytest.mark.point(n=1)
def test_the_words_at_the_end_are_case_sensitive(server):
    status, answer = server.json("POST", "/v1/models/toy:PREDICT", BODY)
    assert (status, answer["error"]) == (400, "Malformed request: POST /v1/models/toy:PREDICT")
    status, answer = server.json("GET", "/v1/models/toy/METADATA")
    assert status == 200
    assert "model_version_status" in answer


@pytest.mark.point(n=4)
@pytest.mark.point(n=6)
def test_unknown_models_versions_and_labels_are_refused(server):
    for path, status, message in [
        ("foo:predict", 404, "Servable not found for request: Latest(foo)"),
        ("foo/versions/50:predict", 404, "Servable not found for request: Specific(foo, 50)"),
        ("toy/versions/50:predict", 404, "Servable not found for request: Specific(toy, 50)"),
        ("toy/labels/beta:predict", 400, "Unrecognized servable version label: beta"),
    ]:
        assert server.json("POST", f"/v1/models/{path}", BODY) == (status, {"error": message})


@pytest.mark.point(n=3)
@pytest.mark.parametrize(
    "origin, status",
    [("https://example.org", 200), ("http://a", 200), (None, 400), ("ftp://a", 400)],
)
def test_preflight_needs_an_http_origin(server, origin, status):
    headers = {"Origin": origin} if origin else {}
    answer = server.request("OPTIONS", "/v1/models/toy:predict", headers=headers)
    assert answer[0] == status
    assert "Access-Control-Allow-Origin" not in answer[1]


@pytest.mark.point(n=3)
@pytest.mark.point(n=4)
@pytest.mark.parametrize(
    "method, path, expected",
    [
        ("POST", "/v1/models/toy:predict", 200),
        ("GET", "/v1/models/toy", 200),
        ("GET", "/v1/models/foo", 404),
        ("PUT", "/v1/models/toy", 400),
    ],
)
def test_every_answer_is_json_without_cors_headers(server, method, path, expected):
    status, headers, content = server.request(method, path, BODY)
    assert (status, headers["content-type"]) == (expected, "application/json")
    assert not [name for name in headers if name.lower().startswith("access-control")]
    assert (list(json.loads(content)) == ["error"]) == (status != 200)


@pytest.mark.point(n=5)
@pytest.mark.parametrize("code", Code)
def test_every_code_has_its_http_status(code):
    """ToHTTPStatusCode of http_server.cc."""
    expected = {
        **{"OK": 200, "CANCELLED": 499, "INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400},
        **{"OUT_OF_RANGE": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404, "ALREADY_EXISTS": 409},
        **{"ABORTED": 409, "PERMISSION_DENIED": 403, "UNAUTHENTICATED": 401, "UNAVAILABLE": 503},
        **{"RESOURCE_EXHAUSTED": 429, "UNIMPLEMENTED": 501},
    }
    assert ServingError(code, "").http_status == expected.get(code.name, 500)


@pytest.mark.point(n=3)
def test_the_content_type_of_requests_is_ignored(server):
    headers = {"Content-Type": "text/plain"}
    status, _, _ = server.request("POST", "/v1/models/toy:predict", BODY, headers)
    assert status == 200
