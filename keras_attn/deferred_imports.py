"""Imports that wait until a command has read its arguments.

Python imports `keras_attn`, and Keras with it, before it runs `python -m keras_attn.NAME`. So that
`--help` and wrong arguments answer at once, packages import nothing while `is_deferred()` is true,
and the command calls `complete` when it has read its arguments.
"""

import importlib
import itertools
import sys

COMMANDS = ("keras_attn.catalogue", "keras_attn.export", "keras_attn.viz", "keras_attn.recipes.")


def is_deferred():
    """Return True while Python locates one of the commands."""
    options = itertools.pairwise(sys.orig_argv)
    # Python sets this first argument only until it has located the module.
    return sys.argv[:1] == ["-m"] and any(
        option == "-m" and name.startswith(COMMANDS) for option, name in options
    )


def complete(*packages):
    """Import again packages, by name, that have deferred their imports."""
    if "keras" not in sys.modules:
        for name in packages:
            importlib.reload(sys.modules[name])
