"""Import of Keras by a program, without the logs of the C++ libraries under it."""

import atexit
import importlib.util
import logging
import os
import re
import select
import signal
import sys
import threading

BACKENDS = "tensorflow", "jax", "torch"
VERBOSE = "KERAS_ATTN_VERBOSE"
# TensorFlow writes some before it reads the level of its log, and the SentencePiece in TensorFlow
# Text has no level.
_LOG_LINE = re.compile(
    rb"[IWE]\d{4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] "
    rb"|WARNING: All log messages before absl::InitializeLog"
    rb"|To enable the following instructions:"
    rb"|\w+\.(?:cc|h)\(\d+\) LOG\((?:INFO|WARNING)\)"
)
_END = b"\0\n"
_PAUSE = 0.05  # seconds after which a line without its end is copied as it is


class BackendError(ValueError):
    """The variable KERAS_BACKEND names no backend, or one that is not installed."""


def import_library(*others):
    """Import Keras, every part of keras_attn that `.keras` files refer to, and `others`.

    A program calls it after it has checked its arguments. If it is the first to import Keras, and
    the variable KERAS_ATTN_VERBOSE is not set, no log of TensorFlow, absl or SentencePiece is
    printed.

    Args:
        *others: names of modules.

    Raises:
        BackendError: if the variable KERAS_BACKEND names no backend, or one that is not installed.
    """
    _check_backend()
    is_quiet = "keras" not in sys.modules and not os.environ.get(VERBOSE)
    if is_quiet:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        leave_out_log_lines()
    for name in ("keras", *others):
        importlib.import_module(name)
    importlib.import_module("keras_attn").import_parts()
    if is_quiet:
        for name in ("absl", "tensorflow"):
            logging.getLogger(name).setLevel(logging.ERROR)


def _check_backend():
    """Check the variable by which Keras chooses its backend, whose own error is a traceback."""
    name = os.environ.get("KERAS_BACKEND")
    if not name:
        return
    if name not in BACKENDS:
        raise BackendError(
            f"The variable KERAS_BACKEND must be one of {', '.join(BACKENDS)}. "
            f"Received: KERAS_BACKEND={name}."
        )
    if name not in sys.modules and importlib.util.find_spec(name) is None:
        raise BackendError(
            f"The backend of KERAS_BACKEND={name} is not installed: pip install {name}, or choose "
            "another."
        )


def leave_out_log_lines():
    """Leave lines of a log out of what this process writes to its standard error.

    A process of its own copies all others, so that none is lost where this one crashes. It must
    begin before there are threads. Nothing is left out where no process can be forked.
    """
    try:
        error = os.dup(2)
    except OSError:  # it is closed
        return
    if threading.active_count() > 1 or not hasattr(os, "fork"):
        os.close(error)
        return
    sys.stderr.flush()
    read, write = os.pipe()
    copier = os.fork()
    if not copier:
        try:
            os.close(write)
            _copy(read, error)
        finally:
            os._exit(0)
    os.close(read)
    os.dup2(write, 2)
    os.close(write)
    atexit.register(_end, copier, error, os.getpid())


def _end(copier, error, process):
    """Wait until all lines are copied, so that none follows the end of this process."""
    if os.getpid() != process:  # of a fork
        return
    sys.stderr.flush()
    os.write(2, _END)
    os.dup2(error, 2)
    os.waitpid(copier, 0)


def _copy(read, write):
    """Copy all lines but those of a log, until the end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a group gets them; the other process decides
    rest = b""
    while True:
        if rest and not select.select([read], [], [], _PAUSE)[0] and not _LOG_LINE.match(rest):
            os.write(write, rest)
            rest = b""
        part = os.read(read, 1 << 16)
        *lines, rest = (rest + part).splitlines(keepends=True) or [b""]
        if rest.endswith(b"\n"):
            lines, rest = [*lines, rest], b""
        if not part:
            lines = [rest]
        for line in lines:
            if not _LOG_LINE.match(line):
                os.write(write, line.removesuffix(_END))
        if not part or (lines and lines[-1].endswith(_END)):
            return
