"""Entries that make a number repeatable: the command, the machine and the versions."""

import collections
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from importlib import metadata

VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}


def command_line():
    """Return the command of this process, as a user would type it."""
    module = sys.modules["__main__"].__spec__
    name = module.name.removesuffix(".__main__") if module else None
    program = ["python", "-m", name] if name else ["python", *sys.argv[:1]]
    return shlex.join([*program, *sys.argv[1:]])


def cores():
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def commit(folder):
    """Return the commit of a checkout as text in brackets; nothing if git does not tell it."""
    command = ["git", "-C", folder, "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f" (commit {done.stdout.strip()})"


def hardware():
    """Return processor, vector instructions, cores that this process may use, memory, and GPUs."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    entries = {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    model = entries.get("model name") or platform.processor() or platform.machine()
    flags = entries.get("flags", "").split()
    # Processors of one name differ by a factor of two, and TensorFlow uses other kernels.
    vectors = next((f" ({text})" for flag, text in VECTORS.items() if flag in flags), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = [f"{model}{vectors}", f"{cores()} cores", f"{memory:.0f} GiB"]
    counts = collections.Counter(accelerators())
    return ", ".join([*found, *(f"{count} x {name}" for name, count in counts.items())])


def accelerators():
    """Return the names of the devices of Keras's backend that are no processor's.

    It imports nothing: before the backend is imported there are none.
    """
    keras, jax, tensorflow = map(sys.modules.get, ("keras", "jax", "tensorflow"))
    backend = keras.config.backend() if keras else None
    if backend == "jax" and jax:
        return [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    if backend == "tensorflow" and tensorflow:
        details = tensorflow.config.experimental.get_device_details
        gpus = tensorflow.config.list_physical_devices("GPU")
        return [details(gpu).get("device_name", "GPU") for gpu in gpus]
    return []


def versions(*names):
    """Return the versions of distributions, installed or imported, with that of Python."""
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            # A checkout on the path is not installed.
            if version := getattr(sys.modules.get(name), "__version__", None):
                found[name] = version
    return found
