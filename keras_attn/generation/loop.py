"""The base class of the strategies, and their loop: read the prompt, then token by token."""

import functools
from typing import NamedTuple

from keras import ops

from keras_attn.generation.distributions import forbids_all
from keras_attn.generation.processors import Chain
from keras_attn.registry import Value


class Strategy(Value):
    """Base class of the decoding strategies: the choice of the next token.

    Attributes:
        models: tuple of further models that the strategy runs, whose weights an export holds too.
        runs_in_one_thread: bool. True if a step is small operations in a row, which a pool of
            threads would slow down.
    """

    models = ()
    runs_in_one_thread = True

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for the `Inputs` and the options."""
        raise NotImplementedError(f"{type(self).__name__} must define `decode`.")


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

    max_length: int  # most tokens to generate
    bos_id: int  # starts a sequence
    eos_ids: tuple  # each ends a sequence
    grows: bool
    processors: Chain = Chain()  # change the logits before the strategy chooses
    fill_id: int = 0  # written after the end of a sequence
    renormalize: bool = True  # normalise after the processors, not before them

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


def decode_tokens(model, inputs, choose, options):
    """Generate one token per row and step: `choose(logits (B, V), step)`.

    `choose` returns tokens and their log-probabilities, (B,). Return ids int32 (B, max_length) and
    the sum of the log-probabilities of each row. A row without an allowed token ends with -inf.
    """
    max_length, processors = options.max_length, options.processors
    keeps_sums = getattr(model, "keeps_sums", False)
    if keeps_sums:  # of one size, and without slots
        options = options._replace(grows=False)
    num_slots = 0 if options.grows or keeps_sums else max_length - 1
    prompt = read_prompt(model, inputs, options, num_slots, whole=not keeps_sums)
    columns = ops.arange(max_length, dtype="int32")

    def advance(step, logits, finished, score, ids, states):
        """Return the tokens of a step (B,), and the other arguments after it."""
        logits = options.process(logits, states)
        token, log_prob = choose(logits, step)
        states = processors.advance(states, token)
        is_filled = finished
        if processors.processors:
            is_stuck = forbids_all(logits)
            log_prob = ops.where(is_stuck, -float("inf"), log_prob)
            is_filled = ops.logical_or(finished, is_stuck)
        token = ops.where(is_filled, options.fill_id, token)
        score = score + ops.cast(ops.where(finished, 0.0, log_prob), "float32")
        ids = ops.where(columns == step, ops.expand_dims(token, 1), ids)
        return token, ops.logical_or(is_filled, options.is_end(token)), score, ids, states

    def is_running(step, token, finished, score, ids, states, cache):
        return ops.logical_and(step < max_length, ops.logical_not(ops.all(finished)))

    def body(step, token, finished, score, ids, states, cache):
        positions = prompt.positions + (step - 1)
        masks = {}
        if prompt.padding_mask is not None and not keeps_sums:
            num_slots = step if options.grows else max_length - 1
            masks["padding_mask"] = _pad_slots(prompt.padding_mask, num_slots)
            # Rows with shorter prompts continue at positions of their own.
            slots = ops.arange(prompt.size + num_slots, dtype="int32")
            masks["key_positions"] = slot_positions(prompt, 1, slots)
        logits, cache = model.step(
            ops.expand_dims(token, 1), prompt.constants, cache, positions, **masks
        )
        return step + 1, *advance(step, logits[:, 0], finished, score, ids, states), cache

    batch_size, vocabulary_size = ops.shape(prompt.logits)[0], prompt.logits.shape[-1]
    finished = ops.zeros((batch_size,), "bool")
    score = ops.zeros((batch_size,), "float32")
    ids = ops.full((batch_size, max_length), options.fill_id, "int32")
    states = processors.start(model, inputs, vocabulary_size)
    first = advance(0, prompt.logits, finished, score, ids, states)
    state = ops.convert_to_tensor(1, "int32"), *first, prompt.cache
    _, _, _, score, ids, _, _ = cache_loop(is_running, body, state, options.grows)
    return ids, score


def cache_loop(is_running, body, state, grows):
    """Run `ops.while_loop` over `state`, a tuple whose last element holds a tensor per slot.

    If the cache `grows`, the number of slots, axis 2 of all tensors of the last element, changes
    from step to step. TensorFlow's loop can express that, Keras's cannot.
    """
    if not grows:
        return ops.while_loop(is_running, body, state)
    import tensorflow as tf

    def with_any_slots(x):
        return tf.TensorShape([*x.shape[:2], None, *x.shape[3:]])

    *fixed, slots = state
    shapes = tf.nest.map_structure(lambda x: x.shape, fixed)
    invariants = *shapes, tf.nest.map_structure(with_any_slots, slots)
    return tf.while_loop(is_running, body, state, shape_invariants=invariants)


def slot_positions(prompt, beams, slots):
    """Return positions (M,) or (B, M) of slots: the prompt's, then `beams` slots for each step."""
    generated = prompt.positions + (slots - prompt.size) // beams
    return ops.where(slots < prompt.size, slots, generated)


def _pad_slots(padding_mask, num_slots):
    """Extend the prompt's mask (B, P) by True for `num_slots` more slots."""
    return ops.pad(padding_mask, [[0, 0], [0, num_slots]], constant_values=True)
