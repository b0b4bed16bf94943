"""Files of LoRA adapters."""

import zipfile

import numpy as np
from keras import ops

from keras_attn.layers.adapted_projections import projections
from keras_attn.layers.lora import adapters_of, check_adaptable, set_adapters
from keras_attn.ops.atomic_files import atomic_file
from keras_attn.ops.checks import check_paths, check_that
from keras_attn.ops.checksums import checksum, checksums_differ


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
    arrays = _read(path)
    names = [key.removesuffix(".a") for key in arrays if key.endswith(".a")]
    known, found = projections(model), {}
    for name in names:
        if name not in known:
            raise ValueError(
                "The adapters must belong to projections of the model: give layers the names that "
                f"they had. Received: path={str(path)!r} with an adapter of {name!r}."
            )
        found[name] = [arrays[f"{name}.{part}"] for part in ("a", "b", "scale")]
        kernel = np.array(checksum(known[name].kernel), "float32")
        if checksums_differ(arrays[f"{name}.kernel"], kernel):
            raise ValueError(
                "The adapters must be of the same weights as the model: load those that the model "
                f"had in training. Received: path={str(path)!r}, other weights at {name!r}."
            )
    set_adapters(model, found)
    return names


def _read(path):
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
