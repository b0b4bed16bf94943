"""Requests that an export carries, with what it answers them."""

import os

import numpy as np
import tensorflow as tf

from keras_attn.models.fingerprint import LENGTH, example_array, num_tokens

FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
_EXACT = ("float32", "float64")


def write_warmup(directory, signatures, model, tokenizer=None):
    """Writes one small request for each signature into an exported `directory`, with its answer.

    A server runs the requests before the first client's. Our own, and `inspect`, also compare the
    answers: an export that answers otherwise than where it was written is refused. An answer is left
    out if the next one to the same request is another, as of a strategy that samples, and if the
    model computes in 16 bits, where another machine may well choose another token.

    Args:
        directory: a SavedModel.
        signatures: dict of the functions behind its signatures, each with an input signature.
        model: what tells how many tokens there are.
        tokenizer: from `keras_attn.text`, if texts are read.

    Reference: https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    is_exact = all(layer.compute_dtype in _EXACT for layer in model.layers)
    path = os.path.join(directory, FILE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    asked = {}  # the default signature is another one's function
    with tf.io.TFRecordWriter(path) as writer:
        for name, function in sorted(signatures.items()):
            if function not in asked:
                inputs = _inputs(function, num_tokens(model), tokenizer)
                asked[function] = _arrays(inputs), _answer(function, inputs, is_exact)
            log = PredictionLog()
            log.predict_log.request.model_spec.signature_name = name
            inputs, outputs = asked[function]
            for key, value in inputs.items():
                log.predict_log.request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
            for key, value in outputs.items():
                log.predict_log.response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
            writer.write(log.SerializeToString(deterministic=True))


def _answer(function, inputs, is_exact):
    """The outputs' arrays by name; none where another run may give others."""
    if not is_exact:
        return {}
    answer, again = (_arrays(function(*inputs.values())) for _ in range(2))
    is_stable = all(np.array_equal(answer[key], again[key]) for key in answer)
    return answer if is_stable else {}


def _inputs(function, tokens, tokenizer):
    """By name, in the order of the function's arguments."""
    inputs = {}
    for spec in function.input_signature:
        if spec.dtype == tf.string:
            inputs[spec.name] = _text(tokenizer)
        else:
            value = example_array(spec.shape, spec.dtype.name, max(1, tokens // 2))
            if spec.shape.rank == 1:
                value = value * LENGTH  # all of a row is real
            inputs[spec.name] = tf.cast(value, spec.dtype)
    return inputs


def _text(tokenizer):
    """A text of the last tokens, since the first are marks."""
    ids = tokenizer.vocabulary_size - np.arange(1, 4)
    return tokenizer.decode(np.maximum(ids, 0)[None])


def _arrays(tensors):
    return {name: np.asarray(tensor) for name, tensor in tensors.items()}
