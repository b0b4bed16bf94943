"""Replay of the warm-up requests that an export carries, before it serves its first client."""

import os

import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from keras_attn.export.golden_outputs import WARMUP_FILE, outputs_match

from .errors import Code, ServingError, invalid_argument
from .inference import classify, multi_inference, regress
from .predict import run_predict_request
from .tensors import to_array

_MAX_RECORDS = 1000
_RUN = {
    "predict_log": run_predict_request,
    "classify_log": classify,
    "regress_log": regress,
    "multi_inference_log": multi_inference,
}


def warm_up(servable, path, iterations=1):
    """Run the requests of a version's `assets.extra/tf_serving_warmup_requests`, if it exists.

    Where the record of a predict request has the response too, as in exports of keras_attn, the
    answer must equal it. (The real server only runs the requests.)
    """
    file = os.path.join(path, WARMUP_FILE)
    if not os.path.exists(file):
        return
    for count, record in enumerate(tf.compat.v1.io.tf_record_iterator(file), start=1):
        if count > _MAX_RECORDS:
            most = f"the maximum ({_MAX_RECORDS}) at {file}"
            raise invalid_argument(f"Number of warmup records exceeds {most}")
        log = PredictionLog.FromString(record)
        kind = log.WhichOneof("log_type")
        if kind not in _RUN:
            raise invalid_argument(f"Unsupported log_type for warmup: {kind}")
        request = getattr(log, kind).request
        for _ in range(iterations):
            answer = _RUN[kind](servable, request)
            if kind == "predict_log":
                _check_answer(request.model_spec.signature_name, log.predict_log.response, answer)


def _check_answer(signature, expected, answer):
    for name, proto in expected.outputs.items():
        found = to_array(name, answer.outputs[name]) if name in answer.outputs else None
        if found is None or not outputs_match(to_array(name, proto), found):
            raise ServingError(
                Code.FAILED_PRECONDITION,
                f"The export is damaged or runs differently here: its signature {signature!r} no "
                f"longer gives the output {name!r} that it gave when it was written.",
            )
