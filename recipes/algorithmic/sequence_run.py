"""A run of an encoder and decoder: to copy, to reverse or to add."""

import numpy as np

from keras_attn import losses, metrics, text

from ..text.tokens import FIRST_ID
from .architectures import encoder_decoder
from .plots import draw_lines
from .pondering import steps_by_position
from .sequences import SYMBOLS, carries
from .training import Run


class SequenceRun(Run):
    """A run of `options.task`, text to text; with ACT also the steps by position."""

    metric = "sequence_accuracy"
    drawn = ("sequence_accuracy", "token_accuracy")

    def _make(self):
        self.model = encoder_decoder(self.options, FIRST_ID + len(SYMBOLS))
        self._compile(
            losses.LabelSmoothedCrossentropy(0.0),
            [metrics.TokenAccuracy(), metrics.SequenceAccuracy()],
        )

    def tested(self, examples):
        inputs, labels = self.batches.as_arrays(examples)
        found = self.model.evaluate(
            inputs, labels, batch_size=self.options.batch_size, verbose=0, return_dict=True
        )
        return {name: found[name] for name in self.drawn}

    def export(self):
        """Writes the next version under `export/`: text to text."""
        from keras_attn import export

        tokenizer = text.Characters(SYMBOLS)
        tokenizer.save(self.path("tokenizer.model"))
        self.exported = export.saved_model(
            self.model,
            self.path("export"),
            tokenizer=tokenizer,
            max_length=self.longest + 1,
            max_source_length=self.longest + 1,
            version=self.options.export_version,
        )

    def pondered(self):
        """Mean steps by position, of the longest trained examples and of the longest tested.

        And of a sum by how far the carry comes from that a digit needs.
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
                # What a position of the target reads is one before what it writes.
                needed, digits = carries(examples.sources), examples.targets >= 0
                written = found[1][:, : digits.shape[1]]
                by_carry[f"target, length {length}"] = {
                    distance: float(np.mean(written[digits & (needed == distance)]))
                    for distance in map(int, np.unique(needed[digits]))
                }
        draw_lines(self.path("steps.png"), lines, "position", "mean steps")
        if by_carry:
            draw_lines(
                self.path("steps_by_carry.png"), by_carry, "digits a carry has come", "mean steps"
            )
        return {"steps_by_position": lines, **({"steps_by_carry": by_carry} if by_carry else {})}


def _means(steps, real):
    """The mean over the rows that have the position, by position from 1 on."""
    return {
        place + 1: float(np.mean(steps[real[:, place], place]))
        for place in range(steps.shape[1])
        if real[:, place].any()
    }
