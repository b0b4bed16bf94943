"""Logits processors, which depend on the tokens so far: base class, chain, repetition penalty."""

from typing import NamedTuple

from keras import ops

from keras_attn.generation.distributions import bounded


class LogitsProcessor:
    """Base class of a change of the logits before a strategy chooses a token.

    The state is one tensor with a row for each sequence: axes (B, ...), or (B, K, ...) with beams.
    A logit of -inf forbids a token; where all are forbidden, the sequence ends with score -inf.
    """

    def start(self, model, inputs, vocabulary_size):
        """Return the state before the first token, for the `Inputs` of `generate`."""
        raise NotImplementedError(f"{type(self).__name__} must define `start`.")

    def apply(self, logits, state):
        """Return the changed logits (..., V)."""
        raise NotImplementedError(f"{type(self).__name__} must define `apply`.")

    def advance(self, state, tokens):
        """Return the state after int32 tokens (...)."""
        raise NotImplementedError(f"{type(self).__name__} must define `advance`.")


class Chain(NamedTuple):
    """Several processors, one after another; the state is the tuple of their states."""

    processors: tuple = ()

    def start(self, model, inputs, vocabulary_size):
        """Return the states before the first token."""
        return tuple(each.start(model, inputs, vocabulary_size) for each in self.processors)

    def apply(self, logits, states):
        """Return the logits after all processors, in their order."""
        for each, state in zip(self.processors, states, strict=True):
            logits = each.apply(logits, state)
        return logits

    def advance(self, states, tokens):
        """Return the states after int32 tokens (...)."""
        pairs = zip(self.processors, states, strict=True)
        return tuple(each.advance(state, tokens) for each, state in pairs)


class Counter(LogitsProcessor):
    """Base class of processors whose state is the number of tokens so far, int32 (B,)."""

    def start(self, model, inputs, vocabulary_size):
        return ops.zeros((ops.shape(inputs.ids)[0],), "int32")

    def advance(self, state, tokens):
        return state + 1


class RepetitionPenalty(LogitsProcessor):
    """Divide the positive logits of tokens seen before by r, and multiply the negative ones.

    A token counts once, however often it was seen. Prompts count, padding does not. Memory O(B V).
    """

    def __init__(self, penalty):
        # Beyond these bounds a penalised logit is not finite in float32.
        self.penalty = bounded(penalty, 1e-30, 1e30)

    def start(self, model, inputs, vocabulary_size):
        ids, padding_mask = inputs
        batch_size, length = ops.shape(ids)
        if not model.reads_prompt:
            return ops.zeros((batch_size, vocabulary_size), "bool")
        rows = ops.expand_dims(ops.arange(batch_size, dtype="int32"), 1) + ops.zeros_like(ids)
        indices = ops.reshape(ops.stack([rows, ids], axis=-1), (batch_size * length, 2))
        counted = ops.reshape(ops.cast(padding_mask, "int32"), (batch_size * length,))
        return ops.scatter(indices, counted, (batch_size, vocabulary_size)) > 0

    def apply(self, logits, state):
        penalty = ops.convert_to_tensor(self.penalty, logits.dtype)
        penalised = ops.where(logits > 0, logits / penalty, logits * penalty)
        return ops.where(state, penalised, logits)

    def advance(self, state, tokens):
        numbers = ops.arange(state.shape[-1], dtype="int32")
        return ops.logical_or(state, ops.equal(numbers, ops.expand_dims(tokens, -1)))
