"""Generation token by token: the loop of `generate`, a call for each step."""

import numpy as np
from keras import ops

from keras_attn.backend.loop_invariants import loop_invariants
from keras_attn.generation.compilation import Compiled
from keras_attn.generation.constrained import Wrapper
from keras_attn.generation.loop import (
    TokenStrategy,
    keeps_sums,
    next_tokens,
    read_inputs,
    start_tokens,
    weights_of,
)


def check_streams(strategy):
    """Raise a `ValueError` if a strategy does not choose one token after the other."""
    inner = strategy
    while isinstance(inner, Wrapper):
        inner = inner.strategy
    if not isinstance(inner, TokenStrategy):
        raise ValueError(
            "`strategy` of a stream must choose one token after the other, as `Greedy` and "
            "`Sample`, alone or in a wrapper: a beam search knows its first token at the end. "
            f"Received: strategy={type(inner).__name__}."
        )


def token_steps(model, ids, lengths, strategy, options):
    """Yield the tokens (B,) of each step of `generate`, which rows have ended, and if all is done.

    Two functions are compiled, one that reads the prompt and one for a step.
    """
    compiled = Compiled.of(model, ids, lengths, strategy, options)
    prompt, state = compiled.run(_start, *compiled.rows)
    signature = compiled.output_specs(_start, *compiled.rows)
    if signature is not None and compiled.options.grows and not keeps_sums(model):
        signature = _with_any_slots(*signature)
    for count in range(1, options.max_length + 1):
        tokens, has_ended = map(ops.convert_to_numpy, (state.token, state.finished))
        is_last = count == options.max_length or bool(np.all(has_ended))
        yield tokens, has_ended, is_last
        if is_last:
            return
        state = compiled.run(_next, prompt, state, signature=signature)


def _start(model, strategy, options, ids, lengths=None):
    """Return the `Prompt` without its logits, and the `TokenState` after the first tokens."""
    weights = weights_of(model, strategy)
    strategy, options = _innermost(strategy, options.with_fill_of(model))
    with loop_invariants(weights):
        inputs = read_inputs(ids, lengths, getattr(model, "pad_id", 0))
        choose = strategy.chooser(options, ops.shape(ids)[0])
        prompt, state = start_tokens(model, inputs, choose, options)
    return prompt._replace(logits=None), state


def _next(model, strategy, options, prompt, state):
    """Return the `TokenState` after the next tokens."""
    weights = weights_of(model, strategy)
    strategy, options = _innermost(strategy, options.with_fill_of(model))
    if prompt.padding_mask is not None:  # the size of a shape, known where it must be
        prompt = prompt._replace(size=ops.shape(prompt.padding_mask)[1])
    with loop_invariants(weights):
        choose = strategy.chooser(options, ops.shape(state.token)[0])
        return next_tokens(model, prompt, choose, options, state)


def _innermost(strategy, options):
    """Return the strategy inside of wrappers, and its options."""
    while isinstance(strategy, Wrapper):
        strategy, options = strategy.strategy, strategy.inner_options(options)
    return strategy, strategy.with_processors(options)


def _with_any_slots(prompt, state):
    """Return the specifications of a prompt and a state whose cache has any number of slots."""
    import tensorflow as tf

    def with_any_slots(x):
        return tf.TensorSpec([*x.shape[:2], None, *x.shape[3:]], x.dtype)

    return prompt, state._replace(cache=tf.nest.map_structure(with_any_slots, state.cache))
