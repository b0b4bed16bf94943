"""Deaths of a process at a chosen moment."""

import io
import itertools
import os
import signal

import numpy as np


def die_in_writing(number):
    """Kill this process when half of the bytes of its file of that number are written."""
    savez, left = np.savez, itertools.count(number, -1)

    def half(path, *arrays, **numbers):
        if next(left) > 1:
            return savez(path, *arrays, **numbers)
        savez(whole := io.BytesIO(), *arrays, **numbers)
        with open(path, "wb") as file:
            file.write(whole.getvalue()[: whole.tell() // 2])
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    np.savez = half
