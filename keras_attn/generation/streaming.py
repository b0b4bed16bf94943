"""Generation token by token: the loop of `generate`, a call for each step."""

import numpy as np
from keras import ops

from keras_attn.backend.loop_invariants import loop_invariants
from keras_attn.generation.compilation import prepare
from keras_attn.generation.loop import (
    TokenStrategy,
    any_slots,
    keeps_sums,
    next_tokens,
    read_inputs,
    start_tokens,
    weights_of,
)


def check_streams(strategy):
    """Raise a `ValueError` if a strategy does not choose one token after the other."""
    if not isinstance(strategy.innermost, TokenStrategy):
        raise ValueError(
            "`strategy` of a stream must choose one token after the other, as `Greedy` and "
            "`Sample`, alone or in a wrapper. A `Beam` knows its first token only at the end, and "
            "`Speculative` writes several at once. "
            f"Received: strategy={type(strategy.innermost).__name__}."
        )


def token_steps(model, ids, lengths, strategy, options):
    """Yield the tokens (B,) of each step of `generate`, which rows have ended, and if all is done.

    Two functions are compiled, one that reads the prompt and one for a step.
    """
    tasks, rows = prepare(model, ids, lengths, strategy, options)
    prompt, state = tasks.run(_start, *rows)
    signature = tasks.output_specs(_start, *rows)
    if signature is not None:
        signature = _step_signature(*signature, grows=tasks.options.grows and not keeps_sums(model))
    step = tasks.function(_next, _inputs(prompt, state), signature, donates=True)
    for count in range(1, options.max_length + 1):
        tokens, has_ended = map(ops.convert_to_numpy, (state.token, state.finished))
        is_last = count == options.max_length or bool(np.all(has_ended))
        yield tokens, has_ended, is_last
        if is_last:
            return
        state = step(*_inputs(prompt, state))


def _inputs(prompt, state):
    """Return the inputs of a step: the cache is the last one, which a step may overwrite."""
    return prompt, state._replace(cache=None), state.cache


def _start(model, strategy, options, ids, lengths=None):
    """Return what steps read of the `Prompt`, and the `TokenState` after the first tokens."""
    weights = weights_of(model, strategy)
    strategy, options = _token_strategy(model, strategy, options)
    with loop_invariants(weights):
        inputs = read_inputs(ids, lengths, getattr(model, "pad_id", 0))
        prompt, state = start_tokens(model, inputs, strategy.chooser(options), options)
    return prompt._replace(logits=None, cache=None), state


def _next(model, strategy, options, prompt, state, cache):
    """Return the `TokenState` after the next tokens."""
    weights = weights_of(model, strategy)
    strategy, options = _token_strategy(model, strategy, options)
    if prompt.padding_mask is not None:  # the size of a shape, known where it must be
        prompt = prompt._replace(size=ops.shape(prompt.padding_mask)[1])
    with loop_invariants(weights):
        state = state._replace(cache=cache)
        return next_tokens(model, prompt, strategy.chooser(options), options, state)


def _token_strategy(model, strategy, options):
    """Return the strategy that chooses tokens, and its options."""
    strategy, options = strategy.unwrapped(options.with_fill_of(model))
    return strategy, strategy.with_processors(options)


def _step_signature(prompt, state, grows):
    """Return the specifications of a step's inputs, from those of a prompt and a state.

    If the cache `grows`, it has any number of slots.
    """
    import tensorflow as tf

    def with_any_slots(x):
        return tf.TensorSpec(any_slots(x.shape), x.dtype)

    *fixed, cache = _inputs(prompt, state)
    return *fixed, tf.nest.map_structure(with_any_slots, cache) if grows else cache
