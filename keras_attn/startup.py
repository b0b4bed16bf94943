"""Import of Keras by a program, without the log of TensorFlow."""

import contextlib
import importlib
import logging
import os
import re
import signal
import sys
import threading

VERBOSE = "KERAS_ATTN_VERBOSE"
# TensorFlow writes these before it reads the level of its log.
_LOG_LINE = re.compile(
    rb"[IWE]\d{4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] "
    rb"|WARNING: All log messages before absl::InitializeLog"
    rb"|To enable the following instructions:"
)
_END = b"\0\n"


def import_library(*others):
    """Import Keras, every part of keras_attn that `.keras` files refer to, and `others`.

    A program calls it after it has checked its arguments. If it is the first to import Keras, and
    the variable KERAS_ATTN_VERBOSE is not set, TensorFlow and absl write errors only.

    Args:
        *others: names of modules, imported first.
    """
    if "keras" in sys.modules or os.environ.get(VERBOSE):
        return _import(others)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with without_log_lines():
        _import(others)
    for name in ("absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _import(others):
    for name in (*others, "keras"):
        importlib.import_module(name)
    package = importlib.import_module("keras_attn")
    package.import_parts()


@contextlib.contextmanager
def without_log_lines():
    """Leave lines of a log out of what this process writes to its standard error.

    A process of its own copies all others, so that none is lost where this one crashes.
    """
    try:
        is_alone = threading.active_count() == 1 and hasattr(os, "fork")
        error = os.dup(2) if is_alone else None
    except OSError:  # it is closed
        error = None
    if error is None:
        yield
        return
    sys.stderr.flush()
    read, write = os.pipe()
    copier = os.fork()
    if not copier:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.close(write)
        _copy(read, error)
    os.close(read)
    os.dup2(write, 2)
    os.close(write)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.write(2, _END)
        os.dup2(error, 2)
        os.close(error)
        os.waitpid(copier, 0)


def _copy(read, write):
    """Copy all lines but those of a log, and end the process."""
    with open(read, "rb") as lines:
        for line in lines:
            if not _LOG_LINE.match(line):
                os.write(write, line.removesuffix(_END))
            if line.endswith(_END):
                break
    os._exit(0)
