"""One run of the recipe: data, model, training, evaluation, export and card."""

import keras

from keras_attn import callbacks, generation, losses, metrics, optimizers, text
from keras_attn.distribution.workers import worker_of

from ..common import files
from ..common.epoch_dataset import EpochDataset
from ..common.run import TrainingRun
from . import architectures
from .consistency import ConsistentPasses
from .dates import iso_dates
from .early_stopping import EarlyStopping
from .parallel_text import ParallelCorpus
from .subword_dropout import SubwordDropoutBatches
from .task import make_task


def run(options, started):
    TranslationRun(options).execute(started)


class TranslationRun(TrainingRun):
    """Training, evaluation and export of a translator in the directory `options.out`."""

    def __init__(self, options):
        self.task = make_task(options)
        settings = {**self.task.identity(), **options.identity()}
        source, target = self.task.languages  # of prepared pairs, for the card
        super().__init__(options.fill(source=source, target=target), settings)
        self.corpus = ParallelCorpus.load(self.task, options)
        self.batches = self._training_batches()
        self.by_source_length = {}
        with self.scope():
            self.model = architectures.build(options, self.corpus.tokens.vocabulary_size)
            self.training_model = self._compile()
        self.stopping = self._early_stopping()

    @property
    def curve(self):
        return f"val_{self.task.metric}"

    @property
    def epochs(self):
        return self.options.passes(len(self.batches))

    def training_data(self):
        free_axes = () if self.options.packing else (0, 1)
        train = EpochDataset(self.batches, free_axes, stop=self.options.steps)
        return train, EpochDataset(self._batches("val"), free_axes)

    def trained_steps(self):
        steps = super().trained_steps()
        if steps is not None:
            self.check_whole_epochs(1, len(self.training_data()[0]), steps)
        return steps

    def train(self):
        """Train, or resume training, and average the last weights of the model."""
        average = callbacks.AverageCheckpoints(self.path("average"), self.options.average_last)
        has_trained = self.fit(
            *self.training_data(),
            callbacks=[*self._validation(), average, *self.stopping],
            validation_freq=self.options.validate_every,
        )
        if not has_trained:  # the checkpoint has the last epoch's weights
            average.set_model(self.compiled_model)
            average.on_train_end()

    def is_finished(self, epoch):
        is_last = super().is_finished(epoch)
        return is_last or any(stopping.is_finished(epoch) for stopping in self.stopping)

    def evaluate(self):
        """Return the metric on each held-out split, with the export's decoding strategy."""
        translator = self._translator(self._strategy())
        results = {}
        for split in ("val", *self.task.tests):
            sources, references = map(list, zip(*self.task.splits[split], strict=True))
            translations, _ = translator.translate(sources)
            value, signature = self.task.score(translations, references)
            results[split] = {"metric": self.task.metric, "value": value, "signature": signature}
            groups = self.task.score_by_length(sources, translations, references)
            self.by_source_length[split] = groups
        unseen, *_ = *self.task.tests, "val"
        sources = [source for source, _ in self.task.splits[unseen]]
        lines = (" ".join(source.split("\n")) for source in sources[:5])
        files.write(self.path("unseen.txt"), "".join(f"{line}\n" for line in lines))
        return results

    def export(self):
        super().export(
            tokenizer=self.corpus.tokens.tokenizer,
            strategy=self._strategy(),
            max_length=self.options.max_length,
            max_source_length=self.options.max_source_length,
        )

    def card_entries(self):
        return {
            "task": self.task.name,
            "vocabulary_size": self.corpus.tokens.vocabulary_size,
            "by_source_length": self.by_source_length,
        }

    def _batches(self, split, shuffle=False):
        options, ids = self.options, self.corpus.ids[split]
        sizes = {"tokens_per_batch": options.tokens_per_batch, "shuffle": shuffle}
        sizes["seed"] = options.seed
        try:
            if options.packing:
                return text.PackedBatches(ids, row_length=options.packing, **sizes)
            return text.TokenBatches(ids, max_length=options.max_source_length, **sizes)
        except ValueError as error:
            flag = "packing" if options.packing else "max-source-length"
            raise ValueError(f"--{flag} does not fit {split}: {error}") from error

    def _training_batches(self):
        options, plain = self.options, self._batches("train", shuffle=True)
        if not options.subword_dropout:
            return plain
        return SubwordDropoutBatches(
            plain,
            self.corpus.tokens.tokenizer,
            rate=options.subword_dropout,
            max_length=options.max_source_length,
            seed=options.seed,
        )

    def _compile(self):
        """Return the compiled model or wrapper that is trained."""
        options, trained = self.options, self.model
        if options.consistency:
            trained = ConsistentPasses(self.model, options.consistency)
        trained.compile(
            optimizer=optimizers.Adam(
                optimizers.Noam.from_peak(options.learning_rate, options.warmup_steps),
                beta_1=0.9,
                beta_2=0.98,
                epsilon=1e-9,
                global_clipnorm=options.clip_norm,
            ),
            loss=losses.LabelSmoothedCrossentropy(options.label_smoothing),
            weighted_metrics=[metrics.Perplexity()],
            jit_compile=self.jit_compile,
        )
        return trained

    def _strategy(self):
        strategy = generation.Greedy()
        if self.options.beams > 1:
            strategy = generation.Beam(self.options.beams, self.options.length_penalty)
        if not self.options.constrained:
            return strategy
        table = generation.allow_texts(iso_dates(), self.corpus.tokens.tokenizer)
        return generation.Constrained(strategy, table)

    def _translator(self, strategy):
        from keras_attn import export

        lengths = self.options.max_length, self.options.max_source_length
        return export.Translator(self.model, self.corpus.tokens.tokenizer, strategy, *lengths)

    def _early_stopping(self):
        """Return a list of the callback that stops training, empty without `--patience`.

        It follows the task's metric where each process has it, else the loss.
        """
        if self.options.patience is None:
            return []
        is_alone = worker_of(self.model)[1] == 1
        is_loss = keras.backend.backend() != "tensorflow" or not is_alone
        metric = "val_loss" if is_loss else self.curve
        history = self.path("history.csv")
        return [EarlyStopping(history, metric, is_loss, self.options.patience)]

    def _validation(self):
        """Return callbacks that translate the validation split greedily and log the task's metric.

        Only the first process on TensorFlow does so: `export.Translator` needs TensorFlow, and
        only one process writes the log.
        """
        if keras.backend.backend() != "tensorflow" or worker_of(self.model)[0] > 0:
            return []
        sources, references = map(list, zip(*self.task.splits["val"], strict=True))
        translator = self._translator(generation.Greedy())

        def translate(sources):
            return translator.translate(sources)[0]

        if self.task.metric == "bleu":
            how = {"every_epochs": self.options.validate_every, "tokenize": self.task.tokenize}
            return [callbacks.Bleu(sources, references, translate, **how)]

        def on_epoch_end(epoch, logs):
            if (epoch + 1) % self.options.validate_every == 0:
                logs["val_exact_match"] = self.task.score(translate(sources), references)[0]

        return [keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)]
