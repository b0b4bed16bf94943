"""Beam search."""

from keras import ops, tree

from keras_attn.generation.loop import (
    Strategy,
    cache_loop,
    gather_rows,
    read_prompt,
    slot_positions,
)
from keras_attn.ops.checks import check_numbers, check_sizes
from keras_attn.registry import register


@register
class Beam(Strategy):
    """Beam search: keep the K most likely hypotheses, return the best one that ended.

        score(Y) = log p(Y) / ((5 + |Y|) / 6)^length_penalty,   |Y| counts the end token

    All beams of a row share one cache, in which each new token takes its own slot; a mask over
    slots marks the ancestors of each beam. Reordering the beams therefore moves booleans, not keys
    and values. The search stops when no open hypothesis can still exceed the best one that ended;
    the bound is exact, because log p only decreases and |Y| is at most `max_length`. A hypothesis
    of `max_length` tokens counts as complete.

    Args:
        beams: int. Number of hypotheses K.
        length_penalty: float >= 0. 0 compares plain log-probabilities.

    Raises:
        ValueError: if `beams` < 1 or `length_penalty` < 0.

    Example:
        >>> from keras_attn.generation import Beam
        >>> Beam()
        Beam()

    Differs from the paper: the paper stops at input length + 50 tokens; here `max_length` does.

    Reference: [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 7, eq. 14, without
        coverage; [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1.
    """

    # In one thread the loop's body is not rewritten for oneDNN, whose products of several queries
    # are much faster at large batches.
    runs_in_one_thread = False

    def __init__(self, beams=4, length_penalty=0.6):
        check_sizes(beams=beams)
        check_numbers(least=0, length_penalty=length_penalty)
        self.beams = beams
        self.length_penalty = length_penalty

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for `inputs` (B, S), as `generate` does."""
        beams, max_length, processors = self.beams, options.max_length, options.processors
        num_slots = 0 if options.grows else (max_length - 1) * beams
        prompt = read_prompt(model, inputs, options, num_slots)
        batch_size, vocabulary_size = ops.shape(prompt.logits)[0], prompt.logits.shape[-1]
        columns = ops.arange(max_length, dtype="int32")
        numbers = ops.arange(beams, dtype="int32")
        # A beam ends with each of the end tokens at most, so K extensions stay open.
        num_candidates = beams * min(1 + len(options.eos_ids), vocabulary_size)

        def advance(step, logits, hypotheses):
            """Return tokens and parents (B, K) of the next open hypotheses, and all hypotheses."""
            open_scores, ids, ended, ended_ids, states = hypotheses
            logits = processors.apply(logits, states)
            log_probs, parents, tokens = self._candidates(logits, open_scores, num_candidates)
            candidates = ops.where(columns == step, tokens[..., None], gather_rows(ids, parents))
            ends = options.is_end(tokens)  # (B, C)
            scores = log_probs / self._penalty(step + 1)
            ended = ops.concatenate([ended, ops.where(ends, scores, -float("inf"))], axis=1)
            ended, best = ops.top_k(ended, beams)
            ended_ids = gather_rows(ops.concatenate([ended_ids, candidates], axis=1), best)
            open_scores, best = ops.top_k(ops.where(ends, -float("inf"), log_probs), beams)
            tokens, parents = gather_rows(tokens, best), gather_rows(parents, best)
            states = tree.map_structure(lambda state: gather_rows(state, parents), states)
            states = processors.advance(states, tokens)
            hypotheses = open_scores, gather_rows(candidates, best), ended, ended_ids, states
            return tokens, parents, hypotheses

        def best_open(open_scores):
            return open_scores[:, 0] / self._penalty(max_length)

        def is_running(step, tokens, hypotheses, slots):
            open_scores, _, ended, _, _ = hypotheses
            is_reachable = best_open(open_scores) > ended[:, 0]
            return ops.logical_and(step < max_length, ops.any(is_reachable))

        def body(step, tokens, hypotheses, slots):
            visible, cache = slots
            first = prompt.size + (step - 1) * beams
            if options.grows:
                visible = ops.pad(visible, [[0, 0], [0, 0], [0, beams]])
            slots = ops.arange(ops.shape(visible)[2], dtype="int32")
            visible = ops.logical_or(visible, ops.equal(slots, first + numbers[:, None]))
            logits, cache = model.step(
                tokens,
                prompt.constants,
                cache,
                prompt.positions + (step - 1) + ops.zeros_like(numbers),  # (K,) or (B, K)
                key_positions=slot_positions(prompt, beams, slots),
                attention_mask=visible[:, None],
            )
            tokens, parents, hypotheses = advance(step, logits, hypotheses)
            return step + 1, tokens, hypotheses, (gather_rows(visible, parents), cache)

        real = prompt.real
        if real is None:
            real = ops.ones((batch_size, prompt.size), "bool")
        visible = ops.broadcast_to(real[:, None], (batch_size, beams, prompt.size))
        visible = ops.pad(visible, [[0, 0], [0, 0], [0, num_slots]])
        ids = ops.zeros((batch_size, beams, max_length), "int32")
        ended = ops.full((batch_size, beams), -float("inf"))
        one_beam = ops.where(numbers == 0, 0.0, ended)
        logits = ops.broadcast_to(prompt.logits[:, None], (batch_size, beams, vocabulary_size))
        states = processors.start(model, inputs, vocabulary_size)
        states = tree.map_structure(lambda state: ops.repeat(state[:, None], beams, 1), states)
        tokens, _, hypotheses = advance(0, logits, (one_beam, ids, ended, ids, states))
        state = ops.convert_to_tensor(1, "int32"), tokens, hypotheses, (visible, prompt.cache)
        _, _, hypotheses, _ = cache_loop(is_running, body, state, options.grows)
        open_scores, ids, ended, ended_ids, _ = hypotheses
        cut, best = best_open(open_scores), ended[:, 0]
        ids = ops.where((cut > best)[:, None], ids[:, 0], ended_ids[:, 0])
        return ids, ops.maximum(cut, best)

    def _candidates(self, logits, open_scores, count):
        """Return the C most likely extensions: log-probabilities, parents, tokens (B, C).

        The best ones of each beam are picked from the logits; their log-probabilities follow from
        that of the most likely token, whose probability is at least 1 / V, so that nothing
        underflows.
        """
        kept = min(count, logits.shape[-1])
        best, tokens = ops.top_k(logits, kept)  # (B, K, kept)
        likeliest = ops.max(ops.softmax(logits, axis=-1), axis=-1, keepdims=True)
        # A slice of `best` instead of its maximum would keep XLA from finding its top-k kernel.
        below = best - ops.max(best, axis=-1, keepdims=True)
        log_probs = open_scores[..., None] + below + ops.log(likeliest)
        flat = (-1, self.beams * kept)
        log_probs, chosen = ops.top_k(ops.reshape(log_probs, flat), count)
        tokens = ops.reshape(ops.cast(tokens, "int32"), flat)
        return log_probs, chosen // kept, gather_rows(tokens, chosen)

    def _penalty(self, length):
        return ((5.0 + ops.cast(length, "float32")) / 6.0) ** self.length_penalty
