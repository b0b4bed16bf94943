"""One run of the recipe: data, model, training, evaluation, export and card."""

import math
import time

import keras
import numpy as np

from keras_attn import generation, losses, metrics, viz
from keras_attn.memory import StatefulSegments

from ..common.epoch_dataset import EpochDataset
from ..common.optimizer import adam
from ..common.plots import save
from ..common.progress import evaluate_verbosity
from ..common.run import TrainingRun
from ..text.corpus import Corpus, decode
from ..text.data import read_text
from ..text.segments import StridedWindows, make_segments, make_validation
from .architectures import build, span_summaries, with_memory

MOST_DRAWN = 80  # tokens in the picture of dynamic spans


def run(options, started):
    LanguageModelRun(options).execute(started)


class LanguageModelRun(TrainingRun):
    """Training, evaluation and export of a language model in the directory `options.out`."""

    curve = "val_bits_per_character"

    def __init__(self, options):
        text = read_text(options.data_dir, options.text)
        super().__init__(options, text.identity(options))
        self.corpus = Corpus.load(text, options)
        self.corpus.check_rows(options.batch_size, *self.corpus.ids)
        with self.scope():
            self.model = build(options, self.corpus.tokens.vocabulary_size)
            self.training_model = self._compile()

    def training_data(self):
        options, ids = self.options, self.corpus.ids
        steps = options.steps // options.epochs
        train = make_segments(ids["train"], options, steps, self._has_memory)
        valid = make_validation(ids["valid"], options, self._has_memory)
        return EpochDataset(train), EpochDataset(valid)

    def evaluate(self):
        """Return bits per character of the test split; each token but the first is scored once."""
        options, ids = self.options, self.corpus.ids["test"]
        if self._has_memory:
            model = with_memory(self.model, options.eval_memory)
            model = StatefulSegments(model, options.batch_size)
            data = make_segments(ids, options)
            protocol = f"segments of {options.context}, memory {options.eval_memory}"
        else:
            model = keras.Model(self.model.input, self.model.output)
            data = StridedWindows(ids, options.context, options.stride, options.batch_size)
            protocol = f"windows of {options.context}, stride {options.stride}"
        measured = [metrics.BitsPerCharacter(name="bits_per_token"), metrics.Perplexity()]
        model.compile(loss=_loss(), weighted_metrics=measured, jit_compile=self.jit_compile)
        started = time.monotonic()
        how = {"verbose": evaluate_verbosity(), "return_dict": True}
        measured = model.evaluate(EpochDataset(data).data(), **how)
        return {
            "test": {
                "metric": "bits_per_character",
                "value": measured["bits_per_token"] / self.corpus.characters_per_token("test"),
                "perplexity": measured["perplexity"],
                "signature": protocol,
                "characters": self.corpus.characters["test"],
                "seconds": round(time.monotonic() - started, 1),
            }
        }

    def sample(self):
        """Return the beginning of the test split and the model's continuation."""
        options, tokenizer = self.options, self.corpus.tokens.tokenizer
        prompt = self.corpus.ids["test"][: max(1, options.context - options.max_length)]
        how = self._strategy(), options.max_length
        ids, _ = generation.generate(self.model, prompt[None], *how, eos_id=-1)
        continuation = decode(tokenizer, np.asarray(ids)[0])
        return {"prompt": decode(tokenizer, prompt), "continuation": continuation}

    def export(self):
        options, decoding = self.options, {}
        if not self._has_memory:
            decoding = {
                "strategy": self._strategy(),
                "max_length": options.max_length,
                "max_source_length": options.context - options.max_length,
                "stream": True,
            }
        super().export(tokenizer=self.corpus.tokens.tokenizer, **decoding)

    def card_entries(self):
        return {
            "task": self.corpus.name,
            "vocabulary_size": self.corpus.tokens.vocabulary_size,
            "sample": self.sample(),
            **self._spans(),
        }

    def summary(self, card):
        yield f"{card['sample']['prompt']}[...]{card['sample']['continuation']}\n"
        yield from super().summary(card)

    @property
    def _has_memory(self):
        return self.model.memory is not None

    def _compile(self):
        """Return the compiled model or wrapper that is trained."""
        options, trained = self.options, self.model
        if self._has_memory:
            trained = StatefulSegments(self.model, options.batch_size)
        elif options.model == "deep_char_transformer" and options.auxiliary_losses:
            trained = losses.AuxiliaryLosses(self.model, options.steps)
        trained.compile(
            adam(options),
            loss=_loss(),
            weighted_metrics=[self.corpus.bits_per_character()],
            jit_compile=self.jit_compile,
        )
        return trained

    def _strategy(self):
        return generation.Sample(self.options.temperature, seed=self.options.seed)

    def _spans(self):
        """Return the learned spans of a model with adaptive spans, and draw them."""
        if self.options.model != "adaptive_span_transformer":
            return {}
        ids = self.corpus.ids["test"]
        layers = span_summaries(self.model, ids, self.options.context)
        self._draw_spans(layers, ids)
        spans = [[round(float(span), 1) for span in layer["spans"]] for layer in layers]
        summary = {"mean": float(np.mean(spans)), "max": float(np.max(spans)), "by_layer": spans}
        return {"spans": summary}

    def _draw_spans(self, layers, ids):
        """Write `spans.png`; dynamic spans over the last tokens of the text that was read."""
        tokens = None
        if "queries" in layers[0]:
            segments = math.ceil(layers[0]["max_span"] / self.options.context)
            read = min(len(ids), segments * self.options.context)
            length = min(layers[0]["queries"].shape[2], MOST_DRAWN)
            layers = [{**layer, "queries": layer["queries"][..., -length:]} for layer in layers]
            tokenizer = self.corpus.tokens.tokenizer
            tokens = [decode(tokenizer, ids[i : i + 1]) for i in range(read - length, read)]
        save(viz.plot_spans(layers, tokens), self.path("spans.png"))


def _loss():
    return losses.LabelSmoothedCrossentropy(0.0)
