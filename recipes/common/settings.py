"""Settings that identify a run, kept with it so that no other run resumes it."""

import hashlib
import json
import os

import keras
import numpy as np

from . import files


def check_out(out):
    """Refuse a run's directory that cannot be created or written, or is of an earlier version."""
    path = os.path.abspath(out)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        raise ValueError(f"--out must be a directory, and {path} is none. Received: --out {out}.")
    if not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(
            f"--out must be writable, and the directory {path} is not. Received: --out {out}."
        )
    earlier = os.path.join(out, "tokens.npz")
    if os.path.exists(earlier):
        raise ValueError(
            f"The run in {out} was started by an earlier version, which kept its tokens in "
            f"{earlier}; give another --out."
        )


def check_settings(path, settings, out):
    """Refuse to resume a run in the directory `out` that was started with other settings.

    `path` is the file of `save_settings`; `settings` is a dict of what must not change, as JSON
    holds it.
    """
    if not os.path.exists(path):
        return
    before = files.read_object(path, "give another --out")
    # Earlier versions did not save the recipe, nor options that they did not have, which were off.
    before = {**{name: value for name, value in settings.items() if not value}, **before}
    recipe = before.setdefault("recipe", settings["recipe"])
    if recipe != settings["recipe"]:
        raise ValueError(
            f"The run in {out} is one of the recipe {recipe}, not of {settings['recipe']}; "
            "give another --out."
        )
    if before.keys() != settings.keys():
        raise ValueError(
            f"The run in {out} is one of another recipe or of another version of this one; "
            "give another --out."
        )
    changed = [name for name in settings if before[name] != settings[name]]
    if changed == ["sha256"]:
        raise ValueError(
            f"The data have changed since the run in {out} was started; give another --out."
        )
    if changed:
        differences = ", ".join(f"{n}={before[n]!r}, now {settings[n]!r}" for n in changed)
        remedy = f"give another --out. Received: {differences}."
        raise ValueError(f"The run in {out} was started with other options; {remedy}")


def save_settings(path, settings):
    """Write the settings to `path`."""
    files.write(path, json.dumps(settings, indent=1))


def check_agreement(devices, settings):
    """Refuse to train with other processes that were started with other settings.

    Args:
        devices: a strategy of `keras_attn.distribution.strategy`.
        settings: dict that must be the same in all processes.

    Raises:
        ValueError: in every process, if one differs.
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).digest()
    number = int.from_bytes(digest[:4], "big")
    if any(other != number for other in _gather(devices, number)):
        raise ValueError("All processes of a run must be started with the same options and data.")


def _gather(devices, number):
    """Return the numbers of all processes."""
    if keras.backend.backend() == "jax":
        from jax.experimental import multihost_utils

        return np.ravel(multihost_utils.process_allgather(np.uint32(number)))
    if not hasattr(devices, "cluster_resolver"):
        return [number]
    numbers = devices.run(lambda: keras.ops.convert_to_tensor([number], "int64"))
    return keras.ops.convert_to_numpy(devices.gather(numbers, axis=0))
