"""Dynamic spans in the language model recipe: option, card, picture."""

import numpy as np
import pytest
import recipe_runs

from recipes.language_model.training import LanguageModelRun

CONTEXT, LONGEST = 12, 20
OPTIONS = [
    *("--model", "adaptive_span_transformer", "--with", "dynamic=True", "--memory", str(LONGEST)),
    *("--num-layers", "2", "--num-heads", "2", "--hidden-dim", "6", "--intermediate-dim", "7"),
    *("--context", str(CONTEXT), "--batch-size", "3", "--steps", "3", "--epochs", "1"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Counting words."""
    directory, words = tmp_path_factory.mktemp("data"), "one two three four five six".split()
    for split, lines in (("train", 23), ("valid", 9), ("test", 9)):
        content = "".join(f"{words[i % 6]} {words[(3 * i) % 5]}\n" for i in range(lines))
        (directory / f"{split}.txt").write_text(content)
    return directory


@pytest.mark.slow
def test_the_card_has_the_mean_of_dynamic_spans_over_held_out_text(data, tmp_path):
    """Each query has a span of its own: sigmoid(w . x + b) of the longest."""
    options = recipe_runs.parse("language_model", "--data-dir", data, "--out", tmp_path, *OPTIONS)
    run = LanguageModelRun(options)
    for index, block in enumerate(run.model.depth.blocks):
        pattern = block.attention.pattern
        pattern.kernel.assign(np.linspace(-3, 3, 12).reshape(6, 2) * (1 + index))
    spans = run.card_entries()["spans"]
    assert len(spans["by_layer"]) == 2 and 0 < spans["mean"] < spans["max"] < LONGEST
    pattern = run.model.depth.blocks[0].attention.pattern
    ids = run.corpus.ids["test"][4 : 2 * CONTEXT]  # two segments; the last 20 inputs are kept
    inputs = np.asarray(run.model.embedding(ids[None]), "float64")
    logits = inputs @ np.asarray(pattern.kernel) + np.asarray(pattern.bias)
    expected = LONGEST / (1 + np.exp(-logits))
    np.testing.assert_allclose(spans["by_layer"][0], expected.mean(axis=(0, 1)), atol=0.06)
    assert (tmp_path / "spans.png").stat().st_size > 0
