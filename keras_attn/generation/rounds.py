"""Rounds of speculative decoding: the accepted proposals, and the state of the rows."""

from typing import NamedTuple

from keras import ops, tree

from keras_attn.backend.operations import gather_rows
from keras_attn.generation.distributions import draw


class RowStates(NamedTuple):
    """State of each row, (B,) unless noted."""

    token: object  # the newest, which no model has read
    length: object  # number of tokens so far
    finished: object
    score: object
    ids: object  # (B, capacity)
    steps: object  # of the model
    states: object  # of the processors, (B, ...)


def accept(p, q, proposed, numbers):
    """Return the tokens of a round (B, G + 1), and how many of the proposals are accepted (B,).

    Args:
        p: (B, G + 1, V), after the newest token and after each proposal. q: (B, G, V).
        proposed: (B, G). numbers: (B, G + 1), uniform in [0, 1).
    """
    count = proposed.shape[1]
    p_of, q_of = (
        ops.take_along_axis(x[:, :count], ops.expand_dims(proposed, -1), axis=-1)[..., 0]
        for x in (p, q)
    )
    is_accepted = ops.cast(numbers[:, :count] * q_of < p_of, "int32")
    num_refused = ops.cumsum(1 - is_accepted, axis=1)  # LiteRT has no cumulative product
    accepted = ops.sum(ops.cast(ops.equal(num_refused, 0), "int32"), axis=1)
    q = ops.pad(q, [[0, 0], [0, 1], [0, 0]])  # after all proposals: draw from p itself
    p, q = (gather_rows(x, ops.expand_dims(accepted, 1))[:, 0] for x in (p, q))
    rest = ops.maximum(p - q, 0.0)
    # Rounding may refuse a proposal of two equal distributions.
    rest = ops.where(ops.sum(rest, axis=-1, keepdims=True) > 0, rest, p)
    token, _ = draw(rest, numbers[:, count])
    is_proposal = ops.arange(count + 1, dtype="int32") < ops.expand_dims(accepted, 1)
    proposed = ops.pad(proposed, [[0, 0], [0, 1]])
    return ops.where(is_proposal, proposed, ops.expand_dims(token, 1)), accepted


def append(rows, new, accepted, log_p, states, options):
    """Return the rows after the first `accepted` + 1 of the tokens `new` (B, n).

    A row takes none after its end token, and none beyond `max_length`. It also ends before a token
    of probability 0, which is chosen only where none is allowed.

    Args:
        log_p: (B, n, V). states: of the processors before each of `new`, (B, n, ...).
    """
    numbers = ops.arange(new.shape[1], dtype="int32")
    log_probs = ops.take_along_axis(log_p, ops.expand_dims(new, -1), axis=-1)[..., 0]
    is_stuck = ops.equal(log_probs, -float("inf"))
    new = ops.where(is_stuck, options.fill_id, new)
    is_end = ops.cast(ops.logical_or(is_stuck, options.is_end(new)), "int32")
    is_open = ops.equal(ops.cumsum(is_end, axis=1) - is_end, 0)
    fits = numbers < ops.expand_dims(ops.minimum(accepted + 1, options.max_length - rows.length), 1)
    is_kept = ops.logical_and(ops.logical_and(is_open, fits), ~ops.expand_dims(rows.finished, 1))
    count = ops.sum(ops.cast(is_kept, "int32"), axis=1)
    place = ops.arange(options.capacity, dtype="int32") - ops.expand_dims(rows.length, 1)
    is_here = ops.logical_and(place >= 0, place < ops.expand_dims(count, 1))
    placed = ops.take_along_axis(new, ops.clip(place, 0, new.shape[1] - 1), axis=1)
    length = rows.length + count
    has_ended = ops.any(ops.logical_and(is_kept, is_end > 0), axis=1)
    token = ops.take_along_axis(new, ops.expand_dims(accepted, 1), axis=1)[:, 0]
    states = tree.map_structure(
        lambda x: gather_rows(x, ops.expand_dims(accepted, 1))[:, 0], states
    )
    return RowStates(
        token=token,
        length=length,
        finished=rows.finished | has_ended | (length >= options.max_length),
        score=rows.score + ops.sum(ops.where(is_kept, log_probs, 0.0), axis=1),
        ids=ops.where(is_here, placed, rows.ids),
        steps=rows.steps + ops.cast(~rows.finished, "int32"),
        states=options.processors.advance(states, token),
    )
