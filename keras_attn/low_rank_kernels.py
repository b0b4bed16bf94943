"""Low-rank updates of the kernels of a layer."""

import math

import keras
from keras import ops

from keras_attn.compat.layer_weights import remove_weight, unlocked
from keras_attn.initializers import MatrixInitializer
from keras_attn.part_names import name_weights
from keras_attn.quantized_kernels import QuantizedKernels


class LowRankKernels(QuantizedKernels):
    """Mixin of a layer whose weights `NAME_kernel` may each have a trainable update of low rank.

        W' = W + scale A B

    W has any number of input axes and output axes; A has its input axes and the rank, B the rank
    and its output axes. Where a weight holds `num_matrices` of them, such as those of experts, they
    are along the first axis of W, A and B, each with one axis of inputs and one of outputs.

    A file of weights holds W' in place of W, and no updates, as it does for Keras's `Dense`: it
    loads into a layer without updates. A layer defines `kernel_names()` and `kernel_axes(name)`.
    """

    num_matrices = None  # a weight is one
    # The scale of each update, by the name of its kernel.
    updates = {}

    @property
    def first_axis(self):
        """The number of axes before those of the inputs."""
        return int(self.num_matrices is not None)

    def summed_axes(self):
        start, names = self.first_axis, self.kernel_names()
        ends = {name: start + len(self.kernel_axes(name)[0]) for name in names}
        return {f"{name}_kernel": tuple(range(start, end)) for name, end in ends.items()}

    def quantize(self, mode=None, type_check=True, config=None):
        if self.updates:
            raise ValueError(
                "A layer with adapters is not quantized: call `layers.merge_lora(model)` before. "
                f"Received: adapters of {', '.join(self.updates)} in the layer {self.name!r}."
            )
        super().quantize(mode, type_check, config)

    def add_update(self, name, rank, scale):
        """Add an update to the kernel of a projection. It is 0 at first."""
        inputs, outputs = self.kernel_axes(name)
        rows, count = math.prod(inputs), self.num_matrices
        stacked = () if count is None else ((rows, count, rank), count, (1, 0, 2))
        uniform = MatrixInitializer("he_uniform", (rows, rank), *stacked)
        matrices = () if count is None else (count,)
        # Small updates would be rounded to 0 in half precision.
        dtype = keras.backend.result_type(self.variable_dtype, "float32")
        with unlocked(self):
            for part, shape, initializer in (
                ("a", (*matrices, *inputs, rank), uniform),
                ("b", (*matrices, rank, *outputs), "zeros"),
            ):
                part = f"{name}_lora_{part}"
                self.weight_axes = {**self.weight_axes, part: ()}
                setattr(self, part, self.add_weight(shape, initializer, dtype, name=part))
            self.updates = {**self.updates, name: scale}
        name_weights(self)

    def update_weights(self, name):
        """Return the weights A and B of an update."""
        return getattr(self, f"{name}_lora_a"), getattr(self, f"{name}_lora_b")

    def updated(self, name, kernel):
        """Return the kernel with its update."""
        a, b = self.update_weights(name)
        product = ops.tensordot(a, b, 1) if self.num_matrices is None else ops.matmul(a, b)
        return kernel + self.updates[name] * product

    def merge_update(self, name):
        """Add an update to the kernel, and remove it."""
        kernel = getattr(self, f"{name}_kernel")
        kernel.assign(self.updated(name, kernel))
        for part in ("a", "b"):
            remove_weight(self, f"{name}_lora_{part}")
        self.updates = {other: self.updates[other] for other in self.updates if other != name}

    def save_own_variables(self, store):
        for index, (weight, name) in enumerate(self._saved_weights()):
            store[f"{index}"] = weight if name is None else self.updated(name, weight)

    def load_own_variables(self, store):
        if not self.updates:
            super().load_own_variables(store)
            return
        weights = self._saved_weights()
        if len(weights) != len(store.keys()):
            raise ValueError(
                f"The file must have {len(weights)} weights of the layer {self.name!r}. "
                f"Received: {len(store.keys())}."
            )
        for index, (weight, _) in enumerate(weights):
            weight.assign(store[f"{index}"])
        for name in self.updates:
            _, b = self.update_weights(name)
            b.assign(ops.zeros_like(b))

    def _saved_weights(self):
        """Return pairs of a weight that is not part of an update, and the name of its update."""
        own = {}
        super().save_own_variables(own)
        parts = {id(part) for name in self.updates for part in self.update_weights(name)}
        names = {id(getattr(self, f"{name}_kernel")): name for name in self.updates}
        return [(w, names.get(id(w))) for w in own.values() if id(w) not in parts]
