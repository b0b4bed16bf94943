"""Directories of versions, as a server polls them."""

import contextlib
import os
import shutil
import tempfile


@contextlib.contextmanager
def new_version(path, version=None):
    """A directory to write a version to, and the name that it gets when all is written.

    It is written under another name and renamed, so that a server that polls `path` finds the
    version complete or not at all; if anything fails, nothing is left. A process that is killed
    (SIGKILL) leaves `.VERSION.*`, which no server reads: nobody else can tell safely that it writes
    no more, so it stays until someone removes it.

    Args:
        path: directory that holds the versions.
        version: int. By default one more than the highest there is.

    Raises:
        ValueError: if the version exists or is not positive.

    Example:
        >>> import os, tempfile
        >>> from keras_attn.export.versions import new_version
        >>> with new_version(tempfile.mkdtemp()) as (directory, name):
        ...     os.listdir(directory)
        []
        >>> name[-2:]
        '/1'

    Reference: https://www.tensorflow.org/tfx/serving/serving_basic
    """
    path = os.fspath(path)
    version, directory = free_version(path, version)
    os.makedirs(path, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=f".{version}.", dir=path)
    try:
        yield temporary, directory
        os.chmod(temporary, 0o755)  # mkdtemp's directories are for their owner alone
        os.rename(temporary, directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def free_version(path, version=None):
    """The number of a version that is not there yet, and its directory.

    Raises:
        ValueError: if the version exists or is not positive, or `path` is a file.
    """
    if os.path.exists(path) and not os.path.isdir(path):
        raise ValueError(f"The path of the versions must be a directory. Received: {path!r}.")
    if version is None:
        version = 1 + int(newest(path) or 0)
    directory = os.path.join(path, str(version))
    if version < 1:
        raise ValueError(f"`version` must be at least 1. Received: version={version}.")
    if os.path.exists(directory):
        raise ValueError(
            f"The version exists and is not overwritten; give another. Received: {directory}."
        )
    return version, directory


def newest(path):
    """The name of the highest version in a directory, "7" or "007"; None if there is none."""
    if not os.path.isdir(path):
        return None
    names = (name for name in os.listdir(path) if name.isdecimal())
    return max(names, key=int, default=None)
