"""Signatures of a model of answers: the part of a text that answers a question."""

import functools

import tensorflow as tf

from keras_attn.export.checks import check_reads
from keras_attn.export.signatures.encoders import TokenEncoder
from keras_attn.export.signatures.model_functions import GraphMethod, call_masked, mask_ids
from keras_attn.layers import AnswerHead, TransformedHead
from keras_attn.models.encoder_models import MaskedLanguageModel
from keras_attn.text.tokenizers.template import marking

_QUESTIONS = [tf.TensorSpec([None], tf.string, name) for name in ("question", "text")]
question_method = functools.partial(GraphMethod, input_signature=_QUESTIONS)


class QuestionAnswerer(TokenEncoder):
    """Tokenizer and model of answers as one graph, from a question and a text to a part of it.

        question, text -> ids -> logits -> AnswerHead.best_spans -> answer

    Args:
        model: a `MaskedLanguageModel` with an `AnswerHead`.
        tokenizer: from `keras_attn.text`.
        max_length: int. Most tokens of both to read; the longer one loses its end.

    Raises:
        ValueError: if the tokenizer has ids that the model lacks.

    Example:
        >>> import keras_attn
        >>> bert = keras_attn.models.bert(7, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, max_length=32)
        >>> model = keras_attn.models.MaskedLanguageModel(bert.embedding, bert.position,
        ...     bert.segment, bert.norm, bert.encoder, keras_attn.layers.AnswerHead())
        >>> answerer = keras_attn.export.QuestionAnswerer(model, keras_attn.text.Characters("abc"))
        >>> answerer.answer(["ab"], ["bca"])["score"].shape
        TensorShape([1])

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 4.2.
    """

    @classmethod
    def fits(cls, model, options):
        head = getattr(model, "head", None)
        head = head.head if isinstance(head, TransformedHead) else head
        is_of_answers = isinstance(model, MaskedLanguageModel) and isinstance(head, AnswerHead)
        return is_of_answers and options.tokenizer is not None

    @classmethod
    def from_options(cls, model, options):
        options.check_no_strategy()
        return cls(model, options.tokenizer, options.max_source_length)

    def __init__(self, model, tokenizer, max_length=1024):
        super().__init__(model)
        check_reads(model, tokenizer)
        self.tokenizer = tokenizer
        self._marking = marking(tokenizer)
        self._max_length = min(max_length, model.max_length or max_length)
        self._model = model

    def make_resources(self):
        resources = super().make_resources()
        resources.marking = self._marking  # which may have tables of its own
        return resources

    @property
    def signatures(self):
        """The functions by name: of a question and a text, which is the default, and of ids."""
        return {**super().signatures, "answer": self.answer, "serving_default": self.answer}

    @question_method
    def answer(self, question, text):
        """Map questions and texts [B] to the `answer` [B] and its `score` [B], a probability.

        The answer is written as the tokenizer decodes it.
        """
        ids, lengths, marks = self._marking.encode_pair(question, text, self._max_length)
        place = tf.expand_dims(tf.range(tf.shape(ids)[1]), 0)
        template = self.tokenizer.template
        is_text = (marks == 1) & (place < tf.expand_dims(lengths - len(template.end), 1))
        inputs = {"token_ids": mask_ids(ids, lengths, self._model.pad_id)}
        if "segment_ids" in self._model.input:
            inputs["segment_ids"] = marks * template.second_segment
        first, last, score = AnswerHead.best_spans(call_masked(self._model, inputs), is_text)
        is_answer = (place >= tf.expand_dims(first, 1)) & (place <= tf.expand_dims(last, 1))
        end_id = self.tokenizer.eos_id
        end_id = self.tokenizer.fill_id if end_id is None else end_id
        answers = tf.ragged.boolean_mask(ids, is_answer & is_text).to_tensor(end_id)
        return {"answer": self.tokenizer.decode(answers), "score": score}
