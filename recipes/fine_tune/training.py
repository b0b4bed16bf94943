"""One run of the recipe: data, model, training, evaluation, export and card."""

import dataclasses

from keras_attn import layers

from ..common.epoch_dataset import EpochDataset
from ..common.files import digest, write_json
from ..common.optimizer import adam
from ..common.run import TrainingRun
from .answers import Answers
from .best_epoch import BestEpoch
from .classification import Classification
from .examples import read_examples
from .initial_model import TOKENIZER, load_or_build
from .language_model import LanguageModel
from .model_changes import check_positions
from .regression import Regression
from .several_labels import SeveralLabels
from .tagging import Tagging
from .translation import Translation

TASKS = {
    "classification": Classification,
    "several_labels": SeveralLabels,
    "regression": Regression,
    "tokens": Tagging,
    "answers": Answers,
    "language_model": LanguageModel,
    "translation": Translation,
}
LORA_TARGETS = ("*attention/*", "feed_forward/*")


def run(options, started):
    FineTuneRun(options).execute(started)


class FineTuneRun(TrainingRun):
    """Training, evaluation and export of a fine-tuned model in the directory `options.out`."""

    def __init__(self, options):
        self.name, self.splits = read_examples(options)
        data = digest(*(f"{split}{x.digest()}" for split, x in self.splits.items()))
        batches = -(-len(self.splits["train"]) // options.batch_size)
        is_part = options.steps is not None and options.steps < batches
        # A longer run does not continue a part of an epoch: its other batches would be missing.
        part = {"part of an epoch": options.steps if is_part else None}
        super().__init__(options, {"sha256": data, **options.identity(), **part})
        self.task = TASKS[options.task](self.splits, options)
        self.best = BestEpoch(self.path("best.npz"), options.patience)
        with self.scope():
            texts = self.task.texts(self.splits["train"])
            self.loaded_model, self.tokenizer = load_or_build(self.task, texts)
            self.model = self.task.model_of(self.loaded_model)
        check_positions(self.model, options.max_length)
        self.rows = {split: self._rows(split) for split in self.splits}
        self.batches = self.task.batches(self.rows["train"], options.seed)
        self._compile()

    @property
    def curve(self):
        return self.task.curve

    @property
    def epochs(self):
        return self.options.passes(len(self.batches))

    def training_data(self):
        train = EpochDataset(self.batches, (0, 1), stop=self.options.steps)
        return train, EpochDataset(self.task.batches(self.rows["valid"]), (0, 1))

    def train(self):
        """Train, or resume training, and take the weights of the best epoch."""
        if self.options.lora:
            self._add_adapters()
        self.best.set_model(self.model)
        if not self.fit(*self.training_data(), callbacks=[self.best]):
            self.best.on_train_end()  # the checkpoint has the last epoch's weights
        if self.options.lora:
            # Without a new optimizer, which would not know how many steps were made.
            layers.merge_lora(self.model)
        self.task.finish(self.model)

    def estimate(self):
        if self.options.lora:
            self._add_adapters()
        return super().estimate()

    def is_finished(self, epoch):
        return super().is_finished(epoch) or self.best.is_finished(epoch)

    def data_bytes(self):
        return sum(rows.nbytes for rows in self.rows.values())

    def save_settings(self):
        super().save_settings()
        self.tokenizer.save(self.path(TOKENIZER))
        write_json(self.path("labels.json"), self.task.labels())

    def evaluate(self):
        """Return the results on the held-out splits."""
        results_by_split = {}
        for split in self.splits:
            if split != "train":
                batches = self.task.batches(self.rows[split])
                results = self.task.evaluate(self.model, batches, self.splits[split])
                results_by_split[split] = {"metric": self.task.metric, **results}
        return results_by_split

    def export(self):
        super().export(**self.task.export_arguments(self.tokenizer))

    def card_entries(self):
        return {
            "task": self.name,
            "texts": {split: len(examples) for split, examples in self.splits.items()},
            "vocabulary_size": self.tokenizer.vocabulary_size,
        }

    def _compile(self):
        steps = self.epochs * len(self.training_data()[0])
        schedule = dataclasses.replace(self.options, steps=steps).fill(warmup_steps=steps // 10)
        with self.scope():
            self.model.compile(
                adam(schedule), jit_compile=self.jit_compile, **self.task.compile_arguments()
            )

    def _add_adapters(self):
        """Add the adapters of `--lora`, which train with the new head, and compile again.

        Only before a training: a finished run loads a model without adapters.
        """
        loaded = {id(weight) for weight in self.loaded_model.weights}
        unfrozen = [w for w in self.model.trainable_variables if id(w) not in loaded]
        if self.options.lora_embedding:
            for name in ("embedding", "target_embedding"):
                table = getattr(self.model, name, None)
                unfrozen += [] if table is None else table.trainable_variables
        with self.scope():
            layers.add_lora(self.model, self.options.lora, LORA_TARGETS)
        for weight in unfrozen:
            weight.trainable = True
        self._compile()

    def _rows(self, split):
        rows = self.task.rows(self.model, self.tokenizer, self.splits[split], split == "train")
        most = self.options.max_length
        cut = int((rows.lengths + self.task.num_unread >= most).sum())
        if cut:
            print(f"{split}: {cut} of {len(rows.lengths)} texts fill --max-length {most}.")
        return rows
