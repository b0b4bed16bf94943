"""Properties that hold for any weights: of attention, and of repeated and compiled calls."""

import itertools

import numpy as np

from keras_attn.testing.numerics import compare, describe_shapes, equal, is_float, random
from keras_attn.testing.precision import check_scores_dtype, farthest_sum
from keras_attn.testing.subject import NotApplicable, get_state, set_state


def limits(subject):
    """One key gives its value; equal keys give the mean of the values."""
    subject.require_position_pattern()
    for name in ("sinks", "use_gate"):
        if getattr(subject.layer, name, False):
            raise NotApplicable(f"with `{name}` the weight of a single key depends on the query")
    layer = subject.copy()
    query, value = subject.query[:, :1], subject.value
    if not subject.pattern_mask(1, 1).all():
        raise NotApplicable("the pattern forbids the only key")
    alone = subject.attend(layer, query, value[:, :1])
    changed = subject.attend(layer, query + 3, value[:, :1])
    yield from compare("With one key, any query was expected to give its value", [changed], [alone])
    allowed = subject.pattern_mask(1, value.shape[1])
    if not subject.accepts("key") or not subject.ignores_positions() or allowed.shape[0] > 1:
        return
    key = np.broadcast_to(value[:, :1], value.shape)
    each = [
        subject.attend(layer, query, value[:, s : s + 1], key[:, :1])
        for s in np.flatnonzero(allowed[0, 0])
    ]
    actual, mean = subject.attend(layer, query, value, key), np.mean(each, axis=0)
    yield from compare("With equal keys, the mean of their values was expected", [actual], [mean])


def alignment(subject):
    """With more keys than queries, a causal layer treats the queries as the last positions."""
    subject.require_position_pattern()
    flags = subject.causal_flags()
    if not (subject.pattern.causal or True in flags):
        raise NotApplicable("the layer is not causal and takes no `use_causal_mask`")
    layer, x = subject.copy(), subject.value
    last = subject.query_length
    for causal in flags:
        whole = subject.attend(layer, x, x, causal=causal)[:, -last:]
        actual = subject.attend(layer, x[:, -last:], x, causal=causal)
        sentence = (
            "The causal mask is not aligned to the last key, which decoding with a cache needs: "
            f"alone against all {x.shape[1]} keys{_describe_flags(causal)}, the last {last} "
            "queries were expected to give the same output as among all queries"
        )
        yield from compare(sentence, [actual], [whole])


def no_leak(subject):
    """Masked keys and values do not change a query's output by a bit."""
    subject.require_position_pattern()
    x, other = subject.value, random(*subject.value.shape, seed=4, scale=3)
    length = x.shape[1]
    query = random(*x.shape, seed=6)
    forbidden = {
        causal: ~subject.pattern_mask(length, length, causal).any(axis=0)
        for causal in subject.causal_flags()
    }
    forbidden = {causal: pairs for causal, pairs in forbidden.items() if pairs.any()}
    if not forbidden:
        raise NotApplicable("every query may attend to every key")
    layers = {False: subject.copy(), True: subject.copy_with_dropout()}
    cases = itertools.product(forbidden.items(), layers.items(), subject.score_flags())
    for (causal, pairs), (training, layer), scores in cases:
        if layer is None:
            continue  # without dropout training is inference
        flags = {"causal": causal, "scores": scores, "training": training}
        keys = np.flatnonzero(pairs.any(axis=0))
        if scores or training:  # every key in the plain call, a few in the others
            keys = keys[:: max(1, len(keys) // 3)]
        leak = _first_leak(subject, layer, query, x, other, pairs, keys, flags)
        if leak:
            t, s = leak
            yield (
                f"Changing the value at position {s} changed the output of the query at {t}, "
                f"which may not attend to it{_describe_flags(**flags)}."
            )


def _first_leak(subject, layer, query, value, other, forbidden, keys, flags):
    """The first (query, key) whose forbidden key changes the output; None if none does."""
    seeds = get_state(layer)

    def attend(value):
        if flags["training"]:
            set_state(layer, seeds)  # so that dropout drops the same entries
        results = subject.attend(layer, query, value, **flags)
        return results[0] if flags["scores"] else results

    before = attend(value)
    for s in keys:
        changed = value.copy()
        changed[:, s] = other[:, s]
        differs = (attend(changed) != before).any(axis=(0, 2))
        if (differs & forbidden[:, s]).any():
            return int(np.flatnonzero(differs & forbidden[:, s])[0]), int(s)
    return None


def _describe_flags(causal=False, scores=False, training=False):
    causal = ", with `use_causal_mask=True`" if causal else ""
    scores = ", with `return_attention_scores=True`" if scores else ""
    return f"{causal}{scores}{', with dropout in training' if training else ''}"


def scores(subject):
    """Scores are weights (B, N, T, S) in float32; returning them changes no output by a bit."""
    subject.require_argument("return_attention_scores")
    layer, with_dropout = subject.copy(), subject.copy_with_dropout()
    query, x = subject.query, subject.value
    calls = {"": {}}
    if subject.accepts_key_mask():
        calls[", with padding"] = {"key_mask": subject.key_mask(x)}
    if subject.accepts("use_causal_mask"):
        calls[_describe_flags(causal=True)] = {"causal": True}
    if with_dropout is not None:
        calls[_describe_flags(training=True)] = {"training": True}
    for condition, call in calls.items():
        called = with_dropout if "training" in call else layer
        seeds = get_state(called)
        plain = subject.attend(called, query, x, **call)
        set_state(called, seeds)
        output, actual = subject.attend(called, query, x, scores=True, **call)
        if not np.array_equal(output, plain):
            yield (
                f"`return_attention_scores=True`{condition} changed the output, "
                f"by up to {np.abs(output - plain).max():.2g}; expected the same bits."
            )
        if "training" not in call:
            yield from _check_weights(subject, actual, condition)
    _, actual = subject.raw_call(layer, query, x, return_attention_scores=True)
    yield from check_scores_dtype(actual)
    actual = subject.predict(subject.model(layer, return_attention_scores=True), (query, x))
    expected = subject.attend(layer, query, x, key_mask=subject.key_mask(x), scores=True)
    sentence = "In a functional model, output and scores were expected as in a call"
    yield from compare(sentence, actual, expected)


def _check_weights(subject, actual, condition):
    query, x = subject.query, subject.value
    heads = subject.config.get("num_heads", actual.shape[1] if actual.ndim > 1 else 1)
    shape = (len(x), heads, query.shape[1], x.shape[1])
    if actual.shape != shape:
        yield (
            f"Scores of shape (B, N, T, S) = {shape} were expected{condition}, but the shape is "
            f"{actual.shape}."
        )
        return
    total, distance = farthest_sum(subject, actual)
    if distance > 1e-5:
        yield (
            f"Rows of scores were expected to sum to 1, or 0 if empty{condition}; one sums to "
            f"{total:.6g}."
        )
    if (actual < 0).any():
        yield f"Scores of 0 and more were expected{condition}, but one is {actual.min():.3g}."


def repeatable(subject):
    """Inference is deterministic; the state of the seeds determines training."""
    layer = subject.copy()
    first = subject.call(layer, *subject.inputs)
    if not equal(subject.call(layer, *subject.inputs), first):
        yield "Two calls with `training=False` on the same inputs gave different outputs."
    layer = subject.copy_with_dropout()
    if layer is None:
        return
    seeds = get_state(layer)
    first, second = (subject.call(layer, *subject.inputs, training=True) for _ in range(2))
    if equal(first, subject.call(layer, *subject.inputs)):
        yield "With `dropout=0.4`, `training=True` gave the output of `training=False`."
    if equal(first, second):
        yield "With `dropout=0.4`, two training steps dropped the same entries."
    set_state(layer, seeds)
    if not equal(subject.call(layer, *subject.inputs, training=True), first):
        yield "With `dropout=0.4` and the same state of the seeds, training gave another output."


def batch_independence(subject):
    """The output of a row does not depend on the other rows."""
    floats = [is_float(x) for x in subject.inputs]
    if not any(floats) or subject.inputs[0].shape[0] < 2:
        raise NotApplicable("there is no second row of vectors to change")
    layer = subject.copy()
    before = subject.call(layer, *subject.inputs)
    changed = [
        np.concatenate([x[:1], random(*x[1:].shape, seed=5, scale=3)]) if has_floats else x
        for x, has_floats in zip(subject.inputs, floats, strict=True)
    ]
    after = subject.call(layer, *changed)
    if not equal([x[:1] for x in after], [x[:1] for x in before]):
        yield "Changing the other rows of the batch changed the output of the first row."


def graph(subject):
    """A compiled graph gives the output of eager calls."""
    yield from _compare_with_eager(subject, "In a graph", subject.inputs)


def xla(subject):
    """A graph compiled with `jit_compile=True` gives the output of eager calls."""
    condition = "With `jit_compile=True`"
    yield from _compare_with_eager(subject, condition, subject.inputs, jit_compile=True)


def unknown_sizes(subject):
    """One graph of unknown batch and length accepts several sizes."""
    condition, sizes = "In a model of unknown batch and length", subject.inputs_of_two_sizes()
    yield from _compare_with_eager(subject, condition, *sizes)


def _compare_with_eager(subject, condition, *sizes, jit_compile=False):
    layer = subject.copy()
    model = subject.model(layer, jit_compile)
    for inputs in sizes:
        sentence = (
            f"{condition}, on inputs {describe_shapes(inputs)}, the output was expected to be that "
            "of eager calls"
        )
        actual = subject.predict(model, inputs)
        yield from compare(sentence, actual, subject.call_with_masks(layer, inputs))
