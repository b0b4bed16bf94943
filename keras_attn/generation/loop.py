"""The base class of the strategies, and their loop: read the prompt, then token by token."""

import copy
import functools
from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree

from keras_attn.backend.loop_invariants import loop_invariant, loop_invariants
from keras_attn.generation.distributions import forbids_all
from keras_attn.generation.processors import Chain
from keras_attn.ops.shapes import join_heads
from keras_attn.registry import Value


class Strategy(Value):
    """Base class of the decoding strategies: the choice of the next token.

    Attributes:
        dynamic: tuple of the names of attributes that are numbers and change no shape. Where
            `generate` compiles the loop, they and the numbers of the `DecodingOptions` are tensors,
            so that others need no other compilation; one that is None stays None. A `seed` is read
            by `noise` alone, which is drawn outside. Without a tuple in the class itself all are
            Python's numbers, and part of what is compiled.
        models: tuple of further models that the strategy runs, whose weights an export holds too.
        runs_in_one_thread: bool. True if a step is small operations in a row, which a pool of
            threads would slow down.
    """

    dynamic = None
    models = ()
    runs_in_one_thread = True

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for the `Inputs` and the options."""
        raise NotImplementedError(f"{type(self).__name__} must define `decode`.")

    @property
    def innermost(self):
        """The strategy inside of wrappers; one that is no wrapper is its own."""
        return self

    def unwrapped(self, options):
        """Return the innermost strategy, and its `DecodingOptions`."""
        return self, options

    def noise(self, length, batch_size):
        """Return random numbers (length, B, ...) for all tokens; None if nothing is drawn.

        The first rows are the same for any length.
        """
        return None

    def check_length(self, max_length):
        """Raise a `ValueError` if the strategy cannot generate up to `max_length` tokens."""


def dynamic_values(strategy):
    """Return the values of the `dynamic` attributes of a strategy and of those it wraps.

    They are one array float32 (N,), without those that are None. Return None if a class names none.
    """
    values = []
    while strategy is not None:
        # Not that of a base class: what a subclass adds may compute in Python.
        if vars(type(strategy)).get("dynamic") is None:
            return None
        values += [getattr(strategy, name) for name in _dynamic_names(strategy)]
        strategy = getattr(strategy, "strategy", None)
    with np.errstate(over="ignore"):  # infinity, which the strategies bound
        return np.array(values, "float32")


def _dynamic_names(strategy):
    return [name for name in strategy.dynamic if getattr(strategy, name) is not None]


def static_kind(strategy):
    """Return a copy of a strategy that equals those of other dynamic values and seeds."""
    kind = copy.copy(strategy)  # not by its configuration: a draft keeps its weights
    for name in _dynamic_names(strategy):
        setattr(kind, name, "any")
    if hasattr(strategy, "seed"):
        kind.seed = None
    if hasattr(strategy, "strategy"):
        kind.strategy = static_kind(strategy.strategy)
    return kind


def with_values(strategy, values):
    """Return a copy of a strategy, and of those it wraps, with other dynamic values (N,)."""
    strategy = copy.copy(strategy)
    names = _dynamic_names(strategy)
    for index, name in enumerate(names):
        setattr(strategy, name, values[index])
    if hasattr(strategy, "strategy"):
        strategy.strategy = with_values(strategy.strategy, values[len(names) :])
    return strategy


class TokenStrategy(Strategy):
    """Base class of the strategies that choose one token per row and step by its logits."""

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for `Inputs`, as `generate` does."""
        options = self.with_processors(options.with_noise_of(self, ops.shape(inputs.ids)[0]))
        return decode_tokens(model, inputs, self.chooser(options), options)

    def chooser(self, options):
        """Return the function `choose(logits, step)` of `decode_tokens`, which reads the noise."""

        def choose(logits, step):
            row = None if options.noise is None else ops.take(options.noise, step, axis=0)
            return self.select(logits, row, options.renormalize)

        return choose

    def with_processors(self, options):
        """Return the `DecodingOptions` with the strategy's own processors."""
        return options

    def select(self, logits, noise, renormalize):
        """Return tokens int32 (B,) and their log-probabilities (B,).

        Args:
            logits: (B, V); with `renormalize=False` log-probabilities.
            noise: (B, ...), of this step, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `select`.")


class Inputs(NamedTuple):
    """Prompts or sources of `generate`."""

    ids: object  # int32 (B, S)
    padding_mask: object  # bool (B, S), False after the end of a row


def read_inputs(ids, lengths, pad_id):
    """Return the `Inputs` of ids (B, S), whose rows have `lengths` (B,), or end before `pad_id`."""
    if lengths is not None:
        padding_mask = ops.arange(ops.shape(ids)[1], dtype="int32") < ops.expand_dims(lengths, 1)
        return Inputs(ops.where(padding_mask, ids, pad_id or 0), padding_mask)
    if pad_id is None:
        return Inputs(ids, ops.ones_like(ids, dtype="bool"))
    return Inputs(ids, ops.not_equal(ids, pad_id))


class DecodingOptions(NamedTuple):
    """The arguments of `generate` that every strategy receives.

    If `grows`, the caches grow by a slot per step. Where shapes may change (a TensorFlow graph
    outside XLA) this is faster: nothing is masked, and a step attends to the filled slots only.
    """

    max_length: Any  # int or tensor, most tokens to generate
    bos_id: Any  # int or tensor, starts a sequence
    eos_ids: tuple  # of ints or tensors, each ends a sequence
    grows: bool
    capacity: Any  # number of tokens of each row that arrays can hold, an int if shapes are known
    processors: Chain = Chain()  # change the logits before the strategy chooses
    fill_id: Any = 0  # int or tensor, written after the end of a sequence
    renormalize: bool = True  # normalise after the processors, not before them
    noise: Any = None  # (capacity, B, ...), random numbers that decide what is drawn

    def with_fill_of(self, model):
        """Return the options with the id that a model's rows have after their ends."""
        pad_id = getattr(model, "pad_id", 0)
        fill_id = ops.maximum(self.eos_ids[-1], 0) if pad_id is None else pad_id
        return self._replace(fill_id=fill_id)

    def with_noise_of(self, strategy, batch_size):
        """Return the options with noise: that of a strategy, unless the caller has drawn it."""
        if self.noise is not None:
            return self
        return self._replace(noise=strategy.noise(self.capacity, batch_size))

    def with_integers(self, integers):
        """Return the options of other numbers: tensor (2 + E,) of most tokens, start and ends."""
        max_length, bos_id, *eos_ids = [integers[n] for n in range(2 + len(self.eos_ids))]
        capacity = max_length if self.grows else self.capacity
        numbers = {"max_length": max_length, "bos_id": bos_id, "eos_ids": tuple(eos_ids)}
        return self._replace(**numbers, capacity=capacity)

    def is_end(self, tokens):
        """Return True where a token ends its sequence."""
        ends = [ops.equal(tokens, eos_id) for eos_id in self.eos_ids]
        return functools.reduce(ops.logical_or, ends)

    def process(self, logits, states):
        """Return the logits after the processors; log-probabilities if `renormalize` is False."""
        if not self.renormalize:
            logits = ops.log_softmax(logits, axis=-1)
        return self.processors.apply(logits, states)

    def with_processor(self, processor):
        """Return the options with one more processor, after the others."""
        return self._replace(processors=Chain((*self.processors.processors, processor)))


def decode(model, strategy, options, ids, lengths=None):
    """Decode int32 ids (B, S) with a strategy and its `DecodingOptions` in the current graph."""
    with loop_invariants(weights_of(model, strategy)):
        inputs = read_inputs(ids, lengths, getattr(model, "pad_id", 0))
        return strategy.decode(model, inputs, options.with_fill_of(model))


def weights_of(model, strategy):
    """Return the weights of a model and of those that a strategy runs."""
    return [w for each in (model, *strategy.models) for w in getattr(each, "weights", ())]


class Prompt(NamedTuple):
    """State of decoding after the prompt has been read."""

    logits: object  # (B, V), for the first token to generate
    constants: object  # of the model, the same in each step
    cache: object  # holds the prompt in its first slots
    size: object  # number of slots that the prompt fills
    positions: object  # (1,) or (B, 1), of the first token to generate
    padding_mask: object  # bool (B, size), True at slots that hold a token; None if all do


def read_prompt(model, inputs, options, num_slots, whole=True):
    """Start `model` on `inputs`, with `num_slots` slots for new tokens unless the cache grows.

    Unless the cache is `whole`, it has sums in place of keys.
    """
    ids, padding_mask = inputs
    if model.reads_prompt:
        tokens, size = ids, ops.shape(ids)[1]
        first = ops.sum(ops.cast(padding_mask, "int32"), axis=1, keepdims=True)  # (B, 1)
        arguments = {
            "last": ops.maximum(first - 1, 0),
            "padding_mask": _pad_slots(padding_mask, num_slots),
        }
    else:
        tokens = ops.full((ops.shape(ids)[0], 1), options.bos_id, dtype="int32")
        size, first, arguments = 1, ops.ones((1,), "int32"), {}
    kept = {} if whole else {"whole": False}  # a user's own model need not take the argument
    slots = None if options.grows else size + num_slots
    constants, cache = model.start(ids, slots, padding_mask, **kept)
    positions = ops.arange(size, dtype="int32")
    logits, cache = model.step(tokens, constants, cache, positions, **arguments)
    padding_mask = padding_mask if model.reads_prompt else None
    return Prompt(logits[:, 0], constants, cache, size, first, padding_mask)


class TokenState(NamedTuple):
    """State of a loop that writes one token per row and step."""

    step: object  # int32, number of tokens of each row
    token: object  # int32 (B,), the newest
    finished: object  # bool (B,)
    score: object  # float32 (B,)
    ids: object  # int32 (B, capacity)
    states: object  # of the processors
    cache: object


def decode_tokens(model, inputs, choose, options):
    """Generate one token per row and step: `choose(logits (B, V), step)`.

    `choose` returns tokens and their log-probabilities, (B,). Return ids int32 (B, capacity) and
    the sum of the log-probabilities of each row. A row without an allowed token ends with -inf.
    """
    prompt, state = start_tokens(model, inputs, choose, options)

    def is_running(*state):
        state = TokenState(*state)
        is_short = state.step < options.max_length
        return ops.logical_and(is_short, ops.logical_not(ops.all(state.finished)))

    def body(*state):
        return tuple(next_tokens(model, prompt, choose, options, TokenState(*state)))

    grows = options.grows and not keeps_sums(model)
    state = TokenState(*cache_loop(is_running, body, tuple(state), grows))
    return state.ids, state.score


def start_tokens(model, inputs, choose, options):
    """Return the `Prompt`, and the `TokenState` after the first token of each row."""
    if keeps_sums(model):  # of one size, and without slots to mask
        prompt = read_prompt(model, inputs, options._replace(grows=False), 0, whole=False)
        prompt = prompt._replace(padding_mask=None)
    else:
        prompt = read_prompt(model, inputs, options, 0 if options.grows else options.capacity - 1)
    batch_size, vocabulary_size = ops.shape(prompt.logits)[0], prompt.logits.shape[-1]
    state = TokenState(
        step=ops.convert_to_tensor(0, "int32"),
        token=ops.zeros((batch_size,), "int32"),
        finished=ops.zeros((batch_size,), "bool"),
        score=ops.zeros((batch_size,), "float32"),
        ids=ops.full((batch_size, options.capacity), options.fill_id, "int32"),
        states=options.processors.start(model, inputs, vocabulary_size),
        cache=prompt.cache,
    )
    return prompt, _append(state, prompt.logits, choose, options)


def next_tokens(model, prompt, choose, options, state):
    """Return the `TokenState` after one more token of each row."""
    positions, masks = prompt.positions + (state.step - 1), {}
    if prompt.padding_mask is not None:
        num_slots = state.step if options.grows else options.capacity - 1
        masks["padding_mask"] = _pad_slots(prompt.padding_mask, num_slots)
        # Rows with shorter prompts continue at positions of their own.
        slots = ops.arange(prompt.size + num_slots, dtype="int32")
        masks["key_positions"] = slot_positions(prompt, 1, slots)
    tokens = ops.expand_dims(state.token, 1)
    logits, cache = model.step(tokens, prompt.constants, state.cache, positions, **masks)
    return _append(state._replace(cache=cache), logits[:, 0], choose, options)


def _append(state, logits, choose, options):
    """Return the `TokenState` after the tokens that are chosen by logits (B, V)."""
    step, finished, processors = state.step, state.finished, options.processors
    logits = options.process(logits, state.states)
    token, log_prob = choose(logits, step)
    states = processors.advance(state.states, token)
    is_filled = finished
    if processors.processors:
        is_stuck = forbids_all(logits)
        log_prob = ops.where(is_stuck, -float("inf"), log_prob)
        is_filled = ops.logical_or(finished, is_stuck)
    token = ops.where(is_filled, options.fill_id, token)
    capacity = options.capacity
    columns = loop_invariant(capacity, "columns", lambda: ops.arange(capacity, dtype="int32"))
    return TokenState(
        step=step + 1,
        token=token,
        finished=ops.logical_or(is_filled, options.is_end(token)),
        score=state.score + ops.cast(ops.where(finished, 0.0, log_prob), "float32"),
        ids=ops.where(ops.equal(columns, step), ops.expand_dims(token, 1), state.ids),
        states=states,
        cache=state.cache,
    )


def keeps_sums(model):
    """Return True for a model whose caches, read by one token a step, are sums of one size."""
    return getattr(model, "keeps_sums", False)


def cache_loop(is_running, body, state, grows):
    """Run `ops.while_loop` over `state`, a tuple whose last element holds a tensor per slot.

    If the cache `grows`, the number of slots, axis 2 of all tensors of the last element, changes
    from step to step. TensorFlow's loop can express that, Keras's cannot.
    """
    if not grows:
        return _loop_over_rows(is_running, body, state)
    import tensorflow as tf

    *fixed, slots = state
    shapes = tf.nest.map_structure(lambda x: x.shape, fixed)
    invariants = *shapes, tf.nest.map_structure(lambda x: any_slots(x.shape), slots)
    return tf.while_loop(is_running, body, state, shape_invariants=invariants)


def _loop_over_rows(is_running, body, state):
    """Run `ops.while_loop` over a state whose last element holds caches (B, N, M, H).

    Between steps they are (B * N, M, H), as products read them: XLA would copy others in each step.
    """
    *fixed, slots = state
    shapes = [x.shape[1:] for x in tree.flatten(slots)]
    are_caches = [len(shape) == 3 and None not in shape for shape in shapes]

    def joined(slots):
        pairs = zip(tree.flatten(slots), are_caches, strict=True)
        return [join_heads(x) if is_cache else x for x, is_cache in pairs]

    def divided(tensors):
        parts = zip(tensors, shapes, are_caches, strict=True)
        heads = [ops.reshape(x, (-1, *s)) if is_cache else x for x, s, is_cache in parts]
        return tree.pack_sequence_as(slots, heads)

    def step(*state):
        *fixed, slots = body(*state[:-1], divided(state[-1]))
        return *fixed, joined(slots)

    *fixed, rows = ops.while_loop(is_running, step, (*fixed, joined(slots)))
    return *fixed, divided(rows)


def any_slots(shape):
    """Return the shape of a tensor of TensorFlow with any number of slots, its axis 2."""
    import tensorflow as tf

    return tf.TensorShape([*shape[:2], None, *shape[3:]])


def slot_positions(prompt, beams, slots):
    """Return positions (M,) or (B, M) of slots: the prompt's, then `beams` slots for each step."""
    generated = prompt.positions + (slots - prompt.size) // beams
    return ops.where(slots < prompt.size, slots, generated)


def _pad_slots(padding_mask, num_slots):
    """Extend the prompt's mask (B, P) by True for `num_slots` more slots."""
    return ops.pad(padding_mask, [[0, 0], [0, num_slots]], constant_values=True)
