"""Read the files of a SavedModel without loading it: graph, operations, sizes and hashes."""

import collections
import json
import os

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.core.protobuf.fingerprint_pb2 import FingerprintDef

# The facts of a compiled export; a server reads nothing of it.
COMPILATION_FILE = os.path.join("assets.extra", "compilation.json")
# How the values of series are read.
SERIES_FILE = os.path.join("assets.extra", "series.json")


def read_saved_model(path):
    """Return the `MetaGraphDef`, graph and signatures, of the SavedModel in a directory."""
    file = os.path.join(path, "saved_model.pb")
    if not os.path.isfile(file):
        raise ValueError(f"There is no saved_model.pb. Received: path={os.fspath(path)!r}.")
    try:
        return saved_model_pb2.SavedModel.FromString(_read_bytes(file)).meta_graphs[0]
    except (DecodeError, IndexError) as error:
        message = f"The file is damaged, or it is not a SavedModel. Received: {file}."
        raise ValueError(message) from error


def count_ops(meta_graph):
    """Count the operations of a graph and its functions: a `Counter` by name.

    A node that must be compiled by XLA also counts as "_XlaMustCompile".
    """
    counts = collections.Counter()
    graph = meta_graph.graph_def
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        counts.update(node.op for node in nodes)
        compiled = (n for n in nodes if "_XlaMustCompile" in n.attr and n.attr["_XlaMustCompile"].b)
        counts.update("_XlaMustCompile" for _ in compiled)
    for function in graph.library.function:
        counts.pop(function.signature.name, None)  # a call of it
    return counts


def has_own_variables(directory):
    """Compare the index of the variables with the hash that TensorFlow wrote into the SavedModel.

    The index holds checksums of the variables, which TensorFlow verifies when it reads them, so
    only files that were written together pass both checks. The directory may be in a bucket that
    `tf.io.gfile` reads. Return False if the hash differs or cannot be read; True if it matches, if
    there are no variables, or if no hash was written (before TensorFlow 2.12).
    """
    index = os.path.join(directory, "variables", "variables.index")
    fingerprint = os.path.join(directory, "fingerprint.pb")
    if not (tf.io.gfile.exists(index) and tf.io.gfile.exists(fingerprint)):
        return True
    try:
        expected = FingerprintDef.FromString(_read_bytes(fingerprint)).checkpoint_hash
    except DecodeError:
        return False
    if not expected:
        return True
    digest = tf.fingerprint([_read_bytes(index)], "farmhash64").numpy()
    return int.from_bytes(digest.tobytes(), "little") == expected


def write_facts(directory, name, facts):
    """Write a record of facts, a dict, into a SavedModel's directory."""
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        json.dump(facts, file)


def read_compilation(directory):
    """Return the recorded facts of the compilation, or None for an export without one."""
    wanted = {"compiler", "batches", "lengths", "plain_names"}
    return _read_facts(directory, COMPILATION_FILE, "compilation", wanted)


def read_series(directory):
    """Return how an export reads series, a dict, or None for one of other models."""
    return _read_facts(directory, SERIES_FILE, "series", {"context_length", "horizon"})


def _read_facts(directory, name, title, wanted):
    file = os.path.join(directory, name)
    if not os.path.exists(file):
        return None
    try:
        facts = json.loads(_read_bytes(file))
        if wanted <= set(facts):
            return facts
    except (TypeError, ValueError):
        pass
    raise ValueError(f"The record of the {title} is damaged. Received: {file}.")


def _read_bytes(path):
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read()
