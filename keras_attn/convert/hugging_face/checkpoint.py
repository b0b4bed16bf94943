"""The tensors of a checkpoint to read, each used once, and those of a model to write."""

import fnmatch
import functools

import keras
import numpy as np

from keras_attn.compat.unallocated import assign
from keras_attn.convert.hugging_face.tensor_files import list_tensors
from keras_attn.convert.hugging_face.weights import numbers

# Constants that some versions of transformers store beside the weights; no model reads them.
_BUFFERS = (
    "*position_ids",
    "*token_type_ids",
    "*rotary_emb.inv_freq",
    "*.version",
)
# Beginnings that programs of training add to all names.
_NAME_PREFIXES = ("module.", "model.", "_orig_mod.")


class Checkpoint:
    """The configuration and the tensors of a folder.

    In the files of a model with a head, the names of the model without it have a prefix, such as
    `bert.`: `strip` removes it. TensorFlow's names gamma and beta become weight and bias.

    Args:
        config: the `Config` of a folder.
        tensors: dict as that of `list_tensors`, in place of the folder's.
        prefix: str. Beginning of the family's names, which is not taken for a wrapper's.
        ignore: patterns of names of tensors that the user leaves out.
    """

    def __init__(self, config, tensors=None, prefix="", ignore=()):
        self.config = config
        self.refuse = config.refuse
        self._tensors = {}
        tensors = unwrap(list_tensors(config.folder) if tensors is None else tensors, prefix)
        for name, tensor in tensors.items():
            self._add(name.replace(".gamma", ".weight").replace(".beta", ".bias"), tensor)
        self._taken, self._used = set(), set()  # names of those read, and of those derived from
        self._ignored = tuple(ignore)
        self.ignore(*_BUFFERS, *self._ignored)

    def _add(self, name, tensor):
        if name in self._tensors:
            self.refuse(f"The tensor {name!r} is there twice, under two names.")
        self._tensors[name] = tensor

    def strip(self, prefix):
        """Remove a prefix from all names that have it."""
        tensors, self._tensors = self._tensors, {}
        for name, tensor in tensors.items():
            self._add(name.removeprefix(prefix), tensor)

    def ignore(self, *patterns):
        """Leave out the tensors whose names match a pattern."""
        for pattern in patterns:
            for name in fnmatch.filter(self._tensors, pattern):
                del self._tensors[name]

    def drop_if_equal(self, name, original):
        """Leave out a tensor that equals the original; return True if there is none then.

        A tensor that differs stays, and is not tied, whatever `config.json` says.
        """
        if name not in self._tensors:
            return True
        shape, read = self._tensors[name]
        if self.shape(original) != shape or not np.array_equal(read(), self._read(original)):
            return False
        del self._tensors[name]
        return True

    def drop_copy(self, name, original):
        """Leave out a stored copy of a tensor; refuse one that differs."""
        if not self.drop_if_equal(name, original):
            self.refuse(
                f"The tensor {name!r} differs from {original!r}: untied weights of this family are "
                "not converted."
            )

    def is_constant(self, name, make):
        """Return True if a tensor is absent or equals `make(shape)` to rounding."""
        if name not in self._tensors:
            return True
        return np.allclose(self._read(name), make(self.shape(name)), rtol=0, atol=1e-6)

    def rename(self, name, new):
        """Read a tensor, if it is there, by another name, in place of one that has that name."""
        if name in self._tensors:
            self._tensors[new] = self._tensors.pop(name)

    def derive(self, name, originals, function=lambda value: value, shape=None):
        """Make a tensor of the values of others, which need not be taken then, but may be.

        Args:
            name: str. One of the originals may have it: the new tensor replaces it.
            originals: list of names of tensors, which must be there.
            function: of the values of the originals; by default a copy of one.
            shape: of the new tensor; None for that of the first original.
        """
        shapes = [self.shape(original) for original in originals]
        reads = [self._tensors[original][1] for original in originals]
        shape = shapes[0] if shape is None else tuple(shape)
        self._tensors[name] = shape, lambda: function(*(read() for read in reads))
        self._used.update({*originals} - {name})

    def has(self, name):
        """Return True if the folder has a tensor."""
        return name in self._tensors

    def shape(self, name):
        """Return the shape of a tensor, which must be there."""
        if name not in self._tensors:
            self.refuse(f"The weights lack the tensor {name!r}.")
        return self._tensors[name][0]

    def repeat_positions(self, name, trained, overrides, first=0):
        """Repeat a table of `trained` positions up to the `max_length` of the overrides.

        A longer model then starts its training from trained vectors at every position. The rows
        before row `first` belong to no position and are not repeated.
        """
        shape, length = self.shape(name), overrides.get("max_length", trained)
        if length == trained or shape[0] != first + trained:  # `take` refuses the wrong shape
            return

        def repeat(table):
            return np.concatenate([table[:first], np.resize(table[first:], (length, shape[1]))])

        self.derive(name, [name], repeat, (first + length, shape[1]))

    def take(self, name, shape):
        """Read a tensor as a float32 array, once, and check its shape."""
        if name in self._taken:
            raise RuntimeError(f"The tensor {name!r} is taken twice.")
        if self.shape(name) != tuple(shape):
            self.refuse(
                f"The tensor {name!r} has the shape {self.shape(name)}, where config.json "
                f"asks for {tuple(shape)}."
            )
        self._taken.add(name)
        value = self._read(name)
        if not is_finite(value):
            self.refuse(f"The tensor {name!r} holds numbers that are not finite.")
        return value

    def transfer(self, name, fold):
        """Assign a tensor to the variables of a `Fold`."""
        fold.assign(self.take(name, fold.shape))

    def transfer_each(self, names, kernels):
        """Assign tensors (out, in), one for each kernel of a variable (E, in, out)."""
        value = np.empty(kernels.shape, np.float32)
        for kernel, name in zip(value, names, strict=True):
            kernel[:] = self.take(name, kernel.shape[::-1]).T
        assign(kernels, value)

    def transfer_zero(self, variable):
        """Set a variable to 0 for which the family has no tensor; `StoredModel` refuses others."""
        assign(variable, np.zeros(variable.shape))

    def transfer_constant(self, name, shape, make=np.zeros):
        """Leave out a tensor for which the model has no variable; `StoredModel` stores it."""
        self.ignore(name)

    def transfer_copy(self, name, fold):
        """Leave out a copy of a tensor that is read by another name; `StoredModel` stores it."""
        self.ignore(name)

    def _read(self, name):
        return self._tensors[name][1]()

    def finish(self):
        """Refuse a folder with tensors that nothing has taken, but for those to be ignored."""
        self.ignore(*self._ignored)  # by names without a prefix, too
        if left := sorted(self._tensors.keys() - self._taken - self._used):
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            self.refuse(
                f"The weights hold the tensor {left[0]!r}{more}, which the model has no place for: "
                "`ignore=` leaves out tensors by patterns of their names."
            )


def unwrap(tensors, prefix):
    """Remove the beginnings that programs of training add to all names.

    Args:
        tensors: dict by names.
        prefix: str. Beginning of the family's names. It is removed only before another one, as of
            `model.model.layers.0`.
    """
    for wrapper in _NAME_PREFIXES:
        inner = {name.removeprefix(wrapper): tensor for name, tensor in tensors.items()}
        is_wrapped = tensors and all(name.startswith(wrapper) for name in tensors)
        if is_wrapped and (
            not prefix.startswith(wrapper) or any(name.startswith(prefix) for name in inner)
        ):
            return unwrap(inner, prefix)
    return tensors


class StoredModel:
    """Tensors to write, taken from a model by the methods that `Checkpoint` has for reading.

    Args:
        config: the `Config` of the family that the model is of.
        prefix: str. Beginning of the names of all tensors but those of heads.
        heads: tuple of beginnings of the names of heads.

    Attributes:
        tensors: dict of names and `(shape, read)`; `read()` gives a float32 array.
    """

    def __init__(self, config, prefix="", heads=()):
        self.config = config
        self.tensors = {}
        self._prefix, self._heads = prefix, tuple(heads)

    def transfer(self, name, fold):
        """Store the variables of a `Fold` as a tensor; refuse quantized ones."""
        _check_floats(name, getattr(fold, "variables", ()))
        self._add(name, fold.shape, fold.tensor)

    def has(self, name):
        """Return False: there is no folder to be read, so names that have a choice are free."""
        return False

    def transfer_each(self, names, kernels):
        """Store each kernel of a variable (E, in, out) as a tensor (out, in)."""
        _check_floats(names[0], [kernels])
        for index, name in enumerate(names):
            read = functools.partial(_transposed, kernels, index)
            self._add(name, kernels.shape[:0:-1], read)

    def transfer_zero(self, variable):
        """Refuse a variable other than 0 for which checkpoints of the family have no tensor."""
        if np.any(numbers(variable)):
            raise ValueError(
                f"The weight {variable.path!r} must be 0: checkpoints of "
                f"{self.config.get('model_type')} have no such weight. "
                f"Received: a largest number of {np.abs(numbers(variable)).max():.3g}."
            )

    def transfer_constant(self, name, shape, make=np.zeros):
        """Store zeros, or what `make(shape)` gives, where the model has no variable."""
        self._add(name, shape, lambda: np.asarray(make(shape), np.float32))

    def transfer_copy(self, name, fold):
        """Store the variables of a `Fold` by one more name."""
        self.transfer(name, fold)

    def _full_name(self, name):
        return name if name.startswith(self._heads) else self._prefix + name

    def _add(self, name, shape, read):
        name = self._full_name(name)
        if name in self.tensors:
            raise RuntimeError(f"The tensor {name!r} is stored twice.")
        self.tensors[name] = tuple(shape), lambda: _finite(name, read())


def _check_floats(name, variables):
    dtypes = [variable.dtype for variable in variables]
    if not all(map(keras.backend.is_float_dtype, dtypes)):
        raise ValueError(
            "The weights must be floats: write the model before it is quantized. "
            f"Received: the tensor {name!r} of {', '.join(map(str, dtypes))}."
        )


def _transposed(kernels, index):
    return np.transpose(keras.ops.convert_to_numpy(kernels.value[index])).astype("float32")


def _finite(name, tensor):
    if not is_finite(tensor):
        raise ValueError(
            "The weights must be finite numbers, which the model's are not. "
            f"Received: the tensor {name!r}."
        )
    return tensor


def is_finite(tensor):
    """Return True if all numbers are finite.

    A finite sum proves it. Only where the sum is not finite, as by an overflow, is each tested.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(tensor.sum()) or np.isfinite(tensor).all())
