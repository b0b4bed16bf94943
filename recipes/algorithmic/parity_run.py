"""Run of an RNN that computes parity in one time step, with ACT or without."""

import keras
import numpy as np

from ..common.plots import draw_lines
from ..predict import compiled
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

    def evaluate(self):
        self._logits_of = compiled(self.model)  # once for all lengths
        self._steps_of = None if self._steps is None else compiled(self._steps)
        return super().evaluate()

    def evaluate_examples(self, examples):
        inputs, labels = self.batches.as_arrays(examples)
        logits = np.asarray(self._logits_of(inputs))
        measures = {"accuracy": float(np.mean((logits > 0) == (labels > 0)))}
        if self._steps_of is not None:
            measures["steps"] = float(np.mean(self._steps_of(inputs)))
        return measures

    def act_steps(self):
        if self._steps is None:
            return {}
        steps = {length: measures["steps"] for length, measures in self.by_length.items()}
        picture = self.path("steps.png")
        draw_lines(picture, {"act_rnn": steps}, "numbers that are not 0", "mean steps")
        return {}

    def export(self):
        """Write the next version under `export/`: `vectors` (B, T, width) to logits (B, 1)."""
        from keras_attn.export.versions import new_version  # needs TensorFlow

        versions = new_version(self.path("export"), self.options.export_version)
        with versions as (temporary, self.exported):
            self.model.export(temporary, verbose=False)
