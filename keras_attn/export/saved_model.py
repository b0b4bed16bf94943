"""Exporting a model as a SavedModel that TensorFlow Serving runs."""

import tensorflow as tf

from keras_attn.export.id_translator import IdTranslator
from keras_attn.export.id_writer import TokenGenerator
from keras_attn.export.image_enlarger import ImageEnlarger
from keras_attn.export.image_generator import ImageGenerator
from keras_attn.export.quantized import quantized
from keras_attn.export.segment_steps import SegmentSteps
from keras_attn.export.servable_ops import unservable_ops
from keras_attn.export.token_encoder import TokenEncoder
from keras_attn.export.translator import Translator
from keras_attn.export.versions import new_version
from keras_attn.export.warmup import write_warmup
from keras_attn.export.writer import TextGenerator
from keras_attn.memory import StatefulSegments
from keras_attn.models.masked_language_model import MaskedLanguageModel
from keras_attn.ops.checks import check_choice
from keras_attn.positions import ImageCoordinates


def saved_model(
    model,
    path,
    *,
    tokenizer=None,
    strategy=None,
    max_length=64,
    max_source_length=1024,
    quantize=None,
    version=None,
):
    """Writes `path`/`version`/, a SavedModel from text to text, or from segment to segment.

        serving_default: text (string, [B]) -> translation (string, [B]), score (float32, [B])
        ids: source_ids (int32, [B, S]), source_lengths (int32, [B]) -> ids, score
        attention: text -> translation, score, source_tokens (string, [B, S]), source_lengths,
            tokens (string, [B, T]), lengths, cross_attention (float32, [B, L, T, S])

    of a causal model

        serving_default: text (string, [B]) -> continuation (string, [B]), score (float32, [B])
        ids: token_ids (int32, [B, S]), lengths (int32, [B]) -> ids, score
        score: text (string, [B]) -> log_probability (float32, [B]), num_tokens (int32, [B])

    of a masked language model

        encode: token_ids (int32, [B, T]), lengths (int32, [B]) -> features (float32, [B, T, D])
        logits: token_ids, lengths -> logits (float32, [B, T, V])

    and of a model with a memory

        initial_memory: batch_size (int32, []) -> memory, memory_length
        step: token_ids (int32, [B, T]), lengths (int32, [B]), memory (float32, [B, L, M, D]),
            memory_length (int32, [B]) -> logits (float32, [B, T, V]), memory, memory_length

    where one that reads states, as `gtrxl`, has states (float32, [B, T, ...]) in the place of
    token_ids, and its heads' outputs in that of logits. Of a model of images

        generate: batch_size (int32, []), seed (int32, []) -> images (int32, [B, H, W, C]),
            score (float32, [B])
        score: images (int32, [B, H, W, C]) -> bits_per_dim (float32, [B])

    and of one for super-resolution

        generate: images (int32, [B, H', W', C]), seed (int32, []) -> images, score

    Batch and length are dynamic. Without a tokenizer the signature `ids` is the default one, and
    `score` reads ids and lengths; with a memory the default is `step`, of a masked language model
    `logits` and of images `generate`. The directory is written under another name and renamed, so a
    server that polls `path` finds the version complete or not at all. It carries a small request for
    each signature, which a server runs before it takes the first client's, and the answer, with
    which our own server compares.

    Args:
        model: an `EncoderDecoder`, a `CausalLanguageModel`, a `MaskedLanguageModel`, a model with a
            memory, or a `StatefulSegments` of one. One with `ImageCoordinates` for positions, and
            no tokenizer, is a model of images.
        path: directory that holds the versions, TensorFlow Serving's `model_base_path`.
        tokenizer: from `keras_attn.text`.
        strategy: name or object of a decoding strategy; by default "greedy", and for images one that
            samples.
        max_length: int. Most tokens to write.
        max_source_length: int. Most source tokens to read, or as many as the model has positions
            for; a longer source is cut, and of a longer prompt the last tokens are read.
        quantize: "int8" keeps large weights, those of two axes or more, in eight bits: a file of a
            quarter of the size, and other answers. It computes in what the model computes in.
        version: int. By default one more than the highest there is.

    Returns:
        The directory written, a string.

    Raises:
        ValueError: if the version exists or is not positive, the model has too few positions for
            `max_length`, one with a memory or of images is given a tokenizer, or the graph has an
            operation that TensorFlow Serving does not run.

    Example:
        >>> import keras_attn, tempfile
        >>> model = keras_attn.models.create("transformer_tiny", vocabulary_size=10)
        >>> directory = keras_attn.export.saved_model(model, tempfile.mkdtemp(), max_length=4)
        >>> directory[-2:]
        '/1'

    Reference: https://www.tensorflow.org/tfx/serving/serving_basic
    """
    if isinstance(model, StatefulSegments):
        model = model.model
    check_choice((None, "int8"), quantize=quantize)
    what = tokenizer, strategy, (max_length, max_source_length)
    if quantize is None:
        return _write(path, version, model, *what)
    with quantized(model) as (copy, kept):
        return _write(path, version, copy, *what, kept)


def _write(path, version, model, tokenizer, strategy, lengths, kept=()):
    """Writes a version; variables that are `kept` go into the file beside the model's weights."""
    module, signatures = _servable(model, tokenizer, strategy, lengths)
    module.kept = kept
    with new_version(path, version) as (temporary, directory):
        # A server takes no gradients, whose functions can be half the file.
        without_gradients = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(module, temporary, signatures, without_gradients)
        unservable = unservable_ops(temporary)
        if unservable:
            raise ValueError(
                "The model has operations that TensorFlow Serving does not run. "
                f"Received: {', '.join(unservable)}."
            )
        write_warmup(temporary, signatures, model, tokenizer)
    return directory


def _servable(model, tokenizer, strategy, lengths):
    """The functions to be exported, and the signatures among them."""
    has_memory = getattr(model, "memory", None) is not None
    is_masked = isinstance(model, MaskedLanguageModel)
    if tokenizer is not None and (has_memory or is_masked):
        kind = "with a memory" if has_memory else "of masked tokens"
        raise ValueError(
            f"A model {kind} reads ids: it is exported without a `tokenizer`. "
            f"Received: tokenizer={tokenizer!r}."
        )
    if has_memory:
        steps = SegmentSteps(model)
        signatures = {"initial_memory": steps.initial_memory, "step": steps.step}
        return steps, {**signatures, "serving_default": steps.step}
    if is_masked:
        encoder = TokenEncoder(model)
        signatures = {"encode": encoder.encode, "logits": encoder.logits}
        return encoder, {**signatures, "serving_default": encoder.logits}
    if tokenizer is None and isinstance(getattr(model, "position", None), ImageCoordinates):
        return _of_images(model, strategy)
    decoding = ("greedy" if strategy is None else strategy, *lengths)
    if getattr(model, "reads_prompt", False):
        if tokenizer is None:
            writer = TokenGenerator(model, *decoding)
            return writer, {**_ids(writer), "score": writer.score_ids}
        writer = TextGenerator(model, tokenizer, *decoding)
        signatures = {"ids": writer.ids, "score": writer.score, "serving_default": writer.text}
        return writer, signatures
    if tokenizer is None:
        translator = IdTranslator(model, *decoding)
        return translator, _ids(translator)
    translator = Translator(model, tokenizer, *decoding)
    return translator, translator.signatures


def _of_images(model, strategy):
    if not model.reads_prompt:
        images = ImageEnlarger(model, strategy)
        signatures = {"generate": images.generate}
    else:
        images = ImageGenerator(model, strategy)
        signatures = {"generate": images.generate, "score": images.score}
    return images, {**signatures, "serving_default": images.generate}


def _ids(module):
    return {"ids": module.ids, "serving_default": module.ids}
