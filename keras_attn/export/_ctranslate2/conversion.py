"""Export a model as a directory for CTranslate2."""

import dataclasses
import os

import numpy as np
from keras import ops

from keras_attn.export._ctranslate2.specification import specification
from keras_attn.export.checks import check_float32, check_reads
from keras_attn.export.golden_outputs import outputs_match
from keras_attn.layers.lora import check_merged
from keras_attn.ops.atomic_files import atomic_directory
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.text import Tokenizer

# Of the log-probabilities of tokens, relative to the greatest magnitude.
TOLERANCE = 1e-4
_NUM_SPECIAL = len(Tokenizer.default_special_tokens)


def ctranslate2(
    model, path, tokenizer=None, quantize=None, *, max_length=1024, bos_id=None, eos_id=None
):
    """Write the directory `path`, a model for CTranslate2, an engine for CPUs and GPUs.

        translator = ctranslate2.Translator(path)
        translator.translate_batch([tokens], beam_size=4)

    CTranslate2 reads and writes tokens: those of the tokenizer's `vocabulary()`; the tokenizer's
    file is saved in the directory. Without a tokenizer, tokens are ids as strings, "4", "5", ...,
    and the first four are `<pad>`, `<unk>`, `<s>` and `</s>`. Ids of the model that a tokenizer
    lacks are `<unused:ID>`. CTranslate2 appends the end token to a source, and gives an empty
    output for an empty source. `ctranslate2.Generator` loads a causal model.

    In float32 the log-probabilities of tokens, and so greedy translations, are the model's; beam
    search there divides by another power of the length.

    The directory is renamed to `path` after CTranslate2 has scored sequences as the model does, to
    1e-4 of the greatest log-probability; the comparison precedes any quantisation.

    Args:
        model: an `EncoderDecoder` or a `CausalLanguageModel` of equal blocks, as `transformer`,
            `gpt`, `llama` and `t5` make them: dot products, alone, with rotary positions or with a
            `T5Bias`; shared key-value heads; a `LayerNorm` or an `RMSNorm` before or after
            sublayers, or on both sides, and of queries and keys; feed-forward layers with or
            without a gate. A window must hold `max_length` keys.
        path: the directory, which must not exist.
        tokenizer: from `keras_attn.text`.
        quantize: "int8", "int16", "float16" or another of CTranslate2's; None for float32.
        max_length: int. Most positions of a source and of a target, limited by the number of
            learned positions.
        bos_id: int. The token before the first target token of an encoder-decoder, by default that
            of the tokenizer, without a tokenizer 2.
        eos_id: int. The token that ends a text, by default that of the tokenizer, without one 3.

    Returns:
        `path`, a string.

    Raises:
        ValueError: if the model has a part that CTranslate2 lacks, computes in 16 bits or does not
            fit the tokenizer, `quantize` is unknown, the directory exists, or CTranslate2 gives
            other log-probabilities.
        ImportError: if ctranslate2 is not installed.

    Example:
        >>> import keras_attn, os, tempfile
        >>> model = keras_attn.models.gpt(vocabulary_size=10, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> path = os.path.join(tempfile.mkdtemp(), "gpt")
        >>> _ = keras_attn.export.ctranslate2(model, path, quantize="int8")
        >>> import ctranslate2
        >>> generator = ctranslate2.Generator(path)
        >>> len(generator.generate_batch([["5", "7"]], min_length=4, max_length=4)[0].sequences)
        1

    Reference: https://opennmt.net/CTranslate2/python/ctranslate2.specs.html
    """
    try:
        import ctranslate2 as library
    except ImportError as error:
        raise ImportError(
            "CTranslate2 is not installed: pip install 'keras_attn[ctranslate2]'"
        ) from error
    check_float32(model)
    check_merged(model)
    if tokenizer is not None:
        check_reads(model, tokenizer)
    for position in (model.position, getattr(model, "source_position", None)):
        if position is not None and position.max_length is not None:
            max_length = min(max_length, position.max_length)
    check_sizes(least=2, max_length=max_length)
    path = os.path.abspath(os.fspath(path))
    if os.path.exists(path):
        raise ValueError(f"`path` exists and is not overwritten. Received: {path}.")
    tokens = _Tokens.of(model, tokenizer, bos_id, eos_id)
    with atomic_directory(path) as temporary:
        _write(model, temporary, tokens, None, max_length)
        _check_log_probabilities(library, model, temporary, tokens, max_length)
        if quantize is not None:
            _write(model, temporary, tokens, quantize, max_length)
        if tokenizer is not None:
            tokenizer.save(os.path.join(temporary, "tokenizer.model"))
    return path


@dataclasses.dataclass
class _Tokens:
    """The names of all ids, and the ids of the first and the last token."""

    names: list
    bos_id: int
    eos_id: int

    @classmethod
    def of(cls, model, tokenizer, bos_id, eos_id):
        size = model.embedding.vocabulary_size
        if tokenizer is None:
            names = [*Tokenizer.default_special_tokens, *map(str, range(_NUM_SPECIAL, size))][:size]
        else:
            names = tokenizer.vocabulary()
            names = [*names, *(f"<unused:{i}>" for i in range(len(names), size))]
        ids = {}
        for name, given in (("bos_id", bos_id), ("eos_id", eos_id)):
            default = getattr(tokenizer or Tokenizer, name)
            default = getattr(Tokenizer, name) if default is None else default
            ids[name] = default if given is None else given
            check_that(ids[name] in range(size), f"one of the {size} ids", **{name: ids[name]})
        return cls(names, **ids)


def _write(model, directory, tokens, quantize, max_length):
    spec = specification(model, max_length)
    spec.config.eos_token = tokens.names[tokens.eos_id]
    if model.reads_prompt:
        spec.register_vocabulary(tokens.names)
    else:
        spec.config.decoder_start_token = spec.config.bos_token = tokens.names[tokens.bos_id]
        spec.register_source_vocabulary(tokens.names)
        spec.register_target_vocabulary(tokens.names)
    spec.validate()
    spec.optimize(quantization=quantize)
    spec.save(directory)


def _check_log_probabilities(library, model, directory, tokens, max_length):
    """Raise if CTranslate2 gives sequences other log-probabilities than the model does."""
    generator, size = np.random.default_rng(0), len(tokens.names)
    first, lengths = min(_NUM_SPECIAL, size - 1), [min(n, max_length - 1) for n in (3, 5)]
    rows = [generator.integers(first, size, size=n).tolist() for n in lengths]
    named = [[tokens.names[i] for i in row] for row in rows]
    try:
        if model.reads_prompt:
            scored = library.Generator(directory).score_batch(named)
        else:
            scored = library.Translator(directory).score_batch(named, named)
    except RuntimeError as error:
        raise ValueError(f"CTranslate2 cannot run the model. Received: {error}") from error
    for row, result in zip(rows, scored, strict=True):
        expected, found = (
            _log_probabilities(model, row, tokens),
            np.array(result.log_probs, "float32"),
        )
        if not outputs_match(expected, found, TOLERANCE):
            raise ValueError(
                "The log-probabilities in CTranslate2 differ from the model's, so no directory was "
                "written."
            )


def _log_probabilities(model, row, tokens):
    """Return the log-probability of each token of a row, of a causal model of each but the first.

    The row is the source and the target.
    """
    if model.reads_prompt:
        logits, targets = model({"token_ids": np.array([row[:-1]])}), row[1:]
    else:
        source, target = np.array([[*row, tokens.eos_id]]), np.array([[tokens.bos_id, *row]])
        logits, targets = model({"source_ids": source, "target_ids": target}), [*row, tokens.eos_id]
    logs = ops.convert_to_numpy(ops.log_softmax(logits[0], axis=-1))
    return logs[np.arange(len(targets)), targets]
