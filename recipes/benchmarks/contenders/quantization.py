"""A trained language model as a SavedModel with weights of few bits."""

import math
import os
import tempfile

import numpy as np

from ..workload import Task
from .exports import WEIGHTS, file_bytes

BATCH = 32


def scoring(form, run, tokens, context):
    """The log-probabilities of a test text by the export of one form: float32, int8 or int4."""
    import keras
    import tensorflow as tf

    from keras_attn import export, text

    ids = text.TokenFiles(os.path.join(run, "tokens"), "test")[:tokens]
    rows = ids[: len(ids) // context * context].reshape(-1, context).astype("int32")
    if not len(rows):
        raise ValueError(f"The test split must have a row of tokens. Received: context={context}.")
    keras.config.set_dtype_policy("float32")
    model = keras.saving.load_model(os.path.join(run, "model.keras"))
    quantize = None if form == "float32" else form
    lengths = {"max_length": 1, "max_source_length": context - 1}
    with tempfile.TemporaryDirectory() as folder:
        path = export.saved_model(model, folder, quantize=quantize, **lengths)
        loaded = tf.saved_model.load(path)
        sizes = {
            "megabytes": file_bytes(path) / 1e6,
            "weight_megabytes": file_bytes(path, WEIGHTS) / 1e6,
        }
    batches = [tf.constant(rows[start : start + BATCH]) for start in range(0, len(rows), BATCH)]

    score = loaded.signatures["score"]

    def call(loaded=loaded):  # The signature does not keep the model that it belongs to alive.
        """Return the log-probability of all rows, and the number of tokens that were scored."""
        total = np.zeros(2)
        for batch in batches:
            scores = score(token_ids=batch, lengths=tf.fill([len(batch)], context))
            total += [
                float(tf.reduce_sum(x)) for x in (scores["log_probability"], scores["num_tokens"])
            ]
        return total

    log_probability, count = call()
    perplexity = math.exp(-log_probability / count)
    facts = {"perplexity": perplexity, "parameters": model.count_params(), **sizes}
    return Task(call=call, units=int(count), facts=facts)
