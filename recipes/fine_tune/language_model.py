"""Language modelling of texts without labels: the next token, or masked tokens."""

import numpy as np

from keras_attn import metrics, models
from keras_attn.backend.replicas import model_scope

from ..common.epoch_dataset import EpochDataset
from ..masked_language_model.batches import mask_tokens
from .encoded_texts import EncodedTexts, TextBatches, encode
from .task import Task, token_loss

_RATE = 0.15  # of masked tokens
_IGNORED = -1


class LanguageModel(Task):
    """Tokens of texts: each from those before it, or masked ones from both sides.

    The kind of the model decides; a new one predicts the next token.

    Raises:
        ValueError: if a masked language model has no token for the mask.
    """

    kinds = (models.CausalLanguageModel, models.MaskedLanguageModel)
    metric, curve = "perplexity", "val_perplexity"

    def __init__(self, splits, options):
        super().__init__(splits, options)
        self._is_causal, self._draw = True, None

    def new_model(self, vocabulary_size, **arguments):
        return models.gpt(vocabulary_size, **arguments)

    def model_of(self, start):
        self._is_causal = isinstance(start, models.CausalLanguageModel)
        self.num_unread = 1 if self._is_causal else 0
        if getattr(start, "memory", None) is not None:
            raise ValueError("--model must have no memory, which texts of one row do not need.")
        return start

    def rows(self, model, tokenizer, examples, is_training=False):
        inputs, lengths = encode(tokenizer, examples, model, self.options.max_length)
        ids = inputs["token_ids"]
        weights = np.ones(len(ids), "float32")
        if not self._is_causal:
            self._draw = self._masking(model, tokenizer)
            return EncodedTexts({"token_ids": ids}, lengths, ids, weights)
        is_target = np.arange(1, ids.shape[1]) < lengths[:, None]
        targets = np.where(is_target, ids[:, 1:], _IGNORED)
        return EncodedTexts({"token_ids": ids[:, :-1]}, lengths - 1, targets, weights)

    def batches(self, rows, seed=None):
        if self._is_causal:
            return super().batches(rows, seed)
        return MaskedBatches(rows, self.options.batch_size, seed, self._draw)

    def compile_arguments(self):
        return {
            "loss": token_loss(_IGNORED),
            "weighted_metrics": [metrics.Perplexity(ignore_class=_IGNORED)],
        }

    def evaluate(self, model, batches, examples):
        """Return the perplexity of a token."""
        with model_scope(model):
            data = EpochDataset(batches, (0, 1)).data()
        measured = model.evaluate(data, verbose=0, return_dict=True)
        tokens = "next tokens" if self._is_causal else "masked tokens"
        return {"value": measured["perplexity"], "signature": f"{len(examples)} texts; {tokens}"}

    def export_arguments(self, tokenizer):
        """Return none for a masked language model, whose export reads ids."""
        if not self._is_causal:
            return {}
        most = self.options.max_length
        return {"tokenizer": tokenizer, "max_length": most // 2, "max_source_length": most}

    def _masking(self, model, tokenizer):
        """Return a function of ids and a generator that masks tokens, but no special ones."""
        size, pieces = tokenizer.vocabulary_size, tokenizer.vocabulary()
        known = [pieces.index(mask) for mask in ("[MASK]", "<mask>") if mask in pieces]
        if not known and model.embedding.vocabulary_size == size:
            raise ValueError(
                "--model must have a token for the mask: [MASK], <mask>, or one id more than the "
                f"tokenizer. Received: {size} ids of both."
            )
        mask_id = known[0] if known else size  # as `recipes.masked_language_model` has it
        template = tokenizer.template
        special = [
            *(model.pad_id, tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id),
            *(*template.start, *template.middle, *template.end, mask_id),
        ]
        special = [token for token in special if token is not None]

        def draw(ids, generator):
            is_special = np.isin(ids, special)
            tokens, targets = mask_tokens(np.where(is_special, 0, ids), _RATE, size, 1, generator)
            is_mask = tokens == size
            # A special token that was drawn as a random one does not replace a token.
            tokens = np.where(is_special | np.isin(tokens, special), ids, tokens)
            tokens = np.where(is_mask, mask_id, tokens)
            return tokens, np.where(targets > 0, targets, _IGNORED)

        return draw


class MaskedBatches(TextBatches):
    """Batches whose tokens are masked anew in each epoch.

    Args:
        rows, batch_size, seed: as `TextBatches`.
        draw: function of ids and of a `numpy.random.Generator` that returns tokens and targets.
    """

    def __init__(self, rows, batch_size, seed, draw):
        super().__init__(rows, batch_size, seed)
        self._draw = draw

    def batch(self, epoch, index):
        inputs, _, weights = super().batch(epoch, index)
        generator = np.random.default_rng([self._seed or 0, self._seed is None, epoch, index])
        tokens, targets = self._draw(inputs["token_ids"], generator)
        return {"token_ids": tokens}, targets, weights
