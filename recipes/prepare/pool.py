"""Functions on the cores of one machine."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import runpy
import time
from pathlib import Path

from ..common.machine import peak_memory

LIGHT = str(Path(__file__).with_name("light.py"))


class Pool:
    """Processes that call functions; with one process this one does.

    New processes begin without Keras (`light.py`) and with nothing of this one.

    Args:
        processes: int.

    Attributes:
        memory: dict. The largest memory of each process, in MB, by its id.
        seconds: dict. Its seconds of processor time in the functions.
    """

    def __init__(self, processes):
        self._processes = processes
        self.memory, self.seconds = {}, {}

    def __enter__(self):
        self._executor = None
        if self._processes > 1:
            self._executor = concurrent.futures.ProcessPoolExecutor(
                self._processes,
                multiprocessing.get_context("spawn"),
                runpy.run_path,
                (LIGHT, None, "light"),
            )
        return self

    def __exit__(self, *error):
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def map(self, function, calls):
        """Yield the results of calls, a list of tuples of arguments, as they complete."""
        if self._executor is None:
            results = (_measured(function, arguments) for arguments in calls)
        else:
            results = self._completed(function, calls)
        for result, process, memory, seconds in results:
            self.memory[process] = max(memory, self.memory.get(process, 0))
            self.seconds[process] = self.seconds.get(process, 0) + seconds
            yield result

    def _completed(self, function, calls):
        # Only a few calls wait in the queue: their arguments may be large.
        calls, pending = iter(calls), set()
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [future.cancel() for future in pending])
            while True:
                try:
                    while len(pending) < 2 * self._processes and (call := next(calls, None)):
                        pending.add(self._executor.submit(_measured, function, call))
                    if not pending:
                        return
                    done, pending = concurrent.futures.wait(
                        pending, return_when=concurrent.futures.FIRST_COMPLETED
                    )
                    yield from [future.result() for future in done]
                except concurrent.futures.process.BrokenProcessPool as error:
                    raise ValueError(
                        "A process of the preparation was killed, perhaps for its memory; the "
                        "same command resumes, with fewer --processes if memory is short."
                    ) from error


def _measured(function, arguments):
    started = time.process_time()
    result = function(*arguments)
    return result, os.getpid(), peak_memory(), time.process_time() - started
