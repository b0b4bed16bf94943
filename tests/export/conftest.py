"""The requests and outputs that an export carries for TensorFlow Serving's warm-up."""

import re

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, models


@pytest.fixture(scope="session")
def encoder_export(tmp_path_factory):
    """A masked language model, which tests leave unchanged, and the directory of its export."""
    model = models.bert(11, 1, 2, 8, 11, max_length=13)
    oracles.scramble(model)
    return model, export.saved_model(model, tmp_path_factory.mktemp("encoder"))


def read_warmup_records(directory):
    """Return a dict of a signature and the arrays of its request and of its response."""
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    file = f"{directory}/assets.extra/tf_serving_warmup_requests"
    records = {}
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        log = PredictionLog.FromString(record).predict_log
        inputs, outputs = (
            {name: tf.make_ndarray(proto) for name, proto in protos.items()}
            for protos in (log.request.inputs, log.response.outputs)
        )
        records[log.request.model_spec.signature_name] = inputs, outputs
    return records


@pytest.fixture(scope="session")
def warmup_records():
    """A function (directory) -> records by signature."""
    return read_warmup_records


@pytest.fixture(scope="session")
def assert_warmup_records_match():
    """A function (directory, loaded signatures) that compares each signature with its record."""

    def check(directory, signatures):
        records = read_warmup_records(directory)
        assert set(records) == set(signatures)
        for name, (inputs, expected) in records.items():
            outputs = signatures[name](**{key: tf.constant(x) for key, x in inputs.items()})
            assert set(outputs) == set(expected)
            for key, value in expected.items():
                if value.dtype.kind == "f":
                    np.testing.assert_allclose(outputs[key], value, rtol=1e-5, atol=1e-5)
                else:
                    np.testing.assert_array_equal(outputs[key], value)

    return check


@pytest.fixture(scope="session")
def assert_ids_are_checked():
    """A function that sends wrong ids and lengths in the place of those of a good request."""

    def check(run, size, request, ids="token_ids", lengths="lengths"):
        def refuses(message, **changed):
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                run(**{**inputs, **changed})

        inputs = {name: tf.constant(value) for name, value in request.items()}
        run(**inputs)
        for wrong in (-1, size):
            values = np.array(request[ids], "int32")
            values[-1, -1] = wrong
            refuses(rf"must be in \[0, {size}\)", **{ids: tf.constant(values)})
            if lengths is not None:  # beyond a row's end any id may be
                before = {**inputs, lengths: inputs[lengths] - 1}
                expected, outputs = run(**before), run(**{**before, ids: tf.constant(values)})
                assert set(outputs) == set(expected)
                for name, value in expected.items():
                    np.testing.assert_array_equal(outputs[name], value)
        right = [] if lengths is None else [*request[lengths]]
        for wrong in ([*right[:-1], -2], [*right[:-1], 99], [*right, 1]) if right else ():
            numbers, shape = (" ".join(map(str, x)) for x in (wrong, np.shape(request[ids])))
            received = re.escape(f"Received: lengths] [{numbers}] [rows of shape] [{shape}]")
            message = f"one number for each row, from 0 to its width. {received}"
            refuses(message, **{lengths: tf.constant(wrong, tf.int32)})

    return check
