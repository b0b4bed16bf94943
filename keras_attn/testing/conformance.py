"""`check_attention` and `check_layer`: all checks of an attention layer, or of any layer.

A check is a function of a subject (`keras_attn.testing.subject`) that yields a sentence for each
defect. An exception that it raises is a defect too, except `NotApplicable`.
"""

import dataclasses
import re

import keras

from keras_attn import patterns
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.testing import invariants, masks, precision, serialization, series
from keras_attn.testing.formula import formula
from keras_attn.testing.numerics import random
from keras_attn.testing.subject import AttentionSubject, NotApplicable, Subject

SLOW = ("fresh_process", "export")


@dataclasses.dataclass(frozen=True)
class Defect:
    """One defect of a layer.

    Args:
        check: str. Name of the check that found it.
        sentence: str. The change or call that was made, the expected result and the actual one.

    Example:
        >>> from keras_attn.testing import Defect
        >>> print(Defect("no_leak", "Changing key 7 changed the output of query 3."))
        no_leak: Changing key 7 changed the output of query 3.
    """

    check: str
    sentence: str

    def __str__(self):
        return f"{self.check}: {self.sentence}"


@dataclasses.dataclass(frozen=True)
class Report:
    """The defects of a layer, and the checks that ran.

    `str(report)` is a readable list, with the reason for each check that was skipped.

    Args:
        layer: str. Name of the class of the layer.
        checked: tuple of str. Names of the checks that ran.
        defects: tuple of `Defect`.
        skipped: dict from the name of a check that did not run to the reason.

    Example:
        >>> from keras_attn.testing import Defect, Report
        >>> report = Report("Mine", ("graph",), (Defect("graph", "A graph gives other numbers."),))
        >>> report.ok
        False
        >>> print(report)
        Mine: 1 defect, found by 1 check
          graph: A graph gives other numbers.
    """

    layer: str
    checked: tuple
    defects: tuple
    skipped: dict = dataclasses.field(default_factory=dict)

    @property
    def ok(self):
        """True if there is no defect."""
        return not self.defects

    def raise_if_any(self):
        """Raise an `AssertionError` with the whole list if there is a defect."""
        if not self.ok:
            raise AssertionError(str(self))

    def __str__(self):
        summary = "no defect," if self.ok else f"{_count(self.defects, 'defect')}, found by"
        summary = f"{summary} {_count(self.checked, 'check')}"
        skipped = [f"{name}: not checked: {reason}" for name, reason in self.skipped.items()]
        return "\n  ".join([f"{self.layer}: {summary}", *map(str, self.defects), *skipped])


def _count(items, name):
    return f"{len(items)} {name}{'' if len(items) == 1 else 's'}"


def run_checks(subject, checks):
    """Run checks, a dict from name to function, on a subject and return a `Report`."""
    checked, defects, skipped, raised_in = [], [], {}, {}
    for name, check in checks.items():
        try:
            sentences = list(check(subject))
        except NotApplicable as reason:
            skipped[name] = str(reason)
            continue
        except Exception as error:
            text = _format_exception(error)
            first = raised_in.setdefault(text, name)
            same = f"The check raised the same exception as `{first}`."
            sentences = [f"The check raised an exception: {text}" if first == name else same]
        checked.append(name)
        defects.extend(Defect(name, sentence) for sentence in sentences)
    layer = type(subject.layer)
    name = f"{layer.__module__}.{layer.__qualname__}"
    return Report(name, tuple(checked), tuple(defects), skipped)


def _format_exception(error):
    # Keras colours its messages, begins with a whole configuration and appends all arguments.
    text = str(error).split("Arguments received by")[0].split("Exception encountered:")[-1]
    text = " ".join(re.sub(r"\x1b\[\d*m", "", text).split())
    return f"{type(error).__name__}: {text if len(text) <= 300 else text[:300] + '...'}"


def _by_name(*checks):
    return {check.__name__.removeprefix("attention_"): check for check in checks}


CONFIGURATION = serialization.config, serialization.building
REPETITION = invariants.repeatable, invariants.batch_independence
COMPILATION = invariants.graph, invariants.xla, invariants.unknown_sizes
FILES = serialization.saving, serialization.fresh_process, serialization.export
LAYER_CHECKS = _by_name(
    *CONFIGURATION,
    *REPETITION,
    masks.implicit_mask,
    precision.precision,
    precision.gradients,
    *COMPILATION,
    *FILES,
)
SERIES_CHECKS = _by_name(series.missing_values, series.padded_values)
ATTENTION_CHECKS = _by_name(
    *CONFIGURATION,
    formula,
    invariants.limits,
    invariants.alignment,
    invariants.no_leak,
    masks.padding,
    masks.attention_implicit_mask,
    masks.empty_rows,
    invariants.scores,
    masks.float_mask,
    masks.mask_arguments,
    precision.attention_precision,
    precision.large_logits,
    precision.gradients,
    *REPETITION,
    *COMPILATION,
    *FILES,
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


def check_series(layer, *shape, only=None, skip=()):
    """Check how any layer or model of series treats missing values, and report each defect.

        layer(values) -> output,   NaN where a value is missing

    Checks run on copies made from the layer's configuration; the layer itself is only built.

    - `missing_values`: outputs and gradients are finite, those by missing values are 0, and rows
      with missing values, or with nothing else, change no other row.
    - `padded_values`: values where Keras's mask is False change no output, and have gradient 0.

    Use it for layers and models of series with gaps, or of several lengths.

    Args:
        layer: a Keras layer, or a model.
        shape: of the values: (B, T, C) or (B, T), of three rows or more.
        only, skip: as in `check_attention`.

    Returns:
        A `Report`, as `check_attention`.

    Raises:
        ValueError: if `layer` is not a Keras layer, there are fewer than three rows, or a name is
            no check.

    Example:
        >>> import keras_attn
        >>> layer = keras_attn.layers.SeriesEmbedding(6, 4, scaler=keras_attn.layers.SeriesScaler())
        >>> keras_attn.testing.check_series(layer, 3, 11, 2).ok
        True

    Reference: masks in the contract of a Keras layer:
        https://keras.io/guides/understanding_masking_and_padding
    """
    checks = _chosen(layer, SERIES_CHECKS, only, skip, slow=True)
    is_shape = len(shape) in (2, 3) and all(isinstance(n, int) and n > 0 for n in shape)
    check_that(is_shape and shape[0] > 2, "the sizes of three rows or more", shape=shape)
    return run_checks(Subject(layer, [random(*shape)]), checks)


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
