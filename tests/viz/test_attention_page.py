import re

import numpy as np
import pytest

from keras_attn.viz import write_attention_page

QUERIES = ["I", "</script><script>alert(1)</script>", "日本", ""]
KEYS = ["the", " cat", "שלום", "<b>", "&amp;"]


def scores(*shape, seed=0):
    weights = np.random.default_rng(seed).exponential(size=shape)
    return weights / weights.sum(axis=-1, keepdims=True)


FOUND = {"a/attention": scores(2, 3, 4, 5), "b/attention": [scores(2, 1, 4, 5, seed=1)] * 2}


def test_the_page_is_one_file_and_runs_no_token(tmp_path):
    path = write_attention_page(tmp_path / "page.html", FOUND, QUERIES, KEYS)
    html = path.read_text(encoding="utf-8")
    assert not re.search(r"https?://|@import|<link|<img|\bsrc=|\burl\(", html)
    assert html.count("</script>") == 1 and "default-src 'none'" in html
    assert r'"\u003c/script>\u003cscript>alert(1)\u003c/script>"' in html


def test_bad_input_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="each of the 4 queries of a/attention; .* 5 tokens"):
        write_attention_page(tmp_path / "page.html", FOUND, KEYS, KEYS)
    with pytest.raises(ValueError, match=r"weights in \[0, 1\].* from 0.0 to 2.0"):
        write_attention_page(tmp_path / "page.html", {"a": 2 * np.eye(4)}, QUERIES)
    assert not list(tmp_path.iterdir())


def test_a_page_that_cannot_be_written_leaves_the_earlier_one(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("earlier", encoding="utf-8")
    with pytest.raises(ValueError, match="surrogates not allowed"):
        write_attention_page(path, np.eye(2), ["a", "\ud800"])
    assert path.read_text(encoding="utf-8") == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def shades(browser, side):
    """The weight and the opacity of each token of a side."""
    tokens = browser.find_elements("css selector", f"#{side} button")
    weights = [float(token.get_attribute("title")) for token in tokens]
    colors = [token.value_of_css_property("background-color") for token in tokens]
    return weights, [float(re.findall(r"[\d.]+", color)[3]) for color in colors]


@pytest.mark.slow
def test_a_browser_shows_the_weights_of_the_token_pointed_at(browser, tmp_path):
    from selenium.webdriver import ActionChains

    path = write_attention_page(tmp_path / "page.html", FOUND, QUERIES, KEYS, row=1)
    browser.get(path.as_uri())

    def choose(name, value):
        browser.find_element("css selector", f"#{name} option[value='{value}']").click()

    def point_at(side, index):
        token = browser.find_elements("css selector", f"#{side} button")[index]
        ActionChains(browser).move_to_element(token).perform()

    tokens = browser.find_elements("css selector", "#queries button")
    assert [token.text for token in tokens] == [*QUERIES[:3], "∅"]
    weights = FOUND["a/attention"][1]
    point_at("queries", 2)
    weights_shown, opacities = shades(browser, "keys")
    expected = weights.mean(axis=0)[2]
    np.testing.assert_allclose(weights_shown, expected, atol=1e-4)
    np.testing.assert_allclose(opacities, 0.85 * expected / expected.max(), atol=0.01)
    choose("head", "1")
    np.testing.assert_allclose(shades(browser, "keys")[0], weights[1, 2], atol=1e-4)
    point_at("keys", 4)
    np.testing.assert_allclose(shades(browser, "queries")[0], weights[1, :, 4], atol=1e-4)
    best = QUERIES[int(weights[1, :, 4].argmax())] or "∅"
    said = browser.find_element("id", "said").text.replace("\u2068", "").replace("\u2069", "")
    assert said.startswith(f"&amp; (4) gets attention from {best} (")
    choose("layer", "2")
    last = FOUND["b/attention"][1][1, 0]
    np.testing.assert_allclose(shades(browser, "queries")[0], last[:, 4], atol=1e-4)
    assert browser.get_log("browser") == []
