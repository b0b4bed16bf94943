"""Hugging Face's beam search as loops in Python, and a model whose next token needs no network."""

import numpy as np


def table_of(seed, size=7):
    """Return the logits of each token after each other token."""
    return np.random.default_rng(seed).normal(0, 2, (size, size)).astype("float32")


def hugging_face_search(log_probs, beams, length_penalty, early_stopping, max_length, ends):
    """Return the best hypothesis, filled with 0, and its score.

    `log_probs(0, tokens)` are those of the token after some others.
    """
    alive, ended = [((), 0.0)], []
    for length in range(1, max_length + 1):
        candidates = [
            ((*tokens, token), score + log_prob)
            for tokens, score in alive
            for token, log_prob in enumerate(log_probs(0, tokens))
        ]
        candidates.sort(key=lambda candidate: -candidate[1])
        candidates = candidates[: (1 + len(ends)) * beams]
        for tokens, score in candidates[:beams]:
            if tokens[-1] in ends or length == max_length:
                ended.append((score / length**length_penalty, tokens))
        ended = sorted(ended, reverse=True)[:beams]
        alive = [(tokens, score) for tokens, score in candidates if tokens[-1] not in ends][:beams]
        if len(ended) == beams:
            reached = length if early_stopping is False else max_length
            bound = alive[0][1] / reached**length_penalty
            if early_stopping is True or bound <= ended[-1][0]:
                break
    score, tokens = ended[0]
    return [*tokens, *[0] * (max_length - len(tokens))], score
