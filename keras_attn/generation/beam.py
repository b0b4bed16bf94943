"""Beam search."""

from typing import NamedTuple

from keras import ops, tree

from keras_attn.backend.operations import gather_rows
from keras_attn.generation.distributions import log_sum_exp
from keras_attn.generation.loop import Strategy, cache_loop, read_prompt, slot_positions
from keras_attn.ops.checks import check_choice, check_numbers, check_sizes, check_that
from keras_attn.ops.sorting import top_k
from keras_attn.registry import register


@register
class Beam(Strategy):
    """Beam search: keep the K most likely hypotheses, return the best one that ended.

        score(Y) = log p(Y) / ((5 + |Y|) / 6)^length_penalty,   |Y| counts the end token
        score(Y) = log p(Y) / |Y|^length_penalty                with normalization="power"

    All beams of a row share one cache, in which each new token takes its own slot; a mask over
    slots marks the ancestors of each beam. Reordering the beams therefore moves booleans, not keys
    and values. The search stops when no open hypothesis can still exceed the best one that ended;
    the bound is exact, because log p only decreases and |Y| is at most `max_length`. A hypothesis
    of `max_length` tokens counts as complete. Time O(K V) a token beside the model's step on K
    tokens.

    Use it for translations, where it finds a likelier output than one token at a time.

    With `normalization="power"` and `early_stopping=False` the ids and scores are those of Hugging
    Face's `generate` with its defaults. Its search may stop before it finds the best hypothesis.

    Args:
        beams: int. Number of hypotheses K.
        length_penalty: float >= 0. 0 compares plain log-probabilities.
        normalization: "google" or "power". Formula of the score.
        early_stopping: None for the exact bound. The others are Hugging Face's rules, by which only
            the K best candidates of a step may end, and a row stops after K hypotheses ended: True
            stops at once; False when the best open one would be below all of them if it ended now;
            "never" when it would be at `max_length`.

    Raises:
        ValueError: if `beams` < 1, `length_penalty` < 0, or another argument is unknown.

    Example:
        >>> from keras_attn.generation import Beam
        >>> Beam()
        Beam()

    Differs from the paper: the paper stops at input length + 50 tokens; here `max_length` does.

    Reference: [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 7, eq. 14, without
        coverage; [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1;
        [Hugging Face](https://huggingface.co/docs/transformers/main_classes/text_generation).
    """

    # In one thread the loop's body is not rewritten for oneDNN, whose products of several queries
    # are much faster at large batches.
    runs_in_one_thread = False
    dynamic = ("length_penalty",)

    def __init__(self, beams=4, length_penalty=0.6, normalization="google", early_stopping=None):
        check_sizes(beams=beams)
        check_numbers(least=0, length_penalty=length_penalty)
        check_choice(("google", "power"), normalization=normalization)
        is_rule = early_stopping in (None, "never") or isinstance(early_stopping, bool)
        check_that(is_rule, "None, False, True or 'never'", early_stopping=early_stopping)
        self.beams = beams
        self.length_penalty = length_penalty
        self.normalization = normalization
        self.early_stopping = early_stopping

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for `Inputs`, as `generate` does."""
        beams, max_length, processors = self.beams, options.max_length, options.processors
        num_slots = 0 if options.grows else (options.capacity - 1) * beams
        prompt = read_prompt(model, inputs, options, num_slots)
        batch_size, vocabulary_size = ops.shape(prompt.logits)[0], prompt.logits.shape[-1]
        columns = ops.arange(options.capacity, dtype="int32")
        numbers = ops.arange(beams, dtype="int32")
        # A beam ends with each of the end tokens at most, so K extensions stay open.
        num_candidates = beams * min(1 + len(options.eos_ids), vocabulary_size)
        stopping = Stopping(self.early_stopping, beams, self._penalty, self._penalty(max_length))

        def advance(step, logits, hypotheses):
            """Return tokens and parents (B, K) of the next open hypotheses, and all hypotheses."""
            open_scores, ids, ended, ended_ids, states, is_open = hypotheses
            log_probs, parents, tokens = self._candidates(
                options.process(logits, states), open_scores, num_candidates, options.renormalize
            )
            candidates = ops.where(
                columns == step, ops.expand_dims(tokens, -1), gather_rows(ids, parents)
            )
            ends = ops.logical_or(options.is_end(tokens), ops.equal(step + 1, max_length))  # (B, C)
            scores = log_probs / self._penalty(step + 1)
            is_kept = ops.logical_and(stopping.keep(ends), ops.expand_dims(is_open, 1))
            ended = ops.concatenate([ended, ops.where(is_kept, scores, -float("inf"))], axis=1)
            ended, best = ops.top_k(ended, beams)
            ended_ids = gather_rows(ops.concatenate([ended_ids, candidates], axis=1), best)
            open_scores, best = ops.top_k(ops.where(ends, -float("inf"), log_probs), beams)
            tokens, parents = gather_rows(tokens, best), gather_rows(parents, best)
            states = tree.map_structure(lambda state: gather_rows(state, parents), states)
            states = processors.advance(states, tokens)
            is_open = ops.logical_and(is_open, stopping.is_open(open_scores, ended, step + 1))
            ids = gather_rows(candidates, best)
            return tokens, parents, (open_scores, ids, ended, ended_ids, states, is_open)

        def is_running(step, tokens, hypotheses, slots):
            *_, is_open = hypotheses
            return ops.logical_and(step < max_length, ops.any(is_open))

        def body(step, tokens, hypotheses, slots):
            visible, cache = slots
            first = prompt.size + (step - 1) * beams
            if options.grows:
                visible = ops.pad(visible, [[0, 0], [0, 0], [0, beams]])
            slot_numbers = ops.arange(ops.shape(visible)[2], dtype="int32")
            visible = ops.logical_or(
                visible, ops.equal(slot_numbers, first + ops.expand_dims(numbers, 1))
            )
            logits, cache = model.step(
                tokens,
                prompt.constants,
                cache,
                prompt.positions + (step - 1) + ops.zeros_like(numbers),  # (K,) or (B, K)
                key_positions=slot_positions(prompt, beams, slot_numbers),
                attention_mask=ops.expand_dims(visible, 1),
            )
            tokens, parents, hypotheses = advance(step, logits, hypotheses)
            return step + 1, tokens, hypotheses, (gather_rows(visible, parents), cache)

        padding_mask = prompt.padding_mask
        if padding_mask is None:
            padding_mask = ops.ones((batch_size, prompt.size), "bool")
        visible = ops.broadcast_to(
            ops.expand_dims(padding_mask, 1), (batch_size, beams, prompt.size)
        )
        visible = ops.pad(visible, [[0, 0], [0, 0], [0, num_slots]])
        ids = ops.full((batch_size, beams, options.capacity), options.fill_id, "int32")
        ended = ops.full((batch_size, beams), -float("inf"))
        one_beam = ops.where(numbers == 0, 0.0, ended)
        logits = ops.broadcast_to(
            ops.expand_dims(prompt.logits, 1), (batch_size, beams, vocabulary_size)
        )
        states = processors.start(model, inputs, vocabulary_size)
        states = tree.map_structure(
            lambda state: ops.repeat(ops.expand_dims(state, 1), beams, 1), states
        )
        is_open = ops.ones((batch_size,), "bool")
        hypotheses = one_beam, ids, ended, ids, states, is_open
        tokens, _, hypotheses = advance(0, logits, hypotheses)
        state = ops.convert_to_tensor(1, "int32"), tokens, hypotheses, (visible, prompt.cache)
        _, _, hypotheses, _ = cache_loop(is_running, body, state, options.grows)
        _, _, ended, ended_ids, _, _ = hypotheses
        return ended_ids[:, 0], ended[:, 0]

    def _candidates(self, logits, open_scores, count, renormalize):
        """Return the C most likely extensions: log-probabilities, parents, tokens (B, C).

        The best ones of each beam are picked from the logits. Without `renormalize` these are
        log-probabilities.
        """
        kept = min(count, logits.shape[-1])
        best, tokens = top_k(logits, kept)  # (B, K, kept)
        log_probs = ops.expand_dims(open_scores, -1) + best
        if renormalize:
            # XLA has a fast kernel for `top_k`, but not where a slice of its result is read.
            top = ops.max(best, axis=-1, keepdims=True)
            log_probs = ops.expand_dims(open_scores, -1) + (best - top) - log_sum_exp(logits, top)
            # Where processors forbid every token, this is a difference of infinities: NaN.
            log_probs = ops.where(ops.equal(best, -float("inf")), best, log_probs)
        flat = (-1, self.beams * kept)
        log_probs, chosen = ops.top_k(ops.reshape(log_probs, flat), count)
        tokens = ops.reshape(tokens, flat)
        return log_probs, chosen // kept, gather_rows(tokens, chosen)

    def _penalty(self, length):
        length = ops.cast(length, "float32")
        base = length if self.normalization == "power" else (5.0 + length) / 6.0
        return base**self.length_penalty


class Stopping(NamedTuple):
    """The rules of one search.

    `early_stopping=None` is exact: all ended candidates are kept, and a row stops when no open
    hypothesis can exceed its best ended one, since log p only decreases and no hypothesis is longer
    than `max_length`.

    The other rules are Hugging Face's. Only the K best candidates of a step may end, and a row
    stops after K hypotheses ended: True stops at once. False and "never" stop when the best open
    hypothesis does not exceed the worst ended one, its score taken at its present length (False) or
    at `max_length` ("never").
    """

    early_stopping: object
    beams: int
    penalty: object  # function of a length
    last_penalty: object  # of `max_length`

    def keep(self, is_end):
        """Return True for the ended candidates, bool (B, C), that are kept; the best is first."""
        if self.early_stopping is None:
            return is_end
        numbers = ops.arange(is_end.shape[1], dtype="int32")
        return ops.logical_and(is_end, numbers < self.beams)

    def is_open(self, open_scores, ended, length):
        """Return True for the rows (B,) that may still find a better hypothesis.

        Args:
            open_scores: (B, K), log-probabilities of hypotheses of `length` tokens, best first.
            ended: (B, K), scores of ended hypotheses, best first.
        """
        if self.early_stopping is True:
            return ops.equal(ended[:, -1], -float("inf"))
        penalty = self.penalty(length) if self.early_stopping is False else self.last_penalty
        rival = ended[:, 0] if self.early_stopping is None else ended[:, -1]
        return open_scores[:, 0] / penalty > rival
