"""Memory of a process in MB, a million bytes; exact on Linux only."""

import contextlib
import resource
import sys


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
