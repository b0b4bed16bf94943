"""Values of each axis by name, as changes of one small model."""

import importlib


def values(axis, options):
    """Return the values of an axis, a dict of name to `Changes`; the first is the reference."""
    return importlib.import_module(f".{axis}", __package__).values(options)
