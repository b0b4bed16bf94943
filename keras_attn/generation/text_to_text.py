"""From text to text in Python: generation between the two directions of a tokenizer."""

import warnings

import numpy as np
from keras import ops

from keras_attn.generation.compilation import run_compiled
from keras_attn.generation.decoding import (
    check_model,
    get_strategy,
    read_request,
)
from keras_attn.generation.streaming import check_streams, token_steps
from keras_attn.generation.tokens import check_vocabularies, ends_of, start_of
from keras_attn.memory import StatefulSegments
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.text.tokenizers.incremental_decoder import IncrementalDecoder
from keras_attn.text.tokenizers.tokenizer import check_strings


def complete(
    model,
    tokenizer,
    texts,
    strategy="greedy",
    max_length=64,
    *,
    bos_id=None,
    eos_id=None,
    jit_compile=False,
):
    """Translate each text, or continue it: from strings to strings.

        text -> ids -> generate(model, ids) -> text

    A causal model gives the continuation alone, without the prompt; an encoder-decoder gives the
    translation. The texts equal those of the model's export. A model with a memory keeps the keys
    of all tokens, like an unlimited memory. Cost: that of `generate` for all texts as one batch.

    Use it for trying a model, and for programs that have texts and want texts.

    Args:
        model: an `EncoderDecoder`, a `CausalLanguageModel`, or a `StatefulSegments` of one.
        tokenizer: from `keras_attn.text`, of the model's vocabulary.
        texts: a list of strings, or one string. Of a prompt that leaves too few of the model's
            positions for `max_length` the last tokens are read, of a longer source the first, with
            a warning. A text without tokens, such as "" where the tokenizer puts no start token in
            front, gives "".
        strategy: as for `generate`.
        max_length: int. Most tokens to generate, the end token included.
        bos_id: int. The token before the first target token of an encoder-decoder, by default the
            model's `start_id`, that of the tokenizer, or 2.
        eos_id: int, or a list of several. The token that ends a text and is no part of it, beside
            that of the tokenizer, which always does; -1 for that one alone.
        jit_compile: bool. As for `generate`.

    Returns:
        A list of strings, or one string if `texts` is one.

    Raises:
        ValueError: if `texts` are no strings, the vocabularies of model and tokenizer differ in
            size, or as `generate`.

    Example:
        >>> import keras_attn
        >>> tokenizer = keras_attn.text.Characters("abc ")
        >>> model = keras_attn.models.gpt(tokenizer.vocabulary_size, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> texts = keras_attn.generation.complete(model, tokenizer, ["a cab", ""], max_length=4)
        >>> len(texts), texts[1]
        (2, '')

    Differs from the paper: see the strategies.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1.
    """
    text_request = TextRequest(model, tokenizer, texts, max_length, bos_id, eos_id)
    strategy = get_strategy(strategy)
    if not text_request.rows:
        return text_request.as_given([])
    ids, _ = run_compiled(*text_request.request(strategy), jit_compile)
    ids = ops.convert_to_numpy(ids).tolist()
    return text_request.as_given([*map(text_request.text_of, text_request.rows, ids)])


def stream(model, tokenizer, texts, strategy="greedy", max_length=64, *, bos_id=None, eos_id=None):
    """Yield what `complete` returns piece by piece, as the model generates it.

        pieces_t = text(y_1 .. y_t) without text(y_1 .. y_{t-1})

    The pieces of a text, joined, are that of `complete`. A character of several tokens comes with
    the last of them. Two functions are compiled for each model and kind of strategy: one that reads
    the texts, one for a step. Closing the iterator frees the caches. Time O(max_length) steps of
    the model, each a call from Python; the text of a token takes O(1).

    Use it for showing a text while it is written.

    Args:
        model, tokenizer, texts, max_length, bos_id, eos_id: as for `complete`.
        strategy: `"greedy"`, `"sample"`, or an object: a `Greedy` or a `Sample`, alone or in
            wrappers such as `NoRepeat`. A beam search has no token before the last one.

    Returns:
        An iterator of lists of strings, the next piece of each text, which may be "". It ends after
        the last piece of all texts. If `texts` is one string, an iterator of strings.

    Raises:
        ValueError: as `complete`, or if the strategy does not choose one token after the other.

    Example:
        >>> import keras_attn
        >>> tokenizer = keras_attn.text.Characters("abc ")
        >>> model = keras_attn.models.gpt(tokenizer.vocabulary_size, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> for piece in keras_attn.generation.stream(model, tokenizer, "a cab", max_length=4):
        ...     assert isinstance(piece, str)

    Differs from the paper: see the strategies.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1.
    """
    text_request = TextRequest(model, tokenizer, texts, max_length, bos_id, eos_id)
    strategy = get_strategy(strategy)
    check_streams(strategy)
    if not any(text_request.rows):
        return iter(())
    # Not in the generator: what does not fit is refused before the first piece is asked for.
    return _pieces(text_request, token_steps(*text_request.request(strategy)))


def _pieces(text_request, steps):
    """Yield the next piece of each text, for the tokens of each step."""
    decoders = [text_request.decoder(row) if row else None for row in text_request.rows]
    for tokens, has_ended, is_last in steps:
        pieces = [""] * len(decoders)
        for row, decoder in enumerate(decoders):
            if decoder is None:  # there is no more text
                continue
            ends = has_ended[row] or int(tokens[row]) in text_request.ends
            if not ends:
                pieces[row] = decoder.add(int(tokens[row]))
            if ends or is_last:
                pieces[row] += decoder.finish()
                decoders[row] = None
        yield text_request.as_given(pieces)
        if not any(decoders):
            return


class TextRequest:
    """Texts as the ids that a model reads, and the way back from those that it generates.

    Attributes:
        rows: list of lists of ids, of the prompts or sources; one without a text is empty.
        ends: set of the tokens that end a text.
    """

    def __init__(self, model, tokenizer, texts, max_length, bos_id=None, eos_id=None):
        model = model.model if isinstance(model, StatefulSegments) else model
        check_model(model)
        check_vocabularies(model, tokenizer)
        check_sizes(max_length=max_length)
        wanted = f"at most {model.max_length}, the number of the model's positions"
        fits = model.max_length is None or max_length <= model.max_length
        check_that(fits, wanted, max_length=max_length)
        self._is_single = isinstance(texts, str)
        texts = check_strings(texts=[texts] if self._is_single else texts)
        self._model, self._tokenizer, self._max_length = model, tokenizer, max_length
        self._eos_ids = ends_of(eos_id, tokenizer)
        self._bos_id = start_of(model, tokenizer) if bos_id is None else bos_id
        self.ends = {*self._eos_ids, tokenizer.eos_id}  # where a tokenizer's texts end
        self.rows = self._read_rows(texts)

    def request(self, strategy):
        """Return the `Request` of `generate` for the rows; one without a text is one of padding."""
        lengths = [max(len(row), 1) for row in self.rows]
        ids = np.full((len(lengths), max(lengths)), self._tokenizer.fill_id, "int32")
        for padded, row in zip(ids, self.rows, strict=True):
            padded[: len(row)] = row
        return read_request(
            self._model,
            ids,
            strategy,
            self._max_length,
            lengths=np.array(lengths, "int32"),
            bos_id=self._bos_id,
            eos_id=self._eos_ids,
        )

    def _read_rows(self, texts):
        """Return the ids of texts, as many as the model can read."""
        model, template = self._model, self._tokenizer.template
        rows = self._tokenizer.encode_as_lists(texts)
        if model.reads_prompt:
            most, special = model.max_length, len(template.start)
            most = most and most - self._max_length + 1  # the last token is not read
            read = [row[-most:] if most else row for row in template.around(rows, end=False)]
        else:
            most, special = model.max_source_length, len(template.start) + len(template.end)
            read = template.around(rows, most)
        longest = max((len(row) + special for row in rows), default=0)
        if most is not None and longest > most:
            part = "last" if model.reads_prompt else "first"
            warnings.warn(
                f"Of a text that is too long for the model the {part} {most} tokens are read. "
                f"Received: a text of {longest} tokens.",
                stacklevel=4,
            )
        if not model.reads_prompt:  # a source of special tokens alone has no text
            read = [ids if len(row) else [] for ids, row in zip(read, rows, strict=True)]
        return [[*map(int, row)] for row in read]

    def text_of(self, row, ids):
        """Return the text of generated ids after the row of a text."""
        if not row:
            return ""
        end = next((i for i, token in enumerate(ids) if token in self.ends), len(ids))
        if not self._model.reads_prompt:
            return self.decode(ids[:end])
        # Prompt and new ids are decoded together: alone, the first new piece would lose its space.
        return self.decode(row + ids[:end])[len(self.decode(row)) :]

    def decoder(self, row):
        """Return the `IncrementalDecoder` of what is generated after the row of a text."""
        return IncrementalDecoder(self.decode, row if self._model.reads_prompt else ())

    def decode(self, ids):
        """Return the text of ids, none of which ends it."""
        return self._tokenizer.decode_as_strings([[i for i in ids if i not in self.ends]])[0]

    def as_given(self, texts):
        """Return a list of texts as they were given: a list, or one string."""
        return texts[0] if self._is_single else texts
