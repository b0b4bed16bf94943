"""Two processes that train one model: their files, and the end of both when one is killed."""

import json
import shutil
import signal
import time

import keras
import numpy as np
import pytest
from other_backend import needs_jax
from recipe_processes import finished, started

from keras_attn.callbacks import average_weights
from recipes.common.machine import cluster_settings

pytestmark = pytest.mark.slow

OPTIONS = [
    *("--model", "transformer_xl", "--num-layers", "1", "--num-heads", "2", "--hidden-dim", "6"),
    *("--intermediate-dim", "7", "--context", "11", "--batch-size", "4", "--dropout", "0"),
    *("--steps", "40", "--epochs", "4", "--checkpoint-steps", "3", "--warmup-steps", "2"),
]


def start(data, out, *more, **variables):
    return started("language_model", "--text", data, "--out", out, *OPTIONS, *more, **variables)


def workers(data, out, *others, **variables):
    """Start two processes, each with its own options."""
    more = ("--strategy", "multi_worker")
    return [
        start(data, out, *more, *other, **variables, TF_CONFIG=config)
        for config, other in zip(cluster_settings(2), others or ((), ()), strict=True)
    ]


def send(what, process, out):
    """Send the second of two processes a signal in the middle of its training."""
    deadline = time.monotonic() + 200
    while not any((out / "checkpoint").glob("checkpoint-*3-*-1-of-2.npz")):
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    process.send_signal(what)


def card(out):
    return json.loads((out / "card.json").read_text())


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


@pytest.fixture
def out(prepared, tmp_path):
    return shutil.copytree(prepared, tmp_path / "out")


@pytest.fixture(scope="module")
def calm(data, prepared, tmp_path_factory):
    """A run of two processes that nothing disturbs."""
    out = shutil.copytree(prepared, tmp_path_factory.mktemp("calm") / "out")
    return out, finished(workers(data, out))


def test_one_process_writes(calm):
    out, (first, second) = calm
    assert "Card:" in first and "Card:" not in second
    assert len(card(out)["history"]) == 4 and card(out)["steps"] == 40
    assert (out / "export" / "1" / "saved_model.pb").exists()
    workers = {path.stem.partition("-worker-")[2] for path in (out / "checkpoint").glob("*.npz")}
    assert workers == {"0-of-2", "1-of-2"}


def test_two_processes_end_as_one_does(calm, data, tmp_path):
    finished([start(data, tmp_path)])
    for name in ("loss", "bits_per_character", "val_loss"):
        found, expected = ([row[name] for row in card(o)["history"]] for o in (calm[0], tmp_path))
        assert found == pytest.approx(expected, abs=1e-4), name


def test_a_killed_process_ends_both_and_both_resume(calm, data, out):
    first, second = workers(data, out)
    send(signal.SIGKILL, second, out)
    said = first.communicate(timeout=200)[0]
    assert first.returncode == 75 and "from the last checkpoint" in said, said
    assert not (out / "card.json").exists()
    finished(workers(data, out))
    for name in ("loss", "bits_per_character", "val_loss"):
        found, expected = ([row[name] for row in card(o)["history"]] for o in (out, calm[0]))
        assert found == pytest.approx(expected, abs=1e-4), name
    assert card(out)["results"]["test"]["value"] == pytest.approx(
        card(calm[0])["results"]["test"]["value"], abs=1e-4
    )


@needs_jax
def test_a_terminated_process_ends_both(data, out):
    """The terminated process does not wait for the other."""
    first, second = workers(data, out, backend="jax")
    send(signal.SIGTERM, second, out)
    said = [process.communicate(timeout=200)[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [75, 143], said
    assert "from the last checkpoint" in said[0] and "Stopped" in said[1]


def test_processes_with_other_options_are_refused(data, out):
    processes = workers(data, out, (), ("--seed", "7"))
    said = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [2, 2], said
    assert all("same options" in text for text in said)


def test_processes_do_not_tokenise(data, tmp_path):
    """Each would make a tokenizer of its own."""
    (config,) = cluster_settings(1)
    process = start(data, tmp_path, "--strategy", "multi_worker", TF_CONFIG=config)
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 2 and "--prepare" in said, said


def run_on_jax_in_two_processes(recipe, arguments, out):
    """Run a recipe and return the output of its processes."""
    finished([started(recipe, *arguments, "--out", out, "--prepare")])
    more = ("--out", out, "--strategy", "multi_worker")
    return finished(
        started(recipe, *arguments, *more, backend="jax", TF_CONFIG=config)
        for config in cluster_settings(2)
    )


@needs_jax
def test_two_processes_on_jax_compare_several_models(data, tmp_path):
    """One after another, in each."""
    out = tmp_path / "out"
    arguments = [
        *("--axis", "memory", "--values", "none", "segment", "--text", data),
        *("--num-layers", "1", "--num-heads", "2", "--context", "11", "--batch-size", "4"),
        *("--hidden-dim", "6", "--intermediate-dim", "7"),
        *("--steps", "3", "--epochs", "1", "--valid-tokens", "90"),
    ]
    first, second = run_on_jax_in_two_processes("compare", arguments, out)
    assert "Card:" in first and "Card:" not in second
    results = card(out / "memory")["results"]
    assert list(results) == ["none", "segment"]
    for found in results.values():
        assert 0 < found["bits_per_character"]["0"][-1] < 10


def check_losses(out, expected):
    """Compare the losses in the files of two runs."""
    found, expected = (
        np.genfromtxt(o / "history.csv", delimiter=",", names=True) for o in (out, expected)
    )
    for name in ("loss", "val_loss"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-4, err_msg=name)


@needs_jax
def test_two_processes_on_jax_train_as_one_and_tensorflow_ends_it_alone(prepared, data, tmp_path):
    one, two = (shutil.copytree(prepared, tmp_path / name) for name in ("one", "two"))
    finished([start(data, one, backend="jax")])
    first, second = finished(workers(data, two, backend="jax"))
    assert "Trained:" in first and "Trained:" not in second
    check_losses(two, one)
    finished([start(data, two)])
    assert card(two)["steps"] == 40 and card(two)["results"]["test"]["value"] > 0
    assert (two / "export" / "1" / "saved_model.pb").exists()


@needs_jax
def test_two_processes_on_jax_end_with_the_mean_of_their_checkpoints(tmp_path):
    """Of a model that is itself compiled, with its optimizer."""
    for split, lines in (("train", 60), ("val", 7), ("test_small", 5)):
        for language, word in (("en", "one"), ("xx", "eins")):
            text = "".join(f"{word} {index * index % 17}\n" for index in range(lines))
            (tmp_path / f"{split}.{language}").write_text(text)
    out = tmp_path / "out"
    arguments = [
        *("--data-dir", tmp_path, "--source", "en", "--target", "xx", "--num-layers", "1"),
        *("--tokenizer", "characters", "--packing", "24", "--tokens-per-batch", "96"),
        *("--epochs", "3", "--average-last", "2", "--dropout", "0", "--learning-rate", "1e-4"),
    ]
    run_on_jax_in_two_processes("translate", arguments, out)
    kept = sorted((out / "average").glob("*-shard-0-of-2.npz"))
    assert len(kept) == 2 == len(list((out / "average").glob("*-shard-1-of-2.npz")))
    weights = keras.models.load_model(out / "model.keras", compile=False).get_weights()
    for found, expected in zip(weights, average_weights(kept), strict=True):
        assert np.array_equal(found, expected)
