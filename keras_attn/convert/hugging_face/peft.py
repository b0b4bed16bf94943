"""LoRA adapters in and out of converted models, in folders as Hugging Face's peft writes them."""

import math
import os
import pathlib
import re

import numpy as np
from keras import ops

from keras_attn.convert.hugging_face.kernel_sources import kernel_sources
from keras_attn.convert.hugging_face.tensor_files import (
    list_safetensors,
    read_json,
    refuse,
    write_file,
    write_safetensors,
)
from keras_attn.files import atomic_file
from keras_attn.layers.lora import adapters_of, check_adaptable, set_adapters
from keras_attn.ops.checks import check_paths

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
# Options that change neither the tensors nor what is computed with them after training.
_HARMLESS = {
    *("auto_mapping", "base_model_name_or_path", "ensure_weight_tying", "eva_config"),
    *("exclude_modules", "fan_in_fan_out", "inference_mode", "layers_pattern"),
    *("layers_to_transform", "lora_dropout", "megatron_config", "megatron_core"),
    *("peft_version", "qalora_group_size", "revision", "runtime_config", "task_type"),
}
_READ = {
    *("alpha_pattern", "init_lora_weights", "lora_alpha", "peft_type", "r", "rank_pattern"),
    *("target_modules", "use_rslora"),
}
# Initial values of A and B that leave the base weights as they are; PiSSA's, for one, do not.
_INITIAL_VALUES = (True, False, "gaussian", "orthogonal", "eva")


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
    adapted = adapters_of(model)  # first: the checkpoint of a model without any is not read
    sources, layers = kernel_sources(model, checkpoint), {}
    for path, projection in adapted.items():
        if path not in sources:
            refuse(
                f"The projection {path!r} is no copy of one layer of the folder: "
                "`layers.save_lora` writes its adapter.",
                checkpoint,
            )
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


def read_adapters(folder):
    """Return the adapters of a folder by name, and the targets that name all adapted layers.

        W' = W + scale B A,   scale = alpha / r, or alpha / sqrt(r) with `use_rslora`

    An adapter is A (r, in), B (out, r) and the scale. The targets are empty if an option leaves
    layers out. Options and tensors beyond those of LoRA are refused.
    """
    config = read_json(folder, CONFIG)
    _check_options(config, folder)
    if not pathlib.Path(folder, TENSORS).is_file():
        refuse(f"The folder has no file {TENSORS!r}: copy it from the adapters.", folder)
    tensors, adapters = list_safetensors(folder, TENSORS), {}
    for key in [key for key in tensors if key.endswith(".lora_A.weight")]:
        other = key.replace(".lora_A.", ".lora_B.")
        if other not in tensors:
            refuse(f"The file {TENSORS!r} lacks the tensor {other!r}.", folder)
        a, b = (tensors.pop(part)[1]() for part in (key, other))
        name = key.removesuffix(".lora_A.weight").removeprefix(_PREFIX)
        adapters[name] = a, b, _read_scale(name, a, b, config, folder)
    if tensors or not adapters:
        left = next(iter(tensors), "none")
        refuse(f"The file {TENSORS!r} must hold pairs lora_A and lora_B, not {left!r}.", folder)
    return adapters, _read_targets(adapters, config, folder)


def _read_scale(name, a, b, config, folder):
    """Return the scale of an adapter; refuse one of other shapes or numbers."""
    rank = _layer_option(config, "r", "rank_pattern", name, 8, folder)
    if a.ndim != 2 or b.ndim != 2 or not len(a) == b.shape[1] == rank:
        refuse(
            f"The adapter of {name!r} has the shapes {a.shape} and {b.shape}, where {CONFIG} says "
            f"that the rank is {rank!r}.",
            folder,
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        refuse(f"The adapter of {name!r} holds numbers that are not finite.", folder)
    alpha = _layer_option(config, "lora_alpha", "alpha_pattern", name, 8, folder)
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not alpha > 0:
        refuse(f"`lora_alpha` in {CONFIG} must be a number above 0, not {alpha!r}.", folder)
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _read_targets(adapters, config, folder):
    """Return the names of the adapted layers; none if an option leaves layers out."""
    targets = config.get("target_modules")
    targets = targets if isinstance(targets, list) else []
    for target in targets:
        if not any(is_same_layer(name, target) for name in adapters):
            refuse(f"The file {TENSORS!r} lacks an adapter of the target {target!r}.", folder)
    leaves_out = config.get("layers_to_transform") is not None or config.get("exclude_modules")
    return [] if leaves_out else targets


def _check_options(config, folder):
    if config.get("peft_type") != "LORA":
        refuse(f"The peft_type {config.get('peft_type')!r} is not converted, only LORA.", folder)
    for name, value in config.items():
        if value and value != "none" and name not in _HARMLESS | _READ:
            refuse(f"The option {name}={value!r} of {CONFIG} is not converted.", folder)
    initial = config.get("init_lora_weights", True)
    if initial not in _INITIAL_VALUES:
        refuse(
            f"The option init_lora_weights={initial!r} of {CONFIG} is not converted: it changes "
            "the base weights.",
            folder,
        )


def _layer_option(config, name, patterns, layer, default, folder):
    """Return an option of one layer: that of the first pattern that matches its name's end."""
    for pattern, value in (config.get(patterns) or {}).items():
        try:
            fits = re.match(rf"(.*\.)?({pattern})$", layer)
        except re.error:
            refuse(f"The pattern {pattern!r} of {patterns} in {CONFIG} is damaged.", folder)
        if fits:
            return value
    return config.get(name, default)


def is_same_layer(name, other):
    """Return True if two names are equal, or one is the end of the other after a dot."""
    return name == other or name.endswith(f".{other}") or other.endswith(f".{name}")


def write_adapters(folder, adapters, base, is_transposed):
    """Write adapters of scale 1, pairs A (r, in) and B (out, r) by name, all of one rank."""
    (rank,) = {len(a) for a, _ in adapters.values()}
    tensors = {
        f"{_PREFIX}{name}.lora_{part}.weight": (array.shape, array.copy)
        for name, pair in adapters.items()
        for part, array in zip("AB", pair, strict=True)
    }
    with atomic_file(pathlib.Path(folder, TENSORS)) as temporary:
        write_safetensors(temporary, tensors, tensors)
        # The scale of earlier adapters would be read for these, if the process ended in between.
        pathlib.Path(folder, CONFIG).unlink(missing_ok=True)
    config = {
        "base_model_name_or_path": str(base),
        "bias": "none",
        "fan_in_fan_out": is_transposed,
        "inference_mode": True,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": list(adapters),
    }
    with atomic_file(pathlib.Path(folder, CONFIG)) as temporary:
        write_file(*os.path.split(temporary), config)
