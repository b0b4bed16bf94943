"""The linear layer of a checkpoint from which each projection of a converted model was copied.

The conversion itself finds it, so that no family lists its layers a second time. The conversion
runs four times on a checkpoint whose tensors hold codes in place of weights: the number 1, the
number of the tensor, the index of the row, the index of the column. A kernel was copied from one
layer if each of the four results is an outer product of a column and a row.
"""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_attn.convert.hugging_face.checkpoint import Checkpoint
from keras_attn.convert.hugging_face.conversion import family_of
from keras_attn.layers.adapted_projections import projections

_CODES = {
    "scale": lambda number, rows, columns: np.ones_like(rows),
    "number": lambda number, rows, columns: np.full_like(rows, number),
    "row": lambda number, rows, columns: rows,
    "column": lambda number, rows, columns: columns,
}


@dataclasses.dataclass(frozen=True)
class Source:
    """A linear layer of weight W, and its rows and columns in a kernel K (D, F) of a model.

        K[i, j] = scale[j] W[outputs[j], inputs[i]],   or W[inputs[i], outputs[j]]

    Attributes:
        name: of the layer in transformers.
        shape: (number of inputs, number of outputs) of the layer.
        is_transposed: bool. True if the rows of W are inputs, as those of a `Conv1D` are.
        inputs, outputs: int arrays.
        scale: float array.
    """

    name: str
    shape: tuple
    is_transposed: bool
    inputs: np.ndarray
    outputs: np.ndarray
    scale: np.ndarray


class CodedCheckpoint(Checkpoint):
    """A checkpoint that gives codes in place of values; numbers and indices count from 1.

    The values are read too: they decide whether tensors are tied.
    """

    def __init__(self, config, code, prefix):
        super().__init__(config, prefix=prefix)
        self.code = code
        self.prefix, self.stored_names = "", list(self._tensors)
        self.taken_shapes = {}

    def strip(self, prefix):
        super().strip(prefix)
        self.prefix = prefix

    def take(self, name, shape):
        shape = super().take(name, shape).shape
        self.taken_shapes[name] = shape
        grid = np.indices(shape, "float32") + 1 if shape else np.ones((1, 1), "float32")
        return self.code(len(self.taken_shapes), grid[0], grid[-1])


def kernel_sources(model, folder):
    """Return the `Source` of each projection of a model that was converted from `folder`, by path.

    A projection that is no copy of one linear layer is left out. Four models are made, one after
    another.
    """
    config, family = family_of(folder)
    factors, policy = {}, keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")  # bfloat16 would round the codes
    try:
        for kind, code in _CODES.items():
            checkpoint = CodedCheckpoint(config, code, family.prefix)
            coded = projections(family.convert(checkpoint, {}))
            known = {path: x for path, x in projections(model).items() if x.is_one}
            for path, projection in known.items():
                if path not in coded or coded[path].kernel.shape != projection.kernel.shape:
                    config.refuse(
                        "The model must be converted from the folder. Its projection "
                        f"{path!r} is another one."
                    )
                if (pair := _factors(coded[path])) is not None:
                    factors.setdefault(path, {})[kind] = pair
    finally:
        keras.config.set_dtype_policy(policy)
    whole = {path: parts for path, parts in factors.items() if len(parts) == len(_CODES)}
    sources = {path: _source(parts, checkpoint) for path, parts in whole.items()}
    return {path: source for path, source in sources.items() if source is not None}


def _factors(projection):
    """Return the first column and row of a kernel, or None if it is no outer product."""
    inputs, _ = projection.axes
    kernel = ops.convert_to_numpy(projection.kernel).reshape(np.prod(inputs), -1)
    column, row = kernel[:, 0], kernel[0]
    is_product = np.allclose(kernel * kernel[0, 0], np.outer(column, row), rtol=1e-5)
    return (column, row) if is_product and kernel[0, 0] else None


def _source(factors, checkpoint):
    """Return the `Source` that a kernel's factors encode, or None if they are no codes."""
    scales = factors.pop("scale")
    codes = [
        {kind: parts[axis] / scales[axis] for kind, parts in factors.items()} for axis in (0, 1)
    ]
    by_input, by_output = ({k: np.rint(x).astype(int) for k, x in part.items()} for part in codes)
    numbers = np.append(by_input["number"], by_output["number"])
    are_codes = all(np.allclose(x, np.rint(x), rtol=1e-5) for part in codes for x in part.values())
    is_transposed = bool(np.ptp(by_input["row"]) or np.ptp(by_output["column"]))
    inputs, outputs = ("row", "column") if is_transposed else ("column", "row")
    is_repeated = len(np.unique(by_input[inputs])) < len(by_input[inputs])
    if not are_codes or is_repeated or np.ptp(numbers) or np.ptp(scales[0]):
        return None
    name, shape = list(checkpoint.taken_shapes.items())[numbers[0] - 1]
    return Source(
        _module_name(name.removesuffix(".weight"), checkpoint),
        shape if is_transposed else shape[::-1],
        is_transposed,
        by_input[inputs] - 1,
        by_output[outputs] - 1,
        scales[1],
    )


def _module_name(name, checkpoint):
    """Return the name of a layer in the model of transformers, with its prefix if it has one.

    The model may have a head, and so the prefix, though its file was saved without both.
    """
    stored, full = checkpoint.stored_names, f"{checkpoint.prefix}{name}"
    architecture = (checkpoint.config.get("architectures") or [""])[0]
    is_bare = architecture.endswith("Model") and not architecture.endswith("HeadModel")
    has_prefix = any(tensor.startswith(checkpoint.prefix) for tensor in stored)
    return name if f"{full}.weight" not in stored and (has_prefix or is_bare) else full
