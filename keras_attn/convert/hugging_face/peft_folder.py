"""Folders of LoRA adapters, as Hugging Face's peft writes them."""

import math
import os
import pathlib
import re

import numpy as np

from keras_attn.convert.hugging_face.tensor_files import list_safetensors, read_json, refuse
from keras_attn.convert.hugging_face.tensor_writer import write_file, write_safetensors
from keras_attn.files import atomic_file

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
        rank = _option_of(config, "r", "rank_pattern", name, 8, folder)
        if a.ndim != 2 or b.ndim != 2 or not len(a) == b.shape[1] == rank:
            refuse(
                f"The adapter of {name!r} has the shapes {a.shape} and {b.shape}, where {CONFIG} "
                f"says that the rank is {rank!r}.",
                folder,
            )
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            refuse(f"The adapter of {name!r} holds numbers that are not finite.", folder)
        alpha = _option_of(config, "lora_alpha", "alpha_pattern", name, 8, folder)
        if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not alpha > 0:
            refuse(f"`lora_alpha` in {CONFIG} must be a number above 0, not {alpha!r}.", folder)
        scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
        adapters[name] = a, b, scale
    if tensors or not adapters:
        left = next(iter(tensors), "none")
        refuse(f"The file {TENSORS!r} must hold pairs lora_A and lora_B, not {left!r}.", folder)
    targets = config.get("target_modules")
    targets = targets if isinstance(targets, list) else []
    for target in targets:
        if not any(is_same_layer(name, target) for name in adapters):
            refuse(f"The file {TENSORS!r} lacks an adapter of the target {target!r}.", folder)
    leaves_out = config.get("layers_to_transform") is not None or config.get("exclude_modules")
    return adapters, [] if leaves_out else targets


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


def _option_of(config, name, patterns, layer, default, folder):
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
