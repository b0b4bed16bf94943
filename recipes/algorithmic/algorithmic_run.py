"""Run of any task: data, training, results by length and a card."""

from ..common.epoch_dataset import EpochDataset
from ..common.optimizer import adam
from ..common.plots import draw_lines
from ..common.run import TrainingRun
from .batches import Batches

_VALIDATION_BATCHES = 8


class AlgorithmicRun(TrainingRun):
    """Training, evaluation and export of a task's model in the directory `options.out`.

    A subclass builds and compiles `model` in `_build`, names its `metric` and the measures that are
    `drawn`, and defines `evaluate_examples(examples)`, which returns a dict of measures of examples
    of one length.
    """

    metric = None
    drawn = ()

    def __init__(self, options):
        super().__init__(options, options.identity())
        self.longest = max([options.train_length, *options.test_lengths])
        sizes = options.train_length, self.longest, options.batch_size, options.max_offset
        curriculum_steps = round(options.curriculum * options.steps)
        self.batches = Batches(options.task, *sizes, options.seed, curriculum_steps)
        self.by_length = {}
        with self.scope():
            self._build()

    def act_steps(self):
        """Draw the steps of the model's ACT, and return them as JSON holds them."""
        return {}

    def training_data(self):
        train = self.batches.training(self.options.steps // self.options.epochs)
        return EpochDataset(train), EpochDataset(self.batches.validation(_VALIDATION_BATCHES))

    def evaluate(self):
        """Return the mean of the metric over trained lengths, and the metric at each longer one."""
        options = self.options
        trained = range(self.batches.shortest, options.train_length + 1)
        for length in sorted({*trained, *options.test_lengths}):
            examples = self.batches.of_length(length, options.test_examples)
            if len(examples[0]):
                count = {"examples": len(examples[0])}
                self.by_length[length] = {**self.evaluate_examples(examples), **count}
        longer = [length for length in options.test_lengths if length not in trained]
        results = {"trained lengths": self._result(trained)}
        results.update({f"length {length}": self._result([length]) for length in longer})
        return results

    def _result(self, lengths):
        measured = [self.by_length[length] for length in lengths if length in self.by_length]
        return {
            "metric": self.metric,
            "value": sum(measures[self.metric] for measures in measured) / len(measured),
            "signature": f"{sum(measures['examples'] for measures in measured)} held-out examples",
        }

    @property
    def curve(self):
        return f"val_{self.metric}"

    def card_entries(self):
        """Return entries of the card, and draw them."""
        self._draw()
        return {"task": self.options.task, "by_length": self.by_length, **self.act_steps()}

    def _draw(self):
        """Draw the measures by length."""
        lines = {
            name.replace("_", " "): {n: measured[name] for n, measured in self.by_length.items()}
            for name in self.drawn
        }
        mark, picture = (self.options.train_length, "longest in training"), "by_length.png"
        draw_lines(self.path(picture), lines, "length", "share of held-out examples", mark)

    def _compile(self, loss, metrics):
        how = {"weighted_metrics": metrics, "jit_compile": self.jit_compile}
        self.model.compile(adam(self.options), loss, **how)
