"""Documents of packed rows: their numbers and positions, and attention that keeps them apart."""

import dataclasses

import numpy as np
from keras import ops

from keras_attn.attention.inputs import Documents, is_growing, num_cached
from keras_attn.backend.operations import is_symbolic, require
from keras_attn.ops.checks import check_integers, check_shape
from keras_attn.ops.ids import narrow
from keras_attn.ops.shapes import same_shape, size, slice_axis


def check_segments(segment_ids, token_ids, name, of_tokens):
    """Return segment ids as an int32 tensor; refuse them unless there is one for each token.

    In a row they must grow, but for the 0 of padding. In a graph only neighbours are compared, and
    XLA leaves the check out.

    Ids of any dtype are cast, as a functional model casts its inputs: under a `tf.distribute`
    strategy Keras builds a model with the mean of all replicas' batches, which is no integer.
    """
    segment_ids, token_ids = map(ops.convert_to_tensor, (segment_ids, token_ids))
    check_shape(segment_ids, name, (None, None))
    if not same_shape(segment_ids.shape, token_ids.shape):
        raise ValueError(
            f"`{name}` must have the shape of `{of_tokens}`, {tuple(token_ids.shape)}. "
            f"Received: shape={tuple(segment_ids.shape)}."
        )
    segment_ids = ops.cast(narrow(segment_ids), "int32")
    wanted = f"`{name}` must be 1, 2, .. in the order of a row, and 0 for padding."
    if not is_symbolic(segment_ids):
        _check_order(ops.convert_to_numpy(segment_ids), wanted)
        return segment_ids
    before = ops.pad(segment_ids[:, :-1], [[0, 0], [1, 0]])
    is_right = ops.logical_or(segment_ids >= before, ops.equal(segment_ids, 0))
    return require(ops.all(is_right), wanted, segment_ids)


def _check_order(segment_ids, wanted):
    """Refuse an array of ids (B, T) in which a row has one below 0, or one again after another."""
    before = np.pad(segment_ids[:, :-1], [(0, 0), (1, 0)])
    greatest = np.maximum.accumulate(before, axis=1)
    is_right = (segment_ids == 0) | (segment_ids == before) | (segment_ids > greatest)
    if not is_right.all():
        row, place = np.argwhere(~is_right)[0]
        received = f"{segment_ids[row, place]} after {greatest[row, place]}, in row {row}"
        raise ValueError(f"{wanted} Received: {received}.")


def same_segment(segment_ids, others):
    """Return the attention mask (B, T, S) of tokens that have the same segment id.

    `segment_ids` (B, T) of the queries and `others` (B, S) of the keys are int32; 0 is padding.
    """
    segment_ids = ops.expand_dims(segment_ids, 2)
    return ops.logical_and(ops.equal(segment_ids, ops.expand_dims(others, 1)), segment_ids > 0)


def find_documents(segment_ids):
    """Return the number and the position of each token, int32 (B, T), for int32 ids (B, T).

    A document is a run of equal ids. Its number is its first position in the row plus 1, and a
    token's position is that in its document; both are 0 at padding. An id below 0 is an error on
    TensorFlow's CPU; compiled, it is padding.
    """
    real = segment_ids > 0
    index = ops.arange(ops.shape(segment_ids)[1], dtype="int32")
    begins = ops.not_equal(segment_ids[:, 1:], segment_ids[:, :-1])
    begins = ops.concatenate([ops.ones_like(real[:, :1]), begins], axis=1)
    run = ops.cumsum(ops.cast(begins, "int32"), axis=1)
    # The first positions of all runs, in their order: sorting spares a matrix of all pairs.
    starts = ops.sort(ops.where(begins, index, size(segment_ids, 1)), axis=1)
    # Below 0 there is no such run: the operation fails.
    run = ops.where(segment_ids < 0, size(segment_ids, 1), run - 1)
    start = ops.take_along_axis(starts, run, axis=1)
    return ops.where(real, start + 1, 0), ops.where(real, index - start, 0)


def pairs_in_documents(i, j, query_documents, key_documents):
    """Return positions (..., T, 1) and (..., 1, S) in documents, and the mask of their pairs.

    `i` and `j` are positions in a packed row, the others the numbers of their documents.
    """
    here = ops.where(query_documents > 0, i - query_documents + 1, 0)
    there = ops.where(key_documents > 0, j - key_documents + 1, 0)
    return here, there, ops.equal(query_documents, key_documents)


def segment_positions(segment_ids):
    """Return the position of each token in its own document, int32 (B, T); padding has 0."""
    return find_documents(ops.cast(narrow(segment_ids), "int32"))[1]


@dataclasses.dataclass(frozen=True)
class Segments:
    """The documents of one call of an attention layer."""

    queries: object  # int32 (B, T), numbers of documents; 0 for padding
    keys: object  # int32 (B, S)

    @classmethod
    def of_call(cls, call):
        """Find the documents of the S keys of an `AttentionCall`, for its `segment_ids` (B, S).

        Queries (B, T, D) are at the last T of the positions of `value` (B, S, D), or after those in
        the cache, whose slots are then the keys; a query (B, D) is one position.

        Returns:
            `Segments`, and the call with the positions in the documents.
        """
        if call.has_positions:
            raise ValueError(
                "`segment_ids` set the positions, which count from 0 in each document: leave out "
                "`query_positions` and `key_positions`. Received: positions beside `segment_ids`."
            )
        if call.cache is not None and "key" not in call.cache:
            raise ValueError(
                "`segment_ids` need a cache that keeps every key, "
                f"`KVCache(max_length, whole=True)`. Received: a cache with {sorted(call.cache)}."
            )
        query, cache = call.query, call.cache
        is_one = len(query.shape) == 2
        keys, axis = (call.value, 1) if cache is None else (cache["key"], 2)
        length, num_keys = 1 if is_one else query.shape[1], keys.shape[axis]
        segment_ids = _check_segment_ids(call, length, num_keys)
        documents, positions = find_documents(segment_ids)
        if cache is None and length == num_keys is not None:
            call = call.replace(query_positions=positions, key_positions=positions)
            return cls(documents, documents), call
        length = 1 if is_one else size(query, 1)
        is_extended = cache is not None and "index" in cache
        first = num_cached(cache) if is_extended else size(keys, axis) - length
        own, own_positions = (slice_axis(x, first, length, axis=1) for x in (documents, positions))
        call = call.replace(query_positions=own_positions, key_positions=positions)
        return cls(own, documents), call

    def restrict(self, inputs):
        """Return `AttentionInputs` by which queries attend to keys of their own document."""
        keys = ops.expand_dims(self.keys, 1)  # (B, 1, S)
        if inputs.key_mask is not None:
            keys = ops.where(inputs.key_mask, keys, 0)
        queries = ops.expand_dims(ops.where(self.queries > 0, self.queries, -1), (1, 3))
        return inputs.replace(key_mask=None, documents=Documents(queries, keys))


def _check_segment_ids(call, length, num_keys):
    """Return the `segment_ids` of a call as int32; refuse them unless each key has one."""
    segment_ids, cache = ops.convert_to_tensor(call.segment_ids), call.cache
    check_integers(segment_ids, "segment_ids")
    is_negative = ops.any(segment_ids < 0)
    if not is_symbolic(is_negative) and is_negative:
        least = int(ops.min(segment_ids))
        raise ValueError(f"`segment_ids` must be at least 0. Received: segment_ids from {least}.")
    shape = call.query.shape[0], None if is_growing(cache) else num_keys
    if cache is not None and None not in shape and tuple(segment_ids.shape) != shape:
        raise ValueError(
            f"`segment_ids` need an id for each slot of the cache, shape {shape}; a cache that "
            "keeps every key is `KVCache(max_length, whole=True)`. "
            f"Received: shape={tuple(segment_ids.shape)}."
        )
    check_shape(segment_ids, "segment_ids", shape)
    if cache is None and None not in (length, num_keys) and length > num_keys:
        raise ValueError(
            "`segment_ids` need a key at the position of each query. "
            f"Received: {length} queries, {num_keys} keys."
        )
    return ops.cast(narrow(segment_ids), "int32")
