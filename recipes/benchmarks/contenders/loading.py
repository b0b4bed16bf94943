"""A SavedModel from its file to the end of the requests that it carries."""

import os
import time

from ...common.machine import resident_memory
from ..workload import Task
from .exports import file_bytes


def loading(directory):
    """Load an export and run its requests, as a server does before the first client's.

    Only the first call does so. Its facts are bytes, and seconds of processor time, which other
    programs change little, of the load and of each request.
    """
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    graph = os.path.join(directory, "saved_model.pb")
    facts = {"megabytes": file_bytes(directory) / 1e6, "graph_megabytes": file_bytes(graph) / 1e6}
    kept = []

    def call():
        if kept:
            return
        start = time.process_time()
        loaded = tf.saved_model.load(directory)
        kept.append(loaded)  # its functions do not keep its variables alive
        facts["load_seconds"] = time.process_time() - start
        facts["requests"] = []
        file = os.path.join(directory, "assets.extra", "tf_serving_warmup_requests")
        for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
            request = PredictionLog.FromString(record).predict_log.request
            inputs = {key: tf.constant(tf.make_ndarray(x)) for key, x in request.inputs.items()}
            name, start = request.model_spec.signature_name, time.process_time()
            loaded.signatures[name](**inputs)
            shape = max((x.shape.as_list() for x in inputs.values()), key=len)
            facts["requests"].append([name, shape, time.process_time() - start])
        facts["resident_mb"] = resident_memory()

    return Task(call=call, facts=facts)
