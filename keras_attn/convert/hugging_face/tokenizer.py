"""The tokenizer in a folder of Hugging Face, as one that computes in the graph."""

import base64
import hashlib
import pathlib
import warnings

from keras_attn.convert.hugging_face.sentencepiece_models import FILES as SENTENCEPIECE
from keras_attn.convert.hugging_face.sentencepiece_models import OWN_FILE, read_sentencepiece
from keras_attn.convert.hugging_face.tensor_files import read_json, refuse
from keras_attn.convert.hugging_face.tokenizer_json import (
    NoGraph,
    build,
    read_json_rules,
    special_ids,
    with_added,
)
from keras_attn.ops.checks import check_paths
from keras_attn.text import (
    AddedTokens,
    ByteLevelBPE,
    Bytes,
    Marian,
    Template,
    WordPiece,
)
from keras_attn.text.tokenizers.loading import from_bytes

_MARIAN = ("source.spm", "target.spm", "vocab.json")
_BPE = ("vocab.json", "merges.txt")
_FILES = (*_MARIAN, *SENTENCEPIECE, "tokenizer.json", "vocab.txt", "merges.txt")
# The classes of model types that are written in another way.
_CLASSES = {
    "gpt2": "GPT2",
    "xlm-roberta": "XLMRoberta",
    "deberta-v2": "DebertaV2",
    "m2m_100": "M2M100",
    "mbart": "MBart",
}
_OF_BYTES = ("ByT5", "Perceiver")
# The pattern, the normal form and the default special tokens of each class.
_GPT2 = ("gpt2", None, {"bos": "<|endoftext|>", "eos": "<|endoftext|>"})
_ROBERTA = ("gpt2", None, {"bos": "<s>", "eos": "</s>", "pad": "<pad>"})
_QWEN2 = ("qwen2", "NFC", {"eos": "<|endoftext|>", "pad": "<|endoftext|>"})
_BYTE_LEVEL = {
    "GPT2": _GPT2,
    "Roberta": _ROBERTA,
    "Bart": _ROBERTA,
    "Longformer": _ROBERTA,
    "Qwen2": _QWEN2,
}


def read_tokenizer(folder, vocabulary_size=None):
    """Return the tokenizer of a folder; None if it has none, or none whose ids a graph computes.

    It reads `tokenizer.json`, whose rules decide, unless `to_hugging_face` wrote it for a
    `SentencePiece`, which then is read as it was; without it `vocab.txt`, `vocab.json` with
    `merges.txt`, a SentencePiece model, or Marian's three files. The ids are those of the library
    `tokenizers`, except that no text becomes a special token; SentencePiece models alone give the
    ids of the SentencePiece library.

    Args:
        folder: str. A folder that `save_pretrained` wrote.
        vocabulary_size: int. Number of the model's ids. Some models have more than their tokenizer:
            no text becomes one of those ids, and `decode` drops them.

    Returns:
        A `Tokenizer` whose template holds the special tokens that its model expects. None if the
        folder has no file of a tokenizer, and, with a warning that names the reason, if its rules
        are unknown here or a package is missing.

    Raises:
        ValueError: if `folder` is no folder, a file is damaged, or texts become ids that the model
            lacks.
    """
    check_paths(folder=folder)
    files = pathlib.Path(folder)
    if not files.is_dir():
        raise ValueError(f"There is no folder. Received: folder={str(folder)!r}.")
    try:
        is_of_bytes = _class_name(files, _json(files / "tokenizer_config.json")) in _OF_BYTES
        if not is_of_bytes and not any((files / name).is_file() for name in _FILES):
            return None
        tokenizer = _read_own(files) or _read(files)
        _check_ids(tokenizer, vocabulary_size, files)
        return _with_ids(tokenizer, vocabulary_size)
    except (NoGraph, ImportError) as reason:
        warnings.warn(
            f"The tokenizer in {str(folder)!r} has no graph: {reason} Tokenize outside the model, "
            "and export the signature of ids.",
            stacklevel=2,
        )
        return None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem, has_folder, _ = str(error).partition(" Received: folder=")
        if has_folder:
            raise
        # Files are of others: any value may be missing, or of another type or size.
        problem = f"{type(error).__name__}: {problem.partition(' Received: ')[0].rstrip('.')}"
        return refuse(f"The files of the tokenizer are damaged ({problem}).", folder)


def _read_own(files):
    """Return the tokenizer that `to_hugging_face` wrote; None if the folder's rules are others."""
    own, rules = _json(files / OWN_FILE), files / "tokenizer.json"
    if not own or not rules.is_file():
        return None
    is_unchanged = hashlib.sha256(rules.read_bytes()).hexdigest() == own["sha256"]
    return from_bytes(base64.b64decode(own["base64"]), own["changes"]) if is_unchanged else None


def _check_ids(tokenizer, vocabulary_size, files):
    """Refuse a tokenizer by which texts become ids that the model lacks."""
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # of `AddedTokens`
    special = tokenizer.get_config().get("special_tokens")
    special = special.values() if isinstance(special, dict) else ()  # `Bytes` lists their texts
    lacking = range(vocabulary_size or tokenizer.vocabulary_size, tokenizer.vocabulary_size)
    if beyond := [i for i in lacking if i not in special]:
        refuse(
            f"The tokenizer has the id {beyond[-1]}, but the model only {vocabulary_size} ids: it "
            "is the tokenizer of another model.",
            files,
        )


def _with_ids(tokenizer, vocabulary_size):
    """Return the tokenizer with a special token for each id that only the model has."""
    lacking, config = range(tokenizer.vocabulary_size, vocabulary_size or 0), tokenizer.get_config()
    if lacking and isinstance(tokenizer, AddedTokens):
        inner = _with_ids(tokenizer.tokenizer, vocabulary_size)
        wider = AddedTokens(inner, config["tokens"])
    elif lacking and isinstance(config.get("special_tokens"), dict):
        unused = {f"<unused {i}>": i for i in lacking}
        config["special_tokens"] = {**config["special_tokens"], **unused}
        wider = type(tokenizer)(**config)
    else:
        return tokenizer
    for name, value in tokenizer.changed_attributes().items():
        setattr(wider, name, value)
    return wider


def _read(files):
    settings = {
        **_json(files / "special_tokens_map.json"),
        **_json(files / "tokenizer_config.json"),
    }
    if _has_all(files, _MARIAN):
        return _marian(files, settings)
    if (name := _class_name(files, settings)) in _OF_BYTES:
        return _bytes(name, files, settings)
    if (files / "tokenizer.json").is_file():
        return _json_tokenizer(files, settings)
    model = next((files / name for name in SENTENCEPIECE if (files / name).is_file()), None)
    if model is not None:
        return _sentencepiece(model, files, settings)
    if (files / "vocab.txt").is_file():
        return _wordpiece(files, settings)
    if _has_all(files, _BPE):
        return _byte_level(files, settings)
    needed = _MARIAN if any((files / name).is_file() for name in _MARIAN[:2]) else _BPE
    lacking = next(name for name in needed if not (files / name).is_file())
    return refuse(
        f"The folder has a part of a tokenizer's files {', '.join(needed)}, but no {lacking!r}: "
        "copy it from the checkpoint.",
        files,
    )


def _has_all(files, names):
    """Return True if a folder has all of some files."""
    return all((files / name).is_file() for name in names)


def _json(path):
    return read_json(path.parent, path.name) if path.is_file() else {}


def _text(path):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return refuse(f"The file {path.name!r} is cut or damaged: it is no UTF-8.", path.parent)


def _class_name(files, settings):
    """Return the name of the tokenizer's class without its ending, such as "GPT2"."""
    name = settings.get("tokenizer_class") or ""
    if name:
        return name.removesuffix("Fast").removesuffix("Tokenizer")
    model_type = _json(files / "config.json").get("model_type", "")
    return _CLASSES.get(model_type, model_type.capitalize())


def _added_tokens(files, settings):
    """Return the tokens besides the vocabulary, as `tokenizer.json` has them."""
    if "added_tokens_decoder" in settings:
        return [{"id": int(i), **token} for i, token in settings["added_tokens_decoder"].items()]
    names = [token for name, token in settings.items() if name.endswith("_token")]
    for name in ("additional_special_tokens", "extra_special_tokens"):
        more = settings.get(name) or []
        names += more.values() if isinstance(more, dict) else more
    special = [name.get("content") if isinstance(name, dict) else name for name in names]
    older = _json(files / "added_tokens.json")
    return [
        {"id": i, "content": token, "special": token in special, "normalized": token not in special}
        for token, i in sorted(older.items(), key=lambda item: item[1])
    ]


def _check_added(added):
    """Refuse an added word, which Hugging Face cuts out of a text before the model reads it."""
    for token in added:
        if not token.get("special", True):
            raise NoGraph(f"it cuts the added token {token['content']!r} out of texts.")


def _marian(files, settings):
    vocabularies = [_json(files / name) for name in ("vocab.json", "target_vocab.json")]
    _check_added(_added_tokens(files, settings))
    models = [(files / name).read_bytes() for name in _MARIAN[:2]]
    return Marian(*models, *filter(None, vocabularies))


def _bytes(name, files, settings):
    """Return the tokenizer of a class that has no vocabulary, ByT5's or Perceiver's."""
    # The files call the special tokens below the bytes no special ones.
    added = [token for token in _added_tokens(files, settings) if token["id"] >= 259]
    _check_added([t for t in added if not t["content"].startswith("<extra_id_")])
    if name == "Perceiver":
        special = ["[PAD]", "[BOS]", "[EOS]", "[MASK]", "[CLS]", "[SEP]"]
        ids = {"pad_id": 0, "unk_id": None, "bos_id": 4, "eos_id": 5}
        return Bytes(special, template=Template((4,), (5,), (5,)), **ids)
    count = settings.get("extra_ids", 125)
    above = {token["id"]: token["content"] for token in added if token["id"] >= 259}
    more = [above.get(259 + i, f"<extra_id_{i}>") for i in range(max(count, len(above)))]
    return Bytes(more_tokens=more, bos_id=0)  # targets start with padding


def _json_tokenizer(files, settings):
    content = _json(files / "tokenizer.json")
    *_, defaults = _BYTE_LEVEL.get(_class_name(files, settings), ({},))
    settings = {**{f"{name}_token": token for name, token in defaults.items()}, **settings}
    try:
        return read_json_rules(content, settings)
    except KeyError as error:
        refuse(f"The file 'tokenizer.json' is damaged: it has no {error}.", files)


def _wordpiece(files, settings):
    if not settings.get("tokenize_chinese_chars", True):
        raise NoGraph("it does not split Chinese characters.")
    pieces = _text(files / "vocab.txt").removesuffix("\n").split("\n")
    added = _added_tokens(files, settings)
    words = [token["content"] for token in added if token["id"] >= len(pieces)]
    rules = settings.get("do_lower_case", True), settings.get("strip_accents")
    return with_added(build(WordPiece, pieces, *rules, added_tokens=words), added)


def _byte_level(files, settings):
    name = _class_name(files, settings)
    if name not in _BYTE_LEVEL:
        raise NoGraph(f"the pattern of the class {name!r} is not known.")
    pattern, normal_form, defaults = _BYTE_LEVEL[name]
    vocabulary = _json(files / "vocab.json")
    merges = _text(files / "merges.txt").split("\n")
    merges = [line for line in merges if line and not line.startswith("#version")]
    _check_merges(merges, vocabulary, files)
    added = _added_tokens(files, settings)
    ids, special, more = special_ids(vocabulary, added, settings, defaults)
    template = None
    if defaults is _ROBERTA[2]:
        start, end = (ids["bos_id"],), (ids["eos_id"],)
        template = Template(start, end * 2, end)
    tokenizer = build(
        ByteLevelBPE,
        vocabulary,
        merges,
        pattern,
        special,
        **ids,
        template=template,
        normal_form=normal_form,
        add_space=bool(settings.get("add_prefix_space")),
        added_tokens=more,
    )
    return with_added(tokenizer, added)


def _check_merges(merges, vocabulary, files):
    """Refuse merges of tokens that a vocabulary lacks."""
    for merge in merges:
        parts = merge.split(" ")
        if len(parts) != 2 or not vocabulary.keys() >= {*parts, "".join(parts)}:
            refuse(
                f"The files {' and '.join(map(repr, _BPE))} do not belong together: the vocabulary "
                f"lacks a token of the merge {merge!r}.",
                files,
            )


def _sentencepiece(path, files, settings):
    added = _added_tokens(files, settings)
    _check_added(added)
    name = _class_name(files, settings)
    codes = settings.get("additional_special_tokens", settings.get("extra_special_tokens"))
    codes = [code["content"] if isinstance(code, dict) else code for code in codes or []]
    vocabulary = _json(files / "vocab.json") if name == "M2M100" else None
    return read_sentencepiece(name, path.read_bytes(), settings, codes, vocabulary)
