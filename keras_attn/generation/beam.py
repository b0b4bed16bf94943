"""Beam search."""

from keras import ops

from keras_attn.generation.prompt import read_prompt, slot_positions
from keras_attn.generation.while_loop import while_loop
from keras_attn.registry import Value, register


@register
class Beam(Value):
    """Keeps the likeliest hypotheses at each step and returns the best that ended.

        score(Y) = log p(Y) / ((5 + |Y|) / 6)^length_penalty,   |Y| counts the end token

    All beams of a row share one cache, in which each new token takes a slot of its own; a mask
    over slots says which are a beam's ancestors. So reordering the beams moves a few booleans and
    never a key or a value. Stops when no living hypothesis can still beat the best that ended, a
    bound which is exact because log p only falls and |Y| is at most `max_length`. A hypothesis
    of `max_length` tokens counts as complete.

    Args:
        beams: int. Hypotheses kept, K.
        length_penalty: float >= 0. 0 compares plain log-probabilities.

    Raises:
        ValueError: if `beams` < 1 or `length_penalty` < 0.

    Example:
        >>> from keras_attn.generation import Beam
        >>> Beam()
        Beam(beams=4, length_penalty=0.6)

    Differs from the paper: the paper stops at input length + 50 tokens; here `max_length` does.

    Reference: [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 7, eq. 14, without
        coverage; [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1.
    """

    def __init__(self, beams=4, length_penalty=0.6):
        if beams < 1:
            raise ValueError(f"`beams` must be at least 1. Received: beams={beams}.")
        if length_penalty < 0:
            raise ValueError(
                f"`length_penalty` must not be negative. Received: length_penalty={length_penalty}."
            )
        self.beams = beams
        self.length_penalty = length_penalty

    def decode(self, model, inputs, task):
        beams, max_length, eos_id = self.beams, task.max_length, task.eos_id
        num_slots = 0 if task.grows else (max_length - 1) * beams
        prompt = read_prompt(model, inputs, task, num_slots)
        batch_size = ops.shape(prompt.logits)[0]
        columns = ops.arange(max_length, dtype="int32")

        def advance(step, logits, alive, ids, ended, ended_ids):
            """The next K living and the best K ended hypotheses, from logits (B, K, V)."""
            log_probs, parents, tokens = self._candidates(logits, alive)
            candidates = ops.where(columns == step, tokens[..., None], gather(ids, parents))
            ends = ops.equal(tokens, eos_id)  # (B, 2 K)
            scores = log_probs / self._penalty(step + 1)
            ended = ops.concatenate([ended, ops.where(ends, scores, -float("inf"))], axis=1)
            ended, best = ops.top_k(ended, beams)
            ended_ids = gather(ops.concatenate([ended_ids, candidates], axis=1), best)
            alive, best = ops.top_k(ops.where(ends, -float("inf"), log_probs), beams)
            tokens, parents = gather(tokens, best), gather(parents, best)
            return tokens, parents, alive, gather(candidates, best), ended, ended_ids

        def gather(x, indices):
            return _gather_rows(x, indices, batch_size)

        def unfinished(step, tokens, alive, ids, ended, ended_ids, slots):
            reachable = alive[:, 0] / self._penalty(max_length)
            return ops.logical_and(step < max_length, ops.any(reachable > ended[:, 0]))

        def body(step, tokens, alive, ids, ended, ended_ids, slots):
            visible, cache = slots
            first = prompt.size + (step - 1) * beams
            if task.grows:
                visible = ops.pad(visible, [[0, 0], [0, 0], [0, beams]])
            slots = ops.arange(ops.shape(visible)[2], dtype="int32")
            visible = ops.logical_or(visible, ops.equal(slots, first + numbers[:, None]))
            positions = ops.broadcast_to(prompt.positions + (step - 1), _rows(prompt, beams))
            logits, cache = model.step(
                tokens,
                prompt.constants,
                cache,
                positions,
                key_positions=slot_positions(prompt, beams, slots),
                attention_mask=visible[:, None],
            )
            tokens, parents, alive, ids, ended, ended_ids = advance(
                step, logits, alive, ids, ended, ended_ids
            )
            slots = gather(visible, parents), cache
            return step + 1, tokens, alive, ids, ended, ended_ids, slots

        real = prompt.real
        if real is None:
            real = ops.ones((batch_size, prompt.size), "bool")
        visible = ops.broadcast_to(real[:, None], (batch_size, beams, prompt.size))
        visible = ops.pad(visible, [[0, 0], [0, 0], [0, num_slots]])
        numbers = ops.arange(beams, dtype="int32")
        one_beam = ops.where(ops.arange(beams) == 0, 0.0, -float("inf"))
        alive = ops.broadcast_to(one_beam, (batch_size, beams))
        ids = ops.zeros((batch_size, beams, max_length), "int32")
        ended = ops.full((batch_size, beams), -float("inf"))
        logits = ops.broadcast_to(
            prompt.logits[:, None], (batch_size, beams, prompt.logits.shape[-1])
        )
        tokens, _, alive, ids, ended, ended_ids = advance(0, logits, alive, ids, ended, ids)
        step = ops.convert_to_tensor(1, "int32")
        state = step, tokens, alive, ids, ended, ended_ids, (visible, prompt.cache)
        _, _, alive, ids, ended, ended_ids, _ = while_loop(unfinished, body, state, task.grows)
        cut = alive[:, 0] / self._penalty(max_length)
        is_cut = cut > ended[:, 0]
        return (
            ops.where(is_cut[:, None], ids[:, 0], ended_ids[:, 0]),
            ops.where(is_cut, cut, ended[:, 0]),
        )

    def _candidates(self, logits, alive):
        """The 2 K likeliest extensions: log-probabilities, parents and tokens, each (B, 2 K).

        A beam ends in one way only, so K of them go on. Each beam's best are picked from the
        logits, and their log-probabilities follow from the likeliest token's: its probability is at
        least 1 / V, so that nothing underflows.
        """
        kept = min(2 * self.beams, logits.shape[-1])
        best, tokens = ops.top_k(logits, kept)  # (B, K, kept)
        likeliest = ops.max(ops.softmax(logits, axis=-1), axis=-1, keepdims=True)
        # A slice of `best` instead of its maximum would keep XLA from finding its top-k kernel.
        below = best - ops.max(best, axis=-1, keepdims=True)
        log_probs = alive[..., None] + below + ops.log(likeliest)
        flat = (-1, self.beams * kept)
        log_probs, chosen = ops.top_k(ops.reshape(log_probs, flat), 2 * self.beams)
        tokens = ops.reshape(ops.cast(tokens, "int32"), flat)
        tokens = _gather_rows(tokens, chosen, ops.shape(tokens)[0])
        return log_probs, chosen // kept, tokens

    def _penalty(self, length):
        return ((5.0 + ops.cast(length, "float32")) / 6.0) ** self.length_penalty

    def get_config(self):
        return {"beams": self.beams, "length_penalty": self.length_penalty}


def _rows(prompt, beams):
    """Shape of the beams' positions: (K,), or (B, K) where rows have prompts of their own."""
    shape = ops.shape(prompt.positions)
    return (beams,) if len(shape) == 1 else (shape[0], beams)


def _gather_rows(x, indices, batch_size):
    """x (B, n, ...) and indices (B, m) -> (B, m, ...)."""
    rows = x.shape[1]
    first = ops.arange(batch_size, dtype="int32")[:, None] * rows
    flat = ops.reshape(x, (batch_size * rows, *ops.shape(x)[2:]))
    return ops.take(flat, first + ops.cast(indices, "int32"), axis=0)
