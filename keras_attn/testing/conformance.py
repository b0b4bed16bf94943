"""`check_attention` and `check_layer`: all checks of an attention layer, or of any layer."""

import keras

from keras_attn import patterns
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.testing.checks import (
    execution,
    invariants,
    keras_masks,
    masks,
    precision,
    serialization,
)
from keras_attn.testing.checks.formula import formula
from keras_attn.testing.checks.gradients import gradients
from keras_attn.testing.numerics import random
from keras_attn.testing.report import run_checks
from keras_attn.testing.subject import AttentionSubject, Subject

SLOW = ("fresh_process", "export")


def _by_name(*checks):
    return {check.__name__.removeprefix("attention_"): check for check in checks}


CONFIGURATION = serialization.config, serialization.building
REPETITION = execution.repeatable, execution.batch_independence
COMPILATION = execution.graph, execution.xla, execution.unknown_sizes
FILES = serialization.saving, serialization.fresh_process, serialization.export
LAYER_CHECKS = _by_name(
    *(*CONFIGURATION, *REPETITION, keras_masks.implicit_mask, precision.precision),
    *(gradients, *COMPILATION, *FILES),
)
ATTENTION_CHECKS = _by_name(
    *(*CONFIGURATION, formula, invariants.limits, invariants.alignment, invariants.no_leak),
    *(masks.padding, keras_masks.attention_implicit_mask, masks.empty_rows, invariants.scores),
    *(masks.float_mask, masks.mask_arguments, precision.attention_precision),
    *(precision.large_logits, gradients, *REPETITION, *COMPILATION, *FILES),
)


def check_attention(
    layer, *, pattern=None, hidden_dim=None, length=11, only=None, skip=(), slow=True
):
    """Check any Keras attention layer and report each defect in a sentence.

        query (B, T, D), value (B, S, D) -> output (B, T, ...)

    The layer is called as `layer(query, value)`, with those of `key`, `value_mask`,
    `attention_mask`, `use_causal_mask`, `return_attention_scores` and `training` that its `call`
    accepts. Checks run on copies made from its configuration; the layer itself is only built.

    - `config`, `building`: a copy by configuration is the same layer; `build` makes all weights.
    - `formula`: the output equals numpy loops over the allowed pairs.
    - `limits`: one key gives its value, equal keys the mean.
    - `alignment`: with more keys than queries, the queries are the last positions.
    - `no_leak`: keys that a query may not attend to do not change its output by a bit.
    - `padding`, `implicit_mask`: padded keys change nothing; Keras's mask is used and passed on.
    - `empty_rows`: a query without keys gets zero attention and zero gradient, without NaN.
    - `scores`: they are weights in float32, and returning them changes no output by a bit.
    - `float_mask`, `mask_arguments`: additive masks are not misread, no mask is ignored.
    - `precision`, `large_logits`: mixed policies are close to float32 at positions 10, 1000, 4095.
    - `gradients`: finite, reach every weight, and equal finite differences.
    - `repeatable`, `batch_independence`: seeds fix the result; rows do not affect each other.
    - `graph`, `xla`, `unknown_sizes`: compiled, the same numbers, at any size.
    - `saving`, `fresh_process`, `export`: files give the same numbers; the last two take seconds.

    Use it for attention layers of your own or of another library, before you rely on them.

    Args:
        layer: a Keras layer.
        pattern: name or object of `keras_attn.patterns`: the keys that a query may attend to; by
            default the layer's own `pattern`, else "dense".
        hidden_dim: int. Width D of queries, keys and values; by default that of the built layer,
            else 12.
        length: int. Number of keys in the small checks: larger than the pattern's window.
        only: list of names of checks to run; by default all.
        skip: list of names of checks to leave out.
        slow: bool. Run `fresh_process` and `export` too.

    Returns:
        A `Report`: `ok`, `defects`, `raise_if_any()`; `str` of it is a readable list.

    Raises:
        ValueError: if `layer` is not a Keras layer, a name is no check, or a size is too small.

    Example:
        >>> import keras_attn
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 4, pattern="causal")
        >>> keras_attn.testing.check_attention(layer, only=["no_leak", "alignment"]).ok
        True

    Reference: the formula: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.
    """
    checks = _chosen(layer, ATTENTION_CHECKS, only, skip, slow)
    check_sizes(least=6, length=length)
    if hidden_dim is None:
        hidden_dim = _built_width(layer) or 12
    check_sizes(hidden_dim=hidden_dim)
    pattern = patterns.get(getattr(layer, "pattern", "dense") if pattern is None else pattern)
    return run_checks(AttentionSubject(layer, pattern, hidden_dim, length), checks)


def check_layer(layer, *inputs, only=None, skip=(), slow=True):
    """Check any Keras layer and report each defect in a sentence.

        layer(*inputs) -> output

    Checks run on copies made from the layer's configuration; the layer itself is only built.
    `check_attention` describes the checks `config`, `building`, `repeatable`,
    `batch_independence`, `gradients`, `graph`, `xla`, `unknown_sizes`, `saving`, `fresh_process`
    and `export`. Two differ here:

    - `implicit_mask`: Keras's mask is used, passed on, and causes no warning.
    - `precision`: mixed policies are close to float32, up to position 4095 of a sequence.

    Use it for every other layer, such as a norm, an embedding or a feed-forward network.

    Args:
        layer: a Keras layer.
        inputs: the layer's positional inputs: a shape, for one of random numbers, or an array,
            for one of ids. Two rows or more.
        only, skip, slow: as in `check_attention`.

    Returns:
        A `Report`, as `check_attention`.

    Raises:
        ValueError: if `layer` is not a Keras layer, `inputs` is empty, or a name is no check.

    Example:
        >>> import keras_attn
        >>> report = keras_attn.testing.check_layer(
        ...     keras_attn.layers.FeedForward(7), (2, 5, 6), only=["config", "gradients"])
        >>> report.ok
        True

    Reference: the contract of a Keras layer:
        https://keras.io/guides/making_new_layers_and_models_via_subclassing
    """
    checks = _chosen(layer, LAYER_CHECKS, only, skip, slow)
    check_that(inputs, "the shape, or an array, of each of the layer's inputs", inputs=inputs)
    is_shape = (tuple, list)
    arrays = [random(*x, seed=i) if isinstance(x, is_shape) else x for i, x in enumerate(inputs)]
    return run_checks(Subject(layer, arrays), checks)


def _chosen(layer, checks, only, skip, slow):
    """Return the checks to run; the slow ones only with `slow`, or if `only` names them."""
    check_that(
        isinstance(layer, keras.layers.Layer), "a Keras layer, an object, not a class", layer=layer
    )
    for argument, chosen in (("only", only or ()), ("skip", skip)):
        if isinstance(chosen, str) or not set(chosen) <= checks.keys():
            raise ValueError(
                f"`{argument}` must be a list of checks. Received: {argument}={chosen!r}. "
                f"Known checks: {', '.join(checks)}."
            )
    names = only or [name for name in checks if slow or name not in SLOW]
    return {name: checks[name] for name in checks if name in names and name not in skip}


def _built_width(layer):
    """Last axis of the query that the layer was built with; None if it is not built."""
    if not layer.built:
        return None
    shapes = layer.get_build_config() or {}
    shapes = shapes.get("shapes_dict", shapes)
    return next((shape[-1] for shape in shapes.values() if shape), None)
