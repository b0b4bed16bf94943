"""Small models for decoding, and decoding without caches by loops in Python."""

import functools

import numpy as np
import tensorflow as tf
from beam_rules import table_of

from keras_attn import models
from keras_attn.generation.decoding import get_strategy
from keras_attn.generation.loop import DecodingOptions, decode

VOCABULARY, BOS, EOS = 7, 2, 3
IDS = tf.TensorSpec((1, None), "int32")
SOURCES = np.array([[5, 6, 4, 3, 0], [4, 3, 0, 0, 0], [6, 5, 4, 6, 3]], "int32")
PROMPTS = np.array([[2, 5, 6], [2, 4, 0], [2, 0, 0]], "int32")


def sharpened(model, seed=3):
    """Give a model larger random matrices than at the start of training: outputs differ by row."""
    random = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        is_matrix = len(weight.shape) > 1
        noise = random.normal(0, 0.6 if is_matrix else 0.1, weight.shape)
        weight.assign(noise if is_matrix else weight + noise)
    return model


@functools.cache  # the model is compiled once for all tests
def model_of(kind):
    sizes = {"num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
    if kind == "causal":
        # With this seed beams change their order, which a search must follow.
        model = sharpened(models.gpt(VOCABULARY, max_length=16, num_layers=1, **sizes), seed=8)
        forward = tf.function(lambda ids: model({"token_ids": ids}), [IDS])

        def log_probs(row, tokens):
            prompt = [token for token in PROMPTS[row] if token]
            return last(forward([prompt + list(tokens)]))

        return model, PROMPTS, functools.cache(log_probs)
    # With this seed all rows differ and one of them ends early.
    model = sharpened(models.transformer(VOCABULARY, num_layers=1, **sizes), seed=18)
    forward = tf.function(
        lambda source, target: model({"source_ids": source, "target_ids": target}), [IDS, IDS]
    )

    def log_probs(row, tokens):
        source = SOURCES[row : row + 1, : np.count_nonzero(SOURCES[row])]
        return last(forward(source, [[BOS, *tokens]]))

    return model, SOURCES, functools.cache(log_probs)


def last(logits):
    logits = np.asarray(logits, "float64")[0, -1]
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


def greedy_by_hand(log_probs, row, max_length, ends=(EOS,)):
    tokens, score = [], 0.0
    while len(tokens) < max_length and not set(ends) & set(tokens):
        scores = log_probs(row, tuple(tokens))
        tokens.append(int(scores.argmax()))
        score += scores.max()
    return tokens + [0] * (max_length - len(tokens)), score


def hypotheses(log_probs, row, max_length, ends=(EOS,)):
    """Yield each complete hypothesis, ended or cut at `max_length`, and its log-probability."""
    open_ones = [((), 0.0)]
    for length in range(1, max_length + 1):
        extended = []
        for tokens, score in open_ones:
            scores = log_probs(row, tokens)
            for token in range(VOCABULARY):
                hypothesis = ((*tokens, token), score + scores[token])
                if token in ends or length == max_length:
                    yield hypothesis
                else:
                    extended.append(hypothesis)
        open_ones = extended


def beam_by_hand(log_probs, row, beams, length_penalty, max_length, ends=(EOS,)):
    """Compute textbook beam search: no cache, no early stop, ended hypotheses set aside."""

    def normalised(score, length):
        return score / ((5 + length) / 6) ** length_penalty

    alive, ended = [((), 0.0)], []
    for length in range(1, max_length + 1):
        candidates = [
            ((*tokens, token), score + log_prob)
            for tokens, score in alive
            for token, log_prob in enumerate(log_probs(row, tokens))
        ]
        candidates.sort(key=lambda candidate: -candidate[1])
        candidates = candidates[: (1 + len(ends)) * beams]
        ended += [(t, normalised(s, length)) for t, s in candidates if t[-1] in ends]
        alive = [(t, s) for t, s in candidates if t[-1] not in ends][:beams]
    ended += [(t, normalised(s, max_length)) for t, s in alive]
    return max(ended, key=lambda hypothesis: hypothesis[1])


class Markov:
    """A model whose next token depends on the last one only: many are decoded in little time.

    It continues its prompts, if it has any.
    """

    max_length, max_source_length, pad_id = None, None, 0

    def __init__(self, seed, prompts=None, size=VOCABULARY):
        self.logits, self.prompts = table_of(seed, size), prompts
        self.reads_prompt = prompts is not None

    def start(self, inputs, max_length, padding_mask):
        return {}, tf.zeros(())

    def step(self, token_ids, constants, cache, positions, last=None, **masks):
        if last is not None:
            token_ids = tf.gather(token_ids, last, batch_dims=1)
        return tf.gather(self.logits, token_ids), cache

    def log_probs(self, row, tokens):
        prompt = [BOS] if self.prompts is None else self.prompts[row][self.prompts[row] != 0]
        logits = self.logits[[*prompt, *tokens][-1]].astype("float64")
        return logits - np.log(np.exp(logits).sum())


# All tokens but padding may follow each other: whole passes over a text mask its padding.
NO_PADDING = np.where(np.arange(VOCABULARY) > 0, 0, -1)[None]


def decode_eagerly(model, inputs, strategy, max_length, ends=(EOS,), grows=False, lengths=None):
    """Decode a few steps in less time than it takes to compile the loop."""
    strategy = get_strategy(strategy)
    strategy.check_length(max_length)
    options = DecodingOptions(max_length, BOS, ends, grows, max_length)
    lengths = None if lengths is None else tf.constant(lengths)
    ids, scores = decode(model, strategy, options, tf.constant(inputs), lengths)
    return ids.numpy(), scores.numpy()
