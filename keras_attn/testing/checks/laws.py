"""Laws that hold for any weights."""

import numpy as np

from keras_attn.testing.numbers import apart, random
from keras_attn.testing.running import NotApplicable
from keras_attn.testing.subject import restore, state

PLAIN = {"scores": False, "training": False}


def limits(subject):
    """One key gives its value; equal keys give the mean of the values."""
    subject.need_positions()
    layer = subject.copy()
    query, value = subject.query[:, :1], subject.value
    is_met = subject.allowed(1, 1).all()
    if not is_met:
        raise NotApplicable("the pattern forbids the only key")
    alone = subject.attend(layer, query, value[:, :1])
    far = apart([subject.attend(layer, query + 3, value[:, :1])], [alone])
    if far:
        yield f"With one key its value was expected, whatever the query; with another query {far}."
    met = subject.allowed(1, value.shape[1])
    if not subject.accepts("key") or not subject.is_of_content() or met.shape[0] > 1:
        return
    key = np.broadcast_to(value[:, :1], value.shape)
    each = [
        subject.attend(layer, query, value[:, s : s + 1], key[:, :1])
        for s in np.flatnonzero(met[0, 0])
    ]
    far = apart([subject.attend(layer, query, value, key)], [np.mean(each, axis=0)])
    if far:
        yield f"With all keys equal the mean of the allowed values was expected, but {far}."


def alignment(subject):
    """With more keys than queries, a causal layer takes the queries for the last positions."""
    subject.need_positions()
    flags = subject.causal_flags()
    if not (subject.pattern.causal or True in flags):
        raise NotApplicable("the layer is not causal and takes no `use_causal_mask`")
    layer, x = subject.copy(), subject.value
    last = subject.query_length
    for causal in flags:
        whole = subject.attend(layer, x, x, causal=causal)[:, -last:]
        far = apart([subject.attend(layer, x[:, -last:], x, causal=causal)], [whole])
        if far:
            yield (
                f"The last {last} of {x.shape[1]} queries, alone against all keys"
                f"{_with_flag(causal)}, were expected to give what they give among all queries, "
                f"but {far}: the causal mask is not aligned to the last key, "
                "so a cache or a memory is read wrong."
            )


def no_leak(subject):
    """Masked keys and values do not change a query's output by a bit."""
    subject.need_positions()
    x, other = subject.value, random(*subject.value.shape, seed=4, scale=3)
    length = x.shape[1]
    query = random(*x.shape, seed=6)
    forbidden = {
        flag: ~subject.allowed(length, length, flag).any(axis=0) for flag in subject.causal_flags()
    }
    forbidden = {flag: pairs for flag, pairs in forbidden.items() if pairs.any()}
    if not forbidden:
        raise NotApplicable("every query may meet every key")
    calm, dropping = subject.copy(), subject.dropping()
    for flag in forbidden:
        for layer, scores in [(x, s) for x in (calm, dropping) for s in subject.score_variants()]:
            if layer is None:
                continue
            how = {"causal": flag, "scores": scores, "training": layer is dropping}
            keys = np.flatnonzero(forbidden[flag].any(axis=0))
            # Every key in the plain call, a few in the others.
            keys = keys if how == {**PLAIN, "causal": flag} else keys[:: max(1, len(keys) // 3)]
            leak = _first_leak(subject, layer, query, x, other, forbidden[flag], keys, how)
            if leak:
                t, s = leak
                yield (
                    f"Changing the value at position {s} changed the output of the query at {t}, "
                    f"which may not meet it{_with_flag(flag)}"
                    f"{', with `return_attention_scores=True`' if scores else ''}"
                    f"{', with dropout in training' if layer is dropping else ''}."
                )


def _first_leak(subject, layer, query, value, other, forbidden, keys, how):
    seeds = state(layer)

    def attend(value):
        if how["training"]:
            restore(layer, seeds)  # so that dropout drops the same entries
        results = subject.attend(layer, query, value, **how)
        return results[0] if how["scores"] else results

    before = attend(value)
    for s in keys:
        changed = value.copy()
        changed[:, s] = other[:, s]
        differs = (attend(changed) != before).any(axis=(0, 2))
        if (differs & forbidden[:, s]).any():
            return int(np.flatnonzero(differs & forbidden[:, s])[0]), int(s)
    return None


def _with_flag(causal):
    return ", with `use_causal_mask=True`" if causal else ""
