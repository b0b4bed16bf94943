"""Recipes run in the process of the tests."""

import contextlib
import importlib
import json

import pytest

from keras_attn.callbacks import Resume
from keras_attn.export import TextGenerator, Translator
from recipes.common import cli


@contextlib.contextmanager
def text_signatures():
    """Within the context exports from text to text have the signature of text only.

    Each other signature traces the decoding again; `tests/export` tests them.
    """
    only_text = property(lambda self: {"serving_default": self.text, **self.halting_signatures})
    with pytest.MonkeyPatch.context() as patch:
        for functions in (TextGenerator, Translator):
            patch.setattr(functions, "signatures", only_text)
        yield


def run(recipe, *arguments):
    """Run a recipe, and return its exit code; see `text_signatures` for its export."""
    with text_signatures():
        return cli.main(f"recipes.{recipe}", [str(argument) for argument in arguments])


def parse(recipe, *arguments):
    """Return the options of a command line."""
    options = importlib.import_module(f"recipes.{recipe}.options").RecipeOptions
    return options.parse(arguments, f"recipes.{recipe}")


def error_of(capsys, recipe, *arguments):
    """Return the last line of the message with which a recipe refuses its arguments."""
    try:
        code = run(recipe, *arguments)
    except SystemExit as stop:  # argparse
        code = stop.code
    assert code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


def card(out):
    """Return the card of a run."""
    return json.loads((out / "card.json").read_text())


@contextlib.contextmanager
def killed_after_an_epoch(monkeypatch):
    """Within the context a training raises `KeyboardInterrupt` once it has saved an epoch."""
    on_epoch_end = Resume.on_epoch_end

    def save_and_die(self, epoch, logs=None):
        on_epoch_end(self, epoch, logs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Resume, "on_epoch_end", save_and_die)
        yield
