"""A folder of a checkpoint becomes a model of keras_attn, for `checkpoint_loading`:

python -m recipes.benchmarks.contenders.checkpoint_loading FOLDER
"""

import json
import sys

from keras_attn.convert import from_hugging_face

from ...common.machine import peak_memory
from ..worker import cost


def main(folder):
    kept = []
    base = peak_memory()
    measured = cost(lambda: kept.append(from_hugging_face(folder)[0]))
    measured["megabytes"] = measured.pop("peak_mb") - base
    print(json.dumps(measured))


if __name__ == "__main__":
    main(sys.argv[1])
