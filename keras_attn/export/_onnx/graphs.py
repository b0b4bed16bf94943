"""Graph functions of a model that can be converted to ONNX files."""

import dataclasses

import keras
import tensorflow as tf
from keras import ops

from keras_attn.export.checks import has_memory
from keras_attn.export.signatures.cached_steps import flatten, unflatten
from keras_attn.export.signatures.encoders import TokenEncoder
from keras_attn.export.signatures.model_functions import (
    ExportOptions,
    call_masked,
    length_mask,
    mask_ids,
    nearest_ids,
)
from keras_attn.export.signatures.selection import check_own_options, functions_of
from keras_attn.export.signatures.series import SeriesForecaster, SeriesModel
from keras_attn.export.signatures.steps import SegmentSteps
from keras_attn.export.signatures.text_generator import TokenGenerator
from keras_attn.export.signatures.text_model import KINDS, TextModel
from keras_attn.export.signatures.translator import IdTranslator
from keras_attn.generation import Greedy
from keras_attn.models.encoder_models import Classifier, MaskedLanguageModel
from keras_attn.models.image_tokens import ImageTokens
from keras_attn.models.state_models import TrajectoryModel
from keras_attn.ops.checks import check_that
from keras_attn.positions import ImageCoordinates


def functions_of_ids(model, max_length, what=None, inputs=None, from_logits=None, horizon=None):
    """Return the `ModelFunctions` of a model whose only part they are; None for others.

    That is a classifier, a forecaster, a model of episodes or one of one's own.
    """
    options = ExportOptions(
        max_source_length=max_length, inputs=inputs, from_logits=from_logits, horizon=horizon
    )
    check_own_options(model, options)
    if TextModel.fits(model, options):
        kind = what if what in KINDS else None
        return functions_of(model, dataclasses.replace(options, kind=kind))
    is_whole = isinstance(model, (Classifier, TrajectoryModel))
    series_kinds = SeriesForecaster, SeriesModel
    is_whole = is_whole or any(kind.fits(model, options) for kind in series_kinds)
    check_that(is_whole or horizon is None, "None, but for a forecaster", horizon=horizon)
    return functions_of(model, options) if is_whole else None


def parts_of(model, functions=None):
    """Return the parts of a model that can be exported: a dict of names and builders.

    A builder takes the model, `max_length`, `max_source_length`, `eos_id` and `bos_id`, and returns
    a `tf.function`. The first part is the default. The only part of a model that has `functions` is
    their default one.
    """
    if isinstance(model, TrajectoryModel):
        return {"act": lambda *_: _act(functions.act)}
    if isinstance(functions, SeriesForecaster):
        return {functions.kind: lambda *_: functions.by_noise or functions.forecast}
    if functions is not None:
        return {functions.kind: lambda *_: functions.signatures["serving_default"]}
    if has_memory(model):
        return {"step": _segment_step}
    if isinstance(model, MaskedLanguageModel):
        return {"encoder": _masked}
    if not hasattr(model, "reads_prompt"):
        raise ValueError(
            "`model` must be an `EncoderDecoder`, a `CausalLanguageModel`, a "
            "`MaskedLanguageModel`, a `Classifier` or a `TrajectoryModel`, have a memory or be a "
            "`keras.Model` of ids. "
            f"Received: {type(model).__name__}."
        )
    parts = {"step": _step}
    # Some models of images output parameters of a distribution in the place of logits.
    if not (isinstance(model.position, ImageCoordinates) and ImageTokens.of(model).whole_pixels):
        parts = {"greedy": _greedy, **parts}
    return parts if model.reads_prompt else {**parts, "encoder": _encoder}


def _greedy(model, max_length, max_source_length, eos_id, bos_id):
    if model.reads_prompt:  # a causal model has its prompt before the first token
        decoder = TokenGenerator(model, Greedy(), max_length, max_source_length, eos_id)
    else:
        decoder = IdTranslator(model, Greedy(), max_length, max_source_length, eos_id, bos_id)
    return decoder.ids


def _act(function):
    def act(*tensors):
        # A value of an ONNX graph has one name, and `actions` are an input.
        return {"next_actions": function(*tensors)["actions"]}

    return tf.function(act, function.input_signature, autograph=False)


def _masked(model, *ends):
    both = keras.Model(model.input, [model.encoder_output, model.output])
    absent = dict.fromkeys(model.input)

    def encoder(token_ids, lengths):
        known = nearest_ids(token_ids, model.embedding)
        token_ids = mask_ids(known, lengths, model.pad_id)
        features, logits = call_masked(both, {**absent, "token_ids": token_ids})
        return {"features": features, "logits": logits}

    return tf.function(encoder, TokenEncoder.encode.input_signature, autograph=False)


def _encoder(model, *ends):
    def encoder(source_ids, source_lengths):
        mask = length_mask(source_ids, source_lengths)
        source_ids = nearest_ids(tf.where(mask, source_ids, 0), model.embedding)
        constants, _ = model.start(source_ids, 1, mask)
        return flatten("context", constants["context"])

    return tf.function(encoder, IdTranslator.ids.input_signature, autograph=False)


def _step(model, max_length, *ends):
    constants, cache = model.start(tf.ones((1, 1), "int32"), max_length)
    context, layers = constants.get("context", []), cache["layers"]
    specs = [
        tf.TensorSpec([None, None], tf.int32, "token_ids"),
        tf.TensorSpec([], tf.int32, "index"),
    ]
    if context:
        specs += [tf.TensorSpec([None], tf.int32, "source_lengths"), *_specs("context", context, 2)]
    specs += _specs("past", layers)
    embedding = getattr(model, "target_embedding", model.embedding)

    def step(*tensors):
        inputs = {spec.name: tensor for spec, tensor in zip(specs, tensors, strict=True)}
        token_ids, index = nearest_ids(inputs["token_ids"], embedding), inputs["index"]
        constants = {}
        if context:
            keys = unflatten("context", context, inputs)
            mask = tf.sequence_mask(inputs["source_lengths"], tf.shape(keys[0]["key"])[2])
            constants = {"context": keys, "mask": mask}
        positions = index + ops.arange(tf.shape(token_ids)[1], dtype="int32")
        cache = {"index": index, "layers": unflatten("past", layers, inputs)}
        logits, cache = model.step(token_ids, constants, cache, positions)
        return {"logits": logits, **flatten("present", cache["layers"])}

    return tf.function(step, specs, autograph=False)


def _segment_step(model, *ends):
    steps = SegmentSteps(model).step

    def step(*tensors):
        outputs = steps(*tensors)
        state = "memory", *model.memory.lengths
        return {f"next_{name}" if name in state else name: x for name, x in outputs.items()}

    return tf.function(step, steps.input_signature, autograph=False)


def _specs(prefix, layers, *dynamic):
    """Return `TensorSpec`s of a cache's tensors; axis 0 and the `dynamic` axes have any size."""
    specs = []
    for name, x in flatten(prefix, layers).items():
        shape = [None if axis in (0, *dynamic) else n for axis, n in enumerate(x.shape)]
        specs.append(tf.TensorSpec(shape, x.dtype, name))
    return specs
