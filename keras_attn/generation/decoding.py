"""Generation of token sequences with a model and a decoding strategy."""

import contextlib
import warnings
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_attn import registry
from keras_attn.backend.operations import is_symbolic, require
from keras_attn.generation.beam import Beam
from keras_attn.generation.compilation import run_compiled
from keras_attn.generation.loop import DecodingOptions, Strategy
from keras_attn.generation.sampling import Greedy, Sample
from keras_attn.generation.tokens import end_tokens, vocabulary_size
from keras_attn.ops.checks import check_ids, check_sizes, check_that
from keras_attn.ops.ids import narrow

STRATEGIES = {"greedy": Greedy, "sample": Sample, "beam": Beam}


def generate(
    model,
    inputs,
    strategy="greedy",
    max_length=64,
    *,
    lengths=None,
    bos_id=2,
    eos_id=3,
    jit_compile=False,
):
    """Generate a target for each source, or the continuation of each prompt.

        y_t = choose(p(. | y_<t, input)),   until eos_id or max_length tokens

    The loop is one graph with caches, and equals the loop without caches. Inside a `tf.function` or
    a `jax.jit` it becomes part of that function, and all numbers are constants. Called eagerly it
    is compiled once for each model and kind of strategy, and freed with the model: `max_length`,
    `bos_id`, `eos_id`, seeds, temperatures, probabilities and penalties are inputs. On JAX, and
    with `jit_compile`, also once for each batch size and each bucket of prompt and maximum lengths:
    6, 8, 12, 16, 24, 32, 48, ... Torch does not compile it. Time O(max_length) steps of the model.

    A strategy of your own is compiled again for other numbers, and traced by each call on JAX,
    unless its class names in `dynamic` the attributes that may be tensors.

    Use it for every model that predicts tokens; exports hold the same loop.

    Args:
        model: an `EncoderDecoder`, given sources, or a `CausalLanguageModel`, given prompts. Any
            model with their `start`, `step`, `reads_prompt`, `max_length` and `max_source_length`
            works; its `pad_id` is 0 by default. Rows are padded to a bucket only if the model and
            its layers are ours, or Keras's that read each token alone, or if its attribute
            `supports_padding` is True: then `start` must honour `padding_mask`. Another is compiled
            for each length of rows.
        inputs: int (B, S), padded on any side, or rows of different lengths: a list of lists or a
            `tf.RaggedTensor`, which are padded. Each row has at least one token. Without `lengths`
            padding is moved behind the tokens of its row. Prompts come from
            `tokenizer.encode(text, end=False)`: a model continues after an end token as in a new
            text, which is a warning.
        strategy: `"greedy"`, `"sample"`, `"beam"`, or an object, such as a `Beam`.
        max_length: int. Most tokens to generate, `eos_id` included.
        lengths: int (B,). Number of tokens of each row; ids after these are ignored. By default a
            row ends before the model's `pad_id`; if the model has none, all ids are tokens.
        bos_id: int. The token before the first target token. For prompts, the token that begins
            texts, which may be an end token too.
        eos_id: int, or a list or array of several. The token that ends a sequence; -1 for never.
        jit_compile: bool. Compile with XLA on TensorFlow: the fastest in process. An XLA graph
            cannot be exported. Inside a `tf.function(jit_compile=True)` of your own it is
            required, since without it the caches grow; there each shape is compiled again.

    Returns:
        ids int32 (B, max_length), without `bos_id`, with its end token, then the model's `pad_id`,
        or end tokens if there is none; and scores float32 (B,), the log-probability under the
        strategy's normalisation. A row for which a strategy such as `NoRepeat` forbids every token
        ends there, with score -inf; a beam search drops such a hypothesis and keeps the others; if
        none is left, the row is padding.

    Raises:
        ValueError: if `max_length` < 1, `inputs` are not ids (B, S) of the model's vocabulary,
            both together are more than the model has positions for, `bos_id` or `eos_id` is not in
            the vocabulary, or the strategy is unknown; in an eager call also for a row without a
            token and `lengths` that are not in [1, S].
        InvalidArgumentError: for such a row or such `lengths` in a graph of TensorFlow, and on the
            CPU for an id outside the vocabulary. XLA and ONNX drop these checks: lengths are
            clipped to [1, S], a row of padding is one token of padding, and of an id outside the
            vocabulary XLA reads the first or the last row of the table.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.gpt(20, 1, 2, 8, 16, max_length=8)
        >>> ids, scores = keras_attn.generation.generate(model, np.array([[5, 6, 7]]), "greedy", 4)
        >>> ids.shape
        TensorShape([1, 4])

    Differs from the paper: see the strategies.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1.
    """
    request = read_request(model, inputs, strategy, max_length, lengths, bos_id, eos_id)
    return run_compiled(*request, jit_compile)


class Request(NamedTuple):
    """Checked arguments of `generate`, as compiled functions take them."""

    model: object
    ids: object  # int32 (B, S)
    lengths: object  # int32 (B,), or None
    strategy: Strategy
    options: DecodingOptions


def read_request(model, inputs, strategy, max_length, lengths, bos_id, eos_id):
    """Return the `Request` of the arguments of `generate`; refuse those that do not fit."""
    strategy = get_strategy(strategy)
    check_sizes(max_length=max_length)
    strategy.check_length(max_length)
    check_sizes(least=0, bos_id=bos_id)
    eos_ids = end_tokens(eos_id)
    check_model(model)
    num_tokens = vocabulary_size(model)
    if num_tokens is not None:
        wanted = f"a token of the model's {num_tokens}"
        for token in eos_ids:
            check_that(token < num_tokens, f"{wanted}, or -1 for never", eos_id=token)
        check_that(model.reads_prompt or bos_id < num_tokens, wanted, bos_id=bos_id)
    name = "token_ids" if model.reads_prompt else "source_ids"
    if isinstance(inputs, dict):
        if name not in inputs:
            raise ValueError(
                f"`inputs` of this model must have `{name}`. Received: {sorted(inputs)}."
            )
        inputs = inputs[name]
    ids, lengths = _read_rows(model, inputs, lengths)
    _check_positions(model, ids.shape[1], max_length)
    if model.reads_prompt:
        _warn_of_ended_prompts(ids, lengths, {*eos_ids} - {bos_id})
    options = DecodingOptions(max_length, bos_id, eos_ids, grows=False, capacity=max_length)
    return Request(model, ids, lengths, strategy, options)


def get_strategy(identifier):
    """Return the decoding strategy for a name, a config or an object."""
    return registry.resolve(identifier, STRATEGIES, "strategy", base=Strategy)


def _read_rows(model, inputs, lengths):
    """Return int32 ids (B, S) with padding behind the tokens of each row, and lengths (B,).

    Where they have values they are checked arrays. In a graph they are tensors, and the lengths are
    None if the rows end before padding, or not at all.
    """
    pad_id = getattr(model, "pad_id", 0)
    rows = "of one length" if pad_id is None else f"padded with {pad_id}"
    wanted = (
        f"`inputs` must be integer token ids of shape (batch, length), rows {rows}, or lists of "
        "different lengths from 1 on; `encode` of a tokenizer turns text into ids."
    )
    ids, own_lengths = _pad_ragged(inputs, pad_id or 0, wanted)
    if own_lengths is not None:
        check_that(lengths is None, "None for rows of different lengths", lengths=lengths)
        # Padding has its own meaning in each row, so that a row is read alike beside any others.
        lengths = own_lengths if pad_id is None else None
    shape, dtype = tuple(ids.shape), getattr(ids.dtype, "name", str(ids.dtype))
    if len(shape) != 2 or "int" not in dtype or shape[1] == 0:
        raise ValueError(f"{wanted} Received: shape={shape}, dtype={dtype}.")
    has_values = not (is_symbolic(ids) or is_symbolic(lengths))
    ids = narrow(ops.convert_to_numpy(ids) if has_values else ids)
    ids = ids.astype("int32") if has_values else ops.cast(ids, "int32")
    count = getattr(getattr(model, "embedding", None), "vocabulary_size", None)
    if count is not None and shape[0]:
        check_ids(ids, "inputs", count)
    if lengths is not None:
        return ids, _row_lengths(lengths, ids, has_values)
    message = (
        f"{wanted} Received: a row of nothing but the padding {pad_id}. Rows that contain this id "
        "as a token need `lengths`."
    )
    if has_values:
        is_token = np.ones_like(ids, "bool") if pad_id is None else ids != pad_id
        lengths = is_token.sum(axis=1, dtype="int32")
        if not lengths.all():
            raise ValueError(message)
        order = np.argsort(~is_token, axis=1, kind="stable")
        return np.take_along_axis(ids, order, axis=1), lengths
    if pad_id is None:
        return ids, None
    is_padding = ops.equal(ids, pad_id)
    has_tokens = ops.logical_not(ops.any(ops.all(is_padding, axis=1)))
    ids = require(has_tokens, message, ids)
    return ops.take_along_axis(ids, ops.argsort(is_padding, axis=1), axis=1), None  # stable


def _pad_ragged(inputs, pad_id, wanted):
    """Return ids as an array or tensor; and lengths of ragged rows, or None for others.

    Ragged are rows of a `tf.RaggedTensor`, and lists of different lengths.
    """
    if hasattr(inputs, "row_lengths"):
        if is_symbolic(inputs):
            return inputs.to_tensor(pad_id), inputs.row_lengths()
        inputs = inputs.to_list()
    elif ops.is_tensor(inputs):
        return inputs, None
    else:
        with contextlib.suppress(ValueError):  # of rows of different lengths
            return np.asarray(inputs), None
    rows = [np.asarray(row) for row in inputs]
    if any(row.ndim != 1 or "int" not in row.dtype.name for row in rows):  # no token is float
        raise ValueError(f"{wanted} Received: inputs={inputs!r}.")
    lengths = np.array([len(row) for row in rows], "int32")
    ids = np.full((len(rows), max(lengths, default=0)), pad_id, "int64")
    ids[np.arange(ids.shape[1]) < np.expand_dims(lengths, 1)] = np.concatenate(rows)
    return ids, lengths


def _row_lengths(lengths, ids, has_values):
    """Return lengths (B,) in [1, S]; refuse any that are none of the rows (B, S)."""
    shape = ids.shape
    lengths = narrow(lengths if ops.is_tensor(lengths) else np.asarray(lengths))
    wanted = "integers, one for each row of `inputs`"
    is_one_each = len(lengths.shape) == 1 and lengths.shape[0] in (None, shape[0])
    is_integer = "int" in getattr(lengths.dtype, "name", str(lengths.dtype))
    check_that(is_integer and (is_one_each or shape[0] is None), wanted, lengths=lengths)
    if has_values:
        lengths = ops.convert_to_numpy(lengths).astype("int32")
        fits = not len(lengths) or (1 <= lengths.min() and lengths.max() <= shape[1])
        check_that(fits, f"from 1 to {shape[1]}, the length of `inputs`", lengths=lengths)
        return lengths
    lengths = ops.cast(lengths, "int32")
    clipped = ops.clip(lengths, 1, ops.shape(ids)[1])
    message = "`lengths` must be from 1 to the length of `inputs`."
    return require(ops.all(ops.equal(lengths, clipped)), message, clipped)


def _warn_of_ended_prompts(ids, lengths, ends):
    """Warn of prompts whose last token is one of `ends`: a model begins a new text after it."""
    if is_symbolic(ids) or is_symbolic(lengths):
        return
    last = np.take_along_axis(ids, np.expand_dims(lengths, 1) - 1, axis=1)[:, 0]
    # The only token of a prompt begins it.
    has_ended = np.isin(last, [*ends]) & (lengths > 1)
    if has_ended.any():
        warnings.warn(
            "A prompt ends with an end token, after which the model begins a new text. Encode "
            "prompts with `end=False`; if the token also begins texts, it must be `bos_id`. "
            f"Received: a prompt that ends with {last[has_ended][0]}.",
            stacklevel=4,
        )


def check_model(model):
    """Raise a `ValueError` if the model lacks an attribute that generation reads."""
    names = ("start", "step", "reads_prompt", "max_length", "max_source_length")
    # A class knows its properties without computing them.
    missing = [name for name in names if not (hasattr(type(model), name) or hasattr(model, name))]
    if missing:
        raise ValueError(
            "`model` must be an `EncoderDecoder` or a `CausalLanguageModel`, or have their "
            f"{', '.join(f'`{name}`' for name in names)}. Received: {type(model).__name__} "
            f"without {', '.join(missing)}."
        )


def _check_positions(model, length, max_length):
    """Raise if the model has too few positions; the last generated token needs none."""
    positions, source_positions = model.max_length, model.max_source_length
    read = (length or 1) if model.reads_prompt else 1
    if positions is not None and read + max_length - 1 > positions:
        what = "`inputs` and `max_length`" if model.reads_prompt else "`max_length`"
        raise ValueError(
            f"{what} must fit the {positions} positions of the model, one for each "
            f"token but the last. Received: inputs of {length} tokens, max_length={max_length}."
        )
    if source_positions is not None and (length or 0) > source_positions:
        raise ValueError(
            f"`inputs` must fit the {source_positions} positions of the model for a source. "
            f"Received: inputs of {length} tokens."
        )
