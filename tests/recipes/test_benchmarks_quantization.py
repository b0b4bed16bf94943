"""The benchmark of exported weights in few bits."""

import keras
import numpy as np
import pytest

from keras_attn import models, text
from recipes.benchmarks import quantization
from recipes.benchmarks.contenders.quantization import scoring

V, CONTEXT, TOKENS = 17, 7, 52


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An untrained run."""
    folder = tmp_path_factory.mktemp("run")
    keras.utils.set_random_seed(0)
    models.llama(V, 1, 2, 32, 32).save(folder / "model.keras")
    ids = np.random.default_rng(0).integers(1, V, TOKENS + 9)
    tokens, tokenizer = str(folder / "tokens"), text.Characters("abcdefghijklm")
    with text.TokenWriter(tokens, "test", 0, tokenizer) as shard:
        shard.add(ids)
    tokenizer.save(folder / "tokens" / "tokenizer.model")
    text.Manifest.make(tokens, {"test": [shard.name]}, {}, {})
    return folder


@pytest.mark.slow
def test_the_perplexity_is_that_of_the_model_and_grows_with_fewer_bits(run):
    facts = {}
    for form in quantization.FORMS:
        task = scoring(form, str(run), TOKENS, CONTEXT)
        assert task.units == TOKENS // CONTEXT * (CONTEXT - 1)
        facts[form] = task.facts
    ids = text.TokenFiles(run / "tokens", "test")[: TOKENS // CONTEXT * CONTEXT].reshape(
        -1, CONTEXT
    )
    logits = np.asarray(keras.saving.load_model(run / "model.keras")(ids), "float64")[:, :-1]
    losses = (
        np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, ids[:, 1:, None], -1)[..., 0]
    )
    expected = np.exp(losses.mean())
    assert facts["float32"]["perplexity"] == pytest.approx(expected, rel=1e-5)
    errors = [abs(facts[form]["perplexity"] / expected - 1) for form in ("int8", "int4")]
    assert errors[0] < errors[1] < 0.1
    sizes = [facts[form]["weight_megabytes"] for form in quantization.FORMS]
    assert sizes == sorted(sizes, reverse=True)
    rows = [{"name": form, "facts": facts[form]} for form in quantization.FORMS]
    found = quantization.comparisons(rows)
    assert [c["name"] for c in found] == ["int8", "int8", "int4", "int4"]
    assert abs(found[-1]["value"]) == pytest.approx(errors[1], rel=1e-3)


def test_a_directory_without_a_run_is_reported(tmp_path, capsys, monkeypatch):
    arguments = ["quantization", str(tmp_path), "--out", str(tmp_path / "cards")]
    monkeypatch.setattr("sys.argv", arguments)
    assert quantization.main() == 2
    assert "holds no finished run" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
