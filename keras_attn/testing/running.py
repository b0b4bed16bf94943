"""Running a list of checks.

A check is a function of a subject that yields a sentence for each defect; its name is the
function's. What it raises is a defect too, but for `NotApplicable`.
"""

import re

import keras

from keras_attn.testing.defect import Defect
from keras_attn.testing.report import Report


class NotApplicable(Exception):
    """Raised by a check with the reason why it has nothing to say about a layer."""


def check_is_layer(layer):
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(f"`layer` must be a Keras layer. Received: layer={layer!r}.")


def run_checks(subject, checks, slow_checks, *, only, skip, slow):
    """The `Report` of a subject."""
    names = [check.__name__ for check in checks]
    for argument, chosen in (("only", only or ()), ("skip", skip)):
        unknown = [chosen] if isinstance(chosen, str) else sorted(set(chosen) - set(names))
        if unknown:
            raise ValueError(
                f"`{argument}` must be a list of checks. Received: {argument}={chosen!r}. "
                f"Known checks: {', '.join(names)}."
            )
    chosen = [
        check
        for check in checks
        if (check.__name__ in only if only else slow or check not in slow_checks)
        and check.__name__ not in skip
    ]
    checked, defects, skipped = [], [], {}
    for check in chosen:
        name = check.__name__
        try:
            found = list(check(subject))
        except NotApplicable as reason:
            skipped[name] = str(reason)
            continue
        except Exception as error:
            found = [f"It could not be finished: {in_a_line(error)}"]
        checked.append(name)
        defects.extend(Defect(name, sentence) for sentence in found)
    return Report(_name(subject.layer), tuple(checked), tuple(defects), skipped)


def in_a_line(error):
    """An exception as a short line."""
    # Keras colours its messages, and goes on with all arguments of the call.
    text = str(error).split("Arguments received by")[0]
    text = " ".join(re.sub(r"\x1b\[\d*m", "", text).split())
    return f"{type(error).__name__}: {text if len(text) <= 300 else text[:300] + '...'}"


def _name(layer):
    return f"{type(layer).__module__}.{type(layer).__qualname__}"
