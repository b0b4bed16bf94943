"""The machine and the process that make a number: command, hardware, versions, memory and ports."""

import collections
import contextlib
import json
import os
import pathlib
import platform
import resource
import shlex
import socket
import subprocess
import sys
from importlib import metadata

VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}


def command_line():
    """Return the command of this process, as a user would type it."""
    from keras_attn.programs import command_of  # contenders without Keras import this file too

    module = sys.modules["__main__"].__spec__
    name = module.name.removesuffix(".__main__") if module else None
    program = command_of(name) if name else shlex.join(["python", *sys.argv[:1]])
    return f"{program} {shlex.join(sys.argv[1:])}".rstrip()


def cores():
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def restrict_cores(count):
    """Restrict this process, and those that it starts, to `count` of its cores; None keeps all."""
    if count is None:
        return
    if not hasattr(os, "sched_setaffinity") or count > cores():
        here = f"{cores()} on a {platform.system()} machine"
        raise ValueError(f"`cores` needs Linux and as many cores. Received: {count} of {here}.")
    chosen = sorted(os.sched_getaffinity(0))[:count]
    for thread in os.listdir("/proc/self/task"):  # NumPy's threads too
        os.sched_setaffinity(int(thread), chosen)


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
    if "cpu family" in entries:
        model += f" family {entries['cpu family']} model {entries['model']}"
    vectors = next((f" ({text})" for flag, text in VECTORS.items() if flag in flags), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    number = f"{cores()} core{'s' if cores() > 1 else ''}"
    entries_shown = [f"{model}{vectors}", number, f"{memory:.0f} GiB"]
    counts = collections.Counter(accelerators())
    return ", ".join([*entries_shown, *(f"{count} x {name}" for name, count in counts.items())])


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
    known = {"python": platform.python_version()}
    for name in names:
        try:
            known[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            # A checkout on the path is not installed.
            if version := getattr(sys.modules.get(name), "__version__", None):
                known[name] = version
    return known


def resident_memory(pid="self"):
    """Return the memory that a process, by default this one, has now; None where it is unknown."""
    return _status("VmRSS", pid)


def peak_memory():
    """Return the largest memory of this process so far, or since `restart_peak`."""
    peak = _status("VmHWM")  # unlike ru_maxrss not inherited from the parent
    if peak is None:
        unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    return peak


def restart_peak():
    """Let `peak_memory` start again from the present memory; return False where it cannot."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return True


def _status(name, pid="self"):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1]) * 1024 / 1e6
    return None


def free_ports(count):
    """Return different ports on which nothing listens: all are held before any is released."""
    with contextlib.ExitStack() as held:
        address = ("127.0.0.1", 0)
        listeners = [held.enter_context(socket.create_server(address)) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def cluster_settings(count):
    """Return the TF_CONFIG of each of so many processes on this machine."""
    workers = [f"localhost:{port}" for port in free_ports(count)]
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [json.dumps({"cluster": {"worker": workers}, "task": task}) for task in tasks]
