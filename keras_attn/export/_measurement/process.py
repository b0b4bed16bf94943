"""A process that holds one opened export: `python -m keras_attn.export._measurement.process`.

It reads a request in each line of its input and writes an answer in a line, both JSON; it ends when
its input ends. Engines in one process would slow each other by threads that wait for work.
"""

import contextlib
import json
import os
import subprocess
import sys
import time


class ExportProcess:
    """An export opened in a process of its own, with a number of threads.

    Args:
        path, form: as `form_of` returns them.
        threads: int.
        tokenizer: path of the file, for exports that read ids.
        max_length: int. Longest answer in tokens, where the export leaves it open.
    """

    def __init__(self, path, form, threads, tokenizer, max_length):
        options = {"path": path, "form": form, "threads": threads, "tokenizer": tokenizer}
        variables = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=variables,
        )
        self._write({**options, "max_length": max_length})

    def ask(self, lines):
        """Return the answers to lines, and the seconds that they took."""
        self._write(lines)
        found = self.read()
        return found["answers"], found["seconds"]

    def read(self):
        """Return what the process writes next; raise a `ValueError` if it is that it cannot."""
        line = self._process.stdout.readline()
        if not line:
            raise ValueError(f"Its process ended with exit code {self._process.wait()}.")
        found = json.loads(line)
        if "error" in found:
            raise ValueError(found["error"])
        return found

    def stop(self):
        """End the process."""
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def _write(self, request):
        with contextlib.suppress(BrokenPipeError):  # `read` says how the process has ended
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()


def main():
    """Open the export of the first line, then answer all others."""
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        for found in _run(map(json.loads, sys.stdin)):
            print(json.dumps(found), file=answers, flush=True)
    except Exception as error:  # any engine's, and shown beside the other forms' times
        reason = " ".join(str(error).split()) or type(error).__name__
        print(json.dumps({"error": reason}), file=answers, flush=True)


def _run(requests):
    from keras_attn.export._measurement.forms import OPENERS

    options = next(requests)
    start = time.perf_counter()
    answer, precision = OPENERS[options.pop("form")](**options)
    yield {"seconds": time.perf_counter() - start, "precision": precision}
    for lines in requests:
        start = time.perf_counter()
        found = answer(lines)
        yield {"answers": found, "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    main()
