"""Replays the requests that an export carries, so that the first client does not pay for them."""

import os

import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from serving.errors import invalid_argument
from serving.predict_request import run_predict_request

_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
_MAX_RECORDS = 1000


def warm_up(servable, path, iterations=1):
    """Runs the predict requests of `assets.extra/tf_serving_warmup_requests`, if there is one.

    Args:
        servable: `Servable`, loaded and not yet available.
        path: string. The version's directory.
        iterations: int. How many times each request runs.

    Raises:
        ServingError: if a record is broken or fails, or there are more than 1000.
    """
    file = os.path.join(path, _FILE)
    if not os.path.exists(file):
        return
    for count, record in enumerate(tf.compat.v1.io.tf_record_iterator(file), start=1):
        if count > _MAX_RECORDS:
            raise invalid_argument(
                f"Number of warmup records exceeds the maximum ({_MAX_RECORDS}) at {file}"
            )
        log = PredictionLog.FromString(record)
        kind = log.WhichOneof("log_type")
        if kind != "predict_log":
            raise invalid_argument(f"Unsupported log_type for warmup: {kind}")
        for _ in range(iterations):
            run_predict_request(servable, log.predict_log.request)
