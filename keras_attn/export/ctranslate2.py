"""Writing a model for CTranslate2."""

import os
import shutil
import tempfile

import numpy as np
from keras import ops

from keras_attn.export.answers import same
from keras_attn.export.ctranslate2_parts import specification
from keras_attn.export.precision import check_float32
from keras_attn.export.vocabularies import check_vocabularies
from keras_attn.text import Tokenizer

# Of the log-probabilities of tokens, relative to the greatest.
ANSWERS_DIFFER = 1e-4
_BOS, _EOS = Tokenizer.bos_id, Tokenizer.eos_id


def ctranslate2(model, path, tokenizer=None, quantize=None, *, max_length=1024):
    """Writes the directory `path`, a model for CTranslate2, an engine for CPUs and GPUs.

        translator = ctranslate2.Translator(path)
        translator.translate_batch([tokens], beam_size=4)

    reads and writes tokens: the `vocabulary()` of the tokenizer, whose file is in the directory, or
    without one ids as strings, "4", "5", ..., where the first four are "<pad>", "<unk>", "<s>" and
    "</s>". The end mark of a source is added there, and an empty one is answered with nothing. A
    causal model goes into a `ctranslate2.Generator`. In float32 the log-probabilities of tokens,
    and so greedy translations, are the model's; a beam there divides by another power of the
    length.

    The directory has its name only once CTranslate2 has scored texts as the model does: before
    anything is quantised, to 1e-4 of the greatest log-probability.

    Args:
        model: an `EncoderDecoder` or a `CausalLanguageModel`, as `transformer` and `gpt` make them:
            stacks of equal blocks, pre-norm or post-norm, of scaled dot products.
        path: the directory, which must not exist.
        tokenizer: from `keras_attn.text`.
        quantize: "int8", "int16", "float16" or another of CTranslate2's; None for float32.
        max_length: int. Most positions, of a source and of a target; of learned positions no more
            than there are.

    Returns:
        `path`, a string.

    Raises:
        ValueError: if the model has a part that CTranslate2 lacks, computes in 16 bits or does not
            fit the tokenizer, `quantize` is unknown, the directory exists, or CTranslate2 answers
            otherwise.
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
    library = _package()
    check_float32(model)
    if tokenizer is not None:
        check_vocabularies(model, tokenizer)
    max_length = min(max_length, getattr(model.position, "max_length", max_length))
    if max_length < 2:
        raise ValueError(f"`max_length` must be at least 2. Received: max_length={max_length}.")
    path = os.path.abspath(os.fspath(path))
    if os.path.exists(path):
        raise ValueError(f"`path` exists and is not overwritten. Received: {path}.")
    words = _words(model) if tokenizer is None else tokenizer.vocabulary()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".ctranslate2.", dir=os.path.dirname(path))
    try:
        _write(model, temporary, words, None, max_length)
        _compare(library, model, temporary, words, max_length)
        if quantize is not None:
            _write(model, temporary, words, quantize, max_length)
        if tokenizer is not None:
            tokenizer.save(os.path.join(temporary, "tokenizer.model"))
        os.chmod(temporary, 0o755)  # mkdtemp's directories are for their owner alone
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return path


def _package():
    """The optional one."""
    try:
        import ctranslate2
    except ImportError as error:
        raise ImportError(
            "CTranslate2 is not installed: pip install 'keras_attn[ctranslate2]'"
        ) from error
    return ctranslate2


def _words(model):
    size = model.embedding.vocabulary_size
    return [*Tokenizer.marks, *map(str, range(len(Tokenizer.marks), size))][:size]


def _write(model, directory, words, quantize, max_length):
    spec = specification(model, max_length)
    if model.reads_prompt:
        spec.register_vocabulary(words)
    else:
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
    spec.validate()
    spec.optimize(quantization=quantize)
    spec.save(directory)


def _compare(library, model, directory, words, max_length):
    """Raises where texts get other log-probabilities than the model gives them."""
    generator = np.random.default_rng(0)
    first = min(len(Tokenizer.marks), len(words) - 1)
    lengths = [min(n, max_length - 1) for n in (3, 5)]
    rows = [generator.integers(first, len(words), size=n).tolist() for n in lengths]
    tokens = [[words[i] for i in row] for row in rows]
    try:
        if model.reads_prompt:
            engine = library.Generator(directory)
            scored = engine.score_batch(tokens)
        else:
            engine = library.Translator(directory)
            scored = engine.score_batch(tokens, tokens)
    except RuntimeError as error:
        raise ValueError(f"CTranslate2 cannot run the model. Received: {error}") from error
    for row, result in zip(rows, scored, strict=True):
        expected, found = _log_probabilities(model, row), np.array(result.log_probs, "float32")
        if not same(expected, found, ANSWERS_DIFFER):
            raise ValueError("The model answers otherwise in CTranslate2, so it was not written.")


def _log_probabilities(model, row):
    """Of each token of a target that stands behind itself as source, or of all but the first."""
    if model.reads_prompt:
        logits, targets = model({"token_ids": np.array([row[:-1]])}), row[1:]
    else:
        source, target = np.array([[*row, _EOS]]), np.array([[_BOS, *row]])
        logits, targets = model({"source_ids": source, "target_ids": target}), [*row, _EOS]
    logs = ops.convert_to_numpy(ops.log_softmax(logits[0], axis=-1))
    return logs[np.arange(len(targets)), targets]
