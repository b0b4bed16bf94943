"""The rules in a `tokenizer.json`, as a tokenizer that computes in the graph."""

from keras_attn.text import ByteLevelBPE, Metaspace, Template, WordPiece
from keras_attn.text.tokenizers.byte_level_bpe import PATTERNS
from keras_attn.text.tokenizers.rules import steps_of

# Of each rule of BERT's normaliser, the setting of the class of tokenizers.
_BERT_SETTINGS = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
# The classes that compute by the file alone.
_ANY_CLASS = ("PreTrainedTokenizerFast", "TokenizersBackend")


class NoGraph(ValueError):
    """A reason why no graph computes the ids of a tokenizer."""


def read_json_rules(content, settings):
    """Return the tokenizer of a file's content.

    Args:
        content: dict. The file.
        settings: dict. `tokenizer_config.json`.
    """
    kind = _model_type(content["model"])
    steps = [rule["type"] for rule in steps_of(content["pre_tokenizer"])]
    if kind == "WordPiece" and steps == ["BertPreTokenizer"]:
        return _json_wordpiece(content, settings)
    if kind == "BPE" and "ByteLevel" in steps:
        return _json_byte_level(content, settings)
    if kind in ("Unigram", "BPE"):
        return _json_metaspace(content, settings)
    raise NoGraph(f"it combines {kind}, {_kind(content['normalizer'])} and {', '.join(steps)}.")


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
    if (form := _kind(content["normalizer"])) != "BertNormalizer":
        raise NoGraph(f"its normaliser is {form}.")
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
    _check_bpe(model)
    if (form := _kind(content["normalizer"])) not in (None, "NFC"):
        raise NoGraph(f"it combines BPE of bytes and {form}.")
    vocabulary = dict(model["vocab"])
    ids, special = special_ids(vocabulary, content["added_tokens"], settings)
    pattern, add_space = _pattern(content["pre_tokenizer"])
    return build(
        ByteLevelBPE,
        vocabulary,
        _merges(model),
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


def _json_metaspace(content, settings):
    model, added = content["model"], content["added_tokens"]
    is_unigram = isinstance(model["vocab"], list)
    if is_unigram:
        vocabulary, merges, unk_id = [*map(list, model["vocab"])], None, model["unk_id"]
        tokens = {piece: i for i, (piece, _) in enumerate(vocabulary)}
    else:
        _check_bpe(model)
        if model.get("ignore_merges"):
            raise NoGraph("its ignore_merges is True.")
        vocabulary, merges = dict(model["vocab"]), _merges(model)
        tokens, unk_id = vocabulary, vocabulary.get(model["unk_token"])
    ids, special = special_ids(dict(tokens), added, settings)
    if ids["bos_id"] is None:
        ids["bos_id"] = ids["pad_id"]  # with which T5 starts its targets
    return build(
        Metaspace,
        vocabulary,
        merges,
        content["normalizer"],
        content["pre_tokenizer"],
        special,
        byte_fallback=bool(model.get("byte_fallback")),
        unk_id=unk_id,
        template=_read_template(content),
        **ids,
    )


def _check_bpe(model):
    """Refuse merges that do not give the same pieces each time, or pieces with other marks."""
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise NoGraph(f"its {name} is {model[name]!r}.")


def _merges(model):
    # Older files write a pair as one string.
    return [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]


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
