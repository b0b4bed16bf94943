"""Padding is as if it were not there."""

import numpy as np
from keras import ops

from keras_attn.testing.checks.gradients import projection
from keras_attn.testing.checks.keras_masks import Marked
from keras_attn.testing.checks.keras_masks import implicit_mask as implicit_mask_of_any_layer
from keras_attn.testing.numbers import apart, equal, random
from keras_attn.testing.slopes import gradients
from keras_attn.testing.subject import arrays


def padding(subject):
    """Padded keys change nothing: neither what stands there nor how many they are."""
    layer, x = subject.copy(), subject.value
    real = subject.real(x)
    noise = random(*x.shape, seed=8, scale=20)
    other = np.where(real[..., None], x, noise)
    query = subject.query
    for scores in subject.score_variants():
        before, after = (
            subject.attend(layer, query, value, real=real, scores=scores) for value in (x, other)
        )
        if not equal([after[0] if scores else after], [before[0] if scores else before]):
            asked = " with `return_attention_scores=True`" if scores else ""
            yield f"Changing the values at padded keys changed the output{asked}."
    if subject.pattern.is_of_positions:
        longer = np.concatenate([x, noise[:, :3]], axis=1)
        mask = np.concatenate([np.ones(x.shape[:2], bool), np.zeros((len(x), 3), bool)], axis=1)
        try:
            output = subject.attend(layer, longer, longer, real=mask)[:, : x.shape[1]]
        except ValueError:
            return  # the layer refuses sequences of that length
        far = apart([output], [subject.attend(layer, x, x)])
        if far:
            yield f"Appending 3 padded positions changed the output before them: {far}."


def implicit_mask(subject):
    """Keras's mask of the inputs is honoured, passed on, and the same as one given by name."""
    yield from implicit_mask_of_any_layer(subject)
    layer, x = subject.copy(), subject.value
    real = subject.real(x)
    expected = [subject.attend(layer, subject.query, x, real=real)]
    marked = Marked(real)(ops.convert_to_tensor(x))
    found = arrays(subject.raw_call(layer, ops.convert_to_tensor(subject.query), marked))
    far = apart(found, expected)
    if far:
        yield f"The Keras mask of `value` does not act as the same mask given by name: {far}."


def empty_rows(subject):
    """A query with nothing to attend gets zero attention and zero gradient, and nothing breaks."""
    ways = {}
    query, x = subject.query, subject.value
    nobody = np.ones(x.shape[:2], bool)
    nobody[0] = False
    ways["every key of a row is padding"] = (0, slice(None)), {"real": nobody}
    if subject.accepts("attention_mask"):
        pairs = np.ones((len(x), query.shape[1], x.shape[1]), bool)
        pairs[1, 1] = False
        ways["`attention_mask` forbids a query every key"] = (1, slice(1, 2)), {"pairs": pairs}
    for way, (rows, masks) in ways.items():
        for policy in ("float32", "mixed_float16"):
            where = f"Where {way}, under {policy},"
            found = list(_at(subject, subject.copy(policy), where, rows, masks))
            yield from found
            if found:
                break  # the other policy would say the same


def _at(subject, layer, where, rows, masks):
    query, x = subject.query, subject.value
    output = subject.attend(layer, query, x, **masks)
    if not np.isfinite(output).all():
        yield f"{where} the output is not finite."
        return
    if subject.accepts("return_attention_scores"):
        with_scores, scores = subject.attend(layer, query, x, scores=True, **masks)
        found = scores[rows[0], :, rows[1]]
        if found.any():
            yield f"{where} scores of 0 were expected, but they reach {np.abs(found).max():.3g}."
        far = apart([with_scores], [output], 0.01)
        if far:
            yield f"{where} asking for scores changes the output: {far}."
    other = subject.attend(layer, query + 1, random(*x.shape, seed=9, scale=3), **masks)
    if not np.array_equal(output[rows], other[rows]):
        far = np.abs(output[rows] - other[rows]).max()
        yield (
            f"{where} zero attention was expected, but the output still depends on "
            f"queries and values: by {far:.3g} when they change."
        )
        return
    yield from _gradient(subject, layer, where, rows, masks)


def _gradient(subject, layer, where, rows, masks):
    arguments = subject.mask_arguments(subject.query, subject.value, **masks)

    def at_rows(query, value):
        return projection(subject.raw_call(layer, query, value, **arguments)[rows])

    def everywhere(query, value):
        return projection(subject.raw_call(layer, query, value, **arguments))

    inputs = subject.query, subject.value
    if not all(np.isfinite(x).all() for x in gradients(everywhere, inputs)):
        yield f"{where} the gradient is not finite."
        return
    found = gradients(at_rows, inputs)
    largest = max(float(np.abs(x).max()) for x in found if x is not None)
    if largest:
        yield f"{where} a zero gradient was expected, but it reaches {largest:.3g}."
