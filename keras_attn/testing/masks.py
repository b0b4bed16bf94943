"""Padding, queries without keys, masks given by name, and Keras's implicit mask."""

import warnings

import keras
import numpy as np
from keras import ops

from keras_attn.attention.inputs import keras_mask
from keras_attn.compat.keras_masks import set_keras_mask
from keras_attn.testing.numerics import (
    compare,
    compute_gradients,
    describe_difference,
    equal,
    is_float,
    random,
    to_arrays,
)
from keras_attn.testing.precision import weighted_sum
from keras_attn.testing.subject import NotApplicable


def padding(subject):
    """Neither the values of padded keys nor their number affect the output."""
    layer, query, x = subject.copy(), subject.query, subject.value
    mask = subject.key_mask(x)
    noise = random(*x.shape, seed=8, scale=20)
    changed = np.where(mask[..., None], x, noise)
    for scores in subject.score_flags():
        before, after = (
            subject.attend(layer, query, value, key_mask=mask, scores=scores)
            for value in (x, changed)
        )
        if not equal([after[0] if scores else after], [before[0] if scores else before]):
            condition = " with `return_attention_scores=True`" if scores else ""
            yield f"Changing the values at padded keys changed the output{condition}."
    if subject.pattern.is_of_positions:
        longer = np.concatenate([x, noise[:, :3]], axis=1)
        mask = np.concatenate([np.ones(x.shape[:2], bool), np.zeros((len(x), 3), bool)], axis=1)
        try:
            output = subject.attend(layer, longer, longer, key_mask=mask)[:, : x.shape[1]]
        except ValueError:
            return  # the layer refuses sequences of that length
        sentence = "Appending 3 padded positions was expected to keep the output before them"
        yield from compare(sentence, [output], [subject.attend(layer, x, x)])


def empty_rows(subject):
    """A query without keys gets zero attention and zero gradient, and nothing becomes NaN."""
    query, x = subject.query, subject.value
    key_mask = np.ones(x.shape[:2], bool)
    key_mask[0] = False
    cases = {"If every key of a row is padding": ((0, slice(None)), {"key_mask": key_mask})}
    if subject.accepts("attention_mask"):
        pair_mask = np.ones((len(x), query.shape[1], x.shape[1]), bool)
        pair_mask[1, 1] = False
        case = (1, slice(1, 2)), {"pair_mask": pair_mask}
        cases["If `attention_mask` forbids a query every key"] = case
    for condition, (rows, masks) in cases.items():
        for policy in ("float32", "mixed_float16"):
            described = f"{condition}, under {policy},"
            actual = list(_empty_row_defects(subject, subject.copy(policy), described, rows, masks))
            yield from actual
            if actual:
                break  # the other policy would repeat them


def _empty_row_defects(subject, layer, condition, rows, masks):
    """Defects at `rows`, a pair (batch index, queries) that `masks` leave without keys."""
    query, x = subject.query, subject.value
    output = subject.attend(layer, query, x, **masks)
    if not np.isfinite(output).all():
        yield f"{condition} the output is not finite."
        return
    if subject.accepts("return_attention_scores"):
        with_scores, scores = subject.attend(layer, query, x, scores=True, **masks)
        actual = scores[rows[0], :, rows[1]]
        if actual.any():
            largest = np.abs(actual).max()
            yield f"{condition} scores of 0 were expected, but they reach {largest:.3g}."
        sentence = f"{condition} returning the scores was expected to keep the output"
        yield from compare(sentence, [with_scores], [output], 0.01)
    other = subject.attend(layer, query + 1, random(*x.shape, seed=9, scale=3), **masks)
    if not np.array_equal(output[rows], other[rows]):
        change = np.abs(output[rows] - other[rows]).max()
        yield (
            f"{condition} zero attention was expected, but changing queries and values changes "
            f"the output by {change:.3g}."
        )
        return
    arguments = subject.mask_arguments(query, x, **masks)

    def gradients_of_output(index):
        def scalar(query, value):
            return weighted_sum(subject.raw_call(layer, query, value, **arguments)[index])

        return compute_gradients(scalar, (query, x))

    if not all(np.isfinite(gradient).all() for gradient in gradients_of_output(...)):
        yield f"{condition} the gradient is not finite."
        return
    actual = [gradient for gradient in gradients_of_output(rows) if gradient is not None]
    largest = max(float(np.abs(gradient).max()) for gradient in actual)
    if largest:
        yield f"{condition} a zero gradient was expected, but it reaches {largest:.3g}."


def float_mask(subject):
    """An additive mask (0 = attend, -1e9 = do not) is refused, or acts as the boolean one."""
    subject.require_argument("attention_mask")
    layer, query, x = subject.copy(), subject.query, subject.value
    pairs = random_pair_mask(query, x)
    additive = ops.convert_to_tensor(np.where(pairs, 0.0, -1e9).astype("float32"))
    try:
        actual = to_arrays(subject.raw_call(layer, query, x, attention_mask=additive))
    except (ValueError, TypeError):
        return  # refused, as it should be
    difference = describe_difference(actual, [subject.attend(layer, query, x, pair_mask=pairs)])
    if difference:
        inverted = equal(actual, [subject.attend(layer, query, x, pair_mask=~pairs)])
        yield (
            "An additive `attention_mask` (0.0 = attend, -1e9 = do not) was expected to be refused "
            f"or to act as the boolean one, but {difference}"
            f"{': it acts inverted' if inverted else ''}, and no error reports it."
        )


def mask_arguments(subject):
    """Every mask argument has an effect, and every documented shape acts alike."""
    layer, query, x = subject.copy(), subject.query, subject.value
    pairs = random_pair_mask(query, x)
    query_mask, key_mask = (np.ones(tensor.shape[:2], bool) for tensor in (query, x))
    # The queries are at the last positions, where a pattern lets them attend to themselves.
    query_mask[:, 0] = key_mask[:, -query.shape[1] :] = False
    masks = {
        "attention_mask": pairs,
        "value_mask": key_mask,
        "key_mask": key_mask,
        "query_mask": query_mask,
    }
    plain, plain_mask = _call(subject, layer)
    for name, mask in masks.items():
        if not subject.accepts(name):
            continue
        actual, found_mask = _call(subject, layer, **{name: mask})
        if equal(actual, plain) and (found_mask is None) == (plain_mask is None):
            yield (
                f"`{name}` was given with entries that are False, but changed neither the output "
                "nor its Keras mask: it is ignored."
            )
    if not subject.accepts("attention_mask"):
        return
    heads = subject.config.get("num_heads", 1)
    by_head = np.broadcast_to(pairs[:, None], (len(x), heads, *pairs.shape[1:]))
    for shape, mask, equivalent in (
        ("(T, S)", pairs[0], np.broadcast_to(pairs[:1], pairs.shape)),
        ("(B, N, T, S)", by_head, pairs),
    ):
        actual, expected = (_call(subject, layer, attention_mask=m)[0] for m in (mask, equivalent))
        sentence = f"An `attention_mask` {shape} was expected to act as the same one (B, T, S)"
        yield from compare(sentence, actual, expected)


def _call(subject, layer, **masks):
    """Call the layer; the results are a list of arrays and the output's Keras mask."""
    masks = {name: ops.convert_to_tensor(mask) for name, mask in masks.items()}
    result = subject.raw_call(layer, subject.query, subject.value, **masks)
    return to_arrays(result), keras_mask(result)


def random_pair_mask(query, x):
    """Mask (B, T, S) that allows about half of all pairs, and at least one key a query."""
    pairs = np.random.default_rng(10).random((*query.shape[:2], x.shape[1])) < 0.5
    pairs[:, :, -query.shape[1] :] |= np.eye(query.shape[1], dtype=bool)
    return pairs


def implicit_mask(subject):
    """The mask of the inputs is used and passed on, and causes no warning."""
    masked = [index for index, x in enumerate(subject.inputs) if is_float(x) and x.ndim == 3]
    if masked[:1] != [0]:
        raise NotApplicable("the first input is not a sequence of vectors")
    masks = [_padding_mask(x) if i in masked else None for i, x in enumerate(subject.inputs)]
    layer = subject.copy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = _call_with_masks(subject, layer, subject.inputs, masks)
    messages = [str(warning.message) for warning in caught if "mask" in str(warning.message)]
    if messages:
        yield f"A call with Keras masks caused an unnecessary warning: {messages[0]}"
    passed_on = keras_mask(results[0])
    if passed_on is None:
        yield "The Keras mask of the first input was not passed on with the output."
    elif not np.array_equal(ops.convert_to_numpy(passed_on), masks[0]):
        yield "The output's Keras mask was expected to be that of the first input, but differs."
    outputs = to_arrays(results)
    if outputs[0].shape[:2] != masks[0].shape:
        return

    def with_noise(x, mask):
        return np.where(mask[..., None], x, random(*x.shape, seed=7, scale=5))

    changed = _map_masked(with_noise, subject.inputs, masks)
    after = to_arrays(_call_with_masks(subject, layer, changed, masks))
    if not equal([after[0][masks[0]]], [outputs[0][masks[0]]]):
        yield "Changing the inputs at masked positions changed the output at unmasked positions."
    yield from _compare_with_masking(subject, layer, masks)


def attention_implicit_mask(subject):
    """Keras's mask is used, passed on, and equivalent to the same mask given by name."""
    yield from implicit_mask(subject)
    layer, query, x = subject.copy(), subject.query, subject.value
    mask = subject.key_mask(x)
    expected = [subject.attend(layer, query, x, key_mask=mask)]
    actual = to_arrays(_call_with_masks(subject, layer, (query, x), (None, mask)))
    sentence = "The Keras mask of `value` was expected to act as the same mask given by name"
    yield from compare(sentence, actual, expected)


def _compare_with_masking(subject, layer, masks):
    """Compare a graph with `keras.layers.Masking` to an eager call with the same masks."""
    inputs = [keras.Input((None, *x.shape[2:]), dtype=str(x.dtype)) for x in subject.inputs]
    masked = _map_masked(lambda x, mask: keras.layers.Masking()(x), inputs, masks)
    model = keras.Model(inputs, layer(*masked))
    model.compile(jit_compile=False)
    arrays = _map_masked(lambda x, mask: np.where(mask[..., None], x, 0), subject.inputs, masks)
    expected = to_arrays(_call_with_masks(subject, layer, arrays, masks))
    actual = to_arrays(model.predict_on_batch(arrays))
    sentence = "After `Masking` in a model, the output was expected to be that of an eager call"
    yield from compare(sentence, [actual[0][masks[0]]], [expected[0][masks[0]]])


def _padding_mask(x):
    """Mask whose first row ends with padding."""
    mask = np.ones(x.shape[:2], bool)
    mask[0, -(x.shape[1] // 3) :] = False
    return mask


def _call_with_masks(subject, layer, inputs, masks):
    """Call the layer on inputs with Keras masks; the results are a flat list of tensors."""
    tensors = [ops.convert_to_tensor(x) for x in inputs]
    tensors = _map_masked(_attach_mask, tensors, masks)
    return keras.tree.flatten(subject.raw_call(layer, *tensors))


def _map_masked(function, inputs, masks):
    """Apply `function(x, mask)` to each input that has a mask."""
    pairs = zip(inputs, masks, strict=True)
    return [x if mask is None else function(x, mask) for x, mask in pairs]


def _attach_mask(x, mask):
    set_keras_mask(x, ops.convert_to_tensor(mask))
    return x
