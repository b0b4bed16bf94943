"""A random PatchTST of transformers, and its training, for `series_training`:

    python -m recipes.benchmarks.contenders.series_training_torch make|train FOLDER [OPTIONS]

It needs torch and transformers, and imports nothing of Keras.
"""

import json
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
import transformers

KIND = transformers.PatchTSTForPrediction


def make(folder, options):
    """Write a random checkpoint."""
    torch.manual_seed(0)
    KIND(KIND.config_class(**json.loads(options))).save_pretrained(
        pathlib.Path(folder, "checkpoint")
    )


def train(folder):
    """Return the losses of all steps, and the processor time of one."""
    torch.set_num_threads(1)
    model = KIND.from_pretrained(pathlib.Path(folder, "checkpoint"), dtype=torch.float32).train()
    # `from_pretrained` of version 5 forgets that the class does not train its sinusoids.
    model.model.encoder.positional_encoder.position_enc.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    losses, seconds = [], []
    with np.load(pathlib.Path(folder, "batches.npz")) as file:
        pairs = list(zip(file["past"], file["future"], strict=True))
    for past, future in pairs:
        start = time.process_time()
        optimizer.zero_grad()
        loss = model(past_values=torch.tensor(past), future_values=torch.tensor(future)).loss
        loss.backward()
        optimizer.step()
        seconds.append(time.process_time() - start)
        losses.append(float(loss))
    return {"losses": losses, "seconds": statistics.median(seconds[len(seconds) // 2 :])}


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(*sys.argv[2:])
    else:
        print(json.dumps(train(sys.argv[2])))
