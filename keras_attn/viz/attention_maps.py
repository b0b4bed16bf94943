"""Attention scores of one text, by layer and step, with a name for each query and key."""

import fnmatch

import numpy as np
from keras import ops

from keras_attn.ops.checks import check_that


def maps_of(scores, layers=None, row=0):
    """Return the scores by title, "PATH" or "PATH, step n": (N, T, S), or of all rows (B, N, T, S).

    Args:
        scores: from `capture_attention`; or of one layer, an array (B, N, T, S), (N, T, S) or
            (T, S), or a list of arrays, one a step.
        layers: string. The end of the paths to take, in which `*` stands for any text; None for
            all.
        row: int. Row of the batch; None for all.
    """
    runs = runs_by_title(scores, layers, "scores")
    return {title: _of_row(numbers_of(run), row) for title, run in runs.items()}


def runs_by_title(captured, layers, name):
    """Return what was captured of each run of the chosen layers by title, as `maps_of` does.

    `name` is that of the argument `captured` in errors.
    """
    by_path = captured if isinstance(captured, dict) else {"": captured}
    if layers is not None:
        by_path = _chosen(by_path, layers, name)
    by_title = {}
    for path, runs in by_path.items():
        runs = runs if isinstance(runs, list) else [runs]
        for number, run in enumerate(runs):
            step = f"step {number + 1}" if len(runs) > 1 else ""
            by_title[", ".join(x for x in (path, step) if x)] = run
    if not by_title:
        context = {"scores": "capture_attention", "halting": "capture_halting"}[name]
        raise ValueError(
            f"`{name}` must hold at least one layer: call the model inside `{context}`. "
            f"Received: {name}={captured!r}."
        )
    return by_title


def _chosen(by_path, layers, name):
    """Return the entries whose paths end in `layers`, in which `*` stands for any text."""
    check_that(isinstance(layers, str), "None or the end of a path, a string", layers=layers)
    ends = layers, f"*/{layers}"
    chosen = [p for p in by_path if any(fnmatch.fnmatchcase(p, end) for end in ends)]
    known = ", ".join(by_path) or "nothing"
    check_that(chosen, f"the end of a path of `{name}`, which has {known}", layers=layers)
    return {path: by_path[path] for path in chosen}


def _of_row(array, row):
    """Return scores (N, T, S) of one row; with a row of None those of all, (B, N, T, S)."""
    if array.ndim not in (2, 3, 4):
        raise ValueError(
            "`scores` must be arrays (B, N, T, S), (N, T, S) or (T, S). "
            f"Received: scores of shape {array.shape}."
        )
    if array.ndim == 4 and row is not None:
        array = row_of(array, row)
    is_number = array.dtype.kind in "biuf" and array.size > 0
    # A softmax in half precision may exceed 1 in its last bits.
    if not is_number or not np.all((array >= 0) & (array <= 1.01)):
        raise ValueError(
            "`scores` must be weights in [0, 1], of at least one token. "
            f"Received: scores of {describe(array)}."
        )
    return array[None] if array.ndim == 2 else array


def numbers_of(tensor):
    """Return a tensor as an array; one in bfloat16, which NumPy does not know, in float32."""
    array = np.asarray(ops.convert_to_numpy(tensor))
    return array.astype("float32") if array.dtype.name == "bfloat16" else array


def describe(array):
    """Return the shape of an array and its range, for an error."""
    if array.dtype.kind not in "biuf" or not array.size:
        return f"shape {array.shape} and dtype {array.dtype}"
    count = np.isnan(array).sum()
    return f"shape {array.shape}, from {array.min()} to {array.max()}, {count} of them NaN"


def row_of(array, row):
    """Return one row of a batch."""
    is_row = _is_integer(row) and 0 <= row < len(array)
    check_that(is_row, f"a row of the batch, below {len(array)}", row=row)
    return array[row]


def check_tokens(maps, tokens, key_tokens=None):
    """Return the names of queries and keys as lists; refuse those of another length."""
    check_that(hasattr(tokens, "__iter__"), "a list of strings", tokens=tokens)
    tokens = [str(token) for token in tokens]
    key_tokens = tokens if key_tokens is None else [str(token) for token in key_tokens]
    for title, scores in maps.items():
        for name, names, length in (
            ("tokens", tokens, scores.shape[1]),
            ("key_tokens", key_tokens, scores.shape[2]),
        ):
            if len(names) != length:
                kind = "queries" if name == "tokens" else "keys"
                raise ValueError(
                    f"`{name}` must name each of the {length} {kind} of {title or 'the scores'}; "
                    "`layers` chooses the layers of one pair of texts. "
                    f"Received: {len(names)} {name}."
                )
    return tokens, key_tokens


def choose_head(scores, head):
    """Return (name, scores (T, S)) of the heads that `head` asks for, as a list."""
    if isinstance(head, str) and head == "mean":
        return [("mean", scores.mean(axis=0))]
    if head is None:
        return [(f"head {number}", weights) for number, weights in enumerate(scores)]
    is_head = _is_integer(head) and 0 <= head < len(scores)
    check_that(is_head, f'None, "mean" or a head, below {len(scores)}', head=head)
    return [(f"head {head}", scores[head])]


def _is_integer(number):
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)
