"""Page at `/`: its bytes, its requests, and its behaviour in a browser where one is installed."""

import base64
import functools
import hashlib
import html.parser
import re

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import depth, export, layers, models, text
from serving.demo_page import render
from serving.streaming import StreamRequest

SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
SENTENCES = ["the cat sat on the mat", "a dog ran over the hill"]
MAX_BYTES = 60


class Names:
    """Manager with model names alone."""

    def __init__(self, *names):
        self._names = list(names)

    def names(self):
        return self._names


PAGE = render(Names())[0].decode()


class Forms(html.parser.HTMLParser):
    """Forms of the page by id: their attributes, and the fields of each by name."""

    def __init__(self):
        super().__init__()
        self.attributes, self.fields, self._form, self._label = {}, {}, None, {}
        self.feed(PAGE)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "form":
            self._form = attributes["id"]
            self.attributes[self._form], self.fields[self._form] = attributes, {}
        elif tag == "label":
            self._label = attributes
        elif tag in ("input", "textarea", "select") and self._form and "name" in attributes:
            self.fields[self._form][attributes["name"]] = {**self._label, **attributes}

    def handle_endtag(self, tag):
        if tag == "form":
            self._form = None
        elif tag == "label":
            self._label = {}


FORMS = Forms()


def test_the_page_loads_nothing_from_other_sites():
    assert not re.search(r"https?://|//\w|@import|<link|<img|\bsrc=|\burl\(", PAGE)


def test_each_field_has_a_label_and_each_form_a_task_of_the_script():
    names = "translate stream continue classify tag question embed series halting request"
    assert list(FORMS.attributes) == names.split()
    for name in FORMS.attributes:
        assert re.search(rf"\n  async {name}\(", PAGE)
    for name in ("translate", "continue", "classify", "tag", "question", "series", "halting"):
        assert set(FORMS.attributes[name]["data-inputs"].split()) <= set(FORMS.fields[name])
    labels = re.findall(r"<label.*?</label>", PAGE, re.DOTALL)
    field = re.compile(r"<(?:input|textarea|select)\b")
    assert [len(field.findall(label)) for label in labels] == [1] * len(field.findall(PAGE))


@functools.cache
def tiny(kind):
    """The graph functions of an export of a tiny model."""
    tokenizer = text.Characters.train(SENTENCES)
    size = tokenizer.vocabulary_size

    def classifier(num_classes, act=False, **arguments):
        attention = layers.MultiHeadAttention(2, 4)
        block = layers.TransformerBlock(attention, layers.FeedForward(11))
        stack = depth.ACT(block, 2) if act else depth.Stack([block])
        return models.Classifier(layers.TokenEmbedding(size, 8), stack, num_classes, **arguments)

    if kind in ("classify", "halting"):
        return export.TextClassifier(classifier(3, kind == "halting"), tokenizer, ["a", "b", "c"])
    if kind == "regress":
        return export.TextClassifier(classifier(1), tokenizer)
    if kind == "embed":
        sentences = text.SentenceTokenizer(tokenizer, 17, {"query": "c", "document": "d"})
        return export.SentenceEmbedder(classifier(None, pooling="mean"), sentences)
    sizes = {**SIZES, "num_layers": 1}
    if kind in ("tag", "answer"):
        bert = models.bert(size, **sizes, max_length=31)
        parts = bert.embedding, bert.position, bert.segment, bert.norm, bert.encoder
        if kind == "answer":
            model = models.MaskedLanguageModel(*parts, layers.AnswerHead())
            return export.QuestionAnswerer(model, tokenizer)
        model = models.MaskedLanguageModel(*parts, keras.layers.Dense(2))
        return export.TextTagger(model, tokenizer, ["O", "NAME"])
    if kind == "translate":
        return export.Translator(models.transformer(size, **sizes), tokenizer, max_length=2)
    model = models.gpt(size, **sizes, max_length=31)
    if kind == "continue":
        return export.TextGenerator(model, tokenizer, max_length=2, max_prompt_length=29)
    return export.TextStream(model, tokenizer, max_length=2, max_prompt_length=29)


def signature_for(form, signatures):
    """Return the first signature of a form that has its inputs, as the page finds it."""
    attributes = FORMS.attributes[form]
    names = [name for name in attributes["data-signatures"].split() if name in signatures]
    wanted = set(attributes["data-inputs"].split())
    return next(name for name in names if wanted <= set(inputs_of(signatures[name])))


def inputs_of(function):
    return [spec.name for spec in function.input_signature]


@pytest.mark.parametrize(
    "form, kind, outputs",
    [
        ("classify", "classify", "labels probabilities"),
        ("classify", "regress", "value"),
        ("tag", "tag", "words labels probabilities"),
        ("question", "answer", "answer score"),
        ("embed", "embed", "features"),
        ("halting", "halting", "tokens lengths steps remainders"),
    ],
)
def test_a_form_asks_the_export_of_its_kind_for_what_it_shows(form, kind, outputs):
    signatures = tiny(kind).signatures
    assert signature_for(form, signatures) == kind
    texts = [tf.constant(SENTENCES[:1])] * len(FORMS.attributes[form]["data-inputs"].split())
    answer = signatures[kind].python_function(*texts)  # not traced
    assert set(outputs.split()) <= set(answer)
    assert all(name in task(form) for name in outputs.split())
    assert set(FORMS.attributes[form]["data-outputs"].split()) & set(answer)


@pytest.mark.parametrize(
    "form, signature", [("translate", "attention"), ("continue", "serving_default")]
)
def test_a_form_asks_a_generator_for_a_text(form, signature):
    signatures = tiny(form).signatures
    assert signature_for(form, signatures) == signature
    shown = FORMS.attributes[form]["data-outputs"]
    assert f"`{shown}`" in signatures["serving_default"].python_function.__doc__


def task(form):
    """The function of the page's script that sends a form and shows the answer."""
    return re.search(rf"\n  async {form}\(.*?\n  }},\n", PAGE, re.DOTALL)[0]


def test_a_form_of_pairs_and_of_queries_asks_signatures_that_there_are():
    pairs = FORMS.fields["classify"]["second_text"]["data-with"].split()
    for kind in ("classify", "regress"):
        assert f"{kind}_pair" in pairs
        function = tiny(kind).signatures[f"{kind}_pair"]
        assert inputs_of(function) == ["text", "second_text"]
    assert FORMS.fields["embed"]["search"]["data-with"] == "embed_query"
    for name in ("embed_query", "embed_document"):
        assert name in task("embed") and inputs_of(tiny("embed").signatures[name]) == ["text"]


def test_the_fields_of_a_stream_are_the_keys_of_its_request():
    fields = FORMS.fields["stream"]
    body = {"text": "a", "max_tokens": 5, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 7}
    assert set(fields) == {*body, "token_ids"}
    StreamRequest.read(body)
    StreamRequest.read({"token_ids": [5], "max_tokens": int(fields["max_tokens"]["value"])})
    signatures = tiny("stream").signatures
    assert signature_for("stream", signatures) == "step" and "initial_state" in signatures
    assert fields["text"]["data-with"] == "tokenize" and "tokenize" in signatures


def test_a_body_of_a_form_is_answered_over_rest(server):
    _, metadata = server.json("GET", "/v1/models/toy/metadata")
    (inputs,) = FORMS.fields["translate"]
    signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"][inputs]["dtype"] == "DT_STRING"
    body = {"signature_name": "serving_default", "inputs": {inputs: ["a"]}}
    status, answer = server.predict(body)
    assert status == 200 and set(answer["outputs"]) == set(signature["outputs"])


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
        self._waiting(self["translate"].is_displayed)
        (text,), (button,) = self.all("#translate [name=text]"), self.all("#translate button")
        text.clear()
        text.send_keys(sentence)
        button.click()
        self._waiting(button.is_enabled)

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


def test_a_model_without_a_task_has_requests_in_json(page):
    page.choose("model", "masked")
    page.wait_for("request")
    assert [button.text for button in page.all("#tasks button")] == ["Request"]
    page.choose("model", "toy")  # and the next one has its own tasks
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
        page.all("#translate button")[0].click()
        assert page.wait_for("error") == "The server does not answer."
