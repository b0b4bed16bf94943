"""Conversion of a folder to a model and a tokenizer, and changes of the model by a word."""

import functools
import os

import keras

from keras_attn import depth, registry, residuals
from keras_attn.compat.unallocated import initialize
from keras_attn.convert.golden import check_golden
from keras_attn.convert.hugging_face.checkpoint import Checkpoint
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.families import FAMILIES
from keras_attn.convert.hugging_face.families.causal_family import CausalFamily
from keras_attn.convert.hugging_face.families.family import output_vocabulary_size
from keras_attn.convert.hugging_face.sentence_encoders import SentenceEncoder, padding_id
from keras_attn.convert.hugging_face.tensor_files import list_tensors, refuse
from keras_attn.convert.hugging_face.tokenizer import read_tokenizer
from keras_attn.hints import download_hint
from keras_attn.ops.checks import check_choice, check_paths, check_that
from keras_attn.part_states import PART_STATES
from keras_attn.sublayers import attributes

# Overrides that are no arguments of a model's function.
CHANGES = ("depth", "residual")
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
_DEPTHS = {"reversible": depth.Reversible, "stack": depth.Stack}
_STACKS = ("depth", "encoder", "decoder")


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
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        config.refuse(
            f"The model_type {model_type!r} is not converted, only {', '.join(sorted(FAMILIES))}."
        )
    config.values["model_type"] = model_type
    family = FAMILIES[model_type]
    config.require(**family.requires)
    return config, family


def _type_by_names(config):
    """Return the family that the names of the tensors tell; refuse a folder where they do not."""
    parts = {part for name in list_tensors(config.folder) for part in name.split(".")}
    types = {_PARTS[part] for part in parts & _PARTS.keys()}
    # RoBERTa's encoder has the names of BERT's, but segments of one type.
    if not types and {"token_type_embeddings", "self"} <= parts:
        types = {"bert"} if config.get("type_vocab_size", 2) > 1 else set()
    if len(types) != 1:
        config.refuse(
            "The file 'config.json' has no `model_type`, and the names of the tensors do not tell "
            f"it: give `model_type=`, one of {', '.join(sorted(FAMILIES))}."
        )
    return types.pop()


def change(model, **changes):
    """Return a model with another depth or residual, and the weights of `model`.

    What both models have keeps its numbers, in each block the norms of the residuals too. Other
    weights, such as the norm after the last block of a pre-norm stack, have their initial ones.

    Args:
        model: a model of `keras_attn.models` that has its weights.
        changes: `residual`, a name or object of the residual axis, and `depth`: "stack",
            "reversible", or a function from the list of blocks to a depth, such as
            `lambda blocks: depth.Stack(blocks, remat=True)`.

    Raises:
        ValueError: if a change is of another kind, or the blocks do not fit the depth.
    """
    if not changes:
        return model
    config = model.get_config()
    stacks = [name for name in _STACKS if getattr(model, name, None) is not None]
    for name in stacks:
        stack = getattr(model, name)
        _check_shared_blocks(stack, changes)
        blocks = [_with_residual(block, changes.get("residual")) for block in stack.blocks]
        made = _depth_of(stack, changes.get("depth"))(blocks)
        check_that(hasattr(made, "blocks"), "a function from blocks to a depth", depth=made)
        config[name] = registry.serialize(made)
        config[name]["config"]["name"] = stack.name
    changed = type(model).from_config(config)
    for name, old in attributes(model).items():
        if name in stacks:
            _copy_stack(old, getattr(changed, name))
        elif isinstance(old, keras.layers.Layer):
            getattr(changed, name).set_weights(old.get_weights())
    return changed


def _check_shared_blocks(stack, changes):
    """Refuse another residual for blocks that several layers share."""
    has_groups = any(isinstance(block, depth.Stack) for block in stack.blocks)
    keeps_shared = stack.shares_block and "depth" not in changes
    if "residual" in changes and (has_groups or keeps_shared):
        raise ValueError(
            "`residual` must be left out for blocks that several layers share; where all layers "
            "share one, `depth='stack'` gives each layer its own. "
            f"Received: residual={changes['residual']!r} for {stack!r}."
        )


def _depth_of(stack, identifier):
    """Return the function from blocks to the depth that an override names."""
    if identifier is None:
        left_out = {"block", "num_layers", *PART_STATES}
        options = {k: v for k, v in stack.get_config().items() if k not in left_out}
        return functools.partial(type(stack), **options)
    if isinstance(identifier, str) and identifier in _DEPTHS:
        return functools.partial(_DEPTHS[identifier], dtype=stack.dtype_policy)
    is_function = callable(identifier) and not isinstance(identifier, keras.layers.Layer)
    check_that(is_function, f"{', '.join(_DEPTHS)} or a function of the blocks", depth=identifier)
    return identifier


def _with_residual(block, identifier):
    """Return a new block; a residual that is given by its name keeps the kind of the norms."""
    config = registry.serialize(block)
    if identifier is not None:
        residual = residuals.get(identifier)
        if isinstance(identifier, str):
            norm = block.residual.norm
            residual = type(residual).from_config(
                {**residual.get_config(), "norm": registry.serialize(registry.copy(norm))}
            )
        config["config"]["residual"] = registry.serialize(residual)
    return registry.revive(config)


def _copy_stack(old, new):
    for before, after in zip(old.blocks, new.blocks, strict=True):
        shapes = [[weight.shape for weight in block.weights] for block in (before, after)]
        if type(before) is type(after) and shapes[0] == shapes[1]:
            after.set_weights(before.get_weights())
            continue
        for name in ("attention", "cross_attention", "feed_forward"):
            if getattr(before, name, None) is not None:
                getattr(after, name).set_weights(getattr(before, name).get_weights())
                _copy_norms(*(getattr(block, f"{name}_residual") for block in (before, after)))
    if old.norm is not None and new.norm is not None:
        new.norm.set_weights(old.norm.get_weights())


def _copy_norms(old, new):
    """Copy the weights of the norms that both residuals have."""
    for name in ("norm", "output_norm"):
        norms = [getattr(residual, name, None) for residual in (old, new)]
        if None not in norms and [x.shape for x in norms[0].weights] == [
            x.shape for x in norms[1].weights
        ]:
            norms[1].set_weights(norms[0].get_weights())
