"""The card of the tests on torch, and what the catalogue says of it."""

import json

from catalogue_support import NAMES
from fork_server import ROOT

from recipes.catalogue.entries import ON_TORCH

CARD = (ROOT / "tests/torch_backend/card.md").read_text(encoding="utf-8")
RESULTS = json.loads(ON_TORCH.read_text(encoding="utf-8"))
COMMAND = "python tests/torch_backend/run.py"


def test_the_card_has_a_row_for_each_value():
    assert set(RESULTS) == set(NAMES), f"with torch run: {COMMAND}"
    assert {name for name in NAMES if f"| `{name}` |" not in CARD} == set()


def test_each_value_works_on_torch():
    assert {name for name in NAMES if not RESULTS[name]["torch"]} == set()
    assert f"- Values: {len(NAMES)} of {len(NAMES)} work" in CARD and COMMAND in CARD
