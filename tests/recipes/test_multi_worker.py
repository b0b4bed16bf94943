"""Two processes that train one model: their files, and the end of both when one is killed."""

import shutil
import signal
import time

import numpy as np
import pytest
import recipe_runs
from other_backend import needs_jax
from recipe_processes import finished, started
from recipe_runs import card

from recipes.common.machine import cluster_settings

pytestmark = pytest.mark.slow

OPTIONS = [
    *("--model", "transformer_xl", "--num-layers", "1", "--num-heads", "2", "--hidden-dim", "6"),
    *("--intermediate-dim", "7", "--context", "11", "--batch-size", "4", "--dropout", "0"),
    *("--steps", "14", "--epochs", "2", "--checkpoint-steps", "3", "--warmup-steps", "2"),
]


def start(data, out, *more, **variables):
    return started("language_model", "--text", data, "--out", out, *OPTIONS, *more, **variables)


def workers(data, out, **variables):
    return [
        start(data, out, "--strategy", "multi_worker", **variables, TF_CONFIG=config)
        for config in cluster_settings(2)
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "text.txt"
    path.write_text("".join(f"{i} and {i * i % 17} make {i + i * i % 17}\n" for i in range(150)))
    return path


@pytest.fixture(scope="module")
def prepared(data, tmp_path_factory):
    """A run whose tokens are made."""
    out = tmp_path_factory.mktemp("prepared")
    finished([start(data, out, "--prepare")])
    return out


@pytest.fixture(scope="module")
def calm(data, prepared, tmp_path_factory):
    """A run of two processes that nothing disturbs."""
    out = shutil.copytree(prepared, tmp_path_factory.mktemp("calm") / "out")
    return out, finished(workers(data, out))


def test_one_process_writes(calm):
    out, (first, second) = calm
    assert "Card:" in first and "Card:" not in second
    assert len(card(out)["history"]) == 2 and card(out)["steps"] == 14
    assert (out / "export" / "1" / "saved_model.pb").exists()
    workers = {path.stem.partition("-worker-")[2] for path in (out / "checkpoint").glob("*.npz")}
    assert workers == {"0-of-2", "1-of-2"}


def test_a_killed_process_ends_both_and_both_resume(calm, prepared, data, tmp_path):
    out = shutil.copytree(prepared, tmp_path / "out")
    first, second = workers(data, out)
    deadline = time.monotonic() + 200
    while not any((out / "checkpoint").glob("checkpoint-*3-*-1-of-2.npz")):
        assert time.monotonic() < deadline and second.poll() is None, second.communicate()[0]
        time.sleep(0.01)
    second.send_signal(signal.SIGKILL)
    said = first.communicate(timeout=200)[0]
    assert first.returncode == 75 and "from the last checkpoint" in said, said
    assert not (out / "card.json").exists()
    finished(workers(data, out))
    for name in ("loss", "bits_per_character", "val_loss"):
        values, expected = ([row[name] for row in card(o)["history"]] for o in (out, calm[0]))
        assert values == pytest.approx(expected, abs=1e-4), name
    assert card(out)["results"]["test"]["value"] == pytest.approx(
        card(calm[0])["results"]["test"]["value"], abs=1e-4
    )


def check_losses(out, expected):
    """Compare the losses in the files of two runs."""
    history, expected = (
        np.genfromtxt(o / "history.csv", delimiter=",", names=True) for o in (out, expected)
    )
    for name in ("loss", "val_loss"):
        np.testing.assert_allclose(history[name], expected[name], atol=1e-4, err_msg=name)


@needs_jax
def test_two_processes_on_jax_train_as_one_and_tensorflow_ends_it_alone(prepared, data, tmp_path):
    one, two = (shutil.copytree(prepared, tmp_path / name) for name in ("one", "two"))
    finished([start(data, one, backend="jax")])
    first, second = finished(workers(data, two, backend="jax"))
    assert "Trained:" in first and "Trained:" not in second
    check_losses(two, one)
    assert recipe_runs.run("language_model", "--text", data, "--out", two, *OPTIONS) == 0
    assert card(two)["steps"] == 14 and card(two)["results"]["test"]["value"] > 0
    assert (two / "export" / "1" / "saved_model.pb").exists()
