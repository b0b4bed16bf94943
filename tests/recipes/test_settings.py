"""Directories in which a recipe refuses to run."""

import json
import os

import pytest

from recipes.common.settings import check_out, check_settings, save_settings

NOW = {"recipe": "translate", "seed": 0, "sha256": "a", "resized": False, "rate": 0.0}


def refusal(tmp_path, before):
    """The message for a run of other settings; None if it can be resumed."""
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(before))
    try:
        check_settings(path, NOW, "some/out")
    except ValueError as error:
        return str(error)


def test_the_recipe_of_another_run_is_named(tmp_path):
    save_settings(tmp_path / "settings.json", {"recipe": "image", "stride": 3})
    with pytest.raises(ValueError, match="some/out is one of the recipe image, not of translate"):
        check_settings(tmp_path / "settings.json", NOW, "some/out")


def test_runs_of_earlier_versions_are_resumed_and_others_named(tmp_path):
    """They have no name of a recipe."""
    assert refusal(tmp_path, {"seed": 0, "sha256": "a"}) is None
    assert refusal(tmp_path, NOW) is None
    assert "seed=1, now 0" in refusal(tmp_path, {"seed": 1, "sha256": "a"})
    assert "another recipe or of another version" in refusal(tmp_path, {"task": "copy"})
    assert "data have changed" in refusal(tmp_path, NOW | {"sha256": "b"})


def test_a_directory_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    check_out(tmp_path / "a" / "b")
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(tmp_path))
    with pytest.raises(ValueError, match=f"the directory {tmp_path} is not. Received: --out"):
        check_out(tmp_path / "a" / "b")
