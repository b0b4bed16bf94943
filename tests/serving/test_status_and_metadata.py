"""Status and metadata bodies (get_model_status_impl.cc, the golden metadata file)."""

import pytest

AVAILABLE = {
    "version": "7",
    "state": "AVAILABLE",
    "status": {"error_code": "OK", "error_message": ""},
}


@pytest.mark.point(n=14)
# A label does not narrow the answer, whether there is one or not.
@pytest.mark.parametrize("path", ["toy", "toy/versions/7", "toy/versions/07", "toy/labels/any"])
def test_status_of_a_model_and_of_a_version(server, path):
    answer = server.json("GET", f"/v1/models/{path}")
    assert answer == (200, {"model_version_status": [AVAILABLE]})


@pytest.mark.point(n=6)
@pytest.mark.point(n=14)
@pytest.mark.parametrize(
    "path, message",
    [
        ("foo", "Could not find any versions of model foo"),
        ("toy/versions/50", "Could not find version 50 of model toy"),
        ("foo/versions/50", "Could not find version 50 of model foo"),
    ],
)
def test_status_of_unknown_models_and_versions_is_not_found(server, path, message):
    assert server.json("GET", f"/v1/models/{path}") == (404, {"error": message})


@pytest.mark.point(n=15)
@pytest.mark.parametrize("path", ["toy/metadata", "toy/versions/7/metadata"])
def test_metadata_holds_full_signatures(server, path):
    status, answer = server.json("GET", f"/v1/models/{path}")
    assert status == 200
    assert answer["model_spec"] == {"name": "toy", "signature_name": "", "version": "7"}
    assert list(answer["metadata"]) == ["signature_def"]
    assert list(answer["metadata"]["signature_def"]) == ["signature_def"]
    signature = answer["metadata"]["signature_def"]["signature_def"]["numbers"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["defaults"] == {}
    assert signature["inputs"].keys() == {"a", "b"}
    tensor = signature["inputs"]["b"]
    assert tensor.pop("name").endswith(":0")
    assert tensor == {
        "dtype": "DT_INT32",
        "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
    }
    assert signature["outputs"]["sum"]["dtype"] == "DT_FLOAT"


@pytest.mark.point(n=15)
def test_metadata_marks_an_unknown_rank(server):
    _, answer = server.json("GET", "/v1/models/toy/metadata")
    signature = answer["metadata"]["signature_def"]["signature_def"]["echo"]
    assert signature["inputs"]["x"]["tensor_shape"] == {"dim": [], "unknown_rank": True}


@pytest.mark.point(n=6)
@pytest.mark.point(n=15)
def test_metadata_of_an_unknown_version_is_not_found(server):
    message = "Servable not found for request: Specific(toy, 50)"
    assert server.json("GET", "/v1/models/toy/versions/50/metadata") == (404, {"error": message})
