"""Longformer (Beltagy et al., 2020)."""

from functools import partial

from keras_attn import layers, patterns
from keras_attn.models.papers.bert import bert
from keras_attn.ops.checks import check_sizes, check_that


def longformer(
    vocabulary_size,
    num_layers=12,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=3072,
    dropout=0.1,
    max_length=4096,
    window=512,
    num_global=1,
    num_segments=1,
    global_projections=False,
    epsilon=1e-5,
    pad_id=0,
    name="longformer",
):
    """Build Longformer, a `bert` whose tokens attend to a window and to the first tokens.

        x = LN(x + LocalAndGlobalAttention(x)),  x = LN(x + FFN(x))

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | local + global | learned | post | stack | - | masked LM |

    Cost: time O(L T D (w + g + F)) and memory O(L T (D + F)), for windows of w and g global tokens.

    Use it for classifying long documents, and for questions about them.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `bert`.
        dropout, max_length, num_segments, epsilon: as `bert`.
        window: int, or a list with one for each layer. Width w of a window, half of it on either
            side.
        num_global: int. Number g of first tokens that attend to all, and to which all attend: a
            token for the class, or a question.
        global_projections: bool. If True, global tokens find their keys by projections of their
            own, those of `layers.GlobalAttention`.
        pad_id: int. The id of padding; None for none.

    Returns:
        A `MaskedLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.longformer(100, num_layers=1, num_heads=2, hidden_dim=8,
        ...     window=4)
        >>> model.encoder.blocks[0].attention.pattern
        Either(Local(3, causal=False), Global(1))

    Differs from the paper: global tokens are the first ones, and by default have no projections of
        their own; windows have no gaps.

    Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 3.
    """
    windows = list(window) if isinstance(window, (list, tuple)) else [window] * num_layers
    check_that(len(windows) == num_layers, "a number, or one for each layer", window=window)
    check_sizes(**{f"window[{index}]": width for index, width in enumerate(windows)})
    check_sizes(0, num_global=num_global)
    attention = layers.MultiHeadAttention
    if global_projections:
        attention = partial(layers.GlobalAttention, num_global=num_global)

    def pattern(index):
        local = patterns.Local(windows[index] // 2 + 1, causal=False)
        return local | patterns.Global(num_global)

    return bert(
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        dropout,
        max_length=max_length,
        num_segments=num_segments,
        pattern=pattern,
        epsilon=epsilon,
        pad_id=pad_id,
        attention=attention,
        name=name,
    )
