"""Forecasts of a served model of series, over both APIs and on the page."""

import re

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, models
from serving.client import ClientError, GrpcClient, RestClient

T, C, H = 11, 2, 3
VALUES = np.random.default_rng(5).normal(size=(2, 7, C)).round(2).astype("float32")
VALUES[0, 2, 1] = VALUES[1, -1, 0] = np.nan


@pytest.fixture(scope="module")
def model():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
    model = models.patch_tst(T, C, H, (0.1, 0.5, 0.9), patch_length=5, norm="layer_norm", **sizes)
    oracles.scramble(model, seed=1, scale=0.3)
    return model


@pytest.fixture(scope="module")
def served(model, start_server, tmp_path_factory):
    path = tmp_path_factory.mktemp("series")
    export.saved_model(model, path)
    with start_server("--model_name=series", f"--model_base_path={path}") as server:
        yield server


@pytest.fixture(params=["rest", "grpc"])
def client(request, served):
    if request.param == "rest":
        client = RestClient(f"http://{served.host}:{served.rest_port}/v1/models/series")
    else:
        client = GrpcClient(f"{served.host}:{served.grpc_port}", "series")
    with client:
        yield client


@pytest.mark.point(n=11)
def test_missing_values_are_sent_as_nan(client, model):
    expected = export.SeriesForecaster(model).forecast(tf.constant(VALUES))
    for values in (VALUES, VALUES.tolist()):
        outputs = client.predict({"values": values})
        for name, x in expected.items():
            assert np.isfinite(x).all()
            np.testing.assert_allclose(outputs[name], x, atol=1e-5)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_infinite_values_are_refused_in_a_sentence(client, value):
    with pytest.raises(ClientError, match="values must be finite, or NaN where one is missing"):
        client.predict({"values": [[[1.0, 2.0], [value, np.nan]]]})


def test_the_page_draws_series_forecast_and_band(browser, served, waiting, model):
    browser.get(f"http://{served.host}:{served.rest_port}/")

    def find(selector):
        return browser.find_elements("css selector", selector)

    waiting(lambda: find("#series [name=values]")[0].is_displayed())
    lines = "\n".join(" ".join(map(str, row)) for row in VALUES[0].tolist())
    find("#series [name=values]")[0].send_keys(lines)
    find("#series button")[0].click()
    waiting(lambda: len(find("figure")) == C)
    gaps = [path.get_attribute("d").count("M") for path in find(".chart .past")]
    assert gaps == [1, 2]  # a piece of the line before the missing value, and one after it
    lines = [path.get_attribute("d") for path in find(".chart .forecast")]
    assert [len(re.findall("[ML]", line)) for line in lines] == [H] * C
    bands = [band.get_attribute("points").split() for band in find(".chart .band")]
    assert [len(points) for points in bands] == [2 * H] * C
    assert len(find(".numbers tbody tr")) == C * H and not find("#error")[0].is_displayed()
    numbers = [float(cell.get_attribute("textContent")) for cell in find(".numbers tbody td")]
    outputs = export.SeriesForecaster(model).forecast(tf.constant(VALUES[:1]))
    rows = np.concatenate([outputs["mean"].numpy()[..., None], outputs["quantiles"]], axis=-1)
    expected = np.moveaxis(rows[0], 1, 0)  # (C, H, 1 + Q)
    np.testing.assert_allclose(numbers, expected.ravel(), rtol=2e-3, atol=1e-5)

    find("#series [name=values]")[0].send_keys("\n1 x")
    find("#series button")[0].click()
    waiting(lambda: find("#error")[0].is_displayed())
    assert find("#error")[0].text == '"x" is no number; a missing one is NaN.'
