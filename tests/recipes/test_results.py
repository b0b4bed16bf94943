"""The table of several cards; the rows of the page of recipes are those of their cards."""

import json
import math
import re
from pathlib import Path

import pytest

from recipes import results
from recipes.common import plots
from recipes.common.files import write_json
from recipes.control import returns

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| \[[^\]]+\]\(([a-z_]+/cards/[^)]+\.json)\) \|")


def card(value, **changes):
    return {
        "task": "copying",
        "parameters": 12345,
        "steps": 2000,
        "training_seconds": 90.4,
        "command": "python -m recipes.copying --out runs/a",
        "results": {"test": {"metric": "bits_per_character", "value": value}},
        "history": [{"epoch": n, "val_bits_per_character": value + 1 / (n + 1)} for n in range(3)],
        **changes,
    }


@pytest.fixture
def files(tmp_path):
    named, kept = tmp_path / "long.json", tmp_path / "short" / "card.json"
    kept.parent.mkdir()
    named.write_text(json.dumps(card(1.23456)))
    diverged = {"epoch": 3, "val_bits_per_character": None}
    history = [*card(2.0)["history"], diverged]
    kept.write_text(json.dumps(card(2.0, training_seconds=7290.0, history=history)))
    return [str(named), str(kept)]


def test_table_and_curves(files, tmp_path, capsys):
    picture = tmp_path / "curves.png"
    assert results.main([*files, "--curves", str(picture)]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    ending = "`python -m recipes.copying --out runs/a` |"
    assert rows == [
        f"| long | copying | 12,345 | 2,000 | 2 | 1.235 bits per character | {ending}",
        f"| short | copying | 12,345 | 2,000 | 122 | 2.000 bits per character | {ending}",
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_curve_joins_the_epochs_that_were_validated(monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    plots.draw_curves("curves.png", {"a": [None, 3.0, None, 2.0, None], "b": [None]}, "loss")
    a, b = figures[0].axes[0].lines
    assert a.get_xydata().tolist() == [[2, 3.0], [4, 2.0]] and not len(b.get_xydata())


def test_a_command_stays_in_its_cell():
    line = results.table({"a": card(1.0, command="python -m recipes.a --with 'x=A | B'")})[-1]
    assert line.endswith(r"| `python -m recipes.a --with 'x=A \| B'` |")


def test_each_split_has_its_number(tmp_path):
    record = card(0.25)
    record["results"] = {
        name: {"metric": "sequence_accuracy", "value": value}
        for name, value in (("trained lengths", 1.0), ("length 15", 0.5))
    }
    path = tmp_path / "copy.json"
    path.write_text(json.dumps(record))
    row = results.row("copy", results.read(path))
    assert row[5] == "1.000 sequence accuracy (trained lengths), 0.500 (length 15)"


def test_cards_of_one_name_are_shown_with_their_directories(tmp_path, capsys):
    paths = ("a/x/r/card.json", "b/x/r/card.json", "b/y/r/card.json", "b/y/r.json", "b/s.json")
    for number, path in enumerate(paths):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(json.dumps(card(float(number))))
    assert results.main([str(tmp_path / path) for path in paths]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    same = [str(tmp_path / path) for path in paths[2:4]]  # only the whole path tells them apart
    assert [(row.split("|")[1].strip(), row.split("|")[6][1]) for row in rows] == [
        ("a/x/r", "0"), ("b/x/r", "1"), (same[0], "2"), (same[1], "3"), ("s", "4"),
    ]  # fmt: skip


def test_a_file_that_is_no_card_is_reported(files, tmp_path, capsys):
    broken = tmp_path / "broken.json"
    lacking = [{k: v for k, v in card(1.0).items() if k != name} for name in card(1.0)]
    for content in ("", "[]", *map(json.dumps, ({}, {"results": {}}, {"results": []}, *lacking))):
        broken.write_text(content)
        assert results.main([files[0], str(broken)]) == 2
        assert "broken.json is not the card of a finished run" in capsys.readouterr().err
    assert results.main([str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
    assert results.main([files[0], "--curves", str(tmp_path / "x.png"), "--metric", "speed"]) == 2
    assert "no speed in any epoch of long" in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()


def test_numbers_that_are_not_finite_are_null_in_cards(files, tmp_path, capsys):
    """JSON has no NaN, although Python reads it: then it calls `parse_constant`."""
    history = [{"epoch": n, "val_bits_per_character": x} for n, x in enumerate([math.nan, 2.0])]
    changes = {"history": history, "losses": (math.inf, {"a": [-math.inf, 1, "NaN"]})}
    path = tmp_path / "diverged.json"
    write_json(path, card(math.nan, **changes))
    content = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert content["losses"] == [None, {"a": [None, 1, "NaN"]}]
    assert content["history"] == [{**history[0], "val_bits_per_character": None}, history[1]]
    assert results.main([*files, str(path)]) == 0
    assert "| nan bits per character |" in capsys.readouterr().out


def test_an_agent_without_a_return_is_the_last():
    values = {"a": None, "b": 1.0, "c": 3.0}
    cards = {n: [{"results": {"test": {"value": x}}, "parameters": 5}] for n, x in values.items()}
    assert returns.best_of(cards) == "c with a return of 3.000"
    assert [line[3] for line in returns.table(cards)[2:]] == ["c", "b", "a"]


def test_the_rows_of_the_page_are_those_of_their_cards():
    """Minutes are not compared: they depend on the machine."""
    lines = (ROOT / "recipes/results.md").read_text(encoding="utf-8").splitlines()
    rows = [(match.group(1), line) for line in lines if (match := ROW.match(line))]
    assert rows
    for path, line in rows:
        card = results.read(ROOT / "recipes" / path)
        _, task, parameters, steps, _, result, _ = results.row("", card)
        for stated in (task, parameters, steps, result):
            assert stated in line, f"{path} has {stated!r}, the page: {line}"


def test_no_card_has_a_path_of_a_machine():
    for path in ROOT.glob("recipes/*/cards/*.json"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'"/(?!/)|[ =]/[a-z]+/', text), path
