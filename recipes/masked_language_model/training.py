"""One run of the recipe: data, model, training, evaluation, export and card."""

import numpy as np

from keras_attn import losses, metrics, models

from ..common.epoch_dataset import EpochDataset
from ..common.optimizer import adam
from ..common.progress import evaluate_verbosity
from ..common.run import TrainingRun
from ..text.corpus import Corpus, decode
from ..text.data import read_text
from ..text.tokens import FIRST_ID
from .batches import MaskedSegments, count_ids, mask_tokens

EXAMPLES, EXAMPLE_LENGTH = 3, 24
# Arguments of each model for a number of tokens.
_OWN = {
    "bert": lambda context: {"max_length": context},
    "longformer": lambda context: {"max_length": context, "window": context // 2},
    "big_bird": lambda context: {"max_length": context, "block_length": max(1, context // 16)},
    "modern_bert": lambda context: {"window": context // 2},
    "perceiver": lambda context: {"max_length": context, "num_latents": -(-context // 4)},
}
MASK = "[MASK]"


def run(options, started):
    MaskedLanguageModelRun(options).execute(started)


class MaskedLanguageModelRun(TrainingRun):
    """Training, evaluation and export of a masked language model in the directory `options.out`."""

    curve = "val_masked_accuracy"

    def __init__(self, options):
        text = read_text(options.data_dir, options.text)
        super().__init__(options, text.identity(options))
        self.corpus = Corpus.load(text, options)
        for split, ids in self.corpus.ids.items():
            if not len(ids):
                raise ValueError(
                    f"Each split of the corpus must have tokens. Received: no {split}."
                )
        self.mask_id = self.corpus.tokens.vocabulary_size
        with self.scope():
            build = getattr(models, options.model)
            arguments = {"dropout": options.dropout, **_OWN[options.model](options.context)}
            self.model = build(self.mask_id + 1, **options.sizes(), **arguments)
            self.model.compile(
                adam(options),
                loss=losses.LabelSmoothedCrossentropy(0.0),
                weighted_metrics=[
                    metrics.TokenAccuracy(name="masked_accuracy"),
                    metrics.Perplexity(),
                ],
                jit_compile=self.jit_compile,
            )

    def training_data(self):
        train = self._segments("train", steps=self.options.steps // self.options.epochs)
        valid = self._segments("valid", most=self.options.valid_tokens)
        return EpochDataset(train), EpochDataset(valid)

    def evaluate(self):
        """Return the accuracy on masked test tokens, and that of always the most frequent token."""
        segments = self._segments("test")
        with self.scope():
            data = EpochDataset(segments).data()
        measured = self.model.evaluate(data, verbose=evaluate_verbosity(), return_dict=True)
        guess = count_ids(self.corpus.ids["train"])[FIRST_ID:].argmax() + FIRST_ID
        hits, number = 0, 0
        for index in range(len(segments)):
            _, targets = segments.batch(0, index)
            hits, number = hits + int((targets == guess).sum()), number + int((targets > 0).sum())
        baseline = hits / number
        return {
            "test": {
                "metric": "masked_accuracy",
                "value": measured["masked_accuracy"],
                "signature": f"the most frequent token alone: {baseline:.4g}",
                "perplexity": measured["perplexity"],
                "baseline": baseline,
                "masked_tokens": number,
            }
        }

    def examples(self):
        """Return pairs of text: passages of the test split with masks, and with predictions."""
        pairs, ids = [], self.corpus.ids["test"]
        generator = np.random.default_rng(self.options.seed)
        length = min(EXAMPLE_LENGTH, self.options.context, len(ids))
        for start in range(0, min(len(ids) - length, EXAMPLES * length - 1) + 1, length):
            part = ids[start : start + length]
            rate = self.options.mask_rate
            _, targets = mask_tokens(part, rate, self.mask_id, FIRST_ID, generator)
            tokens = np.where(targets > 0, self.mask_id, part)
            logits = np.asarray(self.model({"token_ids": tokens[None]}))[0, :, : self.mask_id]
            filled = np.where(targets > 0, logits.argmax(-1), part)
            pairs.append((self._shown(tokens), self._shown(filled)))
        return pairs

    def card_entries(self):
        return {
            "task": self.corpus.name,
            "vocabulary_size": self.mask_id,
            "examples": self.examples(),
        }

    def summary(self, card):
        for masked, filled in card["examples"]:
            yield f"{masked}\n    {filled}"
        yield from super().summary(card)

    def _segments(self, split, steps=None, most=None):
        ids = self.corpus.ids[split].part(0, most)
        return MaskedSegments(ids, self.options, self.mask_id, FIRST_ID, steps)

    def _shown(self, ids):
        """Return text in which masks are written as [MASK]."""
        parts, part = [], []
        for token in [*ids, self.mask_id]:
            if token == self.mask_id:
                parts.append(decode(self.corpus.tokens.tokenizer, part) if part else "")
                part = []
            else:
                part.append(token)
        return f" {MASK} ".join(parts)
