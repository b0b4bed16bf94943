"""Integer ids as int32: without wrapping, and as rows of a table."""

import keras
import numpy as np
from keras import ops

from keras_attn.backend.loop_invariants import in_loop_invariants
from keras_attn.backend.operations import is_symbolic, require
from keras_attn.compat.replica_losses import in_stateless_scope
from keras_attn.ops.checks import check_ids, check_integers

LEAST, MOST = -(2**31), 2**31 - 1
_WIDE = "int64", "uint32", "uint64"


def narrow(ids):
    """Return an array or tensor of wide integers as int32; anything else as it is.

    A number beyond int32 becomes the nearest one, which no vocabulary has. A cast would wrap it:
    2^32 + 5 to 5.
    """
    dtype = getattr(ids, "dtype", None)
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
    if name not in _WIDE or keras.utils.is_keras_tensor(ids):
        return ids
    least = 0 if name.startswith("u") else LEAST
    if isinstance(ids, np.ndarray):
        return np.clip(ids, least, MOST).astype("int32")
    return ops.cast(ops.clip(ids, least, MOST), "int32")


def row_ids(ids, name, count):
    """Return ids as int32, to read rows of a table of so many by `take_rows`.

    Ids outside [0, count) are an error where they have values; in a graph `take_rows` fails.
    """
    # Keras infers the shapes of a model of one's own from floats when it loads its weights.
    if not (is_symbolic(ids) and in_stateless_scope()):
        check_integers(ids, name)
    check_ids(ids, name, count)
    return ops.cast(narrow(ids), "int32")


def known_ids(ids, name, count):
    """Return ids as int32, to compute with; refuse those outside [0, count) in a graph too.

    XLA leaves the check out. Steps of decoding need none: a decoder writes ids of its vocabulary.
    """
    ids = row_ids(ids, name, count)
    if not is_symbolic(ids) or in_loop_invariants():
        return ids
    is_known = ops.all(ops.logical_and(ids >= 0, ids < count))
    return require(is_known, f"`{name}` must be ids of the vocabulary, in [0, {count}).", ids)
