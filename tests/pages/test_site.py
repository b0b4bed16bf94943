"""The site: built by its command without a warning, with every page, public name and link."""

import inspect
import json
import posixpath
import re
from html.parser import HTMLParser
from types import SimpleNamespace
from urllib.parse import unquote, urldefrag

import numpy as np
import pages
import pytest
from each import check_each
from fork_server import run_python

import keras_attn

pytestmark = pytest.mark.slow  # the build takes half a minute
BUILD = """
import sys

for name in (
    "ctranslate2 gymnasium keras_hub matplotlib onnx onnxruntime popgym sacrebleu "
    "sentencepiece tensorflow_serving tensorflow_text tf2onnx"
).split():
    sys.modules[name] = None  # an import of it is an error
from recipes.site.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
_PUBLIC = {f"keras_attn.{name}": getattr(keras_attn, name) for name in keras_attn.__all__}
PACKAGES = {name: value for name, value in _PUBLIC.items() if inspect.ismodule(value)}
# Elements that Sphinx and Markdown write.
ELEMENTS = set(
    "a abbr blockquote body br button code col colgroup dd div dl dt em figure footer form h1 h2 "
    "h3 h4 h5 h6 head hr html img input kbd label li link main meta nav noscript ol p pre script "
    "search section span strong style sub sup table tbody td th thead title tr ul".split()
)


class Page(HTMLParser):
    """Facts of a page that tests compare.

    Attributes:
        ids, links: lists of str. Links are those of all elements, such as pictures and scripts.
        unknown: set of the elements that HTML does not have.
        addresses: list of the texts that hold an address and are neither a link nor code.
    """

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.unknown, self.addresses = [], [], set(), []
        self._inside = None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_data(self, data):
        if "https://" in data and self._inside not in ("a", "code", "pre", "script", "span"):
            self.addresses.append(data)

    def handle_endtag(self, tag):
        self._inside = None

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self._inside = tag
        self.unknown |= {tag} - ELEMENTS
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes[name] for name in ("href", "src") if name in attributes]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The pages of the site by path, its folder, and what the command printed."""
    folder = tmp_path_factory.mktemp("site")
    done = run_python("-c", BUILD, "--plain", "--out", folder, cwd=pages.ROOT)
    assert done.returncode == 0, done.stderr
    paths = [path for path in folder.rglob("*.html") if "_downloads" not in path.parts]
    pages_by_path = {path.relative_to(folder).as_posix(): Page(path) for path in paths}
    printed = done.stdout + done.stderr
    return SimpleNamespace(pages=pages_by_path, folder=folder, printed=printed)


def test_each_page_of_the_repository_is_a_page_and_none_makes_a_warning(built):
    assert built.printed == ""
    for page in [*pages.PAGES, *pages.ROOT.glob("recipes/*/cards/*.md")]:
        path = pages.name(page).removeprefix(".github/").removesuffix(".md")
        assert re.sub(r"\bREADME$", "index", path) + ".html" in built.pages


def test_links_lead_to_files_and_names(built):
    broken = []
    for path, page in built.pages.items():
        for link in page.links:
            target, name = urldefrag(link)
            if re.match(r"(https?|data|mailto):", target):
                continue
            linked = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(target)))
            linked = linked.partition("?")[0] if target else path
            if not (built.folder / linked).is_file():
                broken.append(f"{path}: {link}")
            elif name and linked in built.pages and name not in built.pages[linked].ids:
                broken.append(f"{path}: {link}")
    assert broken == []


def test_no_page_loads_anything_from_the_network(built):
    for path in built.pages:
        text = (built.folder / path).read_text(encoding="utf-8")
        assert re.findall(r"<(?:script|link|img)\b[^>]*(?:src|href)=\"https?:[^>]*>", text) == []


def test_a_page_has_each_public_name_once_and_no_inherited_member(built):
    def check(package):
        ids = built.pages[f"{package.replace('keras_attn.', 'api/')}.html"].ids
        public = PACKAGES[package].__all__
        names = [name.removeprefix(f"{package}.") for name in ids if name.startswith(package)]
        own = [name for name in public if f"{package}.{name}" in DOCUMENTED]
        assert sorted(name for name in names if name in public) == sorted(own)
        for name in names:
            owner, _, member = name.partition(".")
            if member:
                assert member in vars(getattr(PACKAGES[package], owner)), name

    check_each(check, PACKAGES.keys())


def _documented():
    """Full names; a class that two packages export is documented by the one that defines it."""
    names = {}
    for package, module in PACKAGES.items():
        for name in module.__all__:
            names.setdefault(getattr(module, name), []).append(f"{package}.{name}")
    for value, same in names.items():
        package = ".".join(value.__module__.split(".")[:2])
        yield next((full for full in same if full.startswith(f"{package}.")), same[0])


DOCUMENTED = set(_documented())


def search_index(built):
    text = (built.folder / "searchindex.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))


def test_the_search_knows_each_public_name(built):
    objects = search_index(built)["objects"]
    found = {f"{prefix}.{entry[-1]}" for prefix, entries in objects.items() for entry in entries}
    assert DOCUMENTED <= found


def test_the_search_reads_pages_but_no_cards_and_no_sources(built):
    index = search_index(built)
    numbers = {n for found in index["terms"].values() for n in np.atleast_1d(found)}
    names = {index["docnames"][number] for number in numbers}
    assert {"recipes/guides/memories", "recipes/tutorials/own_pattern"} <= names
    assert {name for name in names if "/cards/" in name or name.endswith(".py")} == set()


def test_classes_in_code_and_addresses_are_links(built):
    links = {name: page.links for name, page in built.pages.items()}
    assert "models.html#keras_attn.models.EncoderDecoder" in links["api/generation.html"]
    assert "feed_forward.html#keras_attn.feed_forward.FeedForward" in links["api/layers.html"]
    assert "../../api/depth.html#keras_attn.depth.Stack" in links["keras_attn/depth/index.html"]
    assert {path: page.addresses for path, page in built.pages.items() if page.addresses} == {}


def test_no_text_is_read_as_an_element(built):
    """In prose, "p(x_t | x_<t)" would vanish from "<" on: such formulas are code."""
    assert {path: page.unknown for path, page in built.pages.items() if page.unknown} == {}
