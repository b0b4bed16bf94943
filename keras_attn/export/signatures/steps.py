"""Signatures of models whose state the client holds: a memory, or a cache of constant size."""

from typing import NamedTuple

import tensorflow as tf

from keras_attn.export.checks import check_padding, has_memory
from keras_attn.export.signatures.model_functions import (
    ModelFunctions,
    end_signature,
    length_mask,
    require,
    text_function,
)
from keras_attn.export.signatures.text_generator import TextGenerator
from keras_attn.generation.tokens import check_vocabularies, ends_of
from keras_attn.models.state_models import SequenceModel

_BATCH_SIZE = [tf.TensorSpec([], tf.int32, "batch_size")]


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

    @classmethod
    def fits(cls, model, options):
        return has_memory(model)

    @classmethod
    def from_options(cls, model, options):
        if isinstance(model, SequenceModel):
            options.check_no_text("A model of states")
            return cls(model)
        return cls(model, options.tokenizer, options.eos_id)

    def __init__(self, model, tokenizer=None, eos_id=None):
        super().__init__(model)
        self.tokenizer, self._extra_signatures = tokenizer, {}
        name = "token_ids" if "token_ids" in model.input else "states"
        if name == "token_ids":
            ends = ends_of(eos_id, tokenizer)
            self.end_tokens = self._extra_signatures["end_tokens"] = end_signature(ends)
        if tokenizer is not None:
            check_vocabularies(model, tokenizer)
            self.tokenize, self.detokenize = _text_functions(tokenizer, ends)
            self._extra_signatures.update(tokenize=self.tokenize, detokenize=self.detokenize)
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
        self.initial_memory = tf.function(initial_memory, _BATCH_SIZE, autograph=False)
        self.step = tf.function(step, inputs, autograph=False)

    @property
    def signatures(self):
        own = {"initial_memory": self.initial_memory, "step": self.step}
        return {**own, **self._extra_signatures, "serving_default": self.step}


def _text_functions(tokenizer, ends):
    """Return the functions `tokenize` and `detokenize`."""

    def tokenize(text):
        """Map strings [B] to `token_ids` [B, T], without the end token, and `lengths` [B]."""
        token_ids, lengths = tokenizer.encode(text, end=False)
        return {"token_ids": token_ids, "lengths": lengths}

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
    return text_function(tokenize), tf.function(detokenize, ids, autograph=False)


class TokenStream(ModelFunctions):
    """Causal model as graph functions that read a stream of tokens; the client holds the state.

        logits_t, state_{t+1} = model(tokens_t, state_t)

    The state has one size for any number of tokens: the keys and values that the pattern keeps,
    float32 (B, L, N, M, H) for L layers, and `index`, the number of tokens so far. A call reads one
    token or several, as many in each row, without padding. `end_tokens` gives the tokens after
    which a client that generates stops.

    If the patterns keep a fixed number of keys, such as `Sinks` or `Local`, and positions have no
    limit, the stream has no end. Otherwise the state has a slot for each position, and
    `max_positions` gives their number: a call that would read more tokens is an error. With a
    tokenizer there are `tokenize` and `detokenize`, by which a server streams text.

    Args:
        model: a `CausalLanguageModel` without a memory, whose layers have equal heads.
        eos_id: int, or a list of several. The token that ends a sequence, by default that of the
            tokenizer, or 3; -1 for none.
        tokenizer: from `keras_attn.text`; None for none.
        max_length: int. Most tokens of a stream, prompt included, of a model without a limit of
            positions whose keys are all kept.

    Raises:
        ValueError: if the state would grow without a limit, or the layers' caches differ in shape.

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding
        >>> attention = MultiHeadAttention(
        ...     2, 4, pattern=keras_attn.patterns.Sinks(2, 6), position="rotary")
        >>> block = keras_attn.layers.TransformerBlock(attention, FeedForward(16))
        >>> stream = keras_attn.export.TokenStream(keras_attn.models.CausalLanguageModel(
        ...     TokenEmbedding(50, 8), keras_attn.depth.Stack([block])))
        >>> outputs = stream.step([[5, 7, 9]], **stream.initial_state(1))
        >>> outputs["logits"].shape, outputs["key"].shape, int(outputs["index"])
        (TensorShape([1, 3, 50]), TensorShape([1, 1, 2, 8, 4]), 3)

    Reference: [Xiao et al., 2023](https://arxiv.org/abs/2309.17453), section 3.2.
    """

    @classmethod
    def fits(cls, model, options):
        return options.stream and options.tokenizer is None

    @classmethod
    def from_options(cls, model, options):
        options.check_no_text("A stream of ids")
        length = options.max_source_length + options.max_length
        return cls(model, options.eos_id, max_length=length)

    def __init__(self, model, eos_id=None, tokenizer=None, max_length=None):
        super().__init__(model)
        self.tokenizer, self._extra_signatures = tokenizer, {}
        size = _cache_size(model, max_length)
        limit = size.max_positions

        def empty_cache(batch_size):
            return model.depth.initial_cache(batch_size, size.num_slots, size.keeps_all)

        def initial_state(batch_size):
            """Return the state of `batch_size` rows before the first token."""
            return _state(empty_cache(batch_size))

        def step(token_ids, key, value, index):
            """Return the `logits` [B, T, V] after each of `token_ids` [B, T], and the next state.

            `key`, `value` [B, L, N, M, H] and `index` [] come from `initial_state` or a step.
            """
            dtype = model.depth.compute_dtype
            pairs = (tf.unstack(tf.cast(x, dtype), axis=1) for x in (key, value))
            layers = [{"attention": {"key": k, "value": v}} for k, v in zip(*pairs, strict=True)]
            end = index + tf.shape(token_ids)[1]
            if limit is not None:
                message = f"A stream of the model has at most {limit} tokens. Received:"
                index = require(index, end <= limit, message, end)
            cache = {"index": index, "layers": layers}
            positions = tf.range(index, end)
            logits, cache = model.step(self.known_ids(token_ids), {}, cache, positions)
            return {"logits": tf.cast(logits, tf.float32), **_state(cache)}

        state = _state(empty_cache(1))
        inputs = [tf.TensorSpec([None, None], tf.int32, "token_ids")]
        for name in ("key", "value"):
            inputs.append(tf.TensorSpec([None, *state[name].shape[1:]], tf.float32, name))
        inputs.append(tf.TensorSpec([], tf.int32, "index"))
        self.initial_state = tf.function(initial_state, _BATCH_SIZE, autograph=False)
        self.step = tf.function(step, inputs, autograph=False)
        ends = ends_of(eos_id, tokenizer)
        self.end_tokens = end_signature(ends)
        if limit is not None:
            self.max_positions = self._extra_signatures["max_positions"] = _limit_signature(limit)
        if tokenizer is not None:
            check_vocabularies(model, tokenizer)
            self.tokenize, self.detokenize = _text_functions(tokenizer, ends)
            self._extra_signatures.update(tokenize=self.tokenize, detokenize=self.detokenize)

    @property
    def signatures(self):
        own = {"initial_state": self.initial_state, "step": self.step}
        return {
            **own,
            **self._extra_signatures,
            "end_tokens": self.end_tokens,
            "serving_default": self.step,
        }


class TextStream(TextGenerator):
    """Functions of a `TextGenerator` and, by other names, those of a `TokenStream` with its text.

        text -> continuation        logits_t, state_{t+1} = model(tokens_t, state_t)

    So one export answers whole texts and streams them.

    Args:
        model, tokenizer, strategy, max_length, max_prompt_length, eos_id, buckets: as for
            `TextGenerator`.

    Raises:
        ValueError: as `TextGenerator` and `TokenStream`.

    Example:
        >>> import keras_attn
        >>> tokenizer = keras_attn.text.Characters("abc ")
        >>> model = keras_attn.models.gpt(tokenizer.vocabulary_size, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> stream = keras_attn.export.TextStream(model, tokenizer, max_length=4)
        >>> int(stream.stream.max_positions(1)["max_positions"][0])
        32

    Reference: [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf),
        section 3.1, eq. 1.
    """

    @classmethod
    def fits(cls, model, options):
        return options.stream and options.tokenizer is not None

    def __init__(
        self,
        model,
        tokenizer,
        strategy="greedy",
        max_length=64,
        max_prompt_length=960,
        eos_id=None,
        buckets=None,
    ):
        self.stream = TokenStream(model, eos_id, tokenizer, max_prompt_length + max_length)
        lengths = max_length, max_prompt_length
        super().__init__(model, tokenizer, strategy, *lengths, eos_id, buckets)

    @property
    def signatures(self):
        return {**self.stream.signatures, **super().signatures}


def _limit_signature(limit):
    """Return the function `max_positions` of a stream of at most `limit` tokens."""

    def max_positions(batch_size):
        """Return `max_positions` [B]: the most tokens of each of `batch_size` rows."""
        return {"max_positions": tf.fill([batch_size], limit)}

    return tf.function(max_positions, _BATCH_SIZE, autograph=False)


class _CacheSize(NamedTuple):
    """Size of each layer's cache in the state of a stream."""

    num_slots: int
    keeps_all: bool  # keys, not only those that the patterns read again
    max_positions: int | None  # most tokens of a stream; None for a stream without end


def _cache_size(model, max_length):
    """Return the `_CacheSize`; a model whose state would grow needs a `max_length`."""
    blocks = getattr(getattr(model, "depth", None), "blocks", None)
    if blocks is None or model.memory is not None:
        raise ValueError(
            "A stream needs a `CausalLanguageModel` without a memory; the export of one with a "
            f"memory streams without `stream=True`. Received: {type(model).__name__}."
        )
    patterns = [block.attention.pattern for block in blocks]
    growing = [pattern for pattern in patterns if pattern.kept_keys.size is None]
    if not growing:
        num_slots = max(pattern.kept_keys.size for pattern in patterns)
        return _CacheSize(num_slots, False, model.max_length)
    limit = max_length if model.max_length is None else model.max_length
    if limit is None:
        raise ValueError(
            "A stream of a model without a limit of positions needs a `max_length`, or patterns "
            "that keep a fixed number of keys, such as `Sinks(4, window=1020)`. "
            f"Received: pattern={growing[0]!r}."
        )
    return _CacheSize(limit, True, limit)


def _state(cache):
    """Return a cache of equal layers as three tensors."""
    layers = cache["layers"]
    shapes = {tuple(x.shape[1:]) for layer in layers for x in [layer["attention"]["key"]]}
    sublayers = {name for layer in layers for name in layer}
    if len(shapes) > 1 or sublayers != {"attention"}:
        raise ValueError(
            "A stream needs layers with caches of one shape, and of attention only. "
            f"Received: shapes {sorted(shapes)}, caches of {', '.join(sorted(sublayers))}."
        )
    tensors = {
        name: tf.cast(tf.stack([layer["attention"][name] for layer in layers], axis=1), tf.float32)
        for name in ("key", "value")
    }
    return {**tensors, "index": cache["index"]}
