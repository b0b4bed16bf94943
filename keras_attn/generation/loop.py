"""The base class of the strategies, and their loop: read the prompt, then token by token."""

from typing import NamedTuple

from keras import ops

from keras_attn.registry import Value


class Strategy(Value):
    """Base class of the decoding strategies: the choice of the next token."""

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for int32 inputs (B, S) and the options."""
        raise NotImplementedError(f"{type(self).__name__} must define `decode`.")


class DecodingOptions(NamedTuple):
    """The arguments of `generate` that every strategy receives.

    If `grows`, the caches grow by a slot per step. Where shapes may change (a TensorFlow graph
    outside XLA) this is faster: nothing is masked, and a step attends to the filled slots only.
    """

    max_length: int  # most tokens to generate
    bos_id: int  # starts a sequence
    eos_id: int  # ends a sequence
    grows: bool


class Prompt(NamedTuple):
    """State of decoding after the prompt has been read."""

    logits: object  # (B, V), for the first token to generate
    constants: object  # of the model, the same in each step
    cache: object  # holds the prompt in its first slots
    size: object  # number of slots that the prompt fills
    positions: object  # (1,) or (B, 1), of the first token to generate
    real: object  # bool (B, size), True at slots that hold a token; None if all do


def read_prompt(model, inputs, options, num_slots):
    """Start `model` on `inputs`, with `num_slots` slots for new tokens unless the cache grows."""
    if model.reads_prompt:
        tokens, size, real = inputs, ops.shape(inputs)[1], ops.not_equal(inputs, 0)
        first = ops.sum(ops.cast(real, "int32"), axis=1, keepdims=True)  # (B, 1)
        arguments = {"last": ops.maximum(first - 1, 0), "padding_mask": _pad_slots(real, num_slots)}
    else:
        tokens = ops.full((ops.shape(inputs)[0], 1), options.bos_id, dtype="int32")
        size, real, first, arguments = 1, None, ops.ones((1,), "int32"), {}
    constants, cache = model.start(inputs, None if options.grows else size + num_slots)
    positions = ops.arange(size, dtype="int32")
    logits, cache = model.step(tokens, constants, cache, positions, **arguments)
    return Prompt(logits[:, 0], constants, cache, size, first, real)


def decode_tokens(model, inputs, choose, options):
    """Generate one token per row and step: `choose(logits (B, V), step)`.

    `choose` returns tokens and their log-probabilities, (B,). Return ids int32 (B, max_length) and
    the sum of the log-probabilities of each row.
    """
    max_length, eos_id = options.max_length, options.eos_id
    prompt = read_prompt(model, inputs, options, 0 if options.grows else max_length - 1)
    columns = ops.arange(max_length, dtype="int32")
    token, score = choose(prompt.logits, 0)
    ids = ops.where(columns == 0, token[:, None], 0)
    finished = ops.equal(token, eos_id)

    def is_running(step, token, finished, score, ids, cache):
        return ops.logical_and(step < max_length, ops.logical_not(ops.all(finished)))

    def body(step, token, finished, score, ids, cache):
        positions = prompt.positions + (step - 1)
        masks = {}
        if prompt.real is not None:
            num_slots = step if options.grows else max_length - 1
            masks["padding_mask"] = _pad_slots(prompt.real, num_slots)
            # Rows with shorter prompts continue at positions of their own.
            slots = ops.arange(prompt.size + num_slots, dtype="int32")
            masks["key_positions"] = slot_positions(prompt, 1, slots)
        logits, cache = model.step(token[:, None], prompt.constants, cache, positions, **masks)
        token, log_prob = choose(logits[:, 0], step)
        token = ops.where(finished, 0, token)
        score = score + ops.where(finished, 0.0, log_prob)
        ids = ops.where(columns == step, token[:, None], ids)
        finished = ops.logical_or(finished, ops.equal(token, eos_id))
        return step + 1, token, finished, score, ids, cache

    state = (ops.convert_to_tensor(1, "int32"), token, finished, score, ids, prompt.cache)
    _, _, _, score, ids, _ = cache_loop(is_running, body, state, options.grows)
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


def _pad_slots(real, num_slots):
    """Extend the prompt's mask (B, P) by True for `num_slots` more slots."""
    return ops.pad(real, [[0, 0], [0, num_slots]], constant_values=True)
