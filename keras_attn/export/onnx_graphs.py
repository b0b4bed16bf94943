"""The functions of a model that become ONNX files."""

import keras
import tensorflow as tf
from keras import ops

from keras_attn.export.id_translator import IdTranslator
from keras_attn.export.id_writer import TokenGenerator
from keras_attn.export.segment_steps import SegmentSteps
from keras_attn.export.token_encoder import IDS
from keras_attn.generation import Greedy
from keras_attn.models.image_tokens import ImageTokens
from keras_attn.models.masked_language_model import MaskedLanguageModel
from keras_attn.positions import ImageCoordinates


def parts_of(model):
    """What can be written of a model: a dict of names and functions that make the function.

    Each takes `max_length` and `max_source_length`; the first is the default.
    """
    if getattr(model, "memory", None) is not None:
        return {"step": lambda *lengths: _segment_step(model)}
    if isinstance(model, MaskedLanguageModel):
        return {"encoder": lambda *lengths: _masked(model)}
    if not hasattr(model, "reads_prompt"):
        raise ValueError(
            "`model` must be an `EncoderDecoder`, a `CausalLanguageModel`, a `MaskedLanguageModel` "
            f"or have a memory. Received: {type(model).__name__}."
        )
    parts = {"step": lambda max_length, _: _step(model, max_length)}
    if not _makes_pixels(model):
        decoder = TokenGenerator if model.reads_prompt else IdTranslator
        greedy = {"greedy": lambda *lengths: _greedy(decoder(model, _Greedy(), *lengths))}
        parts = {**greedy, **parts}
    if not model.reads_prompt:
        parts["encoder"] = lambda *lengths: _encoder(model)
    return parts


def _makes_pixels(model):
    """Whether outputs are the parameters of a distribution of pixels, no logits of tokens."""
    return isinstance(model.position, ImageCoordinates) and ImageTokens.of(model).whole_pixels


class _Greedy(Greedy):
    """The same tokens: Keras's argmax looks at bits, to tell zeros of either sign apart."""

    def _choose(self, logits, step):
        _, log_prob = super()._choose(logits, step)
        return tf.math.top_k(logits, 1).indices[:, 0], log_prob


def _greedy(decoder):
    def greedy(*tensors):  # unlike a method it keeps its object
        return decoder.ids(*tensors)

    return tf.function(greedy, decoder.ids.input_signature, autograph=False)


def _masked(model):
    both = keras.Model(model.input, [model.encoder.output, model.output])

    def encoder(token_ids, lengths):
        real = tf.sequence_mask(lengths, tf.shape(token_ids)[1])
        features, logits = both({"token_ids": tf.where(real, token_ids, 0), "segment_ids": None})
        return {"features": features, "logits": logits}

    return tf.function(encoder, IDS, autograph=False)


def _encoder(model):
    def encoder(source_ids, source_lengths):
        real = tf.sequence_mask(source_lengths, tf.shape(source_ids)[1])
        constants, _ = model.start(tf.where(real, source_ids, 0), 1)
        return _named("context", constants["context"])

    return tf.function(encoder, IdTranslator.ids.input_signature, autograph=False)


def _step(model, max_length):
    constants, cache = model.start(tf.ones((1, 1), "int32"), max_length)
    context, layers = constants.get("context", []), cache["layers"]
    specs = [
        tf.TensorSpec([None, None], tf.int32, "token_ids"),
        tf.TensorSpec([], tf.int32, "index"),
    ]
    if context:
        specs += [tf.TensorSpec([None], tf.int32, "source_lengths"), *_specs("context", context, 2)]
    specs += _specs("past", layers)

    def step(*tensors):
        given = {spec.name: tensor for spec, tensor in zip(specs, tensors, strict=True)}
        token_ids, index = given["token_ids"], given["index"]
        constants = {}
        if context:
            keys = _nested("context", context, given)
            num_keys = tf.shape(keys[0]["key"])[2]
            mask = tf.sequence_mask(given["source_lengths"], num_keys)
            constants = {"context": keys, "mask": mask}
        positions = index + ops.arange(tf.shape(token_ids)[1], dtype="int32")
        cache = {"index": index, "layers": _nested("past", layers, given)}
        logits, cache = model.step(token_ids, constants, cache, positions)
        return {"logits": logits, **_named("present", cache["layers"])}

    return tf.function(step, specs, autograph=False)


def _segment_step(model):
    steps = SegmentSteps(model).step

    def step(*tensors):
        outputs = steps(*tensors)
        return {f"next_{name}" if name in _STATE else name: x for name, x in outputs.items()}

    return tf.function(step, steps.input_signature, autograph=False)


_STATE = ("memory", "memory_length")


def _named(prefix, layers):
    """The tensors of a list of nested dicts as one dict, with names such as "past_0_key"."""
    paths = keras.tree.flatten_with_path(layers)
    return {"_".join(map(str, (prefix, *path))): tensor for path, tensor in paths}


def _nested(prefix, like, tensors):
    """The other way round."""
    return keras.tree.pack_sequence_as(like, [tensors[name] for name in _named(prefix, like)])


def _specs(prefix, layers, *dynamic):
    """Of the tensors of a cache, whose axis 0 and those named have any size."""
    specs = []
    for name, x in _named(prefix, layers).items():
        shape = [None if axis in (0, *dynamic) else n for axis, n in enumerate(x.shape)]
        specs.append(tf.TensorSpec(shape, x.dtype, name))
    return specs
