"""Conversion of a folder to a model and a tokenizer."""

import contextlib
import gc
import os

from keras_attn.compat.unallocated import initialize
from keras_attn.convert.golden import check_golden
from keras_attn.convert.hugging_face.checkpoint import Checkpoint
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.families import FAMILIES
from keras_attn.convert.hugging_face.families.causal_family import CausalFamily
from keras_attn.convert.hugging_face.families.family import output_vocabulary_size
from keras_attn.convert.hugging_face.overrides import CHANGES, change
from keras_attn.convert.hugging_face.sentence_encoders import SentenceEncoder, padding_id
from keras_attn.convert.hugging_face.tensor_files import list_tensors, refuse
from keras_attn.convert.hugging_face.tokenizer import read_tokenizer
from keras_attn.hints import download_hint
from keras_attn.ops.checks import check_choice, check_paths, check_that

# Parts of tensors' names that tell the families of the years before `model_type`.
_PARTS = {
    "albert": "albert",
    "albert_layer_groups": "albert",
    "bert": "bert",
    "distilbert": "distilbert",
    "electra": "electra",
    "embeddings_project": "electra",
    "mpnet": "mpnet",
    "q_lin": "distilbert",
    "r_r_bias": "transfo-xl",
    "roberta": "roberta",
    "wpe": "gpt2",
}


def from_hugging_face(folder, model_type=None, ignore=(), **overrides):
    """Build a model with the weights and the outputs of a checkpoint of Hugging Face.

    Weights are in safetensors or `.bin` files, in one or in shards; no code of a `.bin` file runs.
    Each tensor is used once; a folder is refused if a tensor is missing, is left over or has
    another shape, or if an option of `config.json` changes what our parts compute. Neither
    transformers nor the network is needed. Weights become float32, then the dtype of the policy.
    If the folder has golden outputs, as `keras-attn convert golden FOLDER` writes them,
    the model's outputs are compared with them, unless there are overrides. Those of a sentence
    encoder are compared before its pooling, where it is no decoder.

    Args:
        folder: path of a folder that `save_pretrained` wrote, or a copy of one from the Hub.
        model_type: str. The family, where `config.json` names none, or one that is not converted,
            and the names of the tensors do not tell it.
        ignore: a pattern, or a list of patterns, of tensors' names that the model has no place for,
            such as `"cls.species.*"` for a head of one's own. They are left out.
        overrides: arguments of the model's function, such as `dropout` or `pattern`, in place of
            those that `config.json` gives; with longrope a `max_length` above the trained length
            takes the long factors for short texts too. And `residual`, a value of that axis, or
            `depth`, "reversible" or a function from the list of blocks to a depth, for training.

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
    patterns = [ignore] if isinstance(ignore, str) else ignore
    is_list = isinstance(patterns, (list, tuple)) and all(isinstance(x, str) for x in patterns)
    check_that(is_list, "a list of patterns of names", ignore=ignore)
    config, family = family_of(folder, model_type)
    checkpoint = Checkpoint(config, prefix=family.prefix, ignore=patterns)
    model = convert(checkpoint, family, overrides)
    tokenizer = read_tokenizer(folder, output_vocabulary_size(model))
    sentence_encoder = SentenceEncoder.of(config)
    if sentence_encoder is not None:
        tokenizer = sentence_encoder.tokenizer(tokenizer, model)
    return model, tokenizer


@contextlib.contextmanager
def _without_collections():
    """Leave garbage for later: a collection visits all objects of TensorFlow, which takes 0.2 s."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collections()
def convert(checkpoint, family, overrides):
    """Return the model of a checkpoint, all of whose tensors it takes, with the overrides."""
    later = {name: overrides[name] for name in CHANGES if name in overrides}
    options = {k: v for k, v in overrides.items() if k not in later}
    sentence_encoder = SentenceEncoder.of(checkpoint.config)
    if sentence_encoder is not None and isinstance(family, CausalFamily):
        options = {"pad_id": padding_id(checkpoint.config, family.default_pad_id), **options}
    model = family.convert(checkpoint, options)
    checkpoint.finish()
    initialize(model.variables)  # of which `build` made no values
    folder = checkpoint.config.folder  # None for a backbone of KerasHub
    if folder is not None and not (options or later):  # which may change the outputs
        check_golden(folder, model)
    if sentence_encoder is not None:
        model = sentence_encoder.build(model)
    return change(model, **later)


def family_of(folder, model_type=None):
    """Return the configuration of a folder and its family; refuse others.

    Args:
        folder: path.
        model_type: str. In place of that of `config.json`.
    """
    check_paths(folder=folder)
    if not os.path.exists(folder):
        refuse(f"The folder does not exist.{download_hint(os.fspath(folder))}", folder)
    if not os.path.isdir(folder):
        refuse("The path is that of a file, not of a folder.", folder)
    if model_type is not None:
        check_choice(sorted(FAMILIES), model_type=model_type)
    config = Config(folder)
    model_type = model_type or config.get("model_type") or _type_by_names(config)
    model_type = forecaster_type(config) or model_type
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        config.refuse(
            f"The model_type {model_type!r} is not converted, only {', '.join(sorted(FAMILIES))}."
        )
    config.values["model_type"] = model_type
    family = FAMILIES[model_type]
    config.require(**family.requires)
    return config, family


def forecaster_type(config):
    """Return the family of a forecaster, whose `model_type` is that of T5; None for others."""
    options = config.options("chronos_config")
    if options is None:
        return None
    return "chronos_bolt" if "input_patch_size" in options else "chronos"


def _type_by_names(config):
    """Return the family that the names of the tensors tell; refuse a folder where they do not."""
    parts = {part for name in list_tensors(config.folder) for part in name.split(".")}
    types = {_PARTS[part] for part in parts & _PARTS.keys()}
    # RoBERTa's encoder has the names of BERT's, but segments of one type.
    if not types and {"token_type_embeddings", "self"} <= parts:
        types = {"bert"} if config.integer("type_vocab_size", 2) > 1 else set()
    if len(types) != 1:
        config.refuse(
            "The file 'config.json' has no `model_type`, and the names of the tensors do not tell "
            f"it: give `model_type=`, one of {', '.join(sorted(FAMILIES))}."
        )
    return types.pop()
