"""The configuration says all, and building is done once."""

import inspect

from keras_attn.testing.numbers import equal

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def config(subject):
    """`from_config(get_config())` makes the same layer."""
    layer = subject.layer
    found = layer.get_config()
    for name, parameter in inspect.signature(type(layer).__init__).parameters.items():
        if name != "self" and parameter.kind in NAMED and name not in found:
            yield (
                f"`get_config()` leaves out the constructor's argument `{name}`, "
                "so that a copy or a file forgets it."
            )
    copy = type(layer).from_config(layer.get_config())
    again = copy.get_config()
    changed = sorted(key for key in found.keys() | again.keys() if found.get(key) != again.get(key))
    if changed:
        yield f"The copy made by `from_config` differs in {', '.join(map(repr, changed))}."
    subject.call(copy, *subject.inputs)
    expected, shapes = _shapes(layer), _shapes(copy)
    if shapes != expected:
        yield (
            "The copy made by `from_config` was expected to have weights of the same shapes, "
            f"{expected}, but has {shapes}."
        )
        return
    copy.set_weights(layer.get_weights())
    if not equal(subject.call(copy, *subject.inputs), subject.call(layer, *subject.inputs)):
        yield "The copy made by `from_config`, given the same weights, gives another output."


def building(subject):
    """All weights are made by `build`, once: what loading a file relies on."""
    called = subject.copy()
    expected = _shapes(called)
    subject.call(called, *subject.inputs)
    if _shapes(called) != expected:
        yield f"A second call changed the weights from {expected} to {_shapes(called)}."
    built = type(called).from_config(called.get_config())
    built.build_from_config(called.get_build_config())
    if _shapes(built) != expected:
        yield (
            "`build` without a call was expected to make weights of the shapes "
            f"{expected}, but made {_shapes(built)}."
        )


def _shapes(layer):
    return [tuple(weight.shape) for weight in layer.weights]
