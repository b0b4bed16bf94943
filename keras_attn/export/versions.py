"""Directories of numbered versions, as a server polls them."""

import contextlib
import os
import re

from keras_attn.files import atomic_directory
from keras_attn.ops.checks import check_paths, check_sizes, check_that

MAX_VERSION = 2**63 - 1


@contextlib.contextmanager
def new_version(path, version=None):
    """Yield a temporary directory for a version, and the directory that it becomes when complete.

    A server that polls `path` finds the version complete or not at all: no server reads names that
    begin with a dot. The default version is one more than the highest.

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
    directory = free_version(path, version)
    with atomic_directory(directory) as temporary:
        yield temporary, directory


def free_version(path, version=None):
    """Return the directory of a version; raise a `ValueError` if it exists or cannot be made."""
    check_paths(path=path)
    path = os.fspath(path)
    if os.path.exists(path) and not os.path.isdir(path):
        raise ValueError(f"The path of the versions must be a directory. Received: {path!r}.")
    if os.path.exists(os.path.join(path, "saved_model.pb")):
        raise ValueError(
            "The path of the versions is a version itself; give the directory that holds it. "
            f"Received: {path!r}."
        )
    if version is None:
        version = 1 + max(find_versions(path), default=0) if os.path.exists(path) else 1
    check_sizes(version=version)
    check_that(version <= MAX_VERSION, f"at most {MAX_VERSION}", version=version)
    directory = os.path.join(path, str(version))
    existing = find_versions(path) if os.path.exists(path) else {}  # "007" is version 7
    if version in existing or os.path.exists(directory):
        raise ValueError(
            "The version exists and is not overwritten; choose another number. "
            f"Received: {existing.get(version, directory)}."
        )
    return directory


def newest_version(path):
    """Return the directory of a SavedModel: `path` itself, or its highest version, or None."""
    if os.path.exists(os.path.join(path, "saved_model.pb")):
        return os.fspath(path)
    versions = find_versions(path)
    return versions[max(versions)] if versions else None


def find_versions(path):
    """Return the sub-directories whose names are version numbers, "7" or "007": number to path."""
    with os.scandir(path) as children:
        versions = {
            int(child.name): child.path
            for child in children
            if re.fullmatch(r"[0-9]+", child.name) and child.is_dir()
        }
    return {version: path for version, path in versions.items() if version <= MAX_VERSION}
