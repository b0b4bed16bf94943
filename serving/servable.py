"""One loaded version of a model, and the warm-up requests that its export carries."""

import os

import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from keras_attn.export.golden_outputs import WARMUP_FILE, outputs_match
from keras_attn.export.saved_model_files import has_own_variables

from .errors import Code, ServingError, invalid_argument, require
from .inference import classify, multi_inference, regress
from .predict import run_predict_request
from .tensors import to_array

try:
    # Importing it registers the TensorFlow Text ops that the stock server has linked in. A model
    # without them needs no TensorFlow Text; one with them fails to load and names the op.
    import tensorflow_text  # noqa: F401
except ImportError:
    pass

_MAX_RECORDS = 1000
_RUN = {
    "predict_log": run_predict_request,
    "classify_log": classify,
    "regress_log": regress,
    "multi_inference_log": multi_inference,
}


class Servable:
    """SavedModel in a session of its own, which is how TensorFlow Serving runs one.

    The session loader gives the same signatures, pruning, time limits and error texts as the
    real server, and closing the session frees the model's memory.

    Args:
        name, version: str and int. The model's, as requests name them.
        path: str. Directory of the version.
        **threads: `intra_op_parallelism_threads` and `inter_op_parallelism_threads` of the
            session, 0 for all cores. TensorFlow shares the threads among all sessions of a process,
            so the first one decides.

    Raises:
        ServingError: if the variables are not those that the export was written with.
        Exception: what TensorFlow raises for a directory that it cannot load.
    """

    def __init__(self, name, version, path, **threads):
        if not has_own_variables(path):
            raise ServingError(
                Code.DATA_LOSS,
                "The export is damaged: the files in variables/ are not those that it was written "
                "with, by the hash in its fingerprint.pb.",
            )
        self.name, self.version = name, version
        config = tf.compat.v1.ConfigProto(**threads)
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            with self._session.graph.as_default():
                tags = [tf.saved_model.SERVING]
                meta_graph = tf.compat.v1.saved_model.load(self._session, tags, path)
        except Exception:  # Raised again; only the session must not stay open.
            self._session.close()
            raise
        self.signatures = meta_graph.signature_def

    def run(self, feeds, fetches, request_context=None):
        """Run the graph on `feeds`, arrays by tensor name; return an array for each of `fetches`.

        The time limit of the `RequestContext` ends the run. Many threads may call it at once.
        """
        options = None
        if request_context and (seconds := request_context.remaining()) is not None:
            options = tf.compat.v1.RunOptions(timeout_in_ms=max(int(seconds * 1000), 1))
        try:
            return self._session.run(fetches, feeds, options=options)
        except tf.errors.OpError as error:
            # Python decorates the message with a traceback of the graph's construction; the
            # server's clients read the plain message, which is the error underneath.
            plain = error.__context__ if isinstance(error.__context__, tf.errors.OpError) else error
            raise ServingError(plain.error_code, plain.message) from error
        except (TypeError, ValueError) as error:
            raise invalid_argument(str(error)) from error

    async def run_in_batch(self, feeds, fetches, request_context):
        """Return None: such a servable has no batches."""

    def close(self):
        """Free the model's memory."""
        self._session.close()


def warm_up(servable, path, iterations=1):
    """Run the requests of a version's `assets.extra/tf_serving_warmup_requests`, if it exists.

    Where the record of a predict request has the response too, as in exports of keras_attn, the
    answer must equal it. (The real server only runs the requests.)
    """
    file = os.path.join(path, WARMUP_FILE)
    if not os.path.exists(file):
        return
    for count, record in enumerate(tf.compat.v1.io.tf_record_iterator(file), start=1):
        most = f"the maximum ({_MAX_RECORDS}) at {file}"
        require(count <= _MAX_RECORDS, f"Number of warmup records exceeds {most}")
        log = PredictionLog.FromString(record)
        kind = log.WhichOneof("log_type")
        require(kind in _RUN, f"Unsupported log_type for warmup: {kind}")
        request = getattr(log, kind).request
        for _ in range(iterations):
            answer = _RUN[kind](servable, request)
            if kind == "predict_log":
                _check_answer(request.model_spec.signature_name, log.predict_log.response, answer)


def _check_answer(signature, expected, answer):
    for name, proto in expected.outputs.items():
        output = to_array(name, answer.outputs[name]) if name in answer.outputs else None
        if output is None or not outputs_match(to_array(name, proto), output):
            raise ServingError(
                Code.FAILED_PRECONDITION,
                f"The export is damaged or runs differently here: its signature {signature!r} no "
                f"longer gives the output {name!r} that it gave when it was written.",
            )
