"""Paths of a series that a forecaster draws token by token."""

import threading
import weakref

from keras import ops, tree

from keras_attn.backend.operations import is_symbolic, uniform
from keras_attn.generation.compilation import run_compiled
from keras_attn.generation.constrained import Forbidden
from keras_attn.generation.loop import DecodingOptions
from keras_attn.generation.sampling import Sample
from keras_attn.layers.lora import num_changes
from keras_attn.models import TokenForecaster
from keras_attn.ops.checks import check_sizes, check_that

_lock = threading.Lock()
# model -> {(number of paths, number of changes): its `_Paths`}
_paths_of = weakref.WeakKeyDictionary()


def sample_paths(
    model,
    values,
    horizon=None,
    num_samples=None,
    *,
    seed=None,
    noise=None,
    temperature=None,
    top_k=None,
    top_p=None,
):
    """Draw paths of the values after a series from a `TokenForecaster`.

        y_t ~ p(. | y_<t, x),   for t = 1 .. prediction_length;   then x = [x; median of the paths]

    Each value is the center of a bin. A path has exactly `horizon` values: the end token is never
    drawn. The encoder reads a series once for all of its paths. Works eagerly, where it is compiled
    as `generate` is, and inside a graph. Time O(horizon) steps of the decoder.

    Use it for forecasts whose uncertainty is in many possible futures.

    Args:
        model: a `keras_attn.models.TokenForecaster`.
        values: float (B, T), NaN where a value is missing. The last `context_length` are read.
        horizon: int. Number of values to draw; by default the model's `prediction_length`. After
            each `prediction_length` values, the median of their paths is read as if observed.
        num_samples: int. Number N of paths; by default the model's.
        seed: int. None gives different paths at every call.
        noise: float (B, N, horizon), uniform numbers in [0, 1) in place of a seed: each decides one
            token.
        temperature, top_k, top_p: as of `Sample`; by default the model's.

    Returns:
        Float32 (B, N, horizon).

    Raises:
        ValueError: if a size is below 1, `values` are no series, or the model is of another class.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.chronos_t5(num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, prediction_length=4)
        >>> paths = keras_attn.generation.sample_paths(model, np.ones((1, 9)), 6, 5, seed=1)
        >>> paths.shape
        TensorShape([1, 5, 6])

    Differs from the paper: none.

    Reference: [Ansari et al., 2024](https://arxiv.org/abs/2403.07815), section 3.3.
    """
    wanted = "a `keras_attn.models.TokenForecaster`"
    check_that(isinstance(model, TokenForecaster), wanted, model=model)
    horizon = model.prediction_length if horizon is None else horizon
    num_samples = model.num_samples if num_samples is None else num_samples
    check_sizes(horizon=horizon, num_samples=num_samples)
    values = ops.convert_to_tensor(values, "float32")
    is_series = len(values.shape) == 2 and values.shape[1] != 0
    check_that(is_series, "numbers of shape (batch, length)", values=values)
    strategy = Sample(
        model.temperature if temperature is None else temperature,
        model.top_k if top_k is None else top_k,
        model.top_p if top_p is None else top_p,
    )
    strategy = Forbidden(strategy, [model.bins.end_id])
    if noise is None:
        noise = uniform((ops.shape(values)[0], num_samples, horizon), seed)
    paths = _paths(model, num_samples)
    parts = []
    for first in range(0, horizon, model.prediction_length):
        if parts:
            # Of an even number the lower middle one, as in PyTorch.
            median = ops.sort(parts[-1], axis=1)[:, (num_samples - 1) // 2]
            values = ops.concatenate([values, median], axis=1)
        drawn = noise[:, :, first : first + model.prediction_length]
        parts.append(_draw(paths, values, drawn, strategy, model))
    return ops.concatenate(parts, axis=2)


def _draw(paths, values, noise, strategy, model):
    """Return paths (B, N, H) of at most `prediction_length` values, for noise (B, N, H)."""
    _, num_paths, length = noise.shape
    ids, scale = model.bins(values[:, -model.context_length :])
    ids = ops.repeat(ids, num_paths, axis=0)
    lengths = ops.full_like(ids[:, 0], ops.shape(ids)[1])
    noise = ops.reshape(ops.transpose(noise, (2, 0, 1)), (length, -1))
    if not is_symbolic(ids):
        ids, lengths = ops.convert_to_numpy(ids), ops.convert_to_numpy(lengths)
    options = DecodingOptions(
        length, model.first_id, (-1,), grows=False, capacity=length, noise=noise
    )
    tokens, _ = run_compiled(paths, ids, lengths, strategy, options)
    return model.bins.decode(ops.reshape(tokens, (-1, num_paths, length)), scale)


def _paths(model, num_paths):
    """Return the `_Paths` of a model, for which decoding is compiled once."""
    key = num_paths, num_changes(model)
    with _lock:
        known = _paths_of.setdefault(model, {})
        if key not in known:
            known[key] = _Paths(model, num_paths)
        return known[key]


class _Paths:
    """A forecaster whose rows are `num_paths` equal ones of each series, which is encoded once."""

    reads_prompt = False
    supports_padding = True

    def __init__(self, model, num_paths):
        self._model = weakref.proxy(model)  # whose key in a dict keeps this object
        self.num_paths = num_paths

    @property
    def weights(self):
        return self._model.weights

    @property
    def pad_id(self):
        return self._model.pad_id

    @property
    def max_length(self):
        return self._model.max_length

    @property
    def max_source_length(self):
        return self._model.max_source_length

    def start(self, ids, max_length, padding_mask=None, whole=True):
        # Ids of padding are missing values, wherever they are: `padding_mask` is of lengths alone.
        constants, _ = self._model.start(ids[:: self.num_paths], max_length)
        constants = tree.map_structure(lambda x: ops.repeat(x, self.num_paths, axis=0), constants)
        rows = ops.shape(ids)[0]
        return constants, self._model.decoder.initial_cache(rows, max_length, whole)

    def step(self, *args, **kwargs):
        return self._model.step(*args, **kwargs)
