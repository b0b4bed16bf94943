"""Export a model as a directory for CTranslate2."""

import dataclasses
import os

import keras
import numpy as np
from keras import ops

from keras_attn.export._ctranslate2.specification import specification, stacks_of
from keras_attn.export.checks import check_float32, check_reads
from keras_attn.export.golden_outputs import outputs_match
from keras_attn.files import atomic_directory
from keras_attn.layers.lora import check_merged
from keras_attn.ops.checks import check_paths, check_sizes, check_that
from keras_attn.quantized_kernels import check_not_quantized
from keras_attn.text import Tokenizer


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
    output for an empty source. `ctranslate2.Generator` loads a causal model, and
    `ctranslate2.Encoder` a `MaskedLanguageModel` or a `Classifier` without classes:

        output = encoder.forward_batch([tokens], token_type_ids=[segment_ids])

    has `last_hidden_state`, the output of the encoder below the head, and `pooler_output`, that of
    the `Classifier`'s pooler, if there is one. It reads the special tokens of the template as
    tokens. Of a `Classifier` with `pooling="mean"`, take the mean of the hidden states; layers
    of a sentence vector after it are left out.

    In float32 the log-probabilities of tokens, and so greedy translations, are the model's; beam
    search there divides by another power of the length.

    The directory is renamed to `path` after CTranslate2 has scored sequences as the model does, to
    1e-4 of the greatest log-probability, or has given an encoder's outputs, to 1e-4 of the
    greatest; the comparison precedes any quantisation.

    Args:
        model: an `EncoderDecoder`, a `CausalLanguageModel`, a `MaskedLanguageModel` or a
            `Classifier` without classes, of equal blocks, as `transformer`, `gpt`, `llama`, `t5`
            and `bert` make them: dot products, alone, with rotary positions or with a `T5Bias`;
            shared key-value heads; a `LayerNorm` or an `RMSNorm` before or after sublayers, or on
            both sides, and of queries and keys; feed-forward layers with or without a gate. A
            window must hold `max_length` keys.
        path: the directory, which must not exist.
        tokenizer: from `keras_attn.text`.
        quantize: "int8", "int16", "float16" or another of CTranslate2's; None for float32.
        max_length: int. Most positions of a source and a target, or of an encoder's text, limited
            by the number of learned positions.
        bos_id: int. The token before the first target token of an encoder-decoder, by default that
            of the tokenizer, without a tokenizer 2.
        eos_id: int. The token that ends a text, by default that of the tokenizer, without one 3.

    Returns:
        `path`, a string.

    Raises:
        ValueError: if the model has a part that CTranslate2 lacks, computes in 16 bits or does not
            fit the tokenizer, `quantize` is unknown, the directory exists, or CTranslate2 gives
            other outputs.
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
    check_paths(path=path)
    try:
        import ctranslate2 as library
    except ImportError as error:
        raise ImportError(
            "CTranslate2 is not installed: pip install 'keras_attn[ctranslate2]'"
        ) from error
    stacks_of(model)  # refuses other models
    check_float32(model)
    check_merged(model)
    check_not_quantized(model)
    if tokenizer is not None:
        check_reads(model, tokenizer)
    for position in (model.position, getattr(model, "source_position", None)):
        if position is not None and position.max_length is not None:
            max_length = min(max_length, position.max_length)
    check_sizes(least=2, max_length=max_length)
    path = os.path.abspath(os.fspath(path))
    if os.path.exists(path):
        raise ValueError(f"`path` exists and is not overwritten. Received: {path}.")
    tokens = Tokens.of(model, tokenizer, bos_id, eos_id)
    with atomic_directory(path) as temporary:
        _write(model, temporary, tokens, None, max_length)
        check_outputs(library, model, temporary, tokens, max_length)
        if quantize is not None:
            _write(model, temporary, tokens, quantize, max_length)
        if tokenizer is not None:
            tokenizer.save(os.path.join(temporary, "tokenizer.model"))
    return path


def _write(model, directory, tokens, quantize, max_length):
    spec = specification(model, max_length)
    spec.config.eos_token = tokens.names[tokens.eos_id]
    spec.config.unk_token = tokens.unknown
    if set(stacks_of(model)) != {"encoder", "decoder"}:
        spec.register_vocabulary(tokens.names)
    else:
        spec.config.decoder_start_token = spec.config.bos_token = tokens.names[tokens.bos_id]
        spec.register_source_vocabulary(tokens.source_names)
        spec.register_target_vocabulary(tokens.names)
    spec.validate()
    spec.optimize(quantization=quantize)
    spec.save(directory)


NUM_SPECIAL = len(Tokenizer.default_special_tokens)


@dataclasses.dataclass
class Tokens:
    """The names of all ids and of unknown text, and the ids of the first and the last token.

    The source's ids have names of their own if its embedding is another one than the target's.
    """

    names: list
    source_names: list
    unknown: str
    bos_id: int
    eos_id: int

    @classmethod
    def of(cls, model, tokenizer, bos_id, eos_id):
        names = _names(getattr(model, "target_embedding", model.embedding), tokenizer)
        source = tokenizer if tokenizer is None else tokenizer.for_sources()
        source_names, size = _names(model.embedding, source), len(names)
        unk_id = (tokenizer or Tokenizer).unk_id
        unknown = "<unk>" if unk_id is None else names[unk_id]
        ids = {}
        for name, chosen in (("bos_id", bos_id), ("eos_id", eos_id)):
            default = getattr(tokenizer or Tokenizer, name)
            default = getattr(Tokenizer, name) if default is None else default
            ids[name] = default if chosen is None else chosen
            check_that(ids[name] in range(size), f"one of the {size} ids", **{name: ids[name]})
        return cls(names, source_names, unknown, **ids)


def _names(embedding, tokenizer):
    """Return the names of an embedding's ids."""
    size = embedding.vocabulary_size
    if tokenizer is None:
        return [*Tokenizer.default_special_tokens, *map(str, range(NUM_SPECIAL, size))][:size]
    names = tokenizer.vocabulary()
    return [*names, *(f"<unused:{i}>" for i in range(len(names), size))]


# Of log-probabilities or features, relative to the greatest magnitude.
TOLERANCE = 1e-4


def check_outputs(library, model, directory, tokens, max_length):
    """Raise if CTranslate2 gives sequences of 3 and 5 tokens other outputs than the model does.

    The outputs are the log-probabilities of their tokens, or the features of an encoder.
    """
    generator, lengths = np.random.default_rng(0), [min(n, max_length - 1) for n in (3, 5)]
    size = min(len(tokens.names), len(tokens.source_names))
    ids = [i for i in range(min(NUM_SPECIAL, size - 1), size) if i != model.pad_id]
    rows = [generator.choice(ids, size=n).tolist() for n in lengths]
    named = [[tokens.names[i] for i in row] for row in rows]
    try:
        if "decoder" in stacks_of(model):
            pairs = _log_probabilities(library, model, directory, tokens, rows, named)
        else:
            pairs = _features(library, model, directory, rows, named)
    except RuntimeError as error:
        raise ValueError(f"CTranslate2 cannot run the model. Received: {error}") from error
    for name, expected, measured in pairs:
        if not outputs_match(expected, measured, TOLERANCE):
            raise ValueError(
                f"The {name} in CTranslate2 differ from the model's, so no directory was written."
            )


def _log_probabilities(library, model, directory, tokens, rows, named):
    """Return for each row its name and the log-probabilities of the model and of CTranslate2."""
    if model.reads_prompt:
        scored = library.Generator(directory).score_batch(named)
    else:
        sources = [[tokens.source_names[i] for i in row] for row in rows]
        scored = library.Translator(directory).score_batch(sources, named)
    return [
        ("log-probabilities", _scores(model, row, tokens), np.array(result.log_probs, "float32"))
        for row, result in zip(rows, scored, strict=True)
    ]


def _scores(model, row, tokens):
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


def _features(library, model, directory, rows, named):
    """Return the name of each output with those of the model and of CTranslate2.

    Segments alternate if the model reads them.
    """
    longest = max(map(len, rows))
    ids = np.array([row + [model.pad_id or 0] * (longest - len(row)) for row in rows])
    mask = np.arange(longest) < np.array([[len(row)] for row in rows])
    inputs, segments = {"token_ids": ids}, None
    if "segment_ids" in model.input:
        inputs["segment_ids"] = np.arange(ids.size).reshape(ids.shape) % model.segment.num_segments
        both = zip(inputs["segment_ids"].tolist(), rows, strict=True)
        segments = [row[: len(ids)] for row, ids in both]
    output = library.Encoder(directory).forward_batch(named, token_type_ids=segments)
    hidden = ops.convert_to_numpy(keras.Model(model.input, model.encoder_output)(inputs))
    outputs = [("hidden states", hidden[mask], output.last_hidden_state, mask)]
    if getattr(model, "pooler", None) is not None:
        pooled = ops.convert_to_numpy(model(inputs))
        outputs.append(("pooled features", pooled, output.pooler_output, slice(None)))
    return [(name, x, np.array(y)[where]) for name, x, y, where in outputs]
