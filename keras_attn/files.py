"""Files and directories that appear complete or not at all."""

import contextlib
import os
import shutil
import tempfile

PARTIAL = ".partial"


def partial_path(path):
    """Return the name under which `path` is written: "a.npz" is first "a.partial.npz"."""
    stem, ending = os.path.splitext(os.fspath(path))
    return f"{stem}{PARTIAL}{ending}"


@contextlib.contextmanager
def atomic_file(path):
    """Yield a temporary path with the ending of `path`, which replaces `path` on success.

    Until then `path` keeps its earlier content. A failure removes the temporary file; a killed
    process leaves it, for the next write to overwrite. Only one process at a time may write `path`.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    temporary = partial_path(path)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())  # the content reaches the disk before the name does
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


@contextlib.contextmanager
def atomic_directory(path):
    """Yield a temporary directory that is renamed to `path` on success and removed on failure.

    A process that is killed (SIGKILL) leaves `.NAME.*` beside `path`. No other process can tell
    that it is abandoned, so it stays until someone removes it.
    """
    parent, name = os.path.split(os.path.abspath(path))
    os.makedirs(parent, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=f".{name}.", dir=parent)
    try:
        yield temporary
        os.chmod(temporary, 0o755)  # mkdtemp gives permissions to the owner alone
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
