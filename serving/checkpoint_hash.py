"""Whether the variables of a SavedModel are those that it was written with."""

import os

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.fingerprint_pb2 import FingerprintDef


def has_own_variables(directory):
    """Compares the index of the variables with the hash that TensorFlow wrote beside it.

    The index holds checksums of the variables themselves, which TensorFlow compares when it reads
    them: so nothing but the files that were written together passes both.

    Args:
        directory: of a SavedModel.

    Returns:
        False if the variables or the hash are others; True also where there are no variables or
        where no hash was written, as before TensorFlow 2.12.
    """
    # By TensorFlow's own files: a directory may be in a bucket.
    index = os.path.join(directory, "variables", "variables.index")
    fingerprint = os.path.join(directory, "fingerprint.pb")
    if not (tf.io.gfile.exists(index) and tf.io.gfile.exists(fingerprint)):
        return True
    try:
        expected = FingerprintDef.FromString(_read(fingerprint)).checkpoint_hash
    except DecodeError:
        return False
    if not expected:
        return True
    found = tf.fingerprint([_read(index)], "farmhash64").numpy()
    return int.from_bytes(found.tobytes(), "little") == expected


def _read(path):
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read()
