"""Entries that make a number repeatable: the command, the machine and the versions."""

import os
import pathlib
import platform
import shlex
import sys
from importlib import metadata


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
    """Return processor, number of cores that this process may use, and memory, as text."""
    model = platform.processor() or platform.machine()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {cores()} cores, {memory:.0f} GiB"


def versions(*names):
    """Return the installed versions of distributions, with that of Python."""
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
