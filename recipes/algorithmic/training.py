"""What a run of any task is: data, training, results by length and a card."""

from .. import run
from ..epochs import EpochDataset
from ..optimizer import COMPILED, adam
from .batches import Batches
from .plots import draw_lines
from .settings import settings

_VALIDATION_BATCHES = 8


class Run(run.Run):
    """A run in the directory `options.out`, which a later run with the same options continues.

    A subclass makes and compiles `model` in `_make`, names its `metric` and what is `drawn`, and
    gives `tested(examples)`, a dict of measures of examples of one length, those among them.
    """

    metric = None
    drawn = ()

    def __init__(self, options):
        super().__init__(options, settings(options))
        self.longest = max([options.train_length, *options.test_lengths])
        self.batches = Batches(
            options.task,
            options.train_length,
            self.longest,
            options.batch_size,
            options.max_offset,
            options.seed,
        )
        self.by_length = {}
        with self.scope():
            self._make()

    def pondered(self):
        """What is known of the model's steps, as JSON holds it, drawn too."""
        return {}

    def train(self):
        """Trains, or goes on training."""
        train = self.batches.training(self.options.steps // self.options.epochs)
        self.fit(EpochDataset(train), EpochDataset(self.batches.validation(_VALIDATION_BATCHES)))

    def evaluate(self):
        """The metric at trained lengths, each counting the same, and at each longer one."""
        options = self.options
        trained = range(self.batches.shortest, options.train_length + 1)
        for length in sorted({*trained, *options.test_lengths}):
            examples = self.batches.of_length(length, options.test_examples)
            if len(examples[0]):
                count = {"examples": len(examples[0])}
                self.by_length[length] = {**self.tested(examples), **count}
        longer = [length for length in options.test_lengths if length not in trained]
        results = {"trained lengths": self._result(trained)}
        results.update({f"length {length}": self._result([length]) for length in longer})
        return results

    def _result(self, lengths):
        found = [self.by_length[length] for length in lengths if length in self.by_length]
        return {
            "metric": self.metric,
            "value": sum(measures[self.metric] for measures in found) / len(found),
            "signature": f"{sum(measures['examples'] for measures in found)} held-out examples",
        }

    @property
    def curve(self):
        return f"val_{self.metric}"

    def facts(self):
        """Also draws what was found."""
        self._draw()
        return {"task": self.options.task, "by_length": self.by_length, **self.pondered()}

    def _draw(self):
        """Draws what was found by length."""
        lines = {
            name.replace("_", " "): {n: found[name] for n, found in self.by_length.items()}
            for name in self.drawn
        }
        draw_lines(
            self.path("by_length.png"),
            lines,
            "length",
            "share of held-out examples",
            mark=(self.options.train_length, "longest in training"),
        )

    def _compile(self, loss, metrics):
        self.model.compile(
            adam(self.options),
            loss=loss,
            weighted_metrics=metrics,
            jit_compile=COMPILED,
        )
