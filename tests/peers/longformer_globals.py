"""Load Longformers by transformers, and call them with global tokens.

    python longformer_globals.py FOLDER ...

The name of a folder ends in the number of its first tokens that are global. Each folder gets what
`load_checkpoints.py` writes: golden outputs, and the checkpoint after a step of gradient descent.
"""

import pathlib
import sys

import load_checkpoints
import numpy as np
from load_checkpoints import golden_writer

plain_inputs = golden_writer.their_inputs


def load(folder):
    count = int(pathlib.Path(folder).name[-1])

    def their_inputs(inputs, config):
        model_inputs = plain_inputs(inputs, config)
        is_global = np.arange(model_inputs["input_ids"].shape[1]) < count
        mask = np.broadcast_to(is_global, model_inputs["input_ids"].shape).astype("int64")
        return {**model_inputs, "global_attention_mask": mask}

    golden_writer.their_inputs = their_inputs
    load_checkpoints.load(folder)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        load(path)
