"""Entries that make a number repeatable: the command, the machine and the versions."""

import os
import pathlib
import platform
import shlex
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


def hardware():
    """Return processor, its vector instructions, cores that this process may use, and memory."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    entries = {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    model = entries.get("model name") or platform.processor() or platform.machine()
    flags = entries.get("flags", "").split()
    # Processors of one name differ by a factor of two, and TensorFlow uses other kernels.
    vectors = next((f" ({text})" for flag, text in VECTORS.items() if flag in flags), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}{vectors}, {cores()} cores, {memory:.0f} GiB"


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
