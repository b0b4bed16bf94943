"""The recipe from the command line; every value of every axis makes a model."""

import contextlib
import json
import signal
import sys

import keras
import numpy as np
import pytest

from keras_attn.callbacks import Terminated
from recipes.compare import __main__ as recipe
from recipes.compare.axes import axes, build
from recipes.compare.options import AXES, parse
from recipes.compare.training import Comparison, Stop, table

SMALL = [
    *("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "8", "--intermediate-dim", "7"),
    *("--context", "12", "--batch-size", "3", "--steps", "4", "--epochs", "2"),
    *("--valid-tokens", "50"),
]


def run(monkeypatch, out, *options):
    text = out.parent / "text.txt"
    text.write_text("to be or not to be, that is the question\n" * 30)
    arguments = ["recipe", "--text", str(text), "--out", str(out), *SMALL, *options]
    monkeypatch.setattr(sys, "argv", arguments)
    return recipe.main()


def test_a_comparison_and_going_on_with_it(monkeypatch, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(monkeypatch, out, "--axis", "memory", "--values", "segment") == 0
    first = (out / "segment.json").read_bytes()
    assert run(monkeypatch, out, "--axis", "memory") == 0
    assert (out / "segment.json").read_bytes() == first  # not trained again
    card = json.loads((out / "card.json").read_text())
    assert list(card["results"]) == ["none", "segment"]
    for found in card["results"].values():
        assert len(found["bits_per_character"]) == 2 and found["seconds_per_step"] > 0
    lines = (out / "table.md").read_text().splitlines()
    assert lines == table("memory", card["results"]) and len(lines) == 4
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert run(monkeypatch, out, "--axis", "memory", "--values", "none") == 0
    assert (out / "table.md").read_text().splitlines() == lines  # nothing was lost
    assert json.loads((out / "card.json").read_text())["results"] == card["results"]
    for damaged in ("{", "[]", "{}"):
        (out / "none.json").write_text(damaged)
        assert run(monkeypatch, out, "--axis", "memory", "--values", "segment") == 2
        assert f"{out / 'none.json'} is damaged" in capsys.readouterr().err
    assert run(monkeypatch, out, "--axis", "loss") == 2
    assert "started with other options" in capsys.readouterr().err
    assert run(monkeypatch, tmp_path / "other", "--axis", "loss", "--values", "none") == 2
    assert "--values must be among plain, label_smoothed, auxiliary" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_there_is_something_to_validate_with(monkeypatch, tmp_path, capsys):
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question\n" * 30)
    options = ["--axis", "memory", "--text", str(path), *SMALL, "--valid-tokens", "1"]
    comparison = Comparison(parse([*options, "--out", str(tmp_path / "out")]))
    for remembers in (False, True):
        _, targets = comparison._validation(remembers).batch(0, 0)
        assert np.count_nonzero(targets) == 3
    assert run(monkeypatch, tmp_path / "out", "--axis", "memory", "--batch-size", "61") == 2
    assert "valid with 61 tokens, --batch-size 61" in capsys.readouterr().err
    assert run(monkeypatch, path, "--axis", "memory") == 2
    assert "--out must be a directory" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "number, end", [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)]
)
def test_told_to_end(number, end):
    seen = []

    def told(batch, logs=None):
        seen.append(batch)
        if batch == 1:
            with contextlib.suppress(KeyboardInterrupt):  # as Keras does on JAX
                signal.raise_signal(number)

    model, rows = keras.Sequential([keras.layers.Dense(1)]), np.ones((5, 1))
    model.compile("sgd", "mse")
    before = signal.signal(number, signal.default_int_handler)
    try:
        callbacks = [keras.callbacks.LambdaCallback(on_train_batch_begin=told), Stop()]
        with pytest.raises(end):
            model.fit(rows, rows, batch_size=1, verbose=0, callbacks=callbacks)
    finally:
        signal.signal(number, before)
    assert seen == [0, 1]


@pytest.mark.parametrize("axis", AXES)
def test_every_value_makes_a_model_of_its_own(axis):
    options = parse(["--axis", axis, *SMALL])
    values = axes(options)[axis]
    ids, made = np.array([[5, 7, 9, 4, 6]]), []
    for changes in values.values():
        model = build(11, options, **changes)
        inputs = {"token_ids": ids}
        if model.memory is not None:
            inputs.update(model.initial_memory(1))
        outputs = model(inputs)
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs
        assert logits.shape == (1, 5, 11) and np.isfinite(logits).all()
        made.append(json.dumps(model.get_config(), sort_keys=True))
    assert axis == "loss" or len(set(made)) == len(values)


def test_the_table_has_the_best_first():
    results = {
        name: {"bits_per_character": [3.0, bits], "parameters": 1234, "seconds_per_step": 0.5}
        for name, bits in (("one", 2.25), ("two", 2.125))
    }
    assert table("score", results)[2:] == [
        "| `two` | 2.125 | 1,234 | 0.500 |",
        "| `one` | 2.250 | 1,234 | 0.500 |",
    ]


@pytest.mark.parametrize(
    "options, message",
    [
        ([], "--axis"),
        (["--axis", "colour"], "invalid choice"),
        (["--axis", "score", "--context", "7"], "--context must be at least 8"),
    ],
)
def test_wrong_options(options, message, capsys):
    with pytest.raises(SystemExit):
        parse(options)
    assert message in capsys.readouterr().err
