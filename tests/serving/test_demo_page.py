"""Page at `/`: its bytes, and its behaviour in a browser where one is installed."""

import base64
import hashlib
import pathlib
import re

import numpy as np
import oracles
import pytest
import tensorflow as tf

import serving
from keras_attn import export, models, text
from serving.demo_page import render

SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
SENTENCES = ["the cat sat on the mat", "a dog ran over the hill"]
MAX_BYTES = 60


class Names:
    """Manager with model names alone."""

    def __init__(self, *names):
        self._names = list(names)

    def names(self):
        return self._names


def test_the_page_loads_nothing_from_other_sites():
    html = pathlib.Path(serving.__file__).with_name("demo.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|//\w|@import|<link|<img|\bsrc=|\burl\(", html)


def test_model_names_are_escaped_and_only_the_page_script_runs():
    name = '</script><script>alert("x")</script>'
    content, headers = render(Names("a", name))
    (script,) = re.findall("<script>(.*?)</script>", content.decode(), re.DOTALL)
    assert r'["a", "\u003c/script>\u003cscript>alert(\"x\")\u003c/script>"]' in script
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = headers["Content-Security-Policy"]
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy


@pytest.fixture(scope="module")
def translator():
    tokenizer = text.SentencePiece.train(SENTENCES * 3, vocabulary_size=34)
    model = models.transformer(tokenizer.vocabulary_size, **SIZES)
    oracles.scramble(model, seed=1, scale=0.5)
    return model, export.Translator(model, tokenizer, max_length=5)


@pytest.fixture(scope="module")
def served(translator, start_server, toys, tmp_path_factory):
    path, entries = tmp_path_factory.mktemp("models"), ""
    for name in ("masked", "toy", "words"):
        (path / name).mkdir()
        entries += f'config {{ name: "{name}" base_path: "{path / name}" }}\n'
    model, python = translator
    export.saved_model(model, path / "words", tokenizer=python.tokenizer, max_length=5)
    export.saved_model(models.bert(11, **SIZES, max_length=5), path / "masked")
    toys.export(path / "toy", 3)
    (path / "models.config").write_text(f"model_config_list {{ {entries} }}")
    flags = [f"--model_config_file={path / 'models.config'}", f"--max_string_bytes={MAX_BYTES}"]
    with start_server(*flags) as server:
        yield server


def test_the_page_is_served_at_the_root_only(start_server, toys, tmp_path):
    toys.export_small(tmp_path, 3)
    with start_server("--model_name=toy", f"--model_base_path={tmp_path}") as server:
        status, headers, content = server.request("GET", "/")
        assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
        assert 'const MODELS = ["toy"];' in content.decode()
        for method, path in (("POST", "/"), ("GET", "/demo.html"), ("GET", "/index.html")):
            assert server.request(method, path)[0] == 404


@pytest.fixture
def page(browser, served, waiting):
    """The page, freshly loaded."""
    return Page(browser, f"http://{served.host}:{served.rest_port}/", waiting)


class Page:
    def __init__(self, browser, address, waiting):
        self.browser, self._waiting = browser, waiting
        browser.get(address)

    def __getitem__(self, name):
        return self.browser.find_element("id", name)

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def choose(self, name, value):
        (option,) = self.all(f"#{name} option[value='{value}']")
        option.click()

    def translate(self, sentence, model="words"):
        self.choose("model", model)
        self["text"].clear()
        self["text"].send_keys(sentence)
        self["go"].click()
        self._waiting(lambda: self["go"].is_enabled())

    def wait_for(self, name):
        self._waiting(lambda: self[name].is_displayed())
        return self[name].text

    def table(self):
        """The heads of rows and columns, and the weights as the cells tell them."""
        rows, columns = (
            [h.text for h in self.all(f"#map {part} th")] for part in ("tbody", "thead")
        )
        labels = [cell.get_attribute("aria-label") for cell in self.all("#map tbody td")]
        weights = np.array([float(label.rpartition(": ")[2]) for label in labels])
        return rows, columns, weights.reshape(len(rows), len(columns))


def shown(token):
    return token.decode().replace(" ", "\u2423") or "end"


def test_the_page_shows_translation_score_and_attention(page, translator):
    page.translate("the cat ran")
    assert page.wait_for("translation")
    expected = {
        name: tensor.numpy()[0]
        for name, tensor in translator[1].attention(tf.constant(["the cat ran"])).items()
    }
    assert page["translation"].text == expected["translation"].decode().strip()
    assert page["score"].text == f"score {expected['score']:.4f}"
    rows, columns, weights = page.table()
    assert rows == [shown(token) for token in expected["tokens"]]
    assert columns == [shown(token) for token in expected["source_tokens"]]
    heads = expected["cross_attention"]  # (L, N, T, S)
    np.testing.assert_allclose(weights, heads.mean(axis=(0, 1)), atol=6e-4)

    page.choose("layer", "2")
    np.testing.assert_allclose(page.table()[2], heads[1].mean(axis=0), atol=6e-4)
    page.choose("head", "1")
    np.testing.assert_allclose(page.table()[2], heads[1, 0], atol=6e-4)
    cells = page.all("#map tbody td")
    colors = [cell.value_of_css_property("background-color") for cell in cells]
    alphas = [float(re.findall(r"[\d.]+", color)[3]) if "rgba" in color else 1 for color in colors]
    flat = heads[1, 0].ravel()
    np.testing.assert_allclose(alphas, flat / flat.max(), atol=0.01)
    assert not page["error"].is_displayed()
    assert [entry for entry in page.browser.get_log("browser") if "favicon" not in str(entry)] == []


def test_texts_are_never_run_as_code(page):
    page.translate("<b>bold</b> & <script>", model="toy")
    assert page.wait_for("translation") == "3:<b>bold</b> & <script>"
    assert page["score"].text == "score -2.2000"
    assert not page["attention"].is_displayed() and not page.all("#answer b")


def test_a_model_without_translations_is_reported(page):
    page.choose("model", "masked")
    assert page.wait_for("error").startswith("The model masked does not translate: it has no")
    page.choose("model", "toy")  # and the next one is not to blame
    page.translate("a", model="toy")
    assert page.wait_for("translation") == "3:a"
    assert not page["error"].is_displayed()


def test_the_page_shows_the_servers_error(page, served):
    long = "a" * (MAX_BYTES + 1)
    page.translate(long)
    _, body = served.json("POST", "/v1/models/words:predict", {"instances": [long]})
    assert page.wait_for("error") == body["error"]
    assert not page["answer"].is_displayed()


def test_a_stopped_server_is_reported(browser, start_server, toys, waiting, tmp_path):
    toys.export(tmp_path / "toy", 3)
    flags = ["--model_name=toy", f"--model_base_path={tmp_path / 'toy'}"]
    with start_server(*flags) as server:
        page = Page(browser, f"http://{server.host}:{server.rest_port}/", waiting)
        page.translate("a", model="toy")
        assert page.wait_for("translation") == "3:a"
        server.stop()
        page["go"].click()
        assert page.wait_for("error") == "The server does not answer."
