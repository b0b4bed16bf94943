"""Hints in error messages: the closest known name, and our name for that of another library."""

import difflib
import functools
import inspect
import re
from typing import NamedTuple

# Names of arguments in Keras and in other libraries, by ours for the same.
_SAME_ARGUMENTS = {
    "dilation": "dilation_rate attention_dilation",
    "dropout": "rate dropout_rate drop_rate attention_dropout dropout_prob p",
    "epsilon": "eps layer_norm_epsilon norm_epsilon layer_norm_eps",
    "hidden_dim": "units d_model embed_dim embedding_dim output_dim model_dim hidden_size dim",
    "ignore_class": "ignore_index mask_value pad_id",
    "intermediate_dim": "units hidden_dim intermediate_size d_ff ff_dim ffn_dim dim_feedforward",
    "key_dim": "head_dim head_size size_per_head d_k",
    "learning_rate": "lr",
    "max_length": "length sequence_length seq_len max_len maxlen max_position_embeddings n_ctx",
    "num_heads": "heads n_heads nhead n_head num_attention_heads num_query_heads",
    "num_key_value_heads": "num_kv_heads n_kv_heads",
    "num_layers": "layers n_layers n_layer num_hidden_layers num_blocks depth",
    "pad_id": "mask_zero padding_idx pad_token_id",
    "top_k": "k",
    "top_p": "p",
    "value_dim": "d_v",
    "vocabulary_size": "input_dim vocab_size num_embeddings num_tokens",
}
# Arguments of other libraries that a value of our argument replaces: our argument, the remedy.
_CAUSAL = "pattern", 'Use `pattern="causal"`.'
_LOCAL = "pattern", "Use `pattern=patterns.Local(window=...)`."
_PRE_NORM = "residual", 'Use `residual="pre_norm"`.'
_FOLD = (
    "num_heads",
    "Attention is along axis 1: fold the other axes into the batch by "
    "`keras.ops.reshape(x, (-1, *x.shape[-2:]))`.",
)
_KEY_DIM = "key_dim", "Use `key_dim`, the size of a head: the width divided by `num_heads`."
_ATTENTION = "attention", "Use `attention=MultiHeadAttention(num_heads=..., key_dim=...)`."
_FEED_FORWARD = "feed_forward", "Use `feed_forward=FeedForward(intermediate_dim=...)`."
_FASTEST = "implementation", '`implementation="auto"` uses a fused kernel where there is one.'
_REPLACED = {
    "attention_axes": _FOLD,
    "batch_first": ("num_heads", "Inputs are always (batch, length, width)."),
    "causal": _CAUSAL,
    "flash_attention": _FASTEST,
    **dict.fromkeys(["hidden_dim", *_SAME_ARGUMENTS["hidden_dim"].split()], _KEY_DIM),
    **dict.fromkeys([*_SAME_ARGUMENTS["num_heads"].split(), "num_heads", "key_dim"], _ATTENTION),
    **dict.fromkeys(["intermediate_dim", "activation"], _FEED_FORWARD),
    "from_logits": ("label_smoothing", "`y_pred` is always logits."),
    "is_causal": _CAUSAL,
    "norm_first": _PRE_NORM,
    "normalize_first": _PRE_NORM,
    "pre_norm": _PRE_NORM,
    "sliding_window": _LOCAL,
    "use_causal_mask": _CAUSAL,
    "window": _LOCAL,
    "window_size": _LOCAL,
}
# Other names of the values of an axis.
_SAME_VALUES = {
    "absolute": "Learned",
    "bahdanau": "additive",
    "bidirectional": "dense",
    "full": "dense",
    "globalattention": "Global",
    "dilatedslidingwindow": "Dilated",
    "prefixlm": "Prefix",
    "luong": "dot",
    "nucleus": "sample",
    "rope": "rotary",
    "slidingwindow": "Local",
    "attentionsinks": "Sinks",
    "streamingllm": "Sinks",
    "topk": "sample",
    "topp": "sample",
    "unidirectional": "causal",
    "window": "Local",
}
# Packages whose classes pass `**kwargs` on to all their bases, and check the rest themselves.
_FRAMEWORKS = {"keras", "tensorflow", "torch", "flax", "jax"}


def _plain(name):
    return "".join(filter(str.isalnum, name)).lower()


def _is_close(name, word):
    """Return True for a part of a name and for few wrong letters: rate and remat are two words."""
    if name in word or word in name:
        return True
    least = 0.7 if name[:1] == word[:1] else 0.8
    return difflib.SequenceMatcher(None, word, name).ratio() > least


def closest(name, known):
    """Return the one of `known` names that is closest to `name`; None if none is close."""
    plain = {_plain(word): word for word in known}
    name = _plain(name)
    synonym = _plain(_SAME_VALUES.get(name, name))
    if synonym in plain:
        return plain[synonym]
    matches = [word for word in difflib.get_close_matches(name, plain) if _is_close(name, word)]
    # Of the closest few, one that begins so: "gpt2" is as close to gpt_oss_20b as to gpt2_small.
    matches.sort(key=lambda word: not word.startswith(name))
    return plain[matches[0]] if matches else None


def all_close(name, known):
    """Return a few of the `known` names that contain `name`, lie in it, or are close; a list."""
    plain = {_plain(word): word for word in known}
    name = _plain(name)
    parts = [word for word in plain if len(name) > 2 and (name in word or word in name)]
    parts.sort(key=lambda word: not word.startswith(name))
    return [plain[word] for word in parts[:5] or difflib.get_close_matches(name, plain)]


def did_you_mean(name, known):
    """Return " Did you mean ...?" with the closest of the `known` names; "" if none is close."""
    if not isinstance(name, str):
        return ""
    match = closest(name, [word for word in known if isinstance(word, str)])
    return "" if match is None else f" Did you mean {match!r}?"


def download_hint(name):
    """Return how to download a checkpoint, for a missing folder that is named as one; else ""."""
    if not re.fullmatch(r"[A-Za-z][\w.-]*(/[\w.-]+)?", name) or name.endswith(".keras"):
        return ""
    folder = name.rpartition("/")[2]
    return f" If it is a checkpoint of Hugging Face: `hf download {name} --local-dir {folder}`."


def check_keywords(name, known, keywords):
    """Raise a `ValueError` if one of the keyword arguments of a call of `name` is not `known`."""
    for keyword, value in keywords.items():
        if keyword not in known:
            raise ValueError(
                f"`{name}` has no argument `{keyword}`. {_remedy(keyword, known)} "
                f"Received: {keyword}={value!r}."
            )


def _remedy(keyword, known):
    ours = [word for word, same in _SAME_ARGUMENTS.items() if keyword in same.split()]
    ours = [f"`{word}`" for word in ours if word in known]
    if ours:
        return f"Use {' or '.join(ours)}."
    replacement, sentence = _REPLACED.get(keyword, (None, None))
    if replacement in known:
        return sentence
    match = closest(keyword, known)
    return f"Did you mean `{match}`?" if match else f"Its arguments are {', '.join(known)}."


class Constructor(NamedTuple):
    """The constructor of a class or of one of its bases.

    Attributes:
        owner: the class that defines it.
        parameters: list of `inspect.Parameter`, those with a name.
        is_open: bool. True if its `**kwargs` are arguments of the next base.
    """

    owner: type
    parameters: list
    is_open: bool

    @property
    def package(self):
        """The name of the package that defines it."""
        return self.owner.__module__.partition(".")[0]


@functools.cache
def constructors(cls):
    """Return a tuple of the `Constructor`s of a class and its bases, its own first."""
    readings = []
    for owner in cls.__mro__:
        if "__init__" in vars(owner) and owner is not object:
            _, *parameters = inspect.signature(owner.__init__).parameters.values()
            named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
            is_open = any(p.kind is p.VAR_KEYWORD for p in parameters)
            readings.append(Constructor(owner, named, is_open))
    return tuple(readings)


@functools.cache
def _constructor_arguments(cls):
    """Return the names of a constructor's arguments, own first; None if it may take others."""
    names = {}
    for constructor in constructors(cls):
        names.update(dict.fromkeys(p.name for p in constructor.parameters))
        if constructor.package in _FRAMEWORKS:
            continue
        if not constructor.is_open:
            break
        if constructor.package != __package__:
            return None
    return tuple(names)


@functools.cache
def _boolean_arguments(cls):
    """Return the names of arguments by position, and of those whose default is True or False.

    What an argument of another package's class means, only that package knows.
    """
    own, *_ = constructors(cls) or [Constructor(cls, [], False)]
    places = tuple(p.name for p in own.parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    is_boolean = {}
    for constructor in constructors(cls):
        is_ours = constructor.package == __package__
        for p in constructor.parameters:
            is_boolean.setdefault(p.name, is_ours and isinstance(p.default, bool))
    return places, frozenset(name for name, is_one in is_boolean.items() if is_one)


class _InitSignature:
    """Signature of a class for `help`: that of `__init__`, since Python takes that of `__new__`."""

    def __get__(self, value, cls):
        if value is not None:
            raise AttributeError("__signature__")
        signature = inspect.signature(cls.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class ArgumentHints:
    """Mixin whose constructor refuses an unknown keyword argument with a hint.

    It refuses other values than True and False too, of arguments that have one of them by default.
    """

    __signature__ = _InitSignature()
    mixed_arguments = ()  # those that are True or False by default and take other values too

    def __new__(cls, *args, **kwargs):
        cls._check_arguments(args, kwargs)
        new = super().__new__
        return new(cls) if new is object.__new__ else new(cls, *args, **kwargs)

    @classmethod
    def _check_arguments(cls, args, kwargs):
        """Raise a `ValueError` for an unknown keyword argument or a boolean that is none."""
        import numpy as np  # here, so that programs that only hint start without it

        known = _constructor_arguments(cls)
        if known is not None:
            check_keywords(cls.__name__, known, kwargs)
        places, booleans = _boolean_arguments(cls)
        for name, value in [*zip(places, args, strict=False), *kwargs.items()]:
            is_boolean = name in booleans and name not in cls.mixed_arguments
            if is_boolean and not isinstance(value, (bool, np.bool_)):
                raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}.")
