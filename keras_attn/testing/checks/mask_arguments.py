"""Masks given by name act as they say, or are refused."""

import numpy as np
from keras import ops

from keras_attn.attention.masks import keras_mask
from keras_attn.testing.numbers import apart, equal
from keras_attn.testing.subject import arrays


def float_mask(subject):
    """An additive mask (0 = attend, -1e9 = do not) is refused, or understood as what it is."""
    subject.need("attention_mask")
    layer, query, x = subject.copy(), subject.query, subject.value
    pairs = _pairs(query, x)
    additive = ops.convert_to_tensor(np.where(pairs, 0.0, -1e9).astype("float32"))
    try:
        found = arrays(subject.raw_call(layer, query, x, attention_mask=additive))
    except (ValueError, TypeError):
        return  # refused, as it should be
    expected = [subject.attend(layer, query, x, pairs=pairs)]
    far = apart(found, expected)
    if far:
        inverted = equal(found, [subject.attend(layer, query, x, pairs=~pairs)])
        yield (
            "An additive `attention_mask` (0.0 = attend, -1e9 = do not) was expected to be refused "
            f"or to act as the boolean one, but {far}"
            f"{': it acts inverted' if inverted else ''}, and no error says so."
        )


def mask_arguments(subject):
    """Every mask argument has an effect, and every documented shape means the same."""
    layer, query, x = subject.copy(), subject.query, subject.value
    plain, plain_mask = _call(subject, layer, {})
    for name, mask in _masks(query, x).items():
        if not subject.accepts(name):
            continue
        found, found_mask = _call(subject, layer, {name: ops.convert_to_tensor(mask)})
        if equal(found, plain) and (found_mask is None) == (plain_mask is None):
            yield (
                f"`{name}` was given with entries that are False, but changed neither the output "
                "nor its Keras mask: it is ignored."
            )
    if not subject.accepts("attention_mask"):
        return
    pairs = _pairs(query, x)
    heads = subject.config.get("num_heads", 1)
    shape = (len(x), heads, *pairs.shape[1:])
    same = np.broadcast_to(pairs[:1], pairs.shape)
    for letters, mask, spread in (
        ("(T, S)", pairs[0], same),
        ("(B, N, T, S)", np.broadcast_to(pairs[:, None], shape), pairs),
    ):
        found, expected = (
            _call(subject, layer, {"attention_mask": ops.convert_to_tensor(each)})[0]
            for each in (mask, spread)
        )
        far = apart(found, expected)
        if far:
            yield f"An `attention_mask` {letters} does not act as the same one (B, T, S): {far}."


def _call(subject, layer, masks):
    result = subject.raw_call(layer, subject.query, subject.value, **masks)
    return arrays(result), keras_mask(result)


def _masks(query, x):
    queries, keys = (np.ones(tensor.shape[:2], bool) for tensor in (query, x))
    # The queries are at the last positions, where a pattern lets them meet themselves.
    queries[:, 0] = keys[:, -query.shape[1] :] = False
    return {
        "attention_mask": _pairs(query, x),
        "value_mask": keys,
        "key_mask": keys,
        "query_mask": queries,
    }


def _pairs(query, x):
    """About half of all pairs, one key at least for each query."""
    pairs = np.random.default_rng(10).random((*query.shape[:2], x.shape[1])) < 0.5
    pairs[:, :, -query.shape[1] :] |= np.eye(query.shape[1], dtype=bool)
    return pairs
