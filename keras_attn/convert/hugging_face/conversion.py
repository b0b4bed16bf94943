"""Conversion of a folder to a model and a tokenizer."""

import os

from keras_attn.convert.golden import check_golden
from keras_attn.convert.hugging_face import changes
from keras_attn.convert.hugging_face.checkpoint import Checkpoint
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.families import FAMILIES
from keras_attn.convert.hugging_face.family import output_vocabulary_size
from keras_attn.convert.hugging_face.tensor_files import refuse
from keras_attn.convert.hugging_face.tokenizer import read_tokenizer
from keras_attn.ops.checks import check_paths


def from_hugging_face(folder, **overrides):
    """Build a model with the weights and the outputs of a checkpoint of Hugging Face.

    Weights are in safetensors, in one file or in shards, or in a `.bin` file, which needs torch.
    Each tensor is used once; a folder is refused if a tensor is missing, is left over or has
    another shape, or if an option of `config.json` changes what our parts compute. Neither
    transformers nor the network is needed. Weights become float32, then the dtype of the policy.
    If the folder has golden outputs, as `python -m keras_attn.convert golden FOLDER` writes them,
    the model's outputs are compared with them, unless there are overrides.

    Args:
        folder: path of a folder that `save_pretrained` wrote, or a copy of one from the Hub.
        overrides: arguments of the model's function, such as `dropout` or `pattern`, in place of
            those that `config.json` gives; and `residual`, a value of that axis, or `depth`,
            "reversible" or a function from the list of blocks to a depth, for more training.

    Returns:
        The model, and its tokenizer, a graph from texts to the ids of transformers. The tokenizer
        is None if the folder has none, and, with a warning, if its rules are not known.

    Raises:
        ValueError: if the folder is incomplete or damaged, its `model_type` or an option is not
            converted, or an override is unknown.

    Example:
        >>> import json, pathlib, tempfile
        >>> from keras_attn import convert
        >>> folder = tempfile.mkdtemp()
        >>> _ = pathlib.Path(folder, "config.json").write_text(json.dumps({"model_type": "bert"}))
        >>> convert.from_hugging_face(folder)
        Traceback (most recent call last):
        ValueError: The folder has no weights, 'model.safetensors' or ...

    Differs from the paper: each family as transformers computes it.

    Reference: [Wolf et al., 2020](https://arxiv.org/abs/1910.03771).
    """
    config, family = family_of(folder)
    checkpoint = Checkpoint(config)
    model = convert(checkpoint, family, overrides)
    if not overrides:  # which may change the outputs
        check_golden(folder, model)
    return model, read_tokenizer(folder, output_vocabulary_size(model))


def convert(checkpoint, family, overrides):
    """Return the model of a checkpoint, all of whose tensors it takes, with the overrides."""
    later = {name: overrides[name] for name in changes.NAMES if name in overrides}
    model = family.convert(checkpoint, {k: v for k, v in overrides.items() if k not in later})
    checkpoint.finish()
    return changes.change(model, **later)


def family_of(folder):
    """Return the configuration of a folder and its family; refuse others."""
    check_paths(folder=folder)
    if not os.path.exists(folder):
        refuse("The folder does not exist.", folder)
    if not os.path.isdir(folder):
        refuse("The path is that of a file, not of a folder.", folder)
    config = Config(folder)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        config.refuse(
            f"The model_type {model_type!r} is not converted, only {', '.join(sorted(FAMILIES))}."
        )
    family = FAMILIES[model_type]
    config.require(**family.requires)
    return config, family
