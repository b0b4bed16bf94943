"""Kernels that a layer stores as integers, each output with a scale of its own."""

import keras
from keras import ops

from keras_attn.compat.layer_weights import remove_weight
from keras_attn.part_states import quantized_parts

# The integers of each mode.
RANGES = {"int8": (-127, 127), "int4": (-8, 7)}


class QuantizedKernels:
    """Mixin of a layer whose kernels `quantize` stores as integers. Put it before Keras's class.

    `layers.quantize_kernels` has the formula. "int4" packs two integers into a byte. Kernels are
    restored in each call and do not train; inputs, biases and all other weights keep their dtype. A
    layer lists the attributes of its kernels, with the axes that a product sums over, in
    `summed_axes`.
    """

    quantization_mode = None  # Keras's is that of a dtype policy, which parts of the layer share
    quantization_config = None

    def summed_axes(self):
        """Return the axes of each kernel that a product with it sums over, by attribute."""
        raise NotImplementedError

    def quantize(self, mode=None, type_check=True, config=None):
        """Store the kernels as integers. `keras.Model.quantize` calls it.

        Args:
            mode: "int8" or "int4".
            type_check: ignored: subclasses of a layer are quantized as it is.
            config: a `keras.quantizers.QuantizationConfig`, whose quantizers are ignored.

        Raises:
            ValueError: if the layer is quantized or has adapters.
            NotImplementedError: if the mode is another one, as Keras expects it.
        """
        if mode not in RANGES:
            raise NotImplementedError(
                f"The kernels of {type(self).__name__} can be stored as int8 or int4. "
                f"Received: mode={mode!r}."
            )
        if self.quantization_mode is not None:
            raise ValueError(
                "A layer can be quantized once. "
                f"Received: the layer {self.name!r} in {self.quantization_mode}."
            )
        for name, axes in self.summed_axes().items():
            kernel = getattr(self, name)
            integers, scale = keras.quantizers.abs_max_quantize(
                kernel, axes, RANGES[mode], to_numpy=True
            )
            if mode == "int4":
                integers, _, _ = keras.quantizers.pack_int4(integers, axis=-1)
            remove_weight(self, name)
            self.weight_axes = {**self.weight_axes, f"{name}_scale": ()}
            for suffix, value, dtype in (("", integers, "int8"), ("_scale", scale, kernel.dtype)):
                weight = self.add_weight(
                    value.shape, "zeros", dtype, trainable=False, name=f"{name}{suffix}"
                )
                weight.assign(value)
                setattr(self, f"{name}{suffix}", weight)
        self.quantization_mode, self.quantization_config = mode, config

    def quantized_call(self, *args, **kwargs):
        """Call the layer, in place of what Keras calls for a layer that it quantized."""
        return self.call(*args, **kwargs)

    def restored(self, name):
        """Return a kernel of a quantized layer in floats, by its attribute."""
        integers, scale = getattr(self, name), ops.convert_to_tensor(getattr(self, f"{name}_scale"))
        if self.quantization_mode == "int4":
            integers = keras.quantizers.unpack_int4(integers, scale.shape[-1], axis=-1)
        return ops.divide(ops.cast(integers, scale.dtype), scale)


def check_not_quantized(model):
    """Raise a `ValueError` if a layer of the model is quantized."""
    parts = quantized_parts(model) if isinstance(model, keras.Model) else {}
    if parts:
        path, options = next(iter(parts.items()))
        raise ValueError(
            "`model` must have its weights in floats: do this before `model.quantize`. "
            f"Received: {len(parts)} quantized layers, as {path!r} in {options['mode']}."
        )
