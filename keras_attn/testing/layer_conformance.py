"""The checks of any layer."""

from keras_attn.testing.checks.configuration import building, config
from keras_attn.testing.checks.exporting import export
from keras_attn.testing.checks.gradients import gradients
from keras_attn.testing.checks.graphs import graph, unknown_sizes, xla
from keras_attn.testing.checks.keras_masks import implicit_mask
from keras_attn.testing.checks.precision import precision
from keras_attn.testing.checks.repeating import batch_independence, repeatable
from keras_attn.testing.checks.saving import fresh_process, saving
from keras_attn.testing.numbers import random
from keras_attn.testing.running import check_is_layer, run_checks
from keras_attn.testing.subject import Subject

CHECKS = (
    config,
    building,
    repeatable,
    batch_independence,
    implicit_mask,
    precision,
    gradients,
    graph,
    xla,
    unknown_sizes,
    saving,
    fresh_process,
    export,
)
SLOW = (fresh_process, export)


def check_layer(layer, *inputs, only=None, skip=(), slow=True):
    """Runs the checks that hold for any layer, and reports each defect in a sentence.

        layer(*inputs) -> output

    Checks run on copies made from the layer's configuration; the layer itself is only built.

    - `config`, `building`: a copy by configuration is the same layer; `build` makes all weights.
    - `repeatable`, `batch_independence`: seeds decide; rows do not see each other.
    - `implicit_mask`: Keras's mask is honoured, passed on, and not warned about.
    - `precision`: mixed policies are close to float32, up to position 4095 of a sequence.
    - `gradients`: finite, reach every weight, and are the slope.
    - `graph`, `xla`, `unknown_sizes`: compiled, the same numbers, at any size.
    - `saving`, `fresh_process`, `export`: files give the same numbers; the last two take seconds.

    Args:
        layer: a Keras layer.
        *inputs: the layer's positional inputs: a shape, for one of random numbers, or an array,
            for one of ids. Two rows or more.
        only: list of names of checks to run; by default all.
        skip: list of names of checks to leave out.
        slow: bool. Whether to run `fresh_process` and `export`.

    Returns:
        A `Report`: `ok`, `defects`, `raise_if_any()`; `str` of it is a list for reading.

    Raises:
        ValueError: if `layer` is not a Keras layer, there is no input, or `only` or `skip` name no
            check.

    Example:
        >>> import keras_attn
        >>> report = keras_attn.testing.check_layer(
        ...     keras_attn.layers.FeedForward(7), (2, 5, 6), only=["config", "gradients"])
        >>> report.ok
        True

    Reference: the contract of a Keras layer:
        https://keras.io/guides/making_new_layers_and_models_via_subclassing
    """
    check_is_layer(layer)
    if not inputs:
        raise ValueError(
            "`inputs` must be the shape, or an array, of each of the layer's inputs. "
            "Received: inputs=()."
        )
    inputs = tuple(
        random(*x, seed=place) if isinstance(x, (tuple, list)) else x
        for place, x in enumerate(inputs)
    )
    return run_checks(Subject(layer, inputs), CHECKS, SLOW, only=only, skip=skip, slow=slow)
