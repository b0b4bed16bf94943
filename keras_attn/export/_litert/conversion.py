"""Export a model as a LiteRT file of several signatures."""

import dataclasses
import os
import re
import tempfile

import tensorflow as tf

from keras_attn.backend.loops import without_tile_loops
from keras_attn.export._litert.examples import (
    Examples,
    check_outputs,
    measure_errors,
    record_examples,
)
from keras_attn.export._litert.files import append_record, interpreter_class, open_file
from keras_attn.export._litert.signatures import signatures_of
from keras_attn.export.checks import check_backend, check_float32, length_beyond_windows
from keras_attn.export.decoding_record import Decoding
from keras_attn.export.golden_outputs import first_line
from keras_attn.export.signatures.model_functions import ExportOptions
from keras_attn.files import atomic_file
from keras_attn.generation.decoding import get_strategy
from keras_attn.layers.lora import check_merged
from keras_attn.memory import StatefulSegments
from keras_attn.ops.checks import check_choice, check_paths, check_sizes, check_that


def litert(
    model,
    path,
    signatures=None,
    *,
    strategy=None,
    max_length=64,
    max_source_length=1024,
    quantize=None,
    eos_id=None,
    bos_id=None,
    kind=None,
    inputs=None,
    from_logits=None,
    horizon=None,
):
    """Write `path`, a LiteRT file with signatures from ids to ids, for phones and small machines.

    Causal model and encoder-decoder, the latter with source_ids and source_lengths in place of
    token_ids and lengths:

        logits: token_ids (int32, [B, T]), lengths (int32, [B]) -> logits (float32, [B, T, V]); an
            encoder-decoder also reads target_ids (int32, [B, T])
        start: token_ids, lengths -> logits (float32, [B, 1, V]), cache_0_attention_key (float32,
            [B, N, M, H]), ..., padding_mask (bool, [B, M]); of an encoder-decoder context_0_key,
            ..., mask (bool, [B, S])
        step: token_ids (int32, [B, T]), cache_..., padding_mask or context_... and mask
            -> logits (float32, [B, T, V]), cache_..., padding_mask
        generate: token_ids, lengths -> ids (int32, [B, max_length]), score (float32, [B])

    A step reads the tokens after those in the cache, one or several in each row, and returns a
    cache with a slot more for each. LiteRT has no random numbers: with a strategy that samples
    `generate` also reads noise (float32, [max_length, B]), uniform numbers in [0, 1). Models of
    images draw images (int32, [B, H, W, C]) by noise alone, and super-resolution by images and
    noise; a mixture of logistics reads as many numbers a pixel, in a third axis.

    Other models have the signatures of their SavedModel that read no text: "encode" and "logits" of
    a masked language model, "classify", "regress" or "embed" of a classifier, "initial_memory" and
    "step" of a model with a memory, "act" of a `decision_transformer`, "forecast" of a
    forecaster of series, which reads noise (float32, [B, N, H]) if it draws paths.

    A Keras model of your own that reads ids has one signature: "classify", "regress", "embed" or
    "tag", or "predict" with several outputs.

    Batch and lengths are dynamic, and all operations are LiteRT's own, so no Flex delegate is
    needed. LiteRT has no assertions: of ids outside the vocabulary the nearest ones are read.
    Before the file gets its name, each signature runs in LiteRT's interpreter: with one row of
    three positions, and with three rows of different lengths, up to 40 positions or more than twice
    each size in the configuration of the model's patterns, 1,027 at most. The outputs must be
    finite and those of the graph that was converted: numbers to 1e-5 of an output's greatest
    magnitude, ids in one of three runs, since two tokens may be as likely.

    Quantised weights are compared in the same runs. The file records their errors beside its
    examples, in a zip archive after the model: `inspect` returns and prints them.

    Args:
        model: a model as `saved_model` takes it, that computes in float32.
        path: the file; an existing one is replaced.
        signatures: list of names; by default all of them. They share weights, but for matrices that
            the converter multiplies with others, such as the scale of a norm.
        strategy: name or object of the decoding strategy of "generate", by default "greedy".
        max_length: int. Most tokens that "generate" writes.
        max_source_length: int. Most tokens that "generate" or a model of your own reads.
        quantize: None for float32. "float16" stores the weights in half the bytes, and computes in
            float32; "int8" stores large matrices in a quarter, and multiplies them in 8 bits.
        eos_id: int, or a list of several. The token that ends a sequence, by default 3.
        bos_id: int. The token before the first target token of an encoder-decoder, by default that
            of the model, or 2.
        kind, inputs, from_logits: of a model of your own, as `TextModel` takes them.
        horizon: int. Number H of values that a forecaster gives, as in `saved_model`.

    Returns:
        `path`, a string.

    Raises:
        ValueError: if the model has no such signature, computes in 16 bits, has an operation that
            LiteRT lacks, or gives other outputs there, or the backend is not TensorFlow.
        ImportError: if ai-edge-litert is not installed.

    Example:
        >>> import keras_attn, numpy as np, os, tempfile
        >>> model = keras_attn.models.bert(vocabulary_size=10, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> path = keras_attn.export.litert(model, os.path.join(tempfile.mkdtemp(), "bert.tflite"))
        >>> from ai_edge_litert.interpreter import Interpreter
        >>> run = Interpreter(path).get_signature_runner("logits")
        >>> run(token_ids=np.array([[5, 4, 9]], "int32"), lengths=np.array([3], "int32"))[
        ...     "logits"].shape
        (1, 3, 10)

    Reference: https://ai.google.dev/edge/litert/conversion/tensorflow/overview
    """
    check_backend()
    if isinstance(model, StatefulSegments):
        model = model.model
    check_paths(path=path)
    check_sizes(max_length=max_length, max_source_length=max_source_length)
    check_choice((None, "float16", "int8"), quantize=quantize)
    interpreter_class()  # raises before anything slow if its package is missing
    check_float32(model)
    check_merged(model)
    options = ExportOptions(
        strategy=strategy,
        max_length=max_length,
        max_source_length=max_source_length,
        eos_id=eos_id,
        bos_id=bos_id,
        kind=kind,
        inputs=inputs,
        from_logits=from_logits,
        horizon=horizon,
    )
    with without_tile_loops():  # LiteRT has no lists of tensors of unknown shapes
        available = signatures_of(model, options)
        names = _checked_names(signatures, available.functions)
        needed = available.only(names)
        traced = {name: f.get_concrete_function() for name, f in needed.functions.items()}
    examples = Examples(needed, length_beyond_windows(model))
    path = os.path.abspath(os.fspath(path))
    facts = {"precision": quantize or "float32"}
    if "generate" in names and "ids" in traced["generate"].structured_outputs:
        chosen = get_strategy(options.decoding[0])
        facts["decoding"] = dataclasses.asdict(Decoding.of(chosen, max_length))
    with atomic_file(path) as file, tempfile.TemporaryDirectory() as folder:
        exported = {name: traced[name] for name in names}
        without_gradients = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(needed.resources, folder, exported, without_gradients)
        _convert(folder, file, names)
        check_outputs(open_file(file), examples, names)
        if quantize is not None:
            _convert(folder, file, names, quantize)
            facts["errors"] = measure_errors(open_file(file), examples, names)
        append_record(file, facts, record_examples(open_file(file), examples, names))
    return path


def _checked_names(signatures, functions):
    """Return the names of the signatures to export, of those that the model has."""
    if signatures is None:
        return list(functions)
    check_that(not isinstance(signatures, str) and signatures, "a list", signatures=signatures)
    for name in signatures:
        check_choice(tuple(functions), signatures=name)
    return list(dict.fromkeys(signatures))


def _convert(folder, file, names, quantize=None):
    """Write the signatures `names` of the SavedModel in a folder as a LiteRT file."""
    converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=names)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantize is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        content = converter.convert()
    except Exception as error:  # the converter's own class is private
        unknown = re.findall(r"'tf\.(\w+)' op", str(error))
        received = ", ".join(sorted(set(unknown))) or first_line(error)
        raise ValueError(
            f"Operations of the model cannot be converted to LiteRT. Received: {received}."
        ) from error
    with open(file, "wb") as stream:
        stream.write(content)
