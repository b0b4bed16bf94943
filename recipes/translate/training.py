"""One run of the recipe: data, model, training, evaluation, export and card."""

import math
import os

import keras

from keras_attn import export, generation, models, text, training
from recipes import run
from recipes.text.corpus import tokenizer_of
from recipes.translate import task as tasks
from recipes.translate.settings import settings


class Run(run.Run):
    """A run in the directory `options.out`, which a later run with the same options continues."""

    def __init__(self, options):
        _check_preset(options.preset)
        super().__init__(options, settings(options))
        if options.data_dir:
            self.task = tasks.parallel_text(
                options.data_dir, options.source, options.target, options.variant
            )
        else:
            self.task = tasks.dates(options.seed)
        self.tokenizer = self._tokenizer()
        self.batches = self._batches("train", options.tokens_per_batch, shuffle=True)
        self.epochs = options.epochs
        if options.steps is not None:
            self.epochs = math.ceil(options.steps / len(self.batches))
        with self.scope():
            self.model = self._model()
        self.translator = export.Translator(
            self.model,
            self.tokenizer,
            max_length=options.max_length,
            max_source_length=options.max_source_length,
        )

    @property
    def curve(self):
        return f"val_{self.task.metric}"

    def begin(self):
        super().begin()
        self.tokenizer.save(self.path("tokenizer.model"))

    def train(self):
        """Trains, or goes on training, and leaves the averaged weights in the model."""
        options = self.options
        resume, first = self.resume(self.model)
        self.batches.epoch = first
        average = training.AverageCheckpoints(self.path("average"), options.average_last)
        callbacks = [
            self._validation(),
            average,
            *self.logs(first),
            resume,
        ]
        if first < self.epochs:
            self.model.fit(
                self.batches.as_dataset(),
                epochs=self.epochs,
                initial_epoch=first,
                callbacks=callbacks,
                validation_data=self._batches("val", options.tokens_per_batch).as_dataset(),
                validation_freq=options.validate_every,
                shuffle=False,  # the batches shuffle themselves
                verbose=1 if os.isatty(1) else 2,
            )
        elif average.paths():
            self.model.set_weights(training.average_weights(average.paths()))
        self.model.save(self.path("model.keras"))

    def evaluate(self):
        """The metric on each held-out split, with the export's decoding strategy."""
        translator = export.Translator(
            self.model,
            self.tokenizer,
            self._strategy(),
            self.options.max_length,
            self.options.max_source_length,
        )
        results = {}
        for split in ("val", *self.task.tests):
            sources, references = map(list, zip(*self.task.splits[split], strict=True))
            translations, _ = translator.translate(sources)
            value, signature = self.task.score(translations, references)
            results[split] = {"metric": self.task.metric, "value": value, "signature": signature}
        sources = [source for source, _ in self.task.splits[self.task.tests[0]]]
        with open(self.path("unseen.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{source}\n" for source in sources[:5])
        return results

    def export(self):
        """Writes the next version under `export/`."""
        self.exported = export.saved_model(
            self.model,
            self.path("export"),
            tokenizer=self.tokenizer,
            strategy=self._strategy(),
            max_length=self.options.max_length,
            max_source_length=self.options.max_source_length,
            version=self.options.export_version,
        )

    def facts(self):
        return {"task": self.task.name, "vocabulary_size": self.tokenizer.vocabulary_size}

    def _tokenizer(self):
        path = self.path("tokenizer.model")
        if os.path.exists(path):
            return text.load(path)
        sentences = [sentence for pair in self.task.splits["train"] for sentence in pair]
        kind = self.options.tokenizer
        most = None if kind == "characters" else self.options.vocabulary_size
        return tokenizer_of(sentences, kind, most)

    def _batches(self, split, tokens_per_batch, shuffle=False):
        sides = zip(*self.task.splits[split], strict=True)
        sources, targets = map(self.tokenizer.encode_as_lists, sides)
        return text.TokenBatches(
            sources,
            targets,
            tokens_per_batch,
            max_length=self.options.max_source_length,
            shuffle=shuffle,
            seed=self.options.seed,
        )

    def _model(self):
        options = self.options
        chosen = {"num_layers": options.num_layers, "dropout": options.dropout}
        model = models.from_preset(
            options.preset,
            vocabulary_size=self.tokenizer.vocabulary_size,
            residual=options.residual,
            **{name: value for name, value in chosen.items() if value is not None},
        )
        model.compile(
            optimizer=training.Adam(
                training.Noam.from_peak(options.learning_rate, options.warmup_steps),
                beta_1=0.9,
                beta_2=0.98,
                epsilon=1e-9,
                global_clipnorm=options.clip_norm,
            ),
            loss=training.LabelSmoothedCrossentropy(options.label_smoothing),
            weighted_metrics=[training.Perplexity()],
            jit_compile=False,
        )
        return model

    def _strategy(self):
        if self.options.beams == 1:
            return generation.Greedy()
        return generation.Beam(self.options.beams, self.options.length_penalty)

    def _validation(self):
        """A callback that translates the validation split greedily and logs the task's metric."""
        sources, references = map(list, zip(*self.task.splits["val"], strict=True))

        def translate(sources):
            return self.translator.translate(sources)[0]

        if self.task.metric == "bleu":
            return training.Bleu(
                sources,
                references,
                translate,
                every_epochs=self.options.validate_every,
                tokenize=self.task.tokenize,
            )

        def on_epoch_end(epoch, logs):
            logs["val_exact_match"] = self.task.score(translate(sources), references)[0]

        return keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)


def _check_preset(preset):
    known = [name for name, (build, _) in models.PRESETS.items() if build is models.transformer]
    if preset not in known:
        raise ValueError(f"--preset must be one of {', '.join(known)}. Received: {preset}.")
