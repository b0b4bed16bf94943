"""Golden outputs: the requests that an export carries, with the outputs that it gave when written.

They are TensorFlow Serving's warm-up records, `PredictionLog`s. The stock server only runs the
requests; `keras_attn.export.inspect` and the embedded server also compare the outputs.
"""

import inspect
import os

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from keras_attn.models.model import LENGTH, example_array, num_tokens

WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
# Relative to the greatest magnitude of an output: other machines add up in another order.
TOLERANCE = 1e-3
_REPLACED = "\ufffd".encode()  # for a token that no text becomes


def outputs_match(expected, output, tolerance=TOLERANCE):
    """Compare an output with its golden array.

    Floating-point numbers may differ by `tolerance` times the greatest finite magnitude in
    `expected`. Dtype, shape and all other values, infinities and NaN too, must be equal.

    Example:
        >>> import numpy as np
        >>> from keras_attn.export.golden_outputs import outputs_match
        >>> outputs_match(np.array([0.0, 10.0]), np.array([0.009, 10.0]), tolerance=1e-3)
        True
    """
    if expected.dtype != output.dtype or expected.shape != output.shape:
        return False
    if expected.dtype.kind != "f":
        return np.array_equal(expected, output)
    allowed = tolerance * np.abs(expected[np.isfinite(expected)]).max(initial=1e-6)
    return np.allclose(expected, output, rtol=0, atol=allowed, equal_nan=True)


def prediction_log():
    """Return the class `PredictionLog` of tensorflow-serving-api, an optional package."""
    try:
        from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
    except ImportError as error:
        raise ImportError(
            "Warm-up records of an export need tensorflow-serving-api: "
            "pip install 'keras_attn[export]'."
        ) from error
    return PredictionLog


def write_warmup_records(directory, signatures, model, tokenizer=None, requests=()):
    """Write one small request for each signature, with its outputs, into a SavedModel's directory.

    `signatures` are `tf.function`s by name; those that read strings need the `tokenizer`. Further
    `requests` are (name of a signature, inputs, the function that gives the outputs). The outputs
    are left out if a second run of the same request gives others (a strategy that samples), and if
    the model computes in 16 bits, where another machine may choose other tokens.

    Reference: https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    record_class = prediction_log()
    path = os.path.join(directory, WARMUP_FILE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    runs = {}  # by function: the default signature is an alias of another one
    with tf.io.TFRecordWriter(path) as writer:

        def write(name, arrays):
            record = record_class()
            log = record.predict_log
            log.request.model_spec.signature_name = name
            for named, tensors in zip(
                (log.request.inputs, log.response.outputs), arrays, strict=True
            ):
                for key, value in tensors.items():
                    named[key].CopyFrom(tf.make_tensor_proto(value))
            writer.write(record.SerializeToString(deterministic=True))

        for name, function in sorted(signatures.items()):
            if function not in runs:
                inputs = _example_inputs(function, num_tokens(model), tokenizer)
                runs[function] = _arrays(inputs), stable_outputs(model, function, inputs)
            write(name, runs[function])
        for name, inputs, function in requests:
            write(name, (_arrays(inputs), stable_outputs(model, function, inputs)))


def replay(directory, uses_text=False):
    """Load an export, run the requests that it carries and compare with the golden outputs.

    Return a dict of a signature's name and "same", "differs", or "runs" if no outputs were
    recorded. `uses_text` is True if the graph has operations of TensorFlow Text.
    """
    records = _read_records(directory)
    loaded = _load(directory, uses_text)  # kept: its functions do not keep its variables alive
    outcomes = {}
    for name, inputs, expected in records:
        if name not in loaded.signatures:
            raise ValueError(
                "A recorded request must name a signature of the export, one of "
                f"{sorted(loaded.signatures)}. Received: {name!r}."
            )
        try:
            outputs = loaded.signatures[name](**inputs)
        except (tf.errors.OpError, TypeError, ValueError) as error:
            raise ValueError(
                f"The recorded request for {name!r} cannot be run. Received: {first_line(error)}"
            ) from error
        is_same = all(
            key in outputs and outputs_match(array, outputs[key].numpy())
            for key, array in expected.items()
        )
        if outcomes.get(name) != "differs":
            outcomes[name] = ("same" if expected else "runs") if is_same else "differs"
    return outcomes


def stable_outputs(model, function, inputs):
    """Return a function's outputs as arrays by name; an empty dict if others are right too.

    They are if a second run gives others, and if the model computes in 16 bits.
    """
    if not all(layer.compute_dtype in ("float32", "float64") for layer in model.layers):
        return {}
    first, second = (_arrays(function(*inputs.values())) for _ in range(2))
    return first if all(np.array_equal(first[key], second[key]) for key in first) else {}


def default_inputs(function):
    """Return the inputs that a client of a `tf.function` may leave out, tensors by name."""
    parameters = inspect.signature(function.python_function).parameters
    defaults = {name: each.default for name, each in parameters.items()}
    return {name: default for name, default in defaults.items() if tf.is_tensor(default)}


def _example_inputs(function, tokens, tokenizer):
    """Return tensors by name, in the order of the function's arguments."""
    inputs, defaults = {}, default_inputs(function)
    for spec in function.input_signature:
        if spec.name in defaults:
            inputs[spec.name] = defaults[spec.name]
        elif spec.dtype == tf.string:
            # The last tokens that have a text: among the first are most special tokens.
            texts = np.asarray(tokenizer.tokens(np.arange(tokenizer.vocabulary_size)))
            ids = [i for i, text in enumerate(texts) if text.strip() and _REPLACED not in text]
            inputs[spec.name] = tokenizer.decode(np.array([ids[:-4:-1]], np.int32))
        else:
            value = example_array(spec.shape, spec.dtype.name, max(1, tokens // 2))
            if spec.shape.rank == 1 and spec.name != "prompt_lengths":
                value = value * LENGTH  # lengths: the whole row is valid
            inputs[spec.name] = tf.cast(value, spec.dtype)
    return inputs


def _arrays(tensors):
    return {name: np.asarray(tensor) for name, tensor in tensors.items()}


def _read_records(directory):
    """Return a list of (signature name, input tensors, output arrays)."""
    file = os.path.join(directory, WARMUP_FILE)
    if not os.path.exists(file):
        return []
    record_class, records = prediction_log(), []
    try:
        for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
            log = record_class.FromString(record).predict_log
            inputs = {key: tf.constant(tf.make_ndarray(x)) for key, x in log.request.inputs.items()}
            outputs = {key: tf.make_ndarray(x) for key, x in log.response.outputs.items()}
            records.append((log.request.model_spec.signature_name, inputs, outputs))
    except (tf.errors.DataLossError, DecodeError, TypeError, ValueError) as error:
        raise ValueError(f"The recorded requests are damaged. Received: {file}.") from error
    return records


def _load(directory, uses_text):
    if uses_text:
        try:
            import tensorflow_text  # noqa: F401  (registers its operations)
        except ImportError as error:
            raise ImportError(
                "The tokenizer of the export needs TensorFlow Text: pip install 'keras_attn[text]'."
            ) from error
    try:
        return tf.saved_model.load(directory)
    except Exception as error:  # TensorFlow raises many kinds for files that are cut or missing
        raise ValueError(
            f"The export cannot be loaded. Received: {directory}: {first_line(error)}"
        ) from error


def first_line(error):
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]
