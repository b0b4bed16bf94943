"""Translation: another text for each text."""

import os

import numpy as np

from keras_attn import callbacks, convert, metrics, models

from .encoded_texts import EncodedTexts, encode
from .task import Task, token_loss

_IGNORED = -1


class Translation(Task):
    """Texts and their translations, which are the labels.

    Raises:
        ValueError: if a label is no text.
    """

    kinds = (models.EncoderDecoder,)
    curve = "val_perplexity"

    def __init__(self, splits, options):
        super().__init__(splits, options)
        self._tokenizer = None
        # A date is one word, and BLEU counts runs of four.
        self.metric = "bleu" if options.train else "exact_match"
        for examples in splits.values():
            for index, label in enumerate(examples.labels):
                if not isinstance(label, str):
                    raise ValueError(
                        f"The column {options.label_column!r} must have texts. "
                        f"Received: {label!r} in {examples.place(index)}."
                    )

    def new_model(self, vocabulary_size, max_length, **sizes):
        # Normalisation before each sublayer needs no long warm-up.
        return models.transformer(vocabulary_size, **sizes, residual="pre_norm")

    def texts(self, examples):
        return [*examples.texts, *examples.labels]

    def model_of(self, start):
        return start

    def rows(self, model, tokenizer, examples, is_training=False):
        """Return `EncodedTexts` of sources, and of targets after the token that begins them."""
        self._tokenizer, most = tokenizer, self.options.max_length
        source, source_lengths = encode(tokenizer, examples, model, most)
        # Marian has a model for each side.
        targets_of = getattr(tokenizer, "for_targets", lambda: tokenizer)()
        target, lengths = map(np.asarray, targets_of.encode(examples.labels, most))
        first = np.full((len(target), 1), self._decoding()["bos_id"], "int32")
        is_target = np.arange(target.shape[1]) < lengths[:, None]
        inputs = {
            "source_ids": source["token_ids"],
            "target_ids": np.hstack([first, target[:, :-1]]),
        }
        targets = np.where(is_target, target, _IGNORED)
        weights = np.ones(len(target), "float32")
        return EncodedTexts(inputs, np.maximum(source_lengths, lengths), targets, weights)

    def compile_arguments(self):
        return {
            "loss": token_loss(_IGNORED, label_smoothing=0.1),
            "weighted_metrics": [metrics.Perplexity(ignore_class=_IGNORED)],
        }

    def evaluate(self, model, batches, examples):
        """Return BLEU, and the share of translations that are equal to their references."""
        from keras_attn import export  # needs TensorFlow

        most = self.options.max_length
        translator = export.Translator(
            model, self._tokenizer, max_source_length=most, **self._decoding()
        )
        answers, _ = translator.translate(examples.texts)
        bleu, signature = callbacks.corpus_bleu(answers, examples.labels, "13a")
        equal = float(np.mean([a == b for a, b in zip(answers, examples.labels, strict=True)]))
        if self.metric == "bleu":
            return {"value": bleu, "signature": signature, "exact_match": equal}
        return {"value": equal, "signature": "share of translations equal to the reference"}

    def export_arguments(self, tokenizer):
        return {**super().export_arguments(tokenizer), **self._decoding()}

    def _decoding(self):
        """Return the strategy, tokens and length of decoding: a folder's, or greedy."""
        options, most = self.options, self.options.max_length
        if options.model is None or not os.path.isdir(options.model):
            return {"strategy": "greedy", "bos_id": self._tokenizer.bos_id, "max_length": most}
        settings = convert.generation_options(options.model, is_encoder_decoder=True)
        return {**settings, "max_length": min(most, settings["max_length"])}
