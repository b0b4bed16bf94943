"""Attention scores: what they are, and that asking for them changes nothing."""

import keras
import numpy as np

from keras_attn.testing.numbers import apart
from keras_attn.testing.subject import arrays, restore, state


def scores(subject):
    """Scores are weights (B, N, T, S) in float32; asking for them changes no output by a bit."""
    subject.need("return_attention_scores")
    layer, dropping = subject.copy(), subject.dropping()
    query, x = subject.query, subject.value
    calls = {"": {}}
    if subject.accepts("attention_mask") or subject.accepts("value_mask"):
        calls[", with padding"] = {"real": subject.real(x)}
    if subject.accepts("use_causal_mask"):
        calls[", with `use_causal_mask=True`"] = {"causal": True}
    if dropping is not None:
        calls[", with dropout in training"] = {"training": True}
    for name, call in calls.items():
        used = dropping if "training" in call else layer
        seeds = state(used)
        plain = subject.attend(used, query, x, **call)
        restore(used, seeds)
        output, found = subject.attend(used, query, x, scores=True, **call)
        if not np.array_equal(output, plain):
            yield (
                f"`return_attention_scores=True`{name} changed the output, "
                f"by up to {np.abs(output - plain).max():.2g}; expected the same bits."
            )
        if "training" not in call:
            yield from _are_weights(subject, found, name)
    yield from _dtype(subject, layer)
    yield from _in_a_model(subject, layer)


def _are_weights(subject, found, name):
    query, x = subject.query, subject.value
    heads = subject.config.get("num_heads", found.shape[1] if found.ndim > 1 else 1)
    shape = (len(x), heads, query.shape[1], x.shape[1])
    if found.shape != shape:
        yield f"Scores of shape (B, N, T, S) = {shape} were expected{name}, but came {found.shape}."
        return
    sums = found.astype("float64").sum(axis=-1)
    worst = sums.flat[np.argmax(np.minimum(np.abs(sums - 1), np.abs(sums)))]
    if min(abs(worst - 1), abs(worst)) > 1e-5:
        yield f"Rows of scores were expected to sum to 1, or 0 if empty{name}; one sums to {worst:.6g}."
    if (found < 0).any():
        yield f"Scores of 0 and more were expected{name}, but one is {found.min():.3g}."


def _dtype(subject, layer):
    _, found = subject.raw_call(layer, subject.query, subject.value, return_attention_scores=True)
    dtype = keras.backend.standardize_dtype(found.dtype)
    if dtype != "float32":
        yield f"Scores of float32 were expected, but they are {dtype}."


def _in_a_model(subject, layer):
    model = subject.model(layer, return_attention_scores=True)
    model.compile(jit_compile=False)
    inputs = subject.query, subject.value
    found = arrays(model.predict_on_batch(subject.model_inputs(inputs)))
    expected = subject.attend(layer, *inputs, real=subject.real(subject.value), scores=True)
    far = apart(found, expected)
    if far:
        yield f"In a functional model, output and scores were expected as in a call, but {far}."
