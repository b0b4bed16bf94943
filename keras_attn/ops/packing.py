"""Rows that hold several sequences, one after another."""

from keras import ops

from keras_attn.ops.checks import check_shape


def check_segments(segment_ids, token_ids, name, of_tokens):
    """Segment ids as an int32 tensor, refused unless there is one for each token.

    Any numbers are cast, as a functional model casts its inputs: under a `tf.distribute` strategy
    Keras first shows a model the mean of all replicas' batches, which is no integer.
    """
    segment_ids, token_ids = map(ops.convert_to_tensor, (segment_ids, token_ids))
    if len(segment_ids.shape) != 2:
        check_shape(segment_ids, name, (None, None))
    for size, wanted in zip(segment_ids.shape, token_ids.shape, strict=True):
        if None not in (size, wanted) and size != wanted:
            raise ValueError(
                f"`{name}` must have the shape of `{of_tokens}`, {tuple(token_ids.shape)}. "
                f"Received: shape={tuple(segment_ids.shape)}."
            )
    return ops.cast(segment_ids, "int32")


def same_segment(segment_ids, others=None):
    """Which tokens stand in the same sequence: an attention mask, bool (B, T, S).

    Args:
        segment_ids: int32 (B, T), 1 or more the sequence within the row, 0 padding.
        others: int32 (B, S), those of the keys; by default the same.
    """
    others = segment_ids if others is None else others
    of_queries, of_keys = segment_ids[:, :, None], others[:, None, :]
    return ops.logical_and(ops.equal(of_queries, of_keys), of_queries > 0)


def segment_positions(segment_ids):
    """How many tokens of its own sequence stand before each, int32 (B, T); padding is at 0."""
    places = ops.arange(ops.shape(segment_ids)[1], dtype="int32")
    before = places[None, :] < places[:, None]  # (T, T)
    seen = ops.logical_and(same_segment(segment_ids), before)
    return ops.sum(ops.cast(seen, "int32"), axis=2)
