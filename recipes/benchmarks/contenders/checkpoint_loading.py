"""A folder of a checkpoint becomes a model of keras_attn, for `checkpoint_loading`:

python -m recipes.benchmarks.contenders.checkpoint_loading FOLDER
"""

import json
import sys

import numpy as np

from keras_attn import models
from keras_attn.convert import from_hugging_face

from ...common.machine import peak_memory
from ..worker import cost


def main(folder):
    kept = []
    base = peak_memory()
    measured = cost(lambda: kept.append(from_hugging_face(folder)[0]))
    measured["megabytes"] = measured.pop("peak_mb") - base
    measured["answer"] = cost(lambda: answer(*kept))
    print(json.dumps(measured))


def answer(model):
    """Compute the outputs of a row of eight tokens."""
    ids = np.arange(5, 13)[None]
    is_pair = isinstance(model, models.EncoderDecoder)
    return np.array(model({"source_ids": ids, "target_ids": ids} if is_pair else ids))


if __name__ == "__main__":
    main(sys.argv[1])
