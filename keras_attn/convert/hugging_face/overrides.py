"""Arguments of the user in place of those of a checkpoint's configuration."""

import inspect


def build(function, arguments, overrides):
    """Call a function that builds a model; refuse overrides that are no arguments of it."""
    names = inspect.signature(function).parameters
    if unknown := sorted(overrides.keys() - names):
        raise ValueError(
            f"`overrides` must be arguments of `{function.__name__}`: {', '.join(names)}. "
            f"Received: {unknown[0]}={overrides[unknown[0]]!r}."
        )
    return function(**{**arguments, **overrides})
