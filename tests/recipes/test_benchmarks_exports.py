"""Exported forms of a translator against the translator."""

import functools
import json

import keras
import pytest

from keras_attn import models, text
from recipes.benchmarks import exports
from recipes.benchmarks.contenders.exports import prepare, translating
from recipes.translate.dates import date_pairs

SENTENCES = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of contenders, from an untrained run."""
    keras.utils.set_random_seed(0)
    run, folder = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("folder")
    sentences = [sentence for pair in date_pairs(seed=3)["train"][:2000] for sentence in pair]
    tokenizer = text.Characters.train(sentences)
    tokenizer.save(run / "tokenizer.model")
    models.transformer(tokenizer.vocabulary_size, 1, 2, 32, 32).save(run / "model.keras")
    options = {"data_dir": None, "seed": 3, "max_length": 6, "max_source_length": 40}
    (run / "card.json").write_text(json.dumps({"options": options}))
    facts = prepare(str(run), str(folder), SENTENCES, batch=3)
    assert facts["sentences"] == SENTENCES and facts["value"] == 0
    return str(folder)


@pytest.fixture(scope="module")
def task_of(folder):
    """Function from a form to its task."""
    return functools.cache(lambda form: translating(form, folder))


@pytest.mark.slow
@pytest.mark.parametrize("form", exports.ENGINES)
def test_each_form_translates_as_python(task_of, form):
    task = task_of(form)
    assert task.units == task.facts["same"] == len(task.call()) == SENTENCES
    assert 0 < task.facts["weight_megabytes"] <= task.facts["megabytes"]
    assert task.facts["score_difference"] < 1e-5


@pytest.mark.slow
def test_eight_bits_take_fewer_bytes(task_of):
    whole, small = (task_of(form).facts for form in ("saved_model", "saved_model_int8"))
    assert small["weight_megabytes"] < 0.5 * whole["weight_megabytes"]
    rows = [{"name": "x", "facts": whole}, {"name": "x_int8", "facts": small}]
    files, weights, lost = exports.comparisons(rows)
    assert weights["value"] == small["weight_megabytes"] / whole["weight_megabytes"]
    assert not files["met"] and lost["value"] == 0


def test_a_directory_without_a_run_is_reported(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["exports", str(tmp_path), "--out", str(tmp_path / "cards")])
    assert exports.main() == 2
    assert "holds no finished run" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
