"""Quantization of the kernels that `keras.Model.quantize` does not reach."""

import keras

from keras_attn.compat.quantization_filters import passes_filters
from keras_attn.layers.lora import check_merged, forget_functions
from keras_attn.ops.checks import check_choice, check_that
from keras_attn.part_names import name_weights
from keras_attn.quantized_kernels import RANGES, QuantizedKernels
from keras_attn.sublayers import all_sublayers


def quantize_kernels(model, mode, filters=None):
    """Store the kernels of attention and experts in a model as "int8" or "int4".

        W' = q / s,   q = round(s W),   s = c / max |W|

    with one s for each output, and c = 127 or 7. The stored kernels take a quarter or an eighth of
    their float32 memory. Each call restores them in floats, so it is no faster. `keras.Model`'s own
    `quantize` reaches layers without others inside alone, so not attention with a position or a
    norm, nor experts. The `quantize` of models of this package calls this function; for a model of
    your own call it after `model.quantize`: it also gives weights that Keras quantized paths of
    their own. Files and clones of the model are quantized too.

    Args:
        model: a built `keras.Model`.
        mode: "int8" or "int4".
        filters: as those of `keras.Model.quantize`.

    Returns:
        List of the paths of the layers that were quantized; those that were before are left out.

    Raises:
        ValueError: if the model is not built or has adapters, or the mode is another one.

    Example:
        >>> import keras, keras_attn
        >>> inputs = keras.Input((None, 8))
        >>> attention = keras_attn.layers.MultiHeadAttention(2, 4, position="rotary")
        >>> model = keras.Model(inputs, attention(inputs, inputs))
        >>> keras_attn.layers.quantize_kernels(model, "int8")
        ['layers/1']

    Reference: [Jacob et al., 2017](https://arxiv.org/abs/1712.05877), section 2.1, with a zero
        point of 0.
    """
    check_that(isinstance(model, keras.Model) and model.built, "a built `keras.Model`", model=model)
    check_choice(RANGES, mode=mode)
    check_merged(model)
    paths = []
    for path, layer in all_sublayers(model).items():
        is_left = isinstance(layer, QuantizedKernels) and layer.quantization_mode is None
        if is_left and layer.built and passes_filters(layer, filters):
            layer.quantize(mode)
            paths.append(path)
        if layer.quantization_mode is not None:
            name_weights(layer)
    forget_functions(model)
    return paths
