"""Processes without Keras.

`import keras_attn` registers every layer, and so imports Keras and TensorFlow: some 540 MB and two
seconds in each process. The functions here need a few of its modules, which import only NumPy.
"""

import importlib.machinery
import importlib.util
import multiprocessing
import os
import re
import signal
import sys
import threading
from multiprocessing import connection
from pathlib import Path

PACKAGE = "keras_attn"


def without_keras():
    """Let this process import modules of keras_attn without the package's own imports.

    It does nothing where keras_attn is imported already: in an installed wheel the recipes are a
    part of it.
    """
    if PACKAGE in sys.modules:
        return
    package = importlib.util.module_from_spec(importlib.util.find_spec(PACKAGE))
    source = Path(package.__file__).read_text(encoding="utf-8")
    package.__version__ = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)[1]
    sys.modules[PACKAGE] = package


def end_with_parent():
    """End this process when its parent ends, however that happens.

    Otherwise it would still write the files that the same command, started again, writes.
    """

    def watch():
        connection.wait([multiprocessing.parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "light":  # the first thing that a process of the pool runs
    # Ctrl-C reaches this process too, which may be idle: without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    without_keras()
    end_with_parent()
