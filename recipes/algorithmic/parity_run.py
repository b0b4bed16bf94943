"""Run of an RNN that computes parity in one time step, with ACT or without."""

import keras
import numpy as np

from ..plots import draw_lines
from .algorithmic_run import AlgorithmicRun
from .architectures import parity_rnn


class ParityRun(AlgorithmicRun):
    """A run of `parity`; with ACT also the steps by length."""

    metric = "accuracy"
    drawn = ("accuracy",)

    def _build(self):
        self.check_batch("batch_size")
        self.model, self._steps = parity_rnn(self.options)
        self._compile(
            keras.losses.BinaryCrossentropy(from_logits=True),
            [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)],
        )

    def evaluate_examples(self, examples):
        inputs, labels = self.batches.as_arrays(examples)
        logits = self.model.predict_on_batch(inputs)
        found = {"accuracy": float(np.mean((logits > 0) == (labels > 0)))}
        if self._steps is not None:
            found["steps"] = float(np.mean(self._steps.predict_on_batch(inputs)))
        return found

    def act_steps(self):
        if self._steps is None:
            return {}
        steps = {length: found["steps"] for length, found in self.by_length.items()}
        picture = self.path("steps.png")
        draw_lines(picture, {"act_rnn": steps}, "numbers that are not 0", "mean steps")
        return {}

    def export(self):
        """Write the next version under `export/`: `vectors` (B, T, width) to logits (B, 1)."""
        from keras_attn.export.versions import new_version  # needs TensorFlow

        versions = new_version(self.path("export"), self.options.export_version)
        with versions as (temporary, self.exported):
            self.model.export(temporary, verbose=False)
