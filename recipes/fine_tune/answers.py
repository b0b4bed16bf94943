"""Answers: the part of a text that answers a question."""

import re

import numpy as np

from keras_attn import layers, models
from keras_attn.text.tokenizers.template import marking

from .encoded_texts import EncodedTexts, encode
from .examples import Examples
from .task import Task, outputs_of, token_loss

_NONE = -1
_TEXTS = 500  # of which the ids are compared at once
_WORD_START, _WORD_END = re.compile(r"\S*"), re.compile(r"\S+$")


class Answers(Task):
    """Answers as the first and the last token of a part of a text.

    The label of a row is the answer, which is in the text; in `.jsonl` it may be an object with the
    answer, `text`, and the index of its first character, `start`. Without it the first such part
    counts.

    Raises:
        ValueError: if an answer is not in its text.
    """

    metric, curve = "exact_match", "val_loss"
    has_token_targets = False

    def __init__(self, splits, options):
        super().__init__(splits, options)
        self._is_text = {}  # bool (N, T) for the rows of `Examples`, by their id
        for split in splits:
            self._spans(splits[split])

    def model_of(self, start):
        """Return a model that shares the parts of another and has a head of answers."""
        head = layers.AnswerHead(kernel_initializer="zeros", name="head")
        names = "embedding", "position", "segment", "norm", "encoder"
        parts = (getattr(start, name, None) for name in names)
        return models.MaskedLanguageModel(*parts, head, start.dropout, name=start.name)

    def texts(self, examples):
        return [*examples.texts, *examples.second_texts]

    def rows(self, model, tokenizer, examples, is_training=False):
        """Return `EncodedTexts` of questions and texts.

        Targets (N, 2) are the indices of the first and the last token of the answer, -1 where an
        end of it is cut off.
        """
        pairs = Examples(examples.second_texts, examples.texts, examples.labels)
        inputs, lengths = encode(tokenizer, pairs, model, self.options.max_length)
        _, _, marks = marking(tokenizer).encode_pair(
            pairs.texts, pairs.second_texts, self.options.max_length
        )
        ends = lengths[:, np.newaxis] - len(tokenizer.template.end)
        is_text = (np.asarray(marks) == 1) & (np.arange(marks.shape[1]) < ends)
        starts, counts = is_text.argmax(axis=1), is_text.sum(axis=1)
        spans = np.array(self._token_spans(tokenizer, examples)).reshape(-1, 2)
        is_kept = spans[:, 1] < counts
        spans = np.where(is_kept[:, np.newaxis], spans + starts[:, np.newaxis], _NONE)
        self._is_text[id(examples)] = is_text
        return EncodedTexts(inputs, lengths, spans.astype("int32"), np.ones(len(spans), "float32"))

    def compile_arguments(self):
        # The mean of the cross-entropies of both ends, each of which chooses a token.
        return {"loss": token_loss(_NONE, axis=1)}

    def evaluate(self, model, batches, examples):
        """Return the share of answers with the right tokens, and the mean F1 of their tokens."""
        pairs, begin = [], 0
        for logits, targets in outputs_of(model, batches):
            rows, begin = slice(begin, begin + len(targets)), begin + len(targets)
            is_text = self._is_text[id(examples)][rows, : logits.shape[1]]
            first, last, _ = layers.AnswerHead.best_spans(logits, is_text)
            pairs.append((targets, np.stack([first, last], axis=1)))
        expected, predicted = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        is_equal = (expected == predicted).all(axis=1)
        ends = np.minimum(expected[:, 1], predicted[:, 1])
        common = np.maximum(ends - np.maximum(expected[:, 0], predicted[:, 0]) + 1, 0)
        common = np.where(expected[:, 0] == _NONE, 0, common)
        sizes = sum(spans[:, 1] - spans[:, 0] + 1 for spans in (expected, predicted))
        cut = int((expected[:, 0] == _NONE).sum())
        signature = f"{len(expected)} questions"
        if cut:
            signature += f"; of {cut} the answer is beyond --max-length"
        return {
            "value": float(is_equal.mean()),
            "signature": signature,
            "f1": float((2 * common / sizes).mean()),
        }

    def _spans(self, examples):
        """Return the first character of each answer and the one after it."""
        spans = []
        for index, (text, label) in enumerate(zip(examples.texts, examples.labels, strict=True)):
            answer, start = label, None
            if isinstance(label, dict):
                answer, start = label.get("text"), label.get("start")
            is_text = isinstance(answer, str) and bool(answer.strip())
            if is_text and start is None:
                start = text.find(answer)
            is_there = is_text and isinstance(start, int) and start >= 0
            if not is_there or not text.startswith(answer, start):
                raise ValueError(
                    f"The column {self.options.label_column!r} must have answers that are in their "
                    f"texts. Received: {label!r} in {examples.place(index)}."
                )
            spans.append((start, start + len(answer)))
        return spans

    def _token_spans(self, tokenizer, examples):
        """Return the first and the last token of each answer, counted from the text's first one.

        Tokens of the text before an answer, and up to its end, are counted. An end in the middle of
        a token is that of the word.
        """
        spans, token_spans = self._spans(examples), []
        for begin in range(0, len(spans), _TEXTS):
            rows = slice(begin, begin + _TEXTS)
            pairs = [*zip(examples.texts[rows], spans[rows], strict=True)]
            parts = [
                [text for text, _ in pairs],
                [text[:start].rstrip() for text, (start, _) in pairs],
                [_WORD_END.sub("", text[:start]).rstrip() for text, (start, _) in pairs],
                [text[:end] for text, (_, end) in pairs],
                [text[:end] + _WORD_START.match(text[end:])[0] for text, (_, end) in pairs],
            ]
            for whole, *ids in zip(*map(tokenizer.encode_as_lists, parts), strict=True):
                first, last = _common(whole, *ids[:2]), _common(whole, *ids[2:]) - 1
                token_spans.append((min(first, last), last))
        return token_spans


def _common(whole, part, wider_part):
    """Return the number of ids of a part that the whole begins with, or else of the wider part."""
    for ids in (part, wider_part):
        size = min(len(whole), len(ids))
        differs = np.asarray(whole[:size]) != np.asarray(ids[:size])
        count = int(differs.argmax()) if differs.any() else size
        if count == len(ids):
            break
    return count
