"""Directories of numbered versions, as a server polls them."""

import contextlib
import os

from keras_attn.ops.atomic_files import atomic_directory


@contextlib.contextmanager
def new_version(path, version=None):
    """Yield a temporary directory for a version, and the directory that it becomes when complete.

    A server that polls `path` finds the version complete or not at all: no server reads names that
    begin with a dot.

    Args:
        path: directory that holds the versions.
        version: int. By default one more than the highest version.

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
    _, directory = free_version(os.fspath(path), version)
    with atomic_directory(directory) as temporary:
        yield temporary, directory


def free_version(path, version=None):
    """Return the number of a version that does not exist yet, and its directory.

    Raises:
        ValueError: if the version exists or is not positive, or `path` is a file.
    """
    if os.path.exists(path) and not os.path.isdir(path):
        raise ValueError(f"The path of the versions must be a directory. Received: {path!r}.")
    if version is None:
        version = 1 + int(newest_version(path) or 0)
    directory = os.path.join(path, str(version))
    if version < 1:
        raise ValueError(f"`version` must be at least 1. Received: version={version}.")
    if os.path.exists(directory):
        raise ValueError(
            "The version exists and is not overwritten; choose another number. "
            f"Received: {directory}."
        )
    return version, directory


def newest_version(path):
    """Return the name of the highest version in a directory, "7" or "007"; None if it has none."""
    if not os.path.isdir(path):
        return None
    names = (name for name in os.listdir(path) if name.isdecimal())
    return max(names, key=int, default=None)
