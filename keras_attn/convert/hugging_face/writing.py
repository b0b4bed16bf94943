"""Conversion of a model to a folder of Hugging Face."""

import os

import keras

from keras_attn import layers, models
from keras_attn.compat.unallocated import without_values
from keras_attn.convert.hugging_face.checkpoint import StoredModel
from keras_attn.convert.hugging_face.config import FILE, Config
from keras_attn.convert.hugging_face.families import FAMILIES
from keras_attn.convert.hugging_face.families.causal_family import language_model
from keras_attn.convert.hugging_face.families.encoder_family import EncoderFamily
from keras_attn.convert.hugging_face.families.family import check_fit, output_vocabulary_size
from keras_attn.convert.hugging_face.heads import (
    FEATURES,
    TAGS,
    head_of,
    is_causal,
    label_options,
)
from keras_attn.convert.hugging_face.sentence_encoders import (
    is_sentence_encoder,
    sentence_files,
    without_pooling,
)
from keras_attn.convert.hugging_face.tensor_files import write_file, write_tensors
from keras_attn.convert.hugging_face.tokenizer_writer import tokenizer_files
from keras_attn.files import atomic_directory
from keras_attn.layers.lora import check_merged
from keras_attn.ops.checks import check_paths, check_sizes, check_that
from keras_attn.quantized_kernels import check_not_quantized
from keras_attn.text import SentenceTokenizer, Tokenizer


def to_hugging_face(
    model,
    folder,
    tokenizer=None,
    generation_config=None,
    shard_size=5_000_000_000,
    labels=None,
):
    """Write a model to a folder that transformers or sentence-transformers loads, with its outputs.

    The folder has `config.json` and `model.safetensors`, in float32. The model may come from
    `from_hugging_face` or from `keras_attn.models`, trained or not; its parts decide the family.
    Neither transformers nor the network is needed. The folder appears complete or not at all.

    The class in `architectures` of `config.json` has the outputs of the model, unless the folder
    has `modules.json`: then `SentenceTransformer(folder)` of sentence-transformers has them. Such a
    folder is written for sentence vectors. It is also written for classes that no class of
    transformers has: by the mean of the tokens, on sentence vectors, or of a decoder with a bias.
    `AutoModelForSequenceClassification` would draw those classes at random; `SentenceTransformer`
    gives their logits.

    Args:
        model: a `MaskedLanguageModel`, a `CausalLanguageModel`, an `EncoderDecoder`, a
            `Classifier`, a `Forecaster` or a `TrajectoryModel`, of the parts of a family. The page
            of `keras_attn.convert` lists the families; Transformer-XL is one of transformers 4.
        folder: path, at which nothing exists yet.
        tokenizer: of `keras_attn.text`, whose files are written too; None for none. By those of a
            `SentencePiece` some combining characters and some white space have other ids in
            transformers; `from_hugging_face` gives the tokenizer back as it was.
        generation_config: dict, the content of `generation_config.json`; None for no such file.
        shard_size: int. Bytes of the largest file of weights; above it they become several files
            with an index.
        labels: list of the names of the classes, or of the tags, in their order; by default
            "LABEL_0", "LABEL_1" and so on.

    Returns:
        The `model_type` of the folder.

    Raises:
        ValueError: if something is at `folder`, a part of the model differs from the family's, a
            weight is not finite, or the model has adapters; if the tokenizer has more ids than the
            model, no files that transformers reads, or padding as its token before targets; if
            `labels` has another number of names than the model has classes or tags.

    Example:
        >>> import os, tempfile
        >>> import keras_attn
        >>> from keras_attn import convert
        >>> model = keras_attn.models.bert(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> folder = os.path.join(tempfile.mkdtemp(), "bert")
        >>> convert.to_hugging_face(model, folder)
        'bert'
        >>> sorted(os.listdir(folder))
        ['config.json', 'model.safetensors']

    Differs from the paper: none.

    Reference: [Wolf et al., 2020](https://arxiv.org/abs/1910.03771).
    """
    check_paths(folder=folder)
    check_that(os.fspath(folder) != "", "a path that is not empty", folder=folder)
    check_sizes(shard_size=shard_size)
    is_tokenizer = tokenizer is None or isinstance(tokenizer, Tokenizer)
    check_that(is_tokenizer, "a tokenizer of `keras_attn.text`, or None", tokenizer=tokenizer)
    is_dict = isinstance(generation_config, (dict, type(None)))
    check_that(is_dict, "a dict, or None", generation_config=generation_config)
    check_merged(model)
    check_not_quantized(model)
    if os.path.exists(folder):
        raise ValueError(
            f"`folder` must not exist yet: choose another path. Received: {os.fspath(folder)!r}."
        )
    names = {} if labels is None else _label_options(model, labels)
    vectors = _classes_as_vectors(model)
    model = without_pooling(vectors)
    model_type = _model_type(model)
    family = FAMILIES[model_type]
    has_pooler = isinstance(family, EncoderFamily) and FEATURES in family.head_names
    files, folders = {}, {}
    if is_sentence_encoder(vectors, tokenizer, has_pooler):
        files, folders = sentence_files(vectors, tokenizer)
    max_length = None if tokenizer is None else tokenizer.max_length
    if isinstance(tokenizer, SentenceTokenizer):
        tokenizer = tokenizer.tokenizer
    options = {
        "model_type": model_type,
        "dtype": "float32",
        **_ids(model, tokenizer, family.pad_id),
        **family.options(model),
        **names,
    }
    config = Config(folder, options)
    with without_values():
        reference = family.build(config, model)
    check_fit(model, reference, model_type, family.free)
    stored = StoredModel(config, family.prefix_of(model), family.heads)
    family.copy_weights(stored, model)
    if tokenizer is not None:
        _check_vocabulary(model, tokenizer)
        files = {**files, **tokenizer_files(tokenizer, model_type)}
        if max_length is not None:
            files["tokenizer_config.json"]["model_max_length"] = max_length
    if generation_config is not None:
        files["generation_config.json"] = dict(generation_config)
    files[FILE] = options  # last: without it nothing loads a folder
    with atomic_directory(folder) as temporary:
        for name, tensors in {"": stored.tensors, **folders}.items():
            os.makedirs(os.path.join(temporary, name), exist_ok=True)
            write_tensors(os.path.join(temporary, name), tensors, shard_size)
        for name, content in files.items():
            write_file(temporary, name, content)
    return options["model_type"]  # a forecaster's is "t5"


def _model_type(model):
    """Return the `model_type` of the only family that may fit a model."""
    has_encoder = type(model) in (models.Classifier, models.MaskedLanguageModel)
    if has_encoder and is_causal(model.encoder):
        model = language_model(model)
    for model_type, family in FAMILIES.items():
        if type(model) in family.model_classes and family.fits(model):
            return model_type
    raise ValueError(
        "`model` must be a `MaskedLanguageModel`, a `CausalLanguageModel`, an `EncoderDecoder`, a "
        "`Classifier`, a `Forecaster` or a `TrajectoryModel`. "
        f"Received: model={model!r}."
    )


def _classes_as_vectors(model):
    """Return a sentence encoder whose vectors are the logits of a `Classifier`; or the model.

    It is made where no class of transformers has such classes: by the mean of the tokens, on the
    vectors of a sentence encoder, or of a decoder with a bias.
    """
    reads_text = isinstance(model, models.Classifier) and model.image_shape is None
    if not reads_text or model.series_shape is not None:
        return model
    is_decoder = is_causal(model.encoder)
    is_sentence = isinstance(model.pooler, keras.Sequential)
    is_plain = model.pooling == ("last" if is_decoder else "first") and not is_sentence
    has_class = is_plain and not (is_decoder and model.use_bias)
    has_pooler = model.pooler is not None and not is_sentence  # of the family
    if model.num_classes is None or has_pooler or has_class:
        return model
    logits = layers.Projection(model.num_classes, "linear", model.use_bias, dtype="float32")
    parts = ("embedding", "encoder", "position", "segment", "norm", "dropout", "pooling", "name")
    parts = {name: getattr(model, name) for name in parts}
    pooler = keras.Sequential([*model.pooler.layers, logits]) if is_sentence else logits
    vectors = models.Classifier(**parts, num_classes=None, pooler=pooler)
    for own, weight in zip(logits.dense.weights, model.head.weights, strict=True):
        own.assign(weight)
    return vectors


def _label_options(model, labels):
    """Return the options for the names of a model's classes or tags."""
    size = getattr(model, "num_classes", None) or 0
    size = model.head.units if head_of(model) == TAGS else size
    wanted = f"a list of {size} different strings" if size else "None for a model without classes"
    are_names = isinstance(labels, (list, tuple)) and all(isinstance(x, str) for x in labels)
    check_that(are_names and size == len(set(labels)) == len(labels), wanted, labels=labels)
    return label_options(labels)


def _check_vocabulary(model, tokenizer):
    size = output_vocabulary_size(model)
    if tokenizer.vocabulary_size > size:
        raise ValueError(
            "`tokenizer` must have at most as many ids as the model. Received: "
            f"tokenizer.vocabulary_size={tokenizer.vocabulary_size} for a model of {size}."
        )


def _ids(model, tokenizer, pad_id):
    """Return the ids of special tokens, without which transformers takes those of the class."""
    if not hasattr(model.embedding, "vocabulary_size"):
        return {}
    own = model.embedding.pad_id
    ids = {"pad_token_id": pad_id if own is None else own}
    ids |= {"bos_token_id": None, "eos_token_id": None}
    reads_source = type(model) is models.EncoderDecoder
    if reads_source:
        ids |= {"decoder_start_token_id": _start_id(model, tokenizer), "forced_eos_token_id": None}
    if tokenizer is None or type(model) not in (models.CausalLanguageModel, models.EncoderDecoder):
        return ids
    if not reads_source and tokenizer.pad_id is not None:
        ids["pad_token_id"] = tokenizer.pad_id
    return {**ids, "bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}


def _start_id(model, tokenizer):
    """Return the id of the token before targets."""
    if model.start_id is not None:
        return model.start_id
    bos_id = Tokenizer.bos_id if tokenizer is None else tokenizer.bos_id
    if bos_id is None or bos_id == model.pad_id:
        raise ValueError(
            "A model whose targets begin with padding must have a `start_id`, by which the first "
            f"position counts as a token. Received: tokenizer.bos_id={bos_id} for a model with "
            f"pad_id={model.pad_id} and start_id=None."
        )
    return bos_id
