"""Fast fresh interpreters: a process imports Keras once and forks for each program.

Starting Python with TensorFlow costs five seconds, a fork some milliseconds. Each program runs in
a process of its own: it may set environment variables that a backend reads when it starts, exit
with any code, be killed, and start threads. The server computes nothing before it forks, so no
thread and no device of a backend exists yet. Only two things differ from a new interpreter: Keras
is imported already, and `PYTHONHASHSEED` is that of the server.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# JAX compiles most programs of tests once and runs them a few times. It reads this variable when
# it is imported, so the server needs it; the processes that a program starts need it too.
FAST = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}

# Keras runs on other backends without TensorFlow installed: an import of it is an error there. A
# finder that raises would not do, since torch asks for the specifications of many packages.
FORBID_TENSORFLOW = """
import sys

sys.modules.update({"tensorflow": None, "tensorflow_text": None})
"""

# Runs until the test process closes its end of the socket. Per program: a fork that waits, and
# inside it a fork that leaves the loop and runs the program as the main module until its end.
SERVER = """
import atexit, json, os, signal, socket, sys, warnings

code = 0

def end():
    # Registered first, so called last: the interpreter would take seconds to free its modules.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 255)

atexit.register(end)
import keras

# JAX warns of any fork; its threads start with the first computation.
warnings.filterwarnings("ignore", "os.fork")
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
server = socket.socket(fileno=int(sys.argv[1]))
while True:
    message, fds, _, _ = socket.recv_fds(server, 1 << 20, 3)
    if not message:
        os._exit(0)
    if os.fork():
        for fd in fds:
            os.close(fd)
        continue
    server.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stdout, stderr, status = fds
    pid = os.fork()
    if pid:
        os.close(stdout)
        os.close(stderr)
        os.write(status, b"%d\\n" % pid)
        os.write(status, b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    os.close(status)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    break

def run(job):
    import builtins, runpy, types

    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["cwd"])
    added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*added, *(path for path in sys.path[1:] if path not in added)]
    first, *arguments = job["arguments"]
    if first == "-m":
        sys.path.insert(0, job["cwd"])
        sys.argv = arguments
        return runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = builtins
    if first == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *arguments[1:]]
        code = compile(arguments[0], "<string>", "exec")
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
        sys.argv = [first, *arguments]
        main.__file__ = first
        with open(first, encoding="utf-8") as file:
            code = compile(file.read(), first, "exec")
    exec(code, main.__dict__)

try:
    run(json.loads(message))
except SystemExit as error:
    code = error.code if isinstance(error.code, int) else int(error.code is not None)
    raise
except KeyboardInterrupt:
    code = -signal.SIGINT
    raise
except BaseException:
    code = 1
    raise
"""


@cache
def _server(backend):
    """The socket of the server of a backend, which starts with the first program."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    forbid = "" if backend == "tensorflow" else FORBID_TENSORFLOW
    process = subprocess.Popen(
        [sys.executable, "-c", forbid + SERVER, str(theirs.fileno())],
        env={**FAST, **os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": ""},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()

    def stop():
        ours.close()
        process.wait()

    atexit.register(stop)
    return ours


class ForkedPython:
    """A running program, with the methods of `subprocess.Popen` that tests use.

    Args:
        *arguments: those of the interpreter: a script's path, `-c` and code, or `-m` and a module.
        backend: str. The Keras backend; on others than TensorFlow its import fails.
        environment: dict. All environment variables, by default those of this process with the
            checkout in `PYTHONPATH`.
        cwd: path. The working directory, by default the checkout's.
        stdout, stderr: files to write to, by default pipes; `subprocess.STDOUT` joins both.
    """

    def __init__(
        self, *arguments, backend="tensorflow", environment=None, cwd=ROOT, stdout=None, stderr=None
    ):
        if environment is None:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment = {**FAST, **environment, "KERAS_BACKEND": backend}
        self.args, self.returncode, self._status = arguments, None, None
        job = {"arguments": [str(a) for a in arguments], "environment": environment}
        files, opened = {}, []
        for name, file in (("stdout", stdout), ("stderr", stderr)):
            pipe = None
            if file is None:
                read, files[name] = os.pipe()
                opened.append(files[name])
                pipe = os.fdopen(read, encoding="utf-8", errors="replace")
            elif file == subprocess.STDOUT:
                files[name] = files["stdout"]
            else:
                files[name] = file.fileno()
            setattr(self, name, pipe)
        status, write = os.pipe()
        opened.append(write)
        message = json.dumps({**job, "cwd": str(cwd)}).encode()
        socket.send_fds(_server(backend), [message], [files["stdout"], files["stderr"], write])
        for fd in opened:
            os.close(fd)
        self._status = os.fdopen(status)
        self.pid = int(self._status.readline())

    def poll(self):
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = int(self._status.readline())
        return self.returncode

    def wait(self, timeout=None):
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.005)
        return self.returncode

    def communicate(self, timeout=None):
        """Return (stdout, stderr) after the end; a None for what is not a pipe."""
        texts = {}

        def read(name):
            texts[name] = getattr(self, name).read()

        names = [name for name in ("stdout", "stderr") if getattr(self, name)]
        threads = [threading.Thread(target=read, args=(name,), daemon=True) for name in names]
        for thread in threads:
            thread.start()
        self.wait(timeout)
        for thread in threads:
            thread.join(timeout)
        return texts.get("stdout"), texts.get("stderr")

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def run_python(*arguments, timeout=None, **options):
    """Run a program to its end; takes what `ForkedPython` takes, gives a `CompletedProcess`."""
    process = ForkedPython(*arguments, **options)
    try:
        output = process.communicate(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(arguments, process.returncode, *output)
