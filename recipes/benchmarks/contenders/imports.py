"""Importing a library."""

import importlib

from ..workload import Task


def importing(name):
    """Only the first call of a process is the import."""
    return Task(call=lambda: importlib.import_module(name))
