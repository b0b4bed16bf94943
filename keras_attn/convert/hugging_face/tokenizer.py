"""The tokenizer in a folder of Hugging Face, as one that computes in the graph."""

import pathlib
import warnings

from keras_attn.convert.hugging_face.tensor_files import read_json, refuse
from keras_attn.ops.checks import check_paths
from keras_attn.text import ByteLevelBPE, Marian, SentencePiece, Template, WordPiece
from keras_attn.text.tokenizers.byte_level_bpe import PATTERNS

_MARIAN = ("source.spm", "target.spm", "vocab.json")
_BPE = ("vocab.json", "merges.txt")
_SENTENCEPIECE = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model")
_FILES = (*_MARIAN, *_SENTENCEPIECE, "tokenizer.json", "vocab.txt", "merges.txt")
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
# Of each rule of BERT's normaliser, the setting of the class of tokenizers.
_BERT_SETTINGS = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
# The classes that compute by the file alone.
_ANY_CLASS = ("PreTrainedTokenizerFast", "TokenizersBackend")


def read_tokenizer(folder, vocabulary_size=None):
    """Return the tokenizer of a folder; None if it has none, or none whose ids a graph computes.

    It reads `tokenizer.json` of a known kind, `vocab.txt`, `vocab.json` with `merges.txt`, a
    SentencePiece model, or Marian's three files. The ids equal Hugging Face's, except that no
    text becomes a special token or an added mark; SentencePiece models give the ids of the
    SentencePiece library.

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
    if not any((files / name).is_file() for name in _FILES):
        return None
    try:
        tokenizer = _read(files)
        _check_ids(tokenizer, vocabulary_size, files)
        return _with_ids(tokenizer, vocabulary_size)
    except (NoGraph, ImportError) as reason:
        warnings.warn(
            f"The tokenizer in {str(folder)!r} has no graph: {reason} Tokenize outside the model, "
            "and export the signature of ids.",
            stacklevel=2,
        )
        return None


def _check_ids(tokenizer, vocabulary_size, files):
    """Refuse a tokenizer by which texts become ids that the model lacks."""
    special = tokenizer.get_config().get("special_tokens") or {}
    lacking = range(vocabulary_size or tokenizer.vocabulary_size, tokenizer.vocabulary_size)
    if beyond := [i for i in lacking if i not in special.values()]:
        refuse(
            f"The tokenizer has the id {beyond[-1]}, but the model only {vocabulary_size} ids: it "
            "is the tokenizer of another model.",
            files,
        )


def _with_ids(tokenizer, vocabulary_size):
    """Return the tokenizer with a special token for each id that only the model has."""
    config = tokenizer.get_config()
    lacking = range(tokenizer.vocabulary_size, vocabulary_size or 0)
    if not lacking or "special_tokens" not in config:
        return tokenizer
    unused = {f"<unused {i}>": i for i in lacking}
    config["special_tokens"] = {**config["special_tokens"], **unused}
    return type(tokenizer)(**config)


def _read(files):
    settings = {
        **_json(files / "special_tokens_map.json"),
        **_json(files / "tokenizer_config.json"),
    }
    if _has_all(files, _MARIAN):
        return _marian(files, settings)
    model = next((files / name for name in _SENTENCEPIECE if (files / name).is_file()), None)
    model = model and model.read_bytes()
    if (files / "tokenizer.json").is_file():
        return _json_tokenizer(files, settings, model)
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
    return {"gpt2": "GPT2"}.get(model_type, model_type.capitalize())


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
    return [{"id": i, "content": token, "special": token in special} for token, i in older.items()]


def _marian(files, settings):
    vocabularies = [_json(files / name) for name in ("vocab.json", "target_vocab.json")]
    check_added(_added_tokens(files, settings))
    models = [(files / name).read_bytes() for name in _MARIAN[:2]]
    return Marian(*models, *filter(None, vocabularies))


def _json_tokenizer(files, settings, model):
    content = _json(files / "tokenizer.json")
    *_, defaults = _BYTE_LEVEL.get(_class_name(files, settings), ({},))
    settings = {**{f"{name}_token": token for name, token in defaults.items()}, **settings}
    try:
        return read_json_rules(content, settings, model)
    except KeyError as error:
        refuse(f"The file 'tokenizer.json' is damaged: it has no {error}.", files)


def _wordpiece(files, settings):
    if not settings.get("tokenize_chinese_chars", True):
        raise NoGraph("it does not split Chinese characters.")
    pieces = _text(files / "vocab.txt").removesuffix("\n").split("\n")
    check_added(_added_tokens(files, settings))
    lower_case, strip = settings.get("do_lower_case", True), settings.get("strip_accents")
    return build(WordPiece, pieces, lower_case, strip)


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
    ids, special = special_ids(vocabulary, added, settings, defaults)
    template = None
    if defaults is _ROBERTA[2]:
        start, end = (ids["bos_id"],), (ids["eos_id"],)
        template = Template(start, end * 2, end)
    return build(
        ByteLevelBPE,
        vocabulary,
        merges,
        pattern,
        special,
        **ids,
        template=template,
        normal_form=normal_form,
        add_space=bool(settings.get("add_prefix_space")),
    )


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


def _sentencepiece(model, files, settings):
    name = _class_name(files, settings)
    tokenizer = SentencePiece(model)
    check_added(_added_tokens(files, settings))
    if name in ("T5", "Mt5", "MT5"):
        count, end = settings.get("extra_ids", 100), tokenizer.vocabulary_size
        special = {f"<extra_id_{i}>": end + count - 1 - i for i in range(count)}
        return SentencePiece(model, special_tokens=special)
    if name in ("Llama", "Mistral", "Gemma"):
        start = (tokenizer.bos_id,) if settings.get("add_bos_token", True) else ()
        end = (tokenizer.eos_id,) if settings.get("add_eos_token", False) else ()
        return SentencePiece(model, Template(start, end + start, end))
    raise NoGraph(f"the special tokens of the class {name!r} are not known.")


class NoGraph(ValueError):
    """A reason why no graph computes the ids of a tokenizer."""


def read_json_rules(content, settings, model=None):
    """Return the tokenizer of a file's content.

    Args:
        content: dict. The file.
        settings: dict. `tokenizer_config.json`.
        model: bytes. The SentencePiece model beside the file, if there is one.
    """
    kind = _model_type(content["model"])
    steps = _kind(content["normalizer"]), _kind(content["pre_tokenizer"])
    if kind == "WordPiece" and steps == ("BertNormalizer", "BertPreTokenizer"):
        return _json_wordpiece(content, settings)
    is_bytes = kind == "BPE" and not content["model"].get("byte_fallback")
    if is_bytes and steps[0] in (None, "NFC"):
        return _json_byte_level(content, settings)
    if kind in ("Unigram", "BPE") and model is not None:
        return _json_sentencepiece(content, settings, model)
    if kind in ("Unigram", "BPE"):
        raise NoGraph("no SentencePiece model, such as tokenizer.model, is beside it.")
    raise NoGraph(f"it combines {kind}, {steps[0]} and {steps[1]}.")


def build(make, *arguments, **options):
    """Return a tokenizer, or raise `NoGraph` where its class refuses the arguments."""
    try:
        return make(*arguments, **options)
    except ValueError as error:
        raise NoGraph(str(error)) from error


def check_added(added):
    """Raise `NoGraph` for an added word, which Hugging Face cuts out of a text before all rules.

    So it does with a word of the model's vocabulary, inside longer words too. A mark that is
    special or not normalised, such as Qwen's `<tool_call>`, stays plain text.

    Args:
        added: list of the added tokens, dicts of `content`, `special` and `normalized`.
    """
    for token in added:
        is_mark = token.get("special", True) or not token.get("normalized", True)
        if not is_mark:
            raise NoGraph(f"it cuts the added token {token['content']!r} out of texts.")


def special_ids(vocabulary, added, settings, defaults=()):
    """Return the ids of padding, first and last token, and those of all special tokens.

    Args:
        vocabulary: dict of the id of each token; added tokens of text are put into it.
        added: list of the added tokens, dicts of `id`, `content`, `special` and `normalized`.
        settings: dict. `tokenizer_config.json`.
        defaults: dict of the texts of "pad", "bos" and "eos" where `settings` names none.
    """
    check_added(added)
    special = {token["content"]: token["id"] for token in added if token.get("special", True)}
    vocabulary.update((token["content"], token["id"]) for token in added)
    ids = {}
    for name in ("pad", "bos", "eos"):
        token = settings.get(f"{name}_token", dict(defaults).get(name))
        token = token["content"] if isinstance(token, dict) else token
        ids[f"{name}_id"] = vocabulary.get(token)
        if token in vocabulary:
            special[token] = vocabulary[token]
    return ids, special


def _model_type(model):
    """Return the type of a model, which the first versions of the file do not name."""
    if "type" in model:
        return model["type"]
    if "merges" in model:
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "WordPiece" if "continuing_subword_prefix" in model else "WordLevel"


def _kind(rules):
    return rules and rules["type"]


def _json_wordpiece(content, settings):
    model, normalizer = content["model"], dict(content["normalizer"])
    if settings.get("tokenizer_class") not in _ANY_CLASS:
        own = {rule: name for rule, name in _BERT_SETTINGS.items() if name in settings}
        normalizer.update((rule, settings[name]) for rule, name in own.items())
    expected = {
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    _check(model, expected)
    _check(normalizer, {"clean_text": True, "handle_chinese_chars": True})
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    check_added(content["added_tokens"])
    if any(token["content"] not in model["vocab"] for token in content["added_tokens"]):
        raise NoGraph("it has tokens besides its vocabulary.")
    if [model["vocab"][piece] for piece in pieces] != list(range(len(pieces))):
        raise NoGraph("its vocabulary has gaps.")
    template = _read_template(content)
    lower_case, strip = normalizer["lowercase"], normalizer["strip_accents"]
    return build(WordPiece, pieces, lower_case, strip, template)


def _json_byte_level(content, settings):
    model = content["model"]
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise NoGraph(f"its {name} is {model[name]!r}.")
    vocabulary = dict(model["vocab"])
    ids, special = special_ids(vocabulary, content["added_tokens"], settings)
    pattern, add_space = _pattern(content["pre_tokenizer"])
    # Older files write a pair as one string.
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return build(
        ByteLevelBPE,
        vocabulary,
        merges,
        pattern,
        special,
        **ids,
        template=_read_template(content),
        normal_form=_kind(content["normalizer"]),
        add_space=add_space,
        ignore_merges=bool(model.get("ignore_merges")),
    )


def _pattern(rules):
    """Return the name of the pattern that splits words, and True if a space is put in front."""
    steps = rules["pretokenizers"] if _kind(rules) == "Sequence" else [rules]
    kinds = [_kind(step) for step in steps]
    if kinds == ["ByteLevel"] and steps[0].get("use_regex", True):
        return "gpt2", steps[0]["add_prefix_space"]
    if kinds == ["Split", "ByteLevel"] and not steps[1].get("use_regex", True):
        _check(steps[0], {"behavior": "Isolated", "invert": False})
        _check(steps[1], {"add_prefix_space": False})
        expression = steps[0]["pattern"].get("Regex")
        for name, known in PATTERNS.items():
            if expression == known:
                return name, False
        raise NoGraph(f"its pattern of words is not known: {expression!r}.")
    raise NoGraph(f"it splits words by {kinds}.")


def _json_sentencepiece(content, settings, model):
    theirs = content["model"]["vocab"]
    pieces = [piece for piece, _ in theirs] if isinstance(theirs, list) else theirs
    tokens = {piece: i for i, piece in enumerate(pieces)} if pieces is not theirs else dict(theirs)
    own = build(SentencePiece, model).vocabulary()
    if any(tokens.get(piece) != i for i, piece in enumerate(own)):
        raise NoGraph("the SentencePiece model beside it has other pieces or ids.")
    added = content["added_tokens"]
    ids, _ = special_ids(tokens, added, settings)
    above = {token: i for token, i in tokens.items() if i >= len(own)}
    return SentencePiece(model, _read_template(content), above, ids["pad_id"])


def _check(rules, expected):
    for name, value in expected.items():
        if rules.get(name, value) != value:
            raise NoGraph(f"its {name} is {rules[name]!r}.")


def _read_template(content):
    """Return the `Template` of a file's `post_processor`."""
    rules = content["post_processor"]
    steps = rules["processors"] if _kind(rules) == "Sequence" else [rules]
    steps = [step for step in steps if _kind(step) not in (None, "ByteLevel")]
    if not steps:
        return Template()
    if len(steps) > 1:
        raise NoGraph("it has several templates.")
    (rules,) = steps
    if _kind(rules) in ("BertProcessing", "RobertaProcessing"):
        start, end = (rules["cls"][1],), (rules["sep"][1],)
        is_bert = _kind(rules) == "BertProcessing"
        return Template(start, end if is_bert else end * 2, end, int(is_bert))
    if _kind(rules) != "TemplateProcessing":
        raise NoGraph(f"its special tokens come from {_kind(rules)}.")
    return _read_templates(rules)


def _read_templates(rules):
    """Return the `Template` of the rules of one text and of two."""
    single, pair = (_parts(rules, rules[name]) for name in ("single", "pair"))
    if len(single) != 2 or len(pair) != 3 or single != [pair[0], pair[2]]:
        raise NoGraph("its templates of one text and of two differ.")
    segments = [part["Sequence"]["type_id"] for part in rules["pair"] if "Sequence" in part]
    return Template(*pair, second_segment=segments[1])


def _parts(rules, template):
    """Return the ids of special tokens before, between and after the texts of a template."""
    parts = [()]
    for part in template:
        if "Sequence" in part:
            parts.append(())
        else:
            parts[-1] += tuple(rules["special_tokens"][part["SpecialToken"]["id"]]["ids"])
    return parts
