"""LoRA adapters of Hugging Face's peft, in and out of converted models."""

import re

import numpy as np
from keras import ops

from keras_attn.convert.hugging_face.kernel_sources import kernel_sources
from keras_attn.convert.hugging_face.peft_folder import (
    is_same_layer,
    read_adapters,
    write_adapters,
)
from keras_attn.convert.hugging_face.tensor_files import refuse
from keras_attn.layers.lora import adapters_of, check_adaptable, set_adapters
from keras_attn.ops.checks import check_paths


def load_peft(model, folder, checkpoint):
    """Add the adapters of a folder of peft to a converted model, as by `layers.add_lora`.

        y = x (W + s A B),   s = alpha / r, or alpha / sqrt(r) with `use_rslora`

    An adapter of a joined layer, such as GPT-2's `c_attn`, becomes one of each projection. Dropout
    before A is left out. Cost: the time of four conversions of the checkpoint.

    Use it for adapters that were trained with transformers.

    Args:
        model: from `convert.from_hugging_face(checkpoint)`.
        folder: path with `adapter_config.json` and `adapter_model.safetensors`.
        checkpoint: path of the folder that the model was converted from.

    Returns:
        List of the paths of the adapted projections.

    Raises:
        ValueError: if the adapters are not of the kind LoRA or have an option that is not
            converted (DoRA, `modules_to_save`, biases), a file is damaged, the layer of an adapter
            is no projection of the model, or the model has adapters already.

    Example:
        >>> import json, pathlib, tempfile, keras_attn
        >>> folder = tempfile.mkdtemp()
        >>> text = json.dumps({"peft_type": "LORA", "use_dora": True})
        >>> _ = pathlib.Path(folder, "adapter_config.json").write_text(text)
        >>> model = keras_attn.models.gpt(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> keras_attn.convert.load_peft(model, folder, "gpt2")
        Traceback (most recent call last):
        ValueError: The option use_dora=True of adapter_config.json is not converted. ...

    Reference: [Hu et al., 2021](https://arxiv.org/abs/2106.09685), section 4.1; the scale with
        `use_rslora`: [Kalajdzievski, 2023](https://arxiv.org/abs/2312.03732), section 3.
    """
    check_paths(folder=folder, checkpoint=checkpoint)
    check_adaptable(model)
    adapters, targets = read_adapters(folder)
    values, unused, sources = {}, dict(adapters), kernel_sources(model, checkpoint)
    for path, source in sources.items():
        for name, (a, b, scale) in adapters.items():
            if not is_same_layer(name, source.name):
                continue
            unused.pop(name, None)
            if (a.shape[1], b.shape[0]) != source.shape:
                refuse(
                    f"The adapter of {name!r} is from {a.shape[1]} inputs to {b.shape[0]} outputs, "
                    f"where the layer is from {source.shape[0]} to {source.shape[1]}.",
                    folder,
                )
            part = b[source.outputs] * source.scale[:, None]
            values[path] = a.T[source.inputs], part.T, scale
    if unused:
        refuse(f"The adapter of {next(iter(unused))!r} is of no projection of the model.", folder)
    kinds = {_kind(sources[path].name) for path in values}
    for path, source in sources.items():
        is_named = any(is_same_layer(source.name, target) for target in targets)
        if is_named and path not in values and _kind(source.name) in kinds:
            refuse(f"The adapters lack one of {source.name!r}, unlike other layers.", folder)
    set_adapters(model, values)
    return list(values)


def save_peft(model, folder, checkpoint):
    """Write the adapters of a converted model to a folder that peft loads.

        base = transformers.AutoModelForCausalLM.from_pretrained(checkpoint)
        model = peft.PeftModel.from_pretrained(base, folder)

    Adapters of projections that transformers keeps joined, such as GPT-2's queries and values, are
    joined too: their ranks add up. All adapters in the folder have the largest rank, smaller ones
    with zeros in the rest. Their scale is 1: B is written times the scale that it had. Cost: the
    time of four conversions of the checkpoint.

    Use it for adapters that were trained in Keras, to use them with transformers.

    Args:
        model: a model with adapters, from `convert.from_hugging_face(checkpoint)`.
        folder: path of the folder to create.
        checkpoint: path of the folder that the model was converted from.

    Returns:
        The folder.

    Raises:
        ValueError: if the model has no adapters or is not of the checkpoint, or an adapted
            projection is no copy of one layer of the checkpoint.

    Example:
        >>> import keras_attn, tempfile
        >>> model = keras_attn.models.gpt(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> keras_attn.convert.save_peft(model, tempfile.mkdtemp(), "gpt2")
        Traceback (most recent call last):
        ValueError: `model` must have adapters: add them by `layers.add_lora(model, rank)`. ...

    Reference: [Hu et al., 2021](https://arxiv.org/abs/2106.09685), section 4.1.
    """
    check_paths(folder=folder, checkpoint=checkpoint)
    found, sources, layers = adapters_of(model), kernel_sources(model, checkpoint), {}
    for path, projection in found.items():
        if path not in sources:
            refuse(f"The projection {path!r} is no copy of one layer of the folder.", checkpoint)
        layers.setdefault(sources[path].name, []).append((projection, sources[path]))
    rank = max(sum(p.parts[1].shape[0] for p, _ in parts) for parts in layers.values())
    is_transposed = any(source.is_transposed for parts in layers.values() for _, source in parts)
    adapters = {name: _join(parts, rank) for name, parts in layers.items()}
    write_adapters(folder, adapters, checkpoint, is_transposed)
    return folder


def _kind(name):
    """Return the name of a layer without the index of its block."""
    return re.sub(r"\d+", "*", name)


def _join(parts, rank):
    """Return lora_A (rank, in) and lora_B (out, rank), at scale 1, of one layer's projections."""
    inputs, outputs = parts[0][1].shape
    a, b = np.zeros((rank, inputs), "float32"), np.zeros((outputs, rank), "float32")
    start = 0
    for projection, source in parts:
        own_a, own_b = (ops.convert_to_numpy(part) for part in projection.parts)
        end = start + len(own_b)
        a[start:end, source.inputs] = own_a.reshape(-1, len(own_b)).T
        own_b = own_b.reshape(len(own_b), -1) * projection.scale / source.scale
        b[source.outputs, start:end] = own_b.T
        start = end
    return a, b
