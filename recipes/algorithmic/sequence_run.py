"""Run of an encoder-decoder that copies, reverses or adds, and its ACT steps."""

import numpy as np

from keras_attn import losses, metrics, text, viz
from keras_attn.depth import Halting

from ..common.plots import draw_lines, save
from ..text.tokens import FIRST_ID
from .algorithmic_run import AlgorithmicRun
from .architectures import encoder_decoder
from .tasks import SYMBOLS, carries

# The layer, an `ACT`, that reads the tokens of a side.
LAYERS = {"source": "encoder", "target": "decoder"}


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
        measured = self.model.evaluate(
            inputs, labels, batch_size=self.options.batch_size, verbose=0, return_dict=True
        )
        return {name: measured[name] for name in self.drawn}

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
            halting = self.model.halting(inputs)
            if length == options.train_length:
                self._draw_halting(halting, inputs)
            steps_of = {side: np.asarray(halting[name].steps) for side, name in LAYERS.items()}
            for side, steps in steps_of.items():
                lines[f"{side}, length {length}"] = _means(steps, inputs[f"{side}_ids"] != 0)
            if options.task == "addition":
                # A position of the target reads the digit before the one that it writes.
                needed, digits = carries(examples.sources), examples.targets >= 0
                written = steps_of["target"][:, : digits.shape[1]]
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

    def _draw_halting(self, halting, inputs):
        """Write `halting_source.png` and `halting_target.png` of the first example."""
        names = {text.Tokenizer.bos_id: "begin", text.Tokenizer.eos_id: "end"}
        names |= {FIRST_ID + number: symbol for number, symbol in enumerate(SYMBOLS)}
        for side, layer in LAYERS.items():
            ids = [token for token in inputs[f"{side}_ids"][0].tolist() if token]
            first = (np.asarray(array)[:1, : len(ids)] for array in halting[layer])
            figure = viz.plot_halting(Halting(*first), [names[token] for token in ids])
            save(figure, self.path(f"halting_{side}.png"))


def _means(steps, real):
    """Return the mean over the rows that have the position, by position from 1 on."""
    return {
        place + 1: float(np.mean(steps[real[:, place], place]))
        for place in range(steps.shape[1])
        if real[:, place].any()
    }
