"""Decoding of the sequences that a table allows."""

import numpy as np
from keras import ops

from keras_attn.generation.processors import LogitsProcessor
from keras_attn.generation.wrapper import Wrapper
from keras_attn.ops.checks import check_that
from keras_attn.registry import register


@register
class Constrained(Wrapper, LogitsProcessor):
    """Constrained decoding: any strategy, restricted to the tokens that a table allows.

        logits_v = -inf if table[s, v] < 0,   s' = table[s, y]

    The table is a deterministic automaton over tokens: one row for each state, one column for each
    token, and as entries the next states. Decoding begins in state 0. The score is the
    log-probability among the allowed tokens. The table is a constant of the graph, so an export
    holds it. Memory O(S V), time O(V) a token.

    Use it for outputs with a grammar, such as dates, numbers or one of several labels.

    Args:
        strategy: name or object of a decoding strategy.
        table: int (S, V). The next state after each token, -1 for a forbidden token; each state
            allows one token at least. `allow_texts` makes the table of a list of texts.

    Raises:
        ValueError: if the table is not as described, or has not one column for each token.

    Example:
        >>> import keras_attn, numpy as np
        >>> from keras_attn.generation import Constrained, generate
        >>> table = np.full((3, 10), -1)
        >>> table[0, 7], table[1, 8], table[2, 3] = 1, 2, 2  # "7 8", then the end token
        >>> model = keras_attn.models.gpt(10, 1, 2, 8, 16, max_length=8)
        >>> ids, scores = generate(model, np.array([[5, 6]]), Constrained("greedy", table), 4)
        >>> ids.numpy().tolist()
        [[7, 8, 3, 0]]

    Differs from the paper: the table is given, not compiled from a regular expression; `max_length`
        may end a sequence before the table does.

    Reference: [Willard and Louf, 2023](https://arxiv.org/abs/2307.09702), section 3.
    """

    def __init__(self, strategy, table):
        super().__init__(strategy)
        self.table = _checked(table)

    def extend(self, options):
        return options.with_processor(self)

    def start(self, model, inputs, vocabulary_size):
        check_that(
            self.table.shape[1] == vocabulary_size,
            f"a table of {vocabulary_size} columns, one for each token of the model",
            table=self.table,
        )
        return ops.zeros((ops.shape(inputs.ids)[0],), "int32")

    def apply(self, logits, state):
        return ops.where(ops.take(self.table, state, axis=0) >= 0, logits, -float("inf"))

    def advance(self, state, tokens):
        following = ops.take(self.table, state, axis=0)
        following = ops.take_along_axis(following, tokens[..., None], axis=-1)[..., 0]
        return ops.maximum(following, 0)  # padding after the end may be forbidden

    def __eq__(self, other):
        is_same = type(self) is type(other) and self.strategy == other.strategy
        return is_same and np.array_equal(self.table, other.table)

    def __hash__(self):
        return hash((type(self), self.strategy, self.table.tobytes()))

    def __repr__(self):
        return f"Constrained({self.strategy!r}, table of {len(self.table)} states)"


def _checked(table):
    table = np.array(table)
    is_table = table.ndim == 2 and table.size > 0 and np.issubdtype(table.dtype, np.integer)
    wanted = "integers of shape (states, tokens), each a state's number or -1"
    check_that(is_table and table.min() >= -1 and table.max() < len(table), wanted, table=table)
    stuck = np.flatnonzero((table < 0).all(axis=1)).tolist()
    if stuck:
        raise ValueError(
            "Each state of `table` must allow one token at least; let a final state allow the end "
            f"token and lead to itself. Received: no token is allowed in the states {stuck}."
        )
    return table.astype("int32")
