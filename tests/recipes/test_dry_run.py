"""`--dry-run`: what it prints, and that it changes neither files nor the run that follows."""

import time

import keras
import numpy as np
import pytest
import recipe_runs

from keras_attn import models
from keras_attn.callbacks import Resume
from recipes.common import dry_run
from recipes.common.dry_run import Estimate, byte_count, report
from recipes.common.progress import byte_size, duration
from recipes.common.run import TrainingRun
from recipes.image.training import ImageRun

SIZES = ("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "8", "--intermediate-dim", "7")
TEXT = (*SIZES, "--context", "12", "--batch-size", "3", "--steps", "12", "--epochs", "2")
COMMANDS = {
    "language_model": ("--model", "gpt", *TEXT),
    "image": (*SIZES, "--steps", "6", "--epochs", "2", "--samples", "1", "--test-images", "4"),
    "control": (
        *(*SIZES, "--num-envs", "2", "--rollout", "13", "--memory", "17", "--steps", "52"),
        *("--epochs", "2", "--passes", "1", "--episodes", "2", "--seeds", "1"),
        *("--models", "memoryless", "decision_transformer", "--behaviour", "memoryless"),
    ),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "text.txt").write_text("to be or not to be, that is the question\n" * 30)
    return folder


def run(recipe, data, out, *more):
    texts = ("--text", data / "text.txt") if recipe == "language_model" else ()
    return recipe_runs.run(recipe, *COMMANDS[recipe], *texts, "--out", out, *more)


def lines_of(capsys, recipe, data, out, *more):
    """The lines of a dry run, by the word before their colon."""
    capsys.readouterr()
    assert run(recipe, data, out, "--dry-run", *more) == 0
    parts = (line.partition(":") for line in capsys.readouterr().out.splitlines())
    return {name.strip(): value.strip() for name, _, value in parts}


def contents(folder):
    """Bytes and time of change of each file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


ESTIMATE = Estimate(1234567, 4_938_268, 9_876_540, 100, 40, [10.0, 1.0, 1.2, 1.0, 5.0])


def test_the_time_is_the_first_step_and_the_median_of_the_others():
    assert ESTIMATE.seconds_left == pytest.approx(10 + 59 * 1.1)
    assert ESTIMATE._replace(done=99).seconds_left == 10
    assert ESTIMATE._replace(done=100, seconds=[]).seconds_left == 0
    assert ESTIMATE._replace(seconds=[3.0]).seconds_left == 60 * 3


def test_the_report_names_parameters_bytes_steps_and_files():
    options = recipe_runs.parse("translate", "--out", "some/out")
    said = "\n".join(report(options, {"": ESTIMATE}, "model.keras", 3_100_000))
    assert "1,234,567 parameters; 4.9 MB of weights, 9.9 MB of optimizer state" in said
    assert "Steps:  100, of which 40 are done" in said
    assert "about 1.2 minutes: the first step takes 10 s" in said
    assert "each other 1.1 s, the median of 4" in said and "3.1 MB in memory" in said
    assert "some/out: model.keras" in said and "Resume: the run in some/out" in said
    new = "\n".join(report(options, {"": ESTIMATE._replace(done=0)}, "model.keras"))
    assert "Resume: nothing" in new and "in memory" not in new
    two = {"a": ESTIMATE, "b": ESTIMATE}
    assert "All:    about 2.5 minutes" in "\n".join(report(options, two, "a file"))
    assert "warm-up is longer" in said and "--warmup-steps 200, and 100 steps" in said
    long = {"": ESTIMATE._replace(steps=200)}
    assert "warm-up" not in "\n".join(report(options, long, "a file"))


@pytest.mark.parametrize("plain, advice", [([9.0, 1.3], "keep the"), ([9.0, 0.9], "Leave the")])
def test_the_report_says_whether_compilation_by_xla_pays(plain, advice):
    options = recipe_runs.parse("translate", "--out", "some/out", "--jit-compile")
    said = "\n".join(report(options, {"": ESTIMATE._replace(plain_seconds=plain)}, "model.keras"))
    assert f"each other {plain[1]} s, the median of 1" in said and advice in said


def test_a_dry_run_reports_its_costs_and_writes_nothing(data, tmp_path, capsys, monkeypatch):
    """With `--jit-compile` steps are measured with and without it."""
    measured, out = [], tmp_path / "out"

    def fit_seconds(model, train, scope, count):
        measured.append((model.jit_compile, count))
        return [2.0 if model.jit_compile else 1.0] * count

    monkeypatch.setattr(dry_run, "fit_seconds", fit_seconds)
    lines = lines_of(capsys, "language_model", data, out, "--jit-compile")
    assert measured == [(True, 10), (False, 10)]
    assert "each other 2 s" in lines["Time"] and "Leave the option out." in lines
    lines = lines_of(capsys, "language_model", data, out)
    assert measured[2:] == [(False, 5)]
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 7}
    model = models.gpt(4 + len(set((data / "text.txt").read_text())), **sizes, max_length=12)
    assert lines["Model"].startswith(f"{model.count_params():,} parameters")
    assert lines["Steps"] == "12" and lines["Resume"].startswith("nothing")
    assert "the median of 4" in lines["Time"] and str(out) in lines["Files"]
    assert not out.exists()


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.123, "0.12 seconds"),
        (59, "59 seconds"),
        (90, "1.5 minutes"),
        (7199, "120.0 minutes"),
        (7200, "2.0 hours"),
    ],
)
def test_a_duration_is_shown_in_its_unit(seconds, text):
    assert duration(seconds) == text


def test_a_number_of_bytes_is_shown_in_its_unit():
    assert [byte_size(n) for n in (7, 1_000, 2_550_000)] == ["7 bytes", "1.0 kB", "2.5 MB"]


def test_the_bytes_of_variables_depend_on_their_precision():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5, dtype="float16")])
    assert byte_count(model.variables) == (3 * 5 + 5) * 2


def test_a_dry_run_does_not_prepare_tokens(capsys):
    error = recipe_runs.error_of(capsys, "translate", "--prepare", "--dry-run")
    assert "--dry-run and --prepare exclude each other" in error


def weights(out):
    """The weights of all models of a finished run, by file."""
    paths = sorted(out.rglob("model.keras"))
    models_of_run = {path: keras.models.load_model(path, compile=False) for path in paths}
    assert models_of_run
    return {
        path.relative_to(out): np.concatenate([w.ravel() for w in model.get_weights()])
        for path, model in models_of_run.items()
    }


@pytest.mark.slow
def test_a_dry_run_says_how_much_of_a_run_is_done(data, tmp_path, capsys, monkeypatch):
    begin = Resume.on_epoch_begin

    def stop_in_second(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt
        begin(self, epoch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(Resume, "on_epoch_begin", stop_in_second)
        assert run("language_model", data, tmp_path) == 130
    end = time.monotonic() + 60
    while not (tmp_path / "checkpoint/checkpoint-00000001.npz").exists():  # a thread writes it
        assert time.monotonic() < end
        time.sleep(0.01)
    before = contents(tmp_path)
    lines = lines_of(capsys, "language_model", data, tmp_path)
    assert lines["Steps"] == "12, of which 6 are done"
    assert lines["Resume"] == f"the run in {tmp_path}"
    assert contents(tmp_path) == before


# The other recipes share the dry run of `image`; that of comparisons is estimated in its own tests.
@pytest.mark.slow
@pytest.mark.parametrize("recipe", ("control", "image"))
def test_the_run_after_a_dry_run_is_the_same(recipe, data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(TrainingRun, "export", lambda self, **options: None)
    monkeypatch.setattr(ImageRun, "sample", lambda self: None)
    dry, plain = tmp_path / "dry", tmp_path / "plain"
    lines = lines_of(capsys, recipe, data, dry)
    assert "All" in lines or "about" in lines["Time"]
    assert not dry.exists()
    assert run(recipe, data, dry) == run(recipe, data, plain) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Done in ")
    one, other = weights(dry), weights(plain)
    assert list(one) == list(other)
    for name, value in one.items():
        # Threads add gradients of embeddings in any order; a step moves a weight by 1e-3.
        np.testing.assert_allclose(value, other[name], rtol=0, atol=1e-4, err_msg=str(name))
    before = contents(dry)
    assert "has ended" in lines_of(capsys, recipe, data, dry)["Resume"]
    assert contents(dry) == before
