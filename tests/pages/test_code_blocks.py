"""The Python of each page runs, block after block."""

import pages
import pytest
from keras_attn.serving.client import GrpcClient, RestClient, Token

from keras_attn.export import Translator
from keras_attn.models.paper_sizes import PRESETS
from recipes.catalogue.entries import SECTIONS

# The examples of the catalogue run as those of docstrings.
PACKAGE = pages.ROOT / "keras_attn"
CATALOGUE = {PACKAGE / "README.md", *(PACKAGE / name / "README.md" for _, name, _ in SECTIONS)}
WITH_PYTHON = [
    page for page in pages.PAGES if page not in CATALOGUE and pages.blocks(page, "python")
]
FAST = {pages.ROOT / "serving/clients.md"}  # the others train, export or convert
ANSWERS = {
    "serving_default": {
        "translation": ["Ein Mann"],
        "continuation": [" rides"],
        "score": [-1.0],
        "quantiles": [[[7.0]]],
        "levels": [[0.5]],
    },
    "ids": {"ids": [[5, 7], [9, 0]], "score": [-1.0, -2.0]},
    "initial_memory": {"memory": [[0.0]], "memory_length": [0]},
    "step": {"logits": [[[0.5, 0.5]]], "memory": [[1.0]], "memory_length": [1]},
}


@pytest.fixture
def quick(monkeypatch):
    """Presets have one layer, exports of text two signatures, and clients need no server."""
    for name, (build, sizes) in PRESETS.items():
        monkeypatch.setitem(PRESETS, name, (build, {**sizes, "num_layers": 1}))
    few = property(lambda self: {"ids": self.ids, "serving_default": self.text})
    monkeypatch.setattr(Translator, "signatures", few)
    for client in (GrpcClient, RestClient):
        monkeypatch.setattr(client, "_predict", lambda _, inputs, name, limit: dict(ANSWERS[name]))
    monkeypatch.setattr(RestClient, "stream", lambda _, prompt, **options: [Token(5, "a", -0.5)])


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.slow] * (p not in FAST)) for p in WITH_PYTHON],
    ids=pages.name,
)
def test_the_python_of_a_page_runs_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in pages.blocks(page, "python"):
        exec(compile(block, pages.name(page), "exec"), names)
