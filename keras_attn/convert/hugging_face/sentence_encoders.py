"""Folders of sentence-transformers: pooling and the layers after it, prompts and the length."""

import dataclasses
import pathlib
import warnings

import keras

from keras_attn import layers, models
from keras_attn.convert.hugging_face.checkpoint import Checkpoint, StoredModel
from keras_attn.convert.hugging_face.heads import FEATURES, is_causal, with_head
from keras_attn.convert.hugging_face.tensor_files import list_tensors, read_json
from keras_attn.convert.hugging_face.tokenizer import read_tokenizer
from keras_attn.convert.hugging_face.weights import copy_part
from keras_attn.text import SentenceTokenizer

MODULES, POOLING = "modules.json", "1_Pooling"
SETTINGS = "config_sentence_transformers.json"
# Of the first module: the name has been that of the model's class.
_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
LENGTH_FILES = tuple(f"sentence_{kind}_config.json" for kind in _KINDS)
_PIPELINE_KEY = "sentence_embedding"  # of modules after the pooling
# The flag and the name of each pooling, in the order in which flags are joined.
_POOLINGS = {
    "first": ("pooling_mode_cls_token", "cls"),
    "max": ("pooling_mode_max_tokens", "max"),
    "mean": ("pooling_mode_mean_tokens", "mean"),
    "mean_sqrt_len": ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
    "weighted_mean": ("pooling_mode_weightedmean_tokens", "weightedmean"),
    "last": ("pooling_mode_lasttoken", "lasttoken"),
}
_ACTIVATIONS = {
    "tanh": "torch.nn.modules.activation.Tanh",
    "linear": "torch.nn.modules.linear.Identity",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
    "silu": "torch.nn.modules.activation.SiLU",
}
# Options of the first module with the values that change nothing.
_TEXT_ONLY = {"method": "forward", "method_output_name": "last_hidden_state"}
_NEUTRAL_VALUES = {
    "transformer_task": (None, "feature-extraction"),
    "module_output_name": (None, "token_embeddings"),
    **dict.fromkeys(("processing_kwargs", "tokenizer_args", "modality_config"), (None, {})),
    **dict.fromkeys(("query_length", "document_length", "query_expansion"), (None,)),
}


@dataclasses.dataclass(frozen=True)
class SentenceEncoder:
    """The files of a sentence encoder, besides those of its model and its tokenizer.

    Args:
        config: the `Config` of the folder.
        modules: list of the names and the paths of the modules after the first.
    """

    config: object
    modules: list

    @classmethod
    def of(cls, config):
        """Return the sentence encoder of a folder; None for another folder."""
        folder = config.folder
        if folder is None:
            return None
        if pathlib.Path(folder, MODULES).is_file():
            modules = [
                _name_and_path(config, index, module)
                for index, module in enumerate(read_json(folder, MODULES, list))
            ]
        elif pathlib.Path(folder, POOLING, "config.json").is_file():
            modules = [("Transformer", ""), ("Pooling", POOLING)]
        else:
            return None
        names = [name for name, _ in modules]
        if names[:2] != ["Transformer", "Pooling"] or names.count("Pooling") > 1 or modules[0][1]:
            config.refuse(
                f"The modules of {MODULES} must be a Transformer in the folder itself, then a "
                f"Pooling, not {', '.join(names)}."
            )
        return cls(config, modules[1:])

    def build(self, model):
        """Return the `Classifier` without classes whose encoder is that of a model."""
        encoder = getattr(model, "depth", None) or getattr(model, "encoder", None)
        has_memory = getattr(model, "memory", None) is not None
        if encoder is None or has_memory or hasattr(model, "decoder"):
            self.config.refuse(
                "A sentence encoder must be an encoder or a decoder of texts without a memory, not "
                f"a {type(model).__name__}."
            )
        pooling = self._pooling(is_causal(encoder))
        return with_head(model, FEATURES, pooling=pooling, pooler=self._pooler())

    def _pooling(self, is_causal):
        ((_, path), *_) = self.modules
        options = self._options(path)
        names = [name for name, (flag, _) in _POOLINGS.items() if options.get(flag)] or "mean"
        modes = options.get("pooling_mode")
        if modes is not None:
            ours = {theirs: name for name, (_, theirs) in _POOLINGS.items()}
            modes = [modes] if isinstance(modes, str) else modes
            is_known = isinstance(modes, list) and modes and all(map(ours.__contains__, modes))
            if not is_known:
                self.config.refuse(
                    f"The pooling {modes!r} of {path}/config.json is not converted, only "
                    f"{', '.join(ours)}."
                )
            names = [ours[mode] for mode in modes]
        names = names[0] if isinstance(names, list) and len(names) == 1 else names
        include_prompt = options.get("include_prompt", True)
        if include_prompt and (not is_causal or names == "last"):
            return names
        return layers.Pool(names, padding_at_end=is_causal, include_prompt=include_prompt)

    def _pooler(self):
        """Return the layers after the pooling as one, in float32 as the model's outputs; or None.

        They have their weights.
        """
        made = [_MODULE_READERS[name](self, path) for name, path in self.modules[1:]]
        size = self.settings.get("truncate_dim")
        if size is not None:
            self._check(isinstance(size, int) and size > 0, "truncate_dim", size)
            made.append(layers.Truncate(size, dtype="float32"))
        for index, layer in enumerate(made):
            layer.name = f"{type(layer).__name__.lower()}_{index}"
        return keras.Sequential(made, name="pooler") if made else None

    def make_dense(self, path):
        """Return the `Projection` of a module Dense, with its weights."""
        options = self._options(path)
        self._check_input(path, options)
        kind = str(options.get("activation_function", _ACTIVATIONS["tanh"]))
        # sentence-transformers has Tanh for a class of the folder, unless the user trusts its code.
        kind = kind.rpartition(".")[2] if kind.startswith("torch.") else "Tanh"
        ours = {name.rpartition(".")[2]: activation for activation, name in _ACTIVATIONS.items()}
        if kind not in ours:
            self.config.refuse(
                f"The activation {kind!r} of {path}/config.json is not converted, only "
                f"{', '.join(ours)}."
            )
        sizes = [options.get(name) for name in ("in_features", "out_features")]
        self._check(all(isinstance(n, int) and n > 0 for n in sizes), "in_features", sizes)
        layer = layers.Projection(
            sizes[1],
            ours[kind],
            options.get("bias", True),
            options.get("use_residual", False),
            dtype="float32",
        )
        layer.build((None, sizes[0]))
        tensors = list_tensors(pathlib.Path(self.config.folder, path))
        checkpoint = Checkpoint(self.config, tensors)
        _copy_projection(checkpoint, layer)
        checkpoint.finish()
        return layer

    def make_normalize(self, path):
        """Return the layer of a module Normalize."""
        if pathlib.Path(self.config.folder, path, "config.json").is_file():
            self._check_input(path, self._options(path))
        return keras.layers.UnitNormalization(dtype="float32")

    def tokenizer(self, tokenizer, model):
        """Return a tokenizer with the length and the prompts; None stays None."""
        if tokenizer is None:
            return None
        options, settings = self._transformer_options(), self.settings
        prompts = settings.get("prompts") or {}
        are_texts = isinstance(prompts, dict) and all(
            isinstance(text, (str, type(None))) for text in prompts.values()
        )
        self._check(are_texts, "prompts", prompts)
        prompts = {"query": "", "document": "", **{k: v or "" for k, v in prompts.items()}}
        default = settings.get("default_prompt_name")
        self._check(default is None or default in prompts, "default_prompt_name", default)
        length = self._max_length(options, model)
        has_lower_case = tokenizer.get_config().get("lower_case", False)
        return SentenceTokenizer(
            tokenizer,
            length,
            prompts,
            default,
            lower_case=bool(options.get("do_lower_case")) and not has_lower_case,
            pad_id=model.pad_id,
        )

    def _max_length(self, options, model):
        """Return the most tokens of a text: the old option as it is, the new one capped."""
        length = options.get("max_seq_length")
        if length is None:
            lengths = [self.config.get("max_position_embeddings")]
            if pathlib.Path(self.config.folder, "tokenizer_config.json").is_file():
                settings = read_json(self.config.folder, "tokenizer_config.json")
                lengths.append(settings.get("model_max_length"))
            # A class without a length has 10^30.
            lengths = [n for n in lengths if isinstance(n, (int, float)) and 0 < n < 2**31]
            length = min(lengths, default=None)
        is_length = length is None or type(length) in (int, float) and length > 0
        self._check(is_length, "max_seq_length", length)
        # sentence-transformers fails at texts of more tokens than there are positions.
        return min((int(n) for n in (length, model.max_length) if n is not None), default=None)

    def _transformer_options(self):
        """Return the options of the first module; refuse those that change what it computes."""
        folder = self.config.folder
        names = [name for name in LENGTH_FILES if pathlib.Path(folder, name).is_file()]
        options = read_json(folder, names[0]) if names else {}
        read = dict(options)
        if read.get("modality_config") == {"text": _TEXT_ONLY}:
            del read["modality_config"]
        for name, values in _NEUTRAL_VALUES.items():
            if read.get(name) not in values:
                self.config.refuse(f"{name}={read[name]!r} of {names[0]} is not converted.")
        return options

    @property
    def settings(self):
        """The settings of the whole encoder, such as its prompts."""
        if not pathlib.Path(self.config.folder, SETTINGS).is_file():
            return {}
        settings = read_json(self.config.folder, SETTINGS)
        kind = settings.get("model_type", "SentenceTransformer")
        if kind != "SentenceTransformer":
            self.config.refuse(
                f"A {kind} of sentence-transformers is not converted, only a SentenceTransformer."
            )
        return settings

    def _options(self, path):
        return read_json(self.config.folder, f"{path}/config.json")

    def _check(self, is_right, name, value):
        if not is_right:
            self.config.refuse(f"The option {name} of the sentence encoder is {value!r}.")

    def _check_input(self, path, options):
        for name in ("module_input_name", "module_output_name"):
            if options.get(name) not in (None, _PIPELINE_KEY):
                self.config.refuse(
                    f"{name}={options[name]!r} of {path}/config.json is not converted, only "
                    f"{_PIPELINE_KEY!r}."
                )


_MODULE_READERS = {"Dense": SentenceEncoder.make_dense, "Normalize": SentenceEncoder.make_normalize}
_READ_MODULES = ("Transformer", "Pooling", *_MODULE_READERS)


def _name_and_path(config, index, module):
    """Return the class of a module and the folder of its files; refuse unknown ones."""
    kind = module.get("type") if isinstance(module, dict) else None
    name = str(kind).rpartition(".")[2]
    if name not in _READ_MODULES:
        config.refuse(
            f"The module {name!r} of {MODULES} is not converted, only {', '.join(_READ_MODULES)}."
        )
    path = module.get("path", f"{index}_{name}" if index else "")
    if not isinstance(path, str) or ".." in pathlib.PurePath(path).parts:
        config.refuse(f"The path {path!r} of {MODULES} is no folder in the checkpoint.")
    return name, path


def _copy_projection(checkpoint, layer):
    """Copy the tensors of a module Dense, in either direction."""
    copy_part(checkpoint, layer, "dense", "linear")
    if layer.residual_dense is not None:
        copy_part(checkpoint, layer, "residual_dense", "residual")


def padding_id(config, default):
    """Return an id of padding for a causal encoder: by its tokenizer, else by `config.json`.

    `default` is the id where `config.json` has none.

    Padding is at the end only, so any id does that is not the last one of texts. Many tokenizers
    pad with the id that ends a text.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tokenizer is read again with the model
        tokenizer = read_tokenizer(config.folder)
    if tokenizer is None:
        return config.optional(config.index, "pad_token_id", default)
    ends = tokenizer.template.end[-1:]
    special = (tokenizer.get_config().get("special_tokens") or {}).values()
    ids = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, *special, 0, 1]
    return next(i for i in ids if i is not None and i not in ends)


def _gives_vectors(model):
    """Return True for a model of vectors of texts, but for one with the pooler of its family."""
    is_of_texts = isinstance(model, models.Classifier) and model.image_shape is None
    return (
        is_of_texts
        and model.num_classes is None
        and not isinstance(model.pooler, keras.layers.Dense)
    )


def is_sentence_encoder(model, tokenizer, has_pooler):
    """Return True for a model that a class of features does not hold, or that has prompts.

    Features are the outputs at the first token, in a decoder at the last one. Where the class of
    transformers has a pooler behind the first token, the bare token needs the files of pooling.

    Args:
        model: any.
        tokenizer: of the model, or None.
        has_pooler: bool. If True, the family's class of features has a pooler.
    """
    if not _gives_vectors(model):
        return False
    pool = model.get_layer("pool")
    are_features = pool.names == [_pooling_of_features(model)] and pool.include_prompt
    is_plain = are_features and model.pooler is None and not has_pooler
    return not is_plain or isinstance(tokenizer, SentenceTokenizer)


def without_pooling(model):
    """Return the features of a sentence encoder's first module; another model as it is."""
    if not _gives_vectors(model):
        return model
    return with_head(model, FEATURES, pooling=_pooling_of_features(model))


def _pooling_of_features(model):
    return "last" if is_causal(model.encoder) else "first"


def sentence_files(model, tokenizer):
    """Return the contents of JSON files, and the tensors of folders, of a sentence encoder."""
    files = {f"{POOLING}/config.json": _pooling_options(model.get_layer("pool"))}
    settings, tensors, paths = {}, {}, [("", "Transformer"), (POOLING, "Pooling")]
    for layer in _layers_of(model.pooler):
        if "truncate_dim" in settings:
            raise ValueError(
                "`Truncate` must be the last layer of a sentence encoder that is written. "
                f"Received: model.pooler with {layer!r} after it."
            )
        if isinstance(layer, layers.Truncate):
            settings["truncate_dim"] = layer.size
            continue
        name = _module_name(layer)
        path = f"{len(paths)}_{name}"
        paths.append((path, name))
        if name == "Dense":
            files[f"{path}/config.json"], tensors[path] = _dense_files(layer)
    files[MODULES] = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(paths)
    ]
    length = None
    if isinstance(tokenizer, SentenceTokenizer):
        length = tokenizer.max_length
        settings |= {"prompts": tokenizer.prompts, "default_prompt_name": tokenizer.default_prompt}
        options = {"max_seq_length": length, "do_lower_case": tokenizer.lower_case}
        files[LENGTH_FILES[0]] = options
    if settings:
        files[SETTINGS] = settings
    return files, tensors


def _layers_of(pooler):
    if pooler is None:
        return []
    return pooler.layers if isinstance(pooler, keras.Sequential) else [pooler]


def _module_name(layer):
    names = {layers.Projection: "Dense", keras.layers.UnitNormalization: "Normalize"}
    if type(layer) not in names or getattr(layer, "axis", -1) not in (-1, 1, [-1], [1]):
        raise ValueError(
            "The layers of a sentence encoder's `pooler` must be `Projection`, `UnitNormalization` "
            f"and `Truncate` to be written. Received: {layer!r}."
        )
    return names[type(layer)]


def _pooling_options(pool):
    names = pool.names
    options = {"word_embedding_dimension": pool.output.shape[-1] // len(names)}
    if [name for name in _POOLINGS if name in names] == names:
        # As versions before 5.4 write it, with the false flags: without it they take the mean too.
        options |= {flag: name in names for name, (flag, _) in _POOLINGS.items()}
    else:
        options["pooling_mode"] = [_POOLINGS[name][1] for name in names]
    return options if pool.include_prompt else {**options, "include_prompt": False}


def _dense_files(layer):
    """Return the options and the tensors of a module Dense."""
    activation = next(
        (
            name
            for key, name in _ACTIVATIONS.items()
            if keras.activations.get(key) is layer.activation
        ),
        None,
    )
    if activation is None:
        raise ValueError(
            f"The activation of a `Projection` must be one of {', '.join(_ACTIVATIONS)} to be "
            f"written. Received: activation={layer.activation!r}."
        )
    options = {
        "in_features": layer.dense.kernel.shape[0],
        "out_features": layer.units,
        "bias": layer.use_bias,
        "activation_function": activation,
    }
    stored = StoredModel(None)
    _copy_projection(stored, layer)
    return options | ({"use_residual": True} if layer.residual else {}), stored.tensors
