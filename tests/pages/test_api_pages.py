"""API pages: built by the command of CONTRIBUTING.md, without a warning, with every public name."""

import inspect
import posixpath
import re
import shlex
from html.parser import HTMLParser
from types import SimpleNamespace
from urllib.parse import urldefrag

import pages
import pytest
from each import check_each
from fork_server import run_python

import keras_attn

pytestmark = pytest.mark.slow  # the build takes ten seconds
CONTRIBUTING = (pages.ROOT / ".github/CONTRIBUTING.md").read_text(encoding="utf-8")
OPTIONS = shlex.split(re.search(r"(?m)^PDOC_ALLOW_EXEC=1 pdoc (.+)$", CONTRIBUTING)[1])
BUILD = """
import sys
from pdoc.__main__ import cli

for name in (
    "babel ctranslate2 gymnasium keras_hub matplotlib onnx onnxruntime popgym sacrebleu "
    "sentencepiece tensorflow_serving tensorflow_text tf2onnx"
).split():
    sys.modules[name] = None  # an import of it is an error
cli(sys.argv[1:])
"""
_PUBLIC = {f"keras_attn.{name}": getattr(keras_attn, name) for name in keras_attn.__all__}
PACKAGES = {name: value for name, value in _PUBLIC.items() if inspect.ismodule(value)}
# Elements that pdoc and Markdown write.
ELEMENTS = set(
    "a blockquote body br button code dd div dl dt em footer g h1 h2 h3 h4 h5 h6 head header html "
    "img input label li link main meta nav ol p path pre script section span strong style svg "
    "table tbody td th thead title tr ul wbr".split()
)


class Page(HTMLParser):
    """What a test reads from a page.

    Attributes:
        ids, links: lists of str.
        unknown: set of the elements that HTML does not have.
        addresses: list of the texts that hold an address and are neither a link nor code.
    """

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.unknown, self.addresses = [], [], set(), []
        self._inside = None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_data(self, data):
        if "https://" in data and self._inside not in ("a", "code", "pre", "script", "style"):
            self.addresses.append(data)

    def handle_endtag(self, tag):
        self._inside = None

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self._inside = tag
        self.unknown |= {tag} - ELEMENTS
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if tag == "a" and "href" in attributes else []


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The pages of the modules by path, and what the command printed."""
    folder = tmp_path_factory.mktemp("api")
    done = run_python("-c", BUILD, *OPTIONS, "--output-directory", folder, cwd=pages.ROOT)
    assert done.returncode == 0, done.stderr
    paths = [path for path in folder.rglob("*.html") if path.name != "index.html"]
    pages_by_path = {path.relative_to(folder).as_posix(): Page(path) for path in paths}
    return SimpleNamespace(pages=pages_by_path, printed=done.stdout + done.stderr)


def path_of(module):
    return module.replace(".", "/") + ".html"


def test_each_public_package_has_a_page_that_builds_without_a_warning(built):
    assert built.printed == ""
    assert set(built.pages) == {path_of(module) for module in ["keras_attn", *PACKAGES]}


def test_a_page_has_each_public_name_once_and_no_inherited_member(built):
    def check(module):
        ids, public = built.pages[path_of(module)].ids, PACKAGES[module].__all__
        assert sorted(name for name in ids if name in public) == sorted(public)
        for name in ids:
            owner, _, member = name.partition(".")
            if member and owner in public:
                assert member in vars(getattr(PACKAGES[module], owner)), name

    check_each(check, PACKAGES.keys())


def test_a_class_that_two_packages_export_is_documented_by_one(built):
    members = [name for page in built.pages.values() for name in page.ids if "." in name]
    assert len(members) == len(set(members))
    assert "feed_forward.html#FeedForward" in built.pages["keras_attn/layers.html"].links


def test_links_lead_to_names(built):
    broken = []
    for path, page in built.pages.items():
        for link in page.links:
            target, name = urldefrag(link)
            if not target.startswith(("http:", "https:")):
                linked = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
                linked_page = built.pages.get(linked if target else path)
                if linked_page is None or name and name not in linked_page.ids:
                    broken.append(f"{path}: {link}")
    assert broken == []


def test_classes_in_backticks_and_addresses_are_links(built):
    assert "models.html#EncoderDecoder" in built.pages["keras_attn/generation.html"].links
    assert "depth.html#Stack" in built.pages["keras_attn/models.html"].links
    assert {path: page.addresses for path, page in built.pages.items() if page.addresses} == {}


def test_no_text_is_read_as_an_element(built):
    """In prose, "p(x_t | x_<t)" would vanish from "<" on: such formulas are code."""
    assert {path: page.unknown for path, page in built.pages.items() if page.unknown} == {}
