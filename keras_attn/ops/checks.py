"""Checks of arguments; each raises a `ValueError` that names the argument."""

import numbers
import os

from keras_attn.hints import did_you_mean

# Keras is imported by the checks of tensors alone: files of a corpus are written without it.


def check_that(condition, wanted, **argument):
    """Refuse the one argument, which must be `wanted`, unless a condition on it holds."""
    if not condition:
        ((name, value),) = argument.items()
        raise ValueError(f"`{name}` must be {wanted}. Received: {name}={value!r}.")


def check_sizes(least=1, **sizes):
    """Check that each value is an integer of at least `least`."""
    for name, size in sizes.items():
        is_integer = isinstance(size, numbers.Integral) and not isinstance(size, bool)
        check_that(is_integer and size >= least, f"an integer of at least {least}", **{name: size})


def check_pad_id(pad_id, vocabulary_size):
    """Check that the id of padding is an id of the vocabulary, or None for none."""
    if pad_id is not None:
        check_sizes(least=0, pad_id=pad_id)
        check_that(pad_id < vocabulary_size, f"below {vocabulary_size}", pad_id=pad_id)


def check_numbers(least=None, **values):
    """Check that each value is a number, of at least `least` if given."""
    wanted = "a number" if least is None else f"a number of at least {least}"
    for name, value in values.items():
        is_number = _is_number(value)
        check_that(is_number and (least is None or value >= least), wanted, **{name: value})


def check_seeds(**seeds):
    """Check that each value is an integer of 64 bits, a seed of Keras, a tensor, or None."""
    import keras

    for name, seed in seeds.items():
        is_integer = isinstance(seed, numbers.Integral) and not isinstance(seed, bool)
        is_number = is_integer and -(2**63) <= seed < 2**63
        is_of_keras = isinstance(seed, keras.random.SeedGenerator) or keras.ops.is_tensor(seed)
        wanted = "an integer of 64 bits, or None"
        check_that(seed is None or is_number or is_of_keras, wanted, **{name: seed})


def check_positive(**values):
    """Check that each value is a number above 0."""
    for name, value in values.items():
        is_positive = _is_number(value) and value > 0
        check_that(is_positive, "a number above 0", **{name: value})


def _is_number(value):
    """Return True for a number: not for NaN, nor for True and False, which may be of a flag."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and value == value


def check_choice(choices, **values):
    """Check that each value is one of the `choices`."""
    for name, value in values.items():
        if value not in choices:
            wanted = f"one of {', '.join(map(repr, choices))}.{did_you_mean(value, choices)}"
            raise ValueError(f"`{name}` must be {wanted} Received: {name}={value!r}.")


def check_rates(**rates):
    """Check that each dropout rate is in [0, 1)."""
    for name, rate in rates.items():
        check_that(isinstance(rate, numbers.Real) and 0 <= rate < 1, "in [0, 1)", **{name: rate})


def check_paths(**paths):
    """Check that each value is a path of the file system."""
    for name, path in paths.items():
        check_that(isinstance(path, (str, os.PathLike)), "a path, a string", **{name: path})
        is_local = "://" not in str(path)
        check_that(is_local, "a path of the file system: mount a bucket", **{name: path})


def check_given(**shapes):
    """Check that a call was given all tensors: each value is the shape of one, or None for none."""
    for name, shape in shapes.items():
        check_that(shape is not None, "a tensor of shape (batch, length, width)", **{name: shape})


def check_shape(x, name, *expected, broadcast=False):
    """Check that `x` has one of the `expected` shapes, in all axes whose size is known.

    None in an expected shape allows any size. With `broadcast`, `x` may have size 1 in any axis.
    """
    shape = tuple(x.shape)
    anything = (None, 1) if broadcast else (None,)
    for sizes in expected:
        if len(shape) == len(sizes) and all(
            wanted is None or size == wanted or size in anything
            for size, wanted in zip(shape, sizes, strict=True)
        ):
            return
    wanted, remedy = " or ".join(map(str, expected)), ""
    if {len(sizes) for sizes in expected} == {3}:
        remedy = _remedy_for_rank(name, len(shape))
    raise ValueError(f"`{name}` must have shape {wanted}.{remedy} Received: shape={shape}.")


def _remedy_for_rank(name, rank):
    """Return a sentence on how a tensor of another rank gets three axes."""
    if rank > 3:
        fold = f"keras.ops.reshape({name}, (-1, *{name}.shape[-2:]))"
        return f" Fold the other axes into the batch by `{fold}`."
    if rank == 2:
        return " Embed token ids first; give a single sequence a batch axis."
    return ""


def check_integers(x, name):
    """Check that `x` has an integer dtype."""
    import keras

    dtype = keras.backend.standardize_dtype(x.dtype)
    if "int" not in dtype:
        raise ValueError(f"`{name}` must be integers. Received: dtype={dtype}.")


def check_ids(ids, name, count):
    """Check that ids are in [0, count), where they have values: not in graphs, nor under tracing.

    TensorFlow's own error does not name the input; a GPU gives none, nor does a negative id.
    """
    import numpy as np
    from keras import ops

    from keras_attn.backend.operations import is_symbolic

    if is_symbolic(ids):
        return
    library = np if isinstance(ids, np.ndarray) else ops
    is_outside = library.any(library.logical_or(ids < 0, ids >= count))
    # JAX computes with constants under tracing, and has no value of the result.
    if not is_symbolic(is_outside) and is_outside:
        least, most = int(library.min(ids)), int(library.max(ids))
        raise ValueError(
            f"`{name}` must be ids of the vocabulary, in [0, {count}). Use the tokenizer that the "
            f"model was made for. Received: {name} from {least} to {most}."
        )


def check_positions(positions, name, batch, length):
    """Return positions as a tensor; check that its shape is (T,) or (B, T)."""
    from keras import ops

    positions = ops.convert_to_tensor(positions)
    check_shape(positions, name, (length,), (batch, length))
    return positions


def check_mask(mask, name, *shapes, broadcast=True):
    """Return a mask as bool; check that it is boolean or integer, and its shape as `check_shape`.

    Additive float masks are refused.
    """
    import keras

    mask = keras.ops.convert_to_tensor(mask)
    if "float" in keras.backend.standardize_dtype(mask.dtype):
        # Keras has cast the mask to the layer's dtype, so the caller's is not known here.
        raise ValueError(
            f"`{name}` must be boolean, True where attention is allowed. Convert an additive mask "
            f"by `{name} = additive_mask > -1`. Received: {name} of floating-point numbers."
        )
    check_shape(mask, name, *shapes, broadcast=broadcast)
    return keras.ops.cast(mask, "bool")
