"""A small training program, started, killed and started again; run by test_killed.py.

Prints one JSON object: how each start of the killed run ended, and whether the run ends as an
undisturbed one does. Each start is a fork of a process that has imported what is slow to import and
has not begun to use it, so that it begins with nothing and takes a second.

    python killed.py DIRECTORY KILLS SEED
"""

import itertools
import json
import os
import random
import signal
import sys
import time

import keras
import numpy as np
from kills import die_in_writing

from keras_attn.callbacks import Resume, Terminated, checkpoints
from keras_attn.metrics import Perplexity
from keras_attn.optimizers import Noam

EPOCHS, BATCHES, ROWS, T, V = 6, 20, 4, 5, 7


def data(epoch, first=0):
    """The batches of an epoch, which are a function of its number, from the first one on."""
    rng = np.random.default_rng([epoch, 11])
    tokens = rng.integers(1, V, (BATCHES, ROWS, T))
    return tokens[first:].reshape(-1, T)


def make_model():
    keras.utils.set_random_seed(5)
    layers = [
        keras.Input((T,)),
        keras.layers.Embedding(V, 4),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(V),
    ]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(Noam.from_peak(0.05, 30))
    model.compile(optimizer, loss, metrics=["accuracy", Perplexity()])
    return model


class Tell(keras.callbacks.Callback):
    """Writes a line for every epoch, and a byte for every batch and checkpoint begun."""

    def __init__(self, path, pipe):
        super().__init__()
        self.path, self.pipe = path, pipe

    def on_train_batch_begin(self, batch, logs=None):
        os.write(self.pipe, b"b")

    def on_epoch_end(self, epoch, logs=None):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps([epoch, logs]) + "\n")


def train(directory, pipe):
    """Resume training, and train to the end."""
    write = checkpoints.write_arrays

    def told(*arguments, **numbers):
        os.write(pipe, b"w")  # a checkpoint
        write(*arguments, **numbers)

    checkpoints.write_arrays = told
    model = make_model()
    resume = Resume(os.path.join(directory, "checkpoints"), every_steps=2)
    epoch, batch = resume.restore(model)
    callbacks = [Tell(os.path.join(directory, "log"), pipe), resume]
    while epoch < EPOCHS:
        x = data(epoch, batch)
        model.fit(
            x,
            x,
            batch_size=ROWS,
            shuffle=False,
            verbose=0,
            initial_epoch=epoch,
            epochs=epoch + 1,
            callbacks=callbacks,
        )
        epoch, batch = epoch + 1, 0
    np.savez(os.path.join(directory, "end.npz"), *model.get_weights())


def start(directory, half=None):
    """A new process: its id, and where it tells what it begins."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            if half is not None:
                die_in_writing(half)
            train(directory, writing)
            code = 0
        except Terminated as ended:
            code = ended.code
        finally:
            os._exit(code)
    os.close(writing)
    return child, reading


def disturb(directory, rng, way):
    """Ends the program at a random moment, by its exit code; and whether it left half a file.

    `way` says after what: a batch's beginning or a checkpoint's, or within the writing of one.
    """
    if way == "half":
        code = finish(*start(directory, half=rng.randint(1, 3)))
    else:
        child, reading = start(directory)
        count = rng.randint(1, 3)
        while count and (told := os.read(reading, 1)):
            count -= told == way[0].encode()
        time.sleep(rng.uniform(0, 0.004))
        os.kill(child, signal.SIGTERM if rng.random() < 0.2 else signal.SIGKILL)
        code = finish(child, reading)
    names = os.listdir(os.path.join(directory, "checkpoints"))
    return code, any(".partial" in name for name in names)


def finish(child, reading):
    while os.read(reading, 4096):
        pass
    os.close(reading)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def logged(directory):
    """Return the logs of each epoch; a kill between its log and its checkpoint repeats it."""
    with open(os.path.join(directory, "log"), encoding="utf-8") as file:
        return dict(map(json.loads, file))


def main(directory, kills, seed):
    calm, disturbed = (os.path.join(directory, name) for name in ("calm", "disturbed"))
    for path in (calm, disturbed):
        os.mkdir(path)
    rng = random.Random(seed)
    result = {"calm": finish(*start(calm))}
    ways = itertools.islice(itertools.cycle(["batch", "half", "write"]), kills)
    result["ended"] = [disturb(disturbed, rng, way) for way in ways]
    result["last"] = finish(*start(disturbed))
    with np.load(f"{calm}/end.npz") as one, np.load(f"{disturbed}/end.npz") as other:
        result["equal"] = all((one[name] == other[name]).all() for name in one.files)
        result["weights"] = len(one.files)
    result["losses"] = [list(logged(path).items()) for path in (calm, disturbed)]
    result["left"] = sorted(os.listdir(os.path.join(disturbed, "checkpoints")))
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
