"""Recipes run in the process of the tests."""

import contextlib
import importlib
import json

from keras_attn.callbacks import Resume
from recipes.common import cli


def run(recipe, *arguments):
    """Run a recipe, and return its exit code."""
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
