"""A recipe that divides its model among processes, on JAX."""

import keras
import numpy as np
import pytest
from other_backend import needs_jax
from recipe_processes import finished, started

from keras_attn.callbacks.training_state import read_arrays
from recipes.common.machine import cluster_settings

pytestmark = [needs_jax, pytest.mark.slow]


def validation_losses(out):
    names, *rows = (row.split(",") for row in (out / "history.csv").read_text().splitlines())
    return np.array([float(row[names.index("val_loss")]) for row in rows])


def test_the_best_epoch_of_weights_divided_among_processes_is_kept(tmp_path):
    """Labels without a reason, so that the validation loss soon rises."""
    # Words of one length and of single letters as tokens: one shape to compile.
    words = ["".join(chr(97 + i // 7**k % 7) for k in range(3)) for i in range(53)]
    labels = np.random.default_rng(0).integers(0, 2, len(words))
    rows = [f"{word},{('odd', 'even')[label]}" for word, label in zip(words, labels, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]))
    size = "--num-layers 1 --num-heads 2 --hidden-dim 8 --intermediate-dim 12 --dropout 0"
    how = "--max-length 13 --vocabulary-size 19 --epochs 6 --batch-size 6 --learning-rate 0.1"
    options = "--train", tmp_path / "rows.csv", *size.split(), *how.split(), "--patience", "9"
    weights = {}
    for name, mesh in (("alone", ()), ("divided", ("--mesh", "model=2"))):
        out, strategy = tmp_path / name, ("--strategy", "model_parallel", *mesh) if mesh else ()
        configs = cluster_settings(2) if mesh else [None]
        finished(
            started(
                *("fine_tune", *options, "--out", out, *strategy),
                backend="jax",
                **({"TF_CONFIG": config} if config else {}),
            )
            for config in configs
        )
        losses = validation_losses(out)
        assert losses.argmin() < len(losses) - 1, "another epoch than the last one must be kept"
        model = keras.saving.load_model(out / "model.keras")
        for own, best in zip(model.get_weights(), read_arrays(out / "best.npz")[0], strict=True):
            np.testing.assert_array_equal(own, best)
        # Adam makes steps of the rounding of a key bias, whose gradient is 0.
        kept = [v for v in model.weights if not v.path.endswith("key_bias")]
        weights[name] = [np.asarray(v) for v in kept]
    for own, expected in zip(weights["divided"], weights["alone"], strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-2)  # an epoch moves some by 0.3
