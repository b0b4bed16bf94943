"""Run of an encoder-decoder that copies, reverses or adds, and its ACT steps."""

import numpy as np

from keras_attn import losses, metrics, text

from ..plots import draw_lines
from ..text.tokens import FIRST_ID
from .algorithmic_run import AlgorithmicRun
from .architectures import encoder_decoder
from .tasks import SYMBOLS, carries


class SequenceRun(AlgorithmicRun):
    """A run of `options.task`, text to text; with ACT also the steps by position."""

    metric = "sequence_accuracy"
    drawn = ("sequence_accuracy", "token_accuracy")

    def _build(self):
        self.model = encoder_decoder(self.options, FIRST_ID + len(SYMBOLS))
        self._compile(
            losses.LabelSmoothedCrossentropy(0.0),
            [metrics.TokenAccuracy(), metrics.SequenceAccuracy()],
        )

    def evaluate_examples(self, examples):
        inputs, labels = self.batches.as_arrays(examples)
        found = self.model.evaluate(
            inputs, labels, batch_size=self.options.batch_size, verbose=0, return_dict=True
        )
        return {name: found[name] for name in self.drawn}

    def export(self):
        """Write the next version under `export/`: text to text."""
        tokenizer, longest = text.Characters(SYMBOLS), self.longest + 1
        tokenizer.save(self.path("tokenizer.model"))
        super().export(tokenizer=tokenizer, max_length=longest, max_source_length=longest)

    def act_steps(self):
        """Return mean steps by position, of the longest trained and the longest tested examples.

        For additions also by the distance of the carry that a digit needs.
        """
        options = self.options
        if options.depth != "act":
            return {}
        lines, by_carry = {}, {}
        for length in sorted({options.train_length, self.longest}):
            examples = self.batches.of_length(length, options.test_examples)
            if not len(examples.sources):
                continue
            inputs, _ = self.batches.as_arrays(examples)
            found = steps_by_position(self.model, inputs)
            for side, steps in zip(("source", "target"), found, strict=True):
                lines[f"{side}, length {length}"] = _means(steps, inputs[f"{side}_ids"] != 0)
            if options.task == "addition":
                # A position of the target reads the digit before the one that it writes.
                needed, digits = carries(examples.sources), examples.targets >= 0
                written = found[1][:, : digits.shape[1]]
                by_carry[f"target, length {length}"] = {
                    distance: float(np.mean(written[digits & (needed == distance)]))
                    for distance in map(int, np.unique(needed[digits]))
                }
        draw_lines(self.path("steps.png"), lines, "position", "mean steps")
        if not by_carry:
            return {"steps_by_position": lines}
        picture = self.path("steps_by_carry.png")
        draw_lines(picture, by_carry, "digits a carry has come", "mean steps")
        return {"steps_by_position": lines, "steps_by_carry": by_carry}


def _means(steps, real):
    """Return the mean over the rows that have the position, by position from 1 on."""
    return {
        place + 1: float(np.mean(steps[real[:, place], place]))
        for place in range(steps.shape[1])
        if real[:, place].any()
    }


def steps_by_position(model, inputs):
    """Return N of each position of the source (B, S) and of the right target (B, T).

    The encoder and the decoder of the model are `ACT`; padding takes no step.
    """
    found = model.halting(inputs)
    return [np.asarray(found[name].steps) for name in ("encoder", "decoder")]
