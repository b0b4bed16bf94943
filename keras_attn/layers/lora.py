"""LoRA: training small adapters of projections instead of all weights, and files of adapters."""

import weakref
import zipfile

import keras
import numpy as np
from keras import ops

from keras_attn.backend.replicas import model_scope
from keras_attn.compat.layer_variables import own_weights
from keras_attn.compat.torch_parameters import renew_parameters
from keras_attn.files import atomic_file
from keras_attn.layers.adapted_projections import adapted, matching, projections
from keras_attn.ops.checks import check_paths, check_positive, check_sizes, check_that
from keras_attn.quantized_kernels import check_not_quantized
from keras_attn.sublayers import all_sublayers

# Relative to a weight's norm: loading may change a weight's precision only.
WEIGHTS_DIFFER = 1e-2

# By model: how often adapters were added or merged.
_changes = weakref.WeakKeyDictionary()


def add_lora(model, rank, targets=("query", "value"), alpha=None):
    """Add LoRA adapters to projections of a built model, and freeze all its other weights.

        y = x (W + alpha / r  A B) + b

    A (D, r) is random and B (r, ...) zero, so outputs are equal to the bit at first. Only A and B
    train, and an optimizer keeps its state for them alone. They are float32 at least. A step takes
    the time of one without adapters: the product A B, in O(D r F), joins the kernel before x does.
    Each expert of a `MixtureOfExperts` has an A and a B of its own.

    Compile the model after this. `layers.save_lora` writes the adapters alone. A `.keras` file, and
    `save_weights`, hold the sums as kernels: they load as a model without adapters.

    Use it for fine-tuning a large model, or one model for many tasks.

    Args:
        model: a built `keras.Model` with layers of `keras_attn.layers` or dense layers of Keras.
        rank: int. Rank r of each adapter.
        targets: list of strings. The last names of projections: of attention and cross-attention
            "query", "key", "value", "gate" and "output", of feed-forward layers "intermediate",
            "gate" and "output"; or ends of their paths, in which `*` stands for any text:
            "attention/output", "feed_forward/*", "depth/blocks/0/*".
        alpha: float. Scale of the adapters; by default the rank.

    Returns:
        List of the paths of the adapted projections.

    Raises:
        ValueError: if the model is not built, `rank` is below 1, `alpha` is not above 0, a target
            names no projection, or a projection has an adapter or a constraint of its kernel.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.gpt(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> keras_attn.layers.add_lora(model, rank=2)
        ['depth/blocks/0/attention/query', 'depth/blocks/0/attention/value']
        >>> len(model.trainable_variables)
        4

    Differs from the paper: A is drawn uniformly, as in Keras; there is no dropout before it.

    Reference: [Hu et al., 2021](https://arxiv.org/abs/2106.09685), section 4.1, eq. 3.
    """
    check_adaptable(model)
    check_sizes(rank=rank)
    alpha = rank if alpha is None else alpha
    check_positive(alpha=alpha)
    targets = [targets] if isinstance(targets, str) else list(targets)
    check_that(targets, "names of projections", targets=targets)
    if not projections(model):
        check_not_quantized(model)
    chosen = matching(model, targets)
    add_adapters(model, {projection: (rank, alpha) for projection in chosen.values()})
    return list(chosen)


def merge_lora(model):
    """Add the adapters of a model to its kernels, and remove them.

        W <- W + alpha / r  A B

    The outputs stay equal to the rounding of the dtype, and the weights that were frozen train
    again. Compile the model after this. Exports need it. Cost: one product A B for each adapter.

    Use it for exports, and before new adapters are added.

    Args:
        model: a model with adapters of `layers.add_lora`.

    Returns:
        List of the paths of the projections that had adapters.

    Raises:
        ValueError: if the model has no adapters.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.gpt(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> paths = keras_attn.layers.add_lora(model, 2, targets=["feed_forward/*"])
        >>> keras_attn.layers.merge_lora(model) == paths
        True

    Reference: [Hu et al., 2021](https://arxiv.org/abs/2106.09685), section 4.1.
    """
    adapters = adapters_of(model)
    for projection in adapters.values():
        projection.merge()
    for layer in all_sublayers(model).values():
        for weight in own_weights(layer):
            if getattr(weight, "is_frozen_by_adapters", False):
                weight.is_frozen_by_adapters, weight.trainable = False, layer.trainable
    forget_functions(model)
    return list(adapters)


def save_lora(model, path):
    """Write the adapters of a model, and nothing else of it, to a file of NumPy arrays.

    The file has 4 r (D + F) bytes for each adapter from D inputs to F outputs, and a checksum of
    the kernel that it belongs to.

    Use it for keeping one large model and a small file for each task.

    Args:
        model: a model with adapters of `layers.add_lora`.
        path: str. The file, whose name ends with ".npz".

    Returns:
        The path.

    Raises:
        ValueError: if the model has no adapters, or the name does not end with ".npz".

    Example:
        >>> import keras_attn, tempfile
        >>> model = keras_attn.models.gpt(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> paths = keras_attn.layers.add_lora(model, 2)
        >>> file = keras_attn.layers.save_lora(model, tempfile.mkdtemp() + "/task.npz")
        >>> keras_attn.layers.load_lora(model, file) == paths
        True

    Reference: [Hu et al., 2021](https://arxiv.org/abs/2106.09685), section 4.2.
    """
    check_paths(path=path)
    check_that(str(path).endswith(".npz"), 'a name that ends with ".npz"', path=path)
    arrays = {}
    for name, projection in adapters_of(model).items():
        a, b = (ops.convert_to_numpy(part) for part in projection.parts)
        scale, kernel = np.float64(projection.scale), checksum(projection.kernel)
        arrays |= {f"{name}.a": a, f"{name}.b": b}
        arrays |= {f"{name}.scale": scale, f"{name}.kernel": np.array(kernel, "float32")}
    with atomic_file(path) as temporary:
        np.savez(temporary, **arrays)
    return path


def load_lora(model, path):
    """Read adapters that `layers.save_lora` wrote into the model they belong to.

    A model without adapters gets those of the file, as by `layers.add_lora`. A model that has the
    same adapters gets their values.

    Use it for switching a large model from task to task.

    Args:
        model: the model whose adapters were saved, with or without adapters.
        path: str. The file.

    Returns:
        List of the paths of the adapted projections.

    Raises:
        ValueError: if the file is damaged or holds no adapters, the model lacks a projection, has
            other kernels than the model that was saved, or has other adapters.

    Example:
        As `layers.save_lora`.

    Reference: [Hu et al., 2021](https://arxiv.org/abs/2106.09685), section 4.2.
    """
    check_adaptable(model)
    check_paths(path=path)
    arrays = _read_arrays(path)
    names = [key.removesuffix(".a") for key in arrays if key.endswith(".a")]
    known, adapters = projections(model), {}
    for name in names:
        if name not in known:
            raise ValueError(
                "The adapters must belong to projections of the model: give layers the names that "
                f"they had. Received: path={str(path)!r} with an adapter of {name!r}."
            )
        adapters[name] = [arrays[f"{name}.{part}"] for part in ("a", "b", "scale")]
        kernel = np.array(checksum(known[name].kernel), "float32")
        if checksums_differ(arrays[f"{name}.kernel"], kernel):
            raise ValueError(
                "The adapters must be of the same weights as the model: load those that the model "
                f"had in training. Received: path={str(path)!r}, other weights at {name!r}."
            )
    set_adapters(model, adapters)
    return names


def set_adapters(model, values):
    """Set the adapters of projections, a dict of (A, B, scale) by path; add those that are missing.

    A and B may be matrices, or have the axes of the kernel.
    """
    known = projections(model)
    others, new = [path for path in adapted(model) if path not in values], {}
    for path, (_, b, scale) in values.items():
        projection = known[path]
        rank = projection.rank_of(b)
        if projection.scale is None:
            new[projection] = rank, scale * rank
        elif projection.rank_of(projection.parts[1]) != rank or not np.isclose(
            projection.scale, scale
        ):
            others.append(path)
    if others:
        raise ValueError(
            "`model` must have no adapters but those to be loaded: call `merge_lora`, or build the "
            f"model again. Received: adapters at {', '.join(others[:3])}."
        )
    add_adapters(model, new)
    for path, (a, b, _) in values.items():
        for part, value in zip(known[path].parts, (a, b), strict=True):
            part.assign(np.reshape(value, part.shape))


def add_adapters(model, sizes):
    """Add an adapter of (rank, alpha) to each projection of a dict; freeze all other weights."""
    for projection in sizes:
        if projection.scale is not None:
            raise ValueError(
                "A projection must have one adapter: call `merge_lora` before adding others. "
                f"Received: an adapter at {projection.path!r}."
            )
        if projection.layer.kernel_constraint is not None:
            raise ValueError(
                "An adapter needs a kernel without a `kernel_constraint`, which it would break. "
                f"Received: {projection.layer.kernel_constraint} at {projection.path!r}."
            )
    if not model.trainable:
        model.trainable = True  # a frozen model would not train its adapters
    before = model.trainable_variables
    with model_scope(model):
        for projection, (rank, alpha) in sizes.items():
            projection.add(rank, alpha)
    parts = {id(part) for projection in adapted(model).values() for part in projection.parts}
    for weight in before:
        weight.is_frozen_by_adapters = id(weight) not in parts
    for weight in model.weights:
        weight.is_adapter = weight.trainable = id(weight) in parts
    forget_functions(model)


def check_adaptable(model):
    """Raise a `ValueError` unless `model` is a built model."""
    is_built = isinstance(model, keras.Model) and model.built
    check_that(is_built, "a built `keras.Model`", model=model)


def adapters_of(model):
    """Return the adapted projections of a model, by path; refuse one without."""
    check_adaptable(model)
    adapters = adapted(model)
    if not adapters:
        raise ValueError(
            "`model` must have adapters: add them by `layers.add_lora(model, rank)`. "
            f"Received: {model.name!r}, without adapters."
        )
    return adapters


def check_merged(model):
    """Raise a `ValueError` if the model has adapters that are not part of its kernels."""
    adapters = adapted(model) if isinstance(model, keras.Model) else {}
    if adapters:
        raise ValueError(
            "`model` must have no adapters: add them to its kernels by `layers.merge_lora(model)`. "
            f"Received: {len(adapters)} adapters, as at {next(iter(adapters))!r}."
        )


def num_changes(model):
    """Return how often adapters were added or merged: a compiled function is of one such number."""
    return _changes.get(model, 0)


def forget_functions(model):
    """Make a model compile its functions again, for the weights that it has now."""
    _changes[model] = num_changes(model) + 1
    model.train_function = model.test_function = model.predict_function = None
    renew_parameters(model)


def _read_arrays(path):
    """Return the arrays of a file by name."""
    try:
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
        names = [name.removesuffix(".a") for name in arrays if name.endswith(".a")]
        wanted = {f"{name}.{part}" for name in names for part in ("a", "b", "scale", "kernel")}
        if not wanted or wanted != arrays.keys():
            raise ValueError(f"arrays {', '.join(sorted(arrays)[:3])}")
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            "The file must hold adapters that `layers.save_lora` wrote, in full. "
            f"Received: path={str(path)!r} ({error})."
        ) from error
    return arrays


def checksum(values):
    """Return the dot product of an array with fixed numbers, and its norm."""
    numbers = ops.convert_to_numpy(ops.cast(values, "float32"))
    rows = numbers.reshape(-1, numbers.shape[-1] if numbers.ndim else 1)
    first, last = (np.cos(np.arange(size), dtype="float32") for size in rows.shape)
    return first @ (rows @ last), np.linalg.norm(rows)


def checksums_differ(saved, current):
    """Return a boolean for each pair of a saved and a current checksum, (..., 2): True if far."""
    return np.abs(saved - current)[..., 0] > WEIGHTS_DIFFER * saved[..., 1]
