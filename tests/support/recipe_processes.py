"""Recipes run in processes of their own."""

import os
import subprocess

from fork_server import ROOT, ForkedPython


def started(recipe, *arguments, backend="tensorflow", **variables):
    return ForkedPython(
        *("-m", f"recipes.{recipe}", *arguments),
        backend=backend,
        environment={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stderr=subprocess.STDOUT,
    )


def finished(processes):
    processes = list(processes)
    said = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(said), said
    return said
