"""The recipe from the command line: a whole run, one that is stopped, its masking, bad input."""

import json
import sys

import keras
import numpy as np
import pytest

from recipes.masked_language_model import __main__ as recipe
from recipes.masked_language_model.batches import MaskedSegments, hide
from recipes.masked_language_model.options import parse

SMALL = [
    *("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "16", "--intermediate-dim", "32"),
    *("--context", "11", "--batch-size", "16", "--steps", "400", "--epochs", "2"),
    *("--learning-rate", "0.003", "--tokenizer", "characters", "--dropout", "0"),
]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "text.txt"
    path.write_text("abcd" * 4000)
    return path


def run(monkeypatch, text, out, *options):
    arguments = ["recipe", "--text", str(text), "--out", str(out), *SMALL, *options]
    monkeypatch.setattr(sys, "argv", arguments)
    return recipe.main()


def test_what_a_run_leaves(monkeypatch, text, tmp_path, capsys):
    """Of a text that repeats itself a masked letter is known, and not from its frequency."""
    assert run(monkeypatch, text, tmp_path) == 0
    card = json.loads((tmp_path / "card.json").read_text())
    result = card["results"]["test"]
    assert result["value"] > result["baseline"] + 0.1
    assert f"masked_accuracy {result['value']:.4g}" in capsys.readouterr().out
    masked, filled = card["examples"][0]
    assert "[MASK]" in masked and "[MASK]" not in filled
    names = ("model.keras", "curve.png", "history.csv", "tokenizer.model", "export/1")
    assert all((tmp_path / name).exists() for name in names)
    model = keras.saving.load_model(tmp_path / "model.keras")
    assert model.count_params() == card["parameters"]
    assert run(monkeypatch, text, tmp_path) == 0  # nothing is trained again
    assert json.loads((tmp_path / "card.json").read_text())["steps"] == card["steps"] == 400
    assert run(monkeypatch, text, tmp_path, "--mask-rate", "0.3") == 2
    assert "started with other options" in capsys.readouterr().err


def test_a_killed_run_ends_like_an_undisturbed_one(monkeypatch, text, tmp_path):
    from recipes.masked_language_model.training import Run

    def weights(out, stop_after=None):
        keras.utils.set_random_seed(0)
        run = Run(parse(["--text", str(text), "--out", str(tmp_path / out), *SMALL]))
        if stop_after is not None:

            class Stop(keras.callbacks.Callback):
                def on_epoch_end(self, epoch, logs=None):
                    raise KeyboardInterrupt

            monkeypatch.setattr(run, "logs", lambda *_: [])
            fit = run.model.fit
            run.model.fit = lambda *args, callbacks, **kwargs: fit(
                *args, callbacks=[*callbacks, Stop()], **kwargs
            )
            with pytest.raises(KeyboardInterrupt):
                run.train()
            return None
        run.train()
        return run.model.get_weights()

    weights("killed", stop_after=1)
    for one, other in zip(weights("killed"), weights("whole"), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_masking_is_that_of_the_paper():
    """15 % to guess: 8 of 10 masked, 1 another, 1 as it is; never padding or marks."""
    ids = np.random.default_rng(1).integers(0, 97, (101, 103))
    tokens, targets = hide(ids, 0.15, 97, 4, np.random.default_rng(2))
    chosen = targets > 0
    assert not chosen[ids < 4].any()
    np.testing.assert_array_equal(tokens[~chosen], ids[~chosen])
    np.testing.assert_array_equal(targets[chosen], ids[chosen])
    assert abs(chosen.sum() / (ids >= 4).sum() - 0.15) < 0.01
    masked, same = (tokens == 97)[chosen].mean(), (tokens == ids)[chosen].mean()
    assert abs(masked - 0.8) < 0.04 and abs(same - 0.1) < 0.03
    assert tokens[chosen & (tokens != 97)].min() >= 4 and tokens.max() == 97


def test_one_token_at_least_is_to_be_guessed():
    _, targets = hide(np.array([[0, 5, 6]]), 1e-9, 7, 4, np.random.default_rng(0))
    assert targets.tolist() == [[0, 5, 0]]
    _, targets = hide(np.zeros((1, 3), int), 0.5, 7, 4, np.random.default_rng(0))
    assert not targets.any()


def test_segments_in_order_hold_the_whole_text():
    options = parse(["--context", "5", "--batch-size", "3"])
    ids = np.arange(4, 4 + 37)
    segments = MaskedSegments(ids, options, mask_id=99, first_id=4)
    read = []
    for index in range(len(segments)):
        inputs, targets = segments.batch(0, index)
        read.append(np.where(targets > 0, targets, inputs["token_ids"]).ravel())
    read = np.concatenate(read)
    np.testing.assert_array_equal(read[:37], ids)
    assert not read[37:].any() and len(read) == len(segments) * 15
    drawn = MaskedSegments(ids, options, 99, 4, steps=2)
    assert len(drawn) == 2
    batches = [drawn.batch(*place)[1].tolist() for place in ((0, 0), (0, 1), (1, 0))]
    again = MaskedSegments(ids, options, 99, 4, steps=2).batch(1, 0)[1].tolist()
    assert batches[2] == again and batches[0] != batches[1] != batches[2] != batches[0]


@pytest.mark.parametrize(
    "options, message",
    [
        (["--mask-rate", "1"], "--mask-rate must be between 0 and 1"),
        (["--num-heads", "3"], "--num-heads must divide --hidden-dim"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--data-dir", "a", "--text", "b"], "exclude each other"),
    ],
)
def test_wrong_options(options, message, capsys):
    with pytest.raises(SystemExit):
        parse(options)
    assert message in capsys.readouterr().err


def test_a_missing_text(monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, tmp_path / "none.txt", tmp_path / "out") == 2
    assert "none.txt does not exist" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
