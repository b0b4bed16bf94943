"""Strategies that let another one choose some tokens only."""

import inspect

import numpy as np
from keras import ops

from keras_attn.generation.decoding import get_strategy
from keras_attn.generation.loop import Strategy
from keras_attn.generation.processors import Counter, LogitsProcessor
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.registry import register


class Wrapper(Strategy):
    """Base class of a strategy that runs another one on logits that a processor has changed.

    Of nested wrappers the innermost changes the logits last.

    Args:
        strategy: name or object of a decoding strategy.
        renormalize: bool. If True, the score is the log-probability among the tokens that the
            processor allows. If False, the others keep their mass, as in the model's own
            log-probability. One False among nested wrappers holds for all of them. Sampling always
            normalises again.
    """

    def __init__(self, strategy, renormalize=True):
        self.renormalize = bool(renormalize)
        self.strategy = get_strategy(strategy)
        self.models = self.strategy.models
        self.runs_in_one_thread = self.strategy.runs_in_one_thread

    # Not by configuration: a strategy may hold a model, whose weights are in none.
    def __eq__(self, other):
        is_same = type(self) is type(other) and self.strategy == other.strategy
        return is_same and self._own_arguments() == other._own_arguments()

    def __hash__(self):
        return hash((type(self), self.strategy, repr(self._own_arguments())))

    def _own_arguments(self):
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names if name != "strategy"}

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for `Inputs`, as `generate` does."""
        strategy, options = self.unwrapped(options)
        return strategy.decode(model, inputs, options)

    @property
    def innermost(self):
        return self.strategy.innermost

    def unwrapped(self, options):
        renormalize = options.renormalize and self.renormalize
        return self.strategy.unwrapped(self.extend(options)._replace(renormalize=renormalize))

    def noise(self, length, batch_size):
        return self.strategy.noise(length, batch_size)

    def check_length(self, max_length):
        self.strategy.check_length(max_length)

    def extend(self, options):
        """Return the `DecodingOptions` with one more processor."""
        raise NotImplementedError(f"{type(self).__name__} must define `extend`.")


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

    dynamic = ()

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
        following = ops.take_along_axis(following, ops.expand_dims(tokens, -1), axis=-1)[..., 0]
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


@register
class Forbidden(Wrapper, Counter):
    """Forbidden tokens: any strategy, which never generates some tokens.

        logits_v = -inf for each v in token_ids

    With `renormalize` the score is the log-probability among the other tokens. Without it the
    forbidden tokens keep their mass: the score is the model's own log-probability, and a beam
    search prefers hypotheses that leave little mass to forbidden tokens. Sampling always
    normalises again. Time O(V) a token.

    Use it for models that give probability to padding, or to other tokens that are no text.

    Args:
        strategy: name or object of a decoding strategy.
        token_ids: list of ints.
        renormalize: bool. If False, forbidden tokens keep their mass.

    Raises:
        ValueError: if `token_ids` are not ids of the model's vocabulary, or all of them.

    Example:
        >>> import keras_attn
        >>> keras_attn.generation.Forbidden("beam", [0, 7])
        Forbidden(Beam(), [0, 7])

    Differs from the paper: any tokens. Marian, the paper's system, forbids its padding, and
        renormalises.

    Reference: [Junczys-Dowmunt et al., 2018](https://arxiv.org/abs/1804.00344), section 2.
    """

    dynamic = ()

    def __init__(self, strategy, token_ids, renormalize=True):
        super().__init__(strategy, renormalize)
        check_that(isinstance(token_ids, (list, tuple)), "a list of ints", token_ids=token_ids)
        for token in token_ids:
            check_sizes(least=0, token_ids=token)
        self.token_ids = [int(token) for token in token_ids]

    def extend(self, options):
        return options.with_processor(self)

    def start(self, model, inputs, vocabulary_size):
        wanted = f"some, not all, of the ids from 0 to {vocabulary_size - 1}"
        unknown = [token for token in self.token_ids if token >= vocabulary_size]
        count = len(set(self.token_ids))
        check_that(not unknown and count < vocabulary_size, wanted, token_ids=self.token_ids)
        return super().start(model, inputs, vocabulary_size)

    def apply(self, logits, state):
        is_forbidden = np.isin(np.arange(logits.shape[-1]), self.token_ids)
        return ops.where(is_forbidden, -float("inf"), logits)


@register
class NoRepeat(Wrapper):
    """No repeated n-grams: any strategy, which generates no sequence of n tokens twice.

        logits_v = -inf if y_{t-n+1} .. y_{t-1} v is already in y_1 .. y_{t-1}

    The tokens of a prompt count as generated. A sequence that no token may follow ends, unfinished,
    with score -inf. Time O(n L + V) a token, for L tokens so far.

    Use it for summaries, in which a model repeats sentences.

    Args:
        strategy: name or object of a decoding strategy.
        size: int. Number n of tokens, at least 1.
        renormalize: bool. If False, a token that would repeat keeps its mass.
        counts_bos: bool. If True, the token before the first target token counts as generated, as
            in transformers. Prompts have none.

    Raises:
        ValueError: if `size` < 1.

    Example:
        >>> import keras_attn
        >>> keras_attn.generation.NoRepeat("beam", 3)
        NoRepeat(Beam(), 3)

    Differs from the paper: none.

    Reference: [Paulus et al., 2017](https://arxiv.org/abs/1705.04304), section 2.5.
    """

    dynamic = ()

    def __init__(self, strategy, size, renormalize=True, counts_bos=False):
        super().__init__(strategy, renormalize)
        check_sizes(size=size)
        self.size = size
        self.counts_bos = bool(counts_bos)

    def extend(self, options):
        bos_id = options.bos_id if self.counts_bos else None
        return options.with_processor(_NoRepeatedNGrams(self.size, options.capacity, bos_id))


class _NoRepeatedNGrams(LogitsProcessor):
    """Forbid each token that follows an earlier occurrence of the last n - 1 tokens.

    The state (B, L) holds -1, and at its end the tokens so far.
    """

    def __init__(self, size, capacity, bos_id=None):
        self.size, self.capacity, self.bos_id = size, capacity, bos_id

    def start(self, model, inputs, vocabulary_size):
        ids, padding_mask = inputs
        if not model.reads_prompt:
            batch_size, last = ops.shape(ids)[0], -1 if self.bos_id is None else self.bos_id
            first = ops.full((batch_size, self.capacity + self.size - 1), -1, "int32")
            return ops.concatenate([first, ops.full((batch_size, 1), last, "int32")], axis=1)
        length = ops.shape(ids)[1]
        count = ops.sum(ops.cast(padding_mask, "int32"), axis=1, keepdims=True)
        indices = ops.arange(length, dtype="int32") - (length - count)
        moved = ops.take_along_axis(ids, ops.maximum(indices, 0), axis=1)
        moved = ops.where(indices < 0, -1, moved)
        fill = [[0, 0], [self.capacity + self.size, 0]]
        return ops.pad(moved, fill, constant_values=-1)

    def apply(self, logits, state):
        shape, before = ops.shape(logits), self.size - 1
        length = ops.shape(state)[-1]
        last = state[..., before:]  # (..., L - n + 1), the last token of each n-gram
        is_forbidden = last >= 0
        for k in range(before):
            same = ops.equal(
                state[..., k : length - before + k], ops.expand_dims(state[..., k - before], -1)
            )
            is_forbidden = ops.logical_and(is_forbidden, same)
            is_forbidden = ops.logical_and(is_forbidden, state[..., k : length - before + k] >= 0)
        rows = ops.reshape(is_forbidden, (-1, ops.shape(last)[-1]))
        tokens = ops.reshape(ops.maximum(last, 0), ops.shape(rows))
        first = ops.expand_dims(ops.arange(ops.shape(rows)[0], dtype="int32"), 1) * shape[-1]
        indices = ops.reshape(first + tokens, (-1, 1))
        counts = ops.scatter(
            indices, ops.cast(ops.reshape(rows, (-1,)), "int32"), (ops.shape(rows)[0] * shape[-1],)
        )
        return ops.where(ops.reshape(counts, shape) > 0, -float("inf"), logits)

    def advance(self, state, tokens):
        return ops.concatenate([state[..., 1:], ops.expand_dims(tokens, -1)], axis=-1)


@register
class Forced(Wrapper):
    """Forced tokens: any strategy, which generates given tokens at the first and last position.

        y_1 = first_id,   y_max_length = last_id,   y_t != eos_id for t <= min_length

    A forced token adds nothing to the score, and may be an end token. Time O(V) a token.

    Use it for models that were trained with a first token, such as the language of a translation.

    Args:
        strategy: name or object of a decoding strategy.
        first_id: int. The first token that is generated; None for any.
        last_id: int. The token at `max_length`, of sequences that did not end before; None for any.
        min_length: int. Number of tokens that a sequence has at least before its end token.
        renormalize: bool. If False, an end token that is too early keeps its mass.
        prompt_length: int. Number of tokens of the prompts after which `first_id` is forced, as
            transformers does after one; None for all.

    Raises:
        ValueError: if an argument is no id of the model's vocabulary, if `min_length` is above
            `max_length`, or if `max_length` is 1 and the first token is not the last one.

    Example:
        >>> import keras_attn
        >>> keras_attn.generation.Forced("beam", last_id=3)
        Forced(Beam(), last_id=3)

    Differs from the paper: the tokens are arguments; the paper has one for each language.

    Reference: [Tang et al., 2020](https://arxiv.org/abs/2008.00401), section 3.
    """

    dynamic = ()

    def __init__(
        self,
        strategy,
        first_id=None,
        last_id=None,
        min_length=0,
        renormalize=True,
        prompt_length=None,
    ):
        super().__init__(strategy, renormalize)
        for name, token in {"first_id": first_id, "last_id": last_id}.items():
            if token is not None:
                check_sizes(least=0, **{name: token})
        check_sizes(least=0, min_length=min_length)
        if prompt_length is not None:
            check_sizes(prompt_length=prompt_length)
        self.first_id, self.last_id, self.min_length = first_id, last_id, min_length
        self.prompt_length = prompt_length

    def check_length(self, max_length):
        super().check_length(max_length)
        first_id, last_id = self.first_id, self.last_id
        if self.min_length > max_length:
            raise ValueError(
                "`min_length` must not be above `max_length`. "
                f"Received: min_length={self.min_length}, max_length={max_length}."
            )
        is_kept = max_length > 1 or None in (first_id, last_id) or first_id == last_id
        check_that(is_kept, f"{first_id}, the only token", last_id=last_id)

    def extend(self, options):
        if self.min_length:
            options = options.with_processor(_LateEnd(self.min_length, options.is_end))
        if self.last_id is not None:
            last = _ForcedToken(options.max_length - 1, self.last_id, "last_id")
            options = options.with_processor(last)
        if self.first_id is not None:
            first = _ForcedToken(0, self.first_id, "first_id", self.prompt_length)
            options = options.with_processor(first)
        return options


class _LateEnd(Counter):
    """Forbid end tokens among the first `min_length` tokens."""

    def __init__(self, min_length, is_end):
        self.min_length, self.is_end = min_length, is_end

    def apply(self, logits, state):
        is_end = self.is_end(ops.arange(logits.shape[-1], dtype="int32"))
        is_early = ops.logical_and(ops.expand_dims(state, -1) < self.min_length, is_end)
        return ops.where(is_early, -float("inf"), logits)


class _ForcedToken(Counter):
    """Force a token at a step, after prompts of `prompt_length` tokens or, with None, after all.

    `name` is the argument of the token, for errors.
    """

    def __init__(self, step, token, name, prompt_length=None):
        self.step, self.token, self.name, self.prompt_length = step, token, name, prompt_length

    def start(self, model, inputs, vocabulary_size):
        check_that(
            self.token < vocabulary_size, f"below {vocabulary_size}", **{self.name: self.token}
        )
        state = super().start(model, inputs, vocabulary_size)
        if self.prompt_length is None or not model.reads_prompt:
            return state
        count = ops.sum(ops.cast(inputs.padding_mask, "int32"), axis=1)
        # After other prompts the count begins behind the step, which it never meets.
        return ops.where(ops.equal(count, self.prompt_length), state, self.step + 1)

    def apply(self, logits, state):
        is_token = np.arange(logits.shape[-1]) == self.token
        only = np.where(is_token, 0.0, -np.inf).astype("float32")
        return ops.where(ops.expand_dims(ops.equal(state, self.step), -1), only, logits)
