"""A process of another library, which answers requests in JSON, one a line."""

import contextlib
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]


class OracleProcess:
    """Process of a module that runs in another environment.

    Args:
        python: the environment's Python.
        module: string. Full name of the module.
    """

    def __init__(self, python, module):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [python, "-m", module]
        self._module = module
        self._process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, **pipes)

    def __call__(self, action, **request):
        """Return the answer to a request."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{json.dumps({'action': action, **request})}\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ValueError(f"The process of {self._module} failed at {action!r}.")
        return json.loads(answer)

    def close(self):
        self._process.stdin.close()
        self._process.wait()
