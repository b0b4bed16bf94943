"""All checks of an attention layer."""

from keras_attn import patterns
from keras_attn.ops.checks import check_sizes
from keras_attn.testing.attention_subject import AttentionSubject
from keras_attn.testing.checks.attention_precision import large_logits, precision
from keras_attn.testing.checks.attention_scores import scores
from keras_attn.testing.checks.configuration import building, config
from keras_attn.testing.checks.exporting import export
from keras_attn.testing.checks.formula import formula
from keras_attn.testing.checks.gradients import gradients
from keras_attn.testing.checks.graphs import graph, unknown_sizes, xla
from keras_attn.testing.checks.laws import alignment, limits, no_leak
from keras_attn.testing.checks.mask_arguments import float_mask, mask_arguments
from keras_attn.testing.checks.padding import empty_rows, implicit_mask, padding
from keras_attn.testing.checks.repeating import batch_independence, repeatable
from keras_attn.testing.checks.saving import fresh_process, saving
from keras_attn.testing.running import check_is_layer, run_checks

CHECKS = (
    config,
    building,
    formula,
    limits,
    alignment,
    no_leak,
    padding,
    implicit_mask,
    empty_rows,
    scores,
    float_mask,
    mask_arguments,
    precision,
    large_logits,
    gradients,
    repeatable,
    batch_independence,
    graph,
    xla,
    unknown_sizes,
    saving,
    fresh_process,
    export,
)
SLOW = (fresh_process, export)


def check_attention(
    layer, *, pattern=None, hidden_dim=None, length=11, only=None, skip=(), slow=True
):
    """Runs the checks of an attention layer, anyone's, and reports each defect in a sentence.

        query (B, T, D), value (B, S, D) -> output (B, T, ...)

    The layer is called as `layer(query, value)`, and with those of `key`, `value_mask`,
    `attention_mask`, `use_causal_mask`, `return_attention_scores` and `training` that its `call`
    has. Checks run on copies made from its configuration; the layer itself is only built.

    - `config`, `building`: a copy by configuration is the same layer; `build` makes all weights.
    - `formula`: loops in numpy over the allowed pairs give the same numbers.
    - `limits`: one key gives its value, equal keys the mean.
    - `alignment`: with more keys than queries, the queries are the last positions.
    - `no_leak`: what a query may not meet does not change its output by a bit.
    - `padding`, `implicit_mask`: padded keys change nothing; Keras's mask is honoured, passed on.
    - `empty_rows`: nothing to attend gives zero attention, zero gradient, and nothing breaks.
    - `scores`: they are weights in float32, and asking for them changes no output by a bit.
    - `float_mask`, `mask_arguments`: additive masks are not misread, no mask is ignored.
    - `precision`, `large_logits`: mixed policies are close to float32 at positions 10, 1000, 4095.
    - `gradients`: finite, reach every weight, and are the slope.
    - `repeatable`, `batch_independence`: seeds decide; rows do not see each other.
    - `graph`, `xla`, `unknown_sizes`: compiled, the same numbers, at any size.
    - `saving`, `fresh_process`, `export`: files give the same numbers; the last two take seconds.

    Args:
        layer: a Keras layer.
        pattern: name or object of the pattern axis, whom a query may meet; by default the layer's
            own `pattern`, else "dense".
        hidden_dim: int. Width D of queries, keys and values; by default that of the built layer,
            else 12.
        length: int. Number of keys in the small checks: larger than the pattern's window.
        only: list of names of checks to run; by default all.
        skip: list of names of checks to leave out.
        slow: bool. Whether to run `fresh_process` and `export`.

    Returns:
        A `Report`: `ok`, `defects`, `raise_if_any()`; `str` of it is a list for reading.

    Raises:
        ValueError: if `layer` is not a Keras layer, `only` or `skip` name no check, or a size is
            too small.

    Example:
        >>> import keras_attn
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 4, pattern="causal")
        >>> keras_attn.testing.check_attention(layer, only=["no_leak", "alignment"]).ok
        True

    Reference: the formula: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.
    """
    check_is_layer(layer)
    check_sizes(least=6, length=length)
    if hidden_dim is None:
        hidden_dim = _width(layer) or 12
    check_sizes(hidden_dim=hidden_dim)
    if pattern is None:
        pattern = getattr(layer, "pattern", "dense")
    subject = AttentionSubject(layer, patterns.get(pattern), hidden_dim, length)
    return run_checks(subject, CHECKS, SLOW, only=only, skip=skip, slow=slow)


def _width(layer):
    """The last axis of the query that the layer was built with."""
    if not layer.built:
        return None
    shapes = layer.get_build_config() or {}
    shapes = shapes.get("shapes_dict", shapes)
    return next((shape[-1] for shape in shapes.values() if shape), None)
