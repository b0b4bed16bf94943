"""Asks an export what it carries requests for, and compares with the answers it carries."""

import os

import tensorflow as tf
from google.protobuf.message import DecodeError

from keras_attn.export.answers import same
from keras_attn.export.warmup import FILE

# Relative to the greatest number of an output.
ANSWERS_DIFFER = 1e-3


def replay(directory, uses_text=False):
    """Runs the requests that an export carries.

    Args:
        directory: of a SavedModel.
        uses_text: whether it has operations of TensorFlow Text.

    Returns:
        dict of a signature's name and "same", "differs", or "runs" where no answer was recorded.

    Raises:
        ValueError: if the model cannot be loaded, a record is broken, or a request fails.
        ImportError: if TensorFlow Text is needed and not installed.
    """
    records = _records(directory)
    loaded = _loaded(directory, uses_text)  # kept: its functions do not keep its variables
    outcomes = {}
    for name, inputs, expected in records:
        if name not in loaded.signatures:
            raise ValueError(
                f"A recorded request must be for a signature there is. Received: {name!r}, where "
                f"there are {sorted(loaded.signatures)}."
            )
        try:
            answer = loaded.signatures[name](**inputs)
        except (tf.errors.OpError, TypeError, ValueError) as error:
            raise ValueError(
                f"The recorded request for {name!r} cannot be run. Received: {_first_line(error)}"
            ) from error
        outcome = "runs"
        if expected:
            is_same = all(
                key in answer and same(expected[key], answer[key].numpy(), ANSWERS_DIFFER)
                for key in expected
            )
            outcome = "same" if is_same else "differs"
        if outcomes.get(name) != "differs":
            outcomes[name] = outcome
    return outcomes


def _records(directory):
    """Each record's signature, and its inputs and outputs as dicts of arrays."""
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    file = os.path.join(directory, FILE)
    if not os.path.exists(file):
        return []
    try:
        logs = [
            PredictionLog.FromString(record).predict_log
            for record in tf.data.TFRecordDataset(file).as_numpy_iterator()
        ]
        return [
            (
                log.request.model_spec.signature_name,
                {name: tf.constant(tf.make_ndarray(x)) for name, x in log.request.inputs.items()},
                {name: tf.make_ndarray(x) for name, x in log.response.outputs.items()},
            )
            for log in logs
        ]
    except (tf.errors.DataLossError, DecodeError, TypeError, ValueError) as error:
        raise ValueError(f"The recorded requests are damaged. Received: {file}.") from error


def _loaded(directory, uses_text):
    if uses_text:
        try:
            import tensorflow_text  # noqa: F401  (registers its operations)
        except ImportError as error:
            raise ImportError(
                "The tokenizer inside needs TensorFlow Text: pip install keras_attn[text]."
            ) from error
    try:
        return tf.saved_model.load(directory)
    except Exception as error:  # of every kind, for files that are cut, missing or of elsewhere
        raise ValueError(
            f"The export cannot be loaded. Received: {directory}: {_first_line(error)}"
        ) from error


def _first_line(error):
    return str(error).strip().partition("\n")[0]
