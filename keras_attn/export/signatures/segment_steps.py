"""Signatures of models with a memory: segment and memory to logits and the next memory."""

import tensorflow as tf

from keras_attn.export.checks import check_padding, check_vocabularies
from keras_attn.export.signatures.model_functions import (
    ModelFunctions,
    end_signature,
    ends_of,
    length_mask,
    mask_ids,
    of_text,
)


class SegmentSteps(ModelFunctions):
    """Model with a memory as graph functions; the client holds the memory.

        logits_t, memory_{t+1} = model(segment_t, memory_t)

    No state is kept between calls: the client sends the memory and receives the next one, so one
    server serves any number of texts. Memory and logits are float32 under every dtype policy. A
    model of states (`SequenceModel`) has `states` in place of `token_ids`, and the outputs of its
    heads in place of the logits. With a tokenizer there are `tokenize` and `detokenize` too, by
    which a server streams text. `end_tokens` of a model of tokens gives those that end a text.

    Args:
        model: a model with a memory: a `CausalLanguageModel` or a `SequenceModel`.
        tokenizer: from `keras_attn.text`, of a model of tokens; None for none.
        eos_id: int, or a list of several. The token that ends a text, by default that of the
            tokenizer, or 3; -1 for none.

    Raises:
        ValueError: if the tokenizer does not fit the model.

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding
        >>> attention = MultiHeadAttention(2, 4, score="relative", pattern="causal", use_bias=False)
        >>> block = keras_attn.layers.TransformerBlock(attention, FeedForward(16))
        >>> steps = keras_attn.export.SegmentSteps(keras_attn.models.CausalLanguageModel(
        ...     TokenEmbedding(50, 8), keras_attn.depth.Stack([block]),
        ...     memory=keras_attn.memory.SegmentMemory(32)))
        >>> outputs = steps.step([[5, 7, 9]], [3], **steps.initial_memory(1))
        >>> outputs["logits"].shape, outputs["memory_length"].numpy().tolist()
        (TensorShape([1, 3, 50]), [3])

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.2.
    """

    def __init__(self, model, tokenizer=None, eos_id=None):
        super().__init__(model)
        self.tokenizer, self._more = tokenizer, {}
        name = "token_ids" if "token_ids" in model.input else "states"
        if name == "token_ids":
            has_no_end = tokenizer is not None and tokenizer.eos_id is None
            ends = ends_of(-1 if has_no_end and eos_id is None else eos_id, tokenizer)
            self.end_tokens = self._more["end_tokens"] = end_signature(ends)
        if tokenizer is not None:
            check_vocabularies(model, tokenizer)
            self.tokenize, self.detokenize = _text_functions(tokenizer, ends)
            self._more.update(tokenize=self.tokenize, detokenize=self.detokenize)
        pad_id = check_padding(model) if name == "token_ids" else None
        segment, memory_input = model.input[name], model.input["memory"]

        def initial_memory(batch_size):
            """Return the memory before the first segment of `batch_size` rows."""
            state = model.initial_memory(batch_size)
            return {**state, "memory": tf.cast(state["memory"], tf.float32)}

        def step(segment, lengths, memory, memory_length, compressed_memory_length=None):
            """Return the outputs for a segment, and the memory after it.

            Of `segment`, `token_ids` [B, T] or `states` [B, T, ...], the first `lengths` [B] steps
            are valid. Later steps are padding: they are not read and do not enter the memory, and
            their outputs are undefined.
            """
            if name == "token_ids":
                inputs = {"token_ids": self.read_ids(segment, lengths, pad_id)}
            else:
                inputs = {"states": segment, "padding_mask": length_mask(segment, lengths)}
            memory = tf.cast(memory, memory_input.dtype)
            counts = memory_length, compressed_memory_length
            state = {"memory": memory, **dict(zip(model.memory.lengths, counts))}
            outputs = model({**inputs, **state})
            # A head of the user's own may compute in another dtype.
            return {
                key: tf.cast(x, tf.float32) if x.dtype.is_floating else x
                for key, x in outputs.items()
            }

        _, num_layers, _, hidden_dim = memory_input.shape
        inputs = [
            tf.TensorSpec(segment.shape, segment.dtype, name),
            tf.TensorSpec([None], tf.int32, "lengths"),
            tf.TensorSpec([None, num_layers, None, hidden_dim], tf.float32, "memory"),
            *(tf.TensorSpec([None], tf.int32, name) for name in model.memory.lengths),
        ]
        rows = [tf.TensorSpec([], tf.int32, "batch_size")]
        self.initial_memory = tf.function(initial_memory, rows, autograph=False)
        self.step = tf.function(step, inputs, autograph=False)

    @property
    def signatures(self):
        own = {"initial_memory": self.initial_memory, "step": self.step}
        return {**own, **self._more, "serving_default": self.step}


def _text_functions(tokenizer, ends):
    """Return the functions `tokenize` and `detokenize`."""

    def tokenize(text):
        """Map strings [B] to `token_ids` [B, T], without the end token, and `lengths` [B]."""
        token_ids, lengths = tokenizer.encode(text)
        lengths -= len(tokenizer.template.end)
        return {"token_ids": mask_ids(token_ids, lengths, tokenizer.fill_id), "lengths": lengths}

    def detokenize(token_ids):
        """Map ids [B, T] to `text` [B]: of all tokens, also of those after an end token."""
        is_text = tf.ones_like(token_ids, tf.bool)
        for token in {*ends, tokenizer.eos_id} - {None}:
            is_text &= token_ids != token
        # What fills a row after its last token of text ends it, or is padding.
        fill = tokenizer.fill_id if tokenizer.eos_id is None else tokenizer.eos_id
        rows = tf.ragged.boolean_mask(token_ids, is_text).to_tensor(fill)
        return {"text": tokenizer.decode(rows)}

    ids = [tf.TensorSpec([None, None], tf.int32, "token_ids")]
    return of_text(tokenize), tf.function(detokenize, ids, autograph=False)
