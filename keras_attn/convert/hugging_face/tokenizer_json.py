"""The rules in a `tokenizer.json`, as a tokenizer that computes in the graph."""

from keras_attn.text import AddedTokens, ByteLevelBPE, Metaspace, Template, WordPiece
from keras_attn.text.tokenizers.byte_level_bpe import PATTERNS, STEPS
from keras_attn.text.tokenizers.rules import steps_of

# Of each rule of BERT's normaliser, the setting of the class of tokenizers.
_BERT_SETTINGS = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
# Other texts of expressions that `ByteLevelBPE` knows: with a set in a set, and without steps back,
# of which nothing here would need one.
_SAME = {
    r" ?[^(\s|[.,!?…。，、।۔،])]+": "bloom",
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ): "llama3",
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


def with_added(tokenizer, added):
    """Return a tokenizer before which the added tokens are cut out of a text.

    Special tokens stay plain text.

    Args:
        tokenizer: a `Tokenizer` whose vocabulary has the tokens.
        added: list of the added tokens, as `tokenizer.json` has them.
    """
    names = "content", "id", "lstrip", "rstrip", "single_word", "normalized"
    words = [
        {name: token[name] for name in names if name in token}
        for token in added
        if not token.get("special", True)
    ]
    if not words:
        return tokenizer
    rules = tokenizer.get_config()
    steps = [*steps_of(rules.get("normalizer")), *steps_of(rules.get("pre_tokenizer"))]
    for step in steps:
        if step["type"] == "Prepend" or step.get("prepend_scheme") == "first":
            raise NoGraph(
                f"it cuts the added token {words[0]['content']!r} out of texts, and puts a space "
                "in front of the first part only."
            )
    return build(AddedTokens, tokenizer, words)


def special_ids(vocabulary, added, settings, defaults=()):
    """Return the ids of padding, first and last token, of special tokens and of added ones.

    Args:
        vocabulary: dict of the id of each token of the model.
        added: list of the added tokens, dicts of `id`, `content` and `special`.
        settings: dict. `tokenizer_config.json`.
        defaults: dict of the texts of "pad", "bos" and "eos" where `settings` names none.

    Returns:
        A dict of `pad_id`, `bos_id` and `eos_id`, one of the ids of special tokens by their texts,
        and one of the added tokens that the vocabulary lacks.
    """
    special = {token["content"]: token["id"] for token in added if token.get("special", True)}
    tokens = {**vocabulary, **{token["content"]: token["id"] for token in added}}
    ids = {}
    for name in ("pad", "bos", "eos"):
        token = settings.get(f"{name}_token", dict(defaults).get(name))
        token = token["content"] if isinstance(token, dict) else token
        ids[f"{name}_id"] = tokens.get(token)
        if token in tokens:
            special[token] = tokens[token]
    more = {token: i for token, i in tokens.items() if token not in {**vocabulary, **special}}
    return ids, special, more


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
    expected = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    _check(model, expected)
    _check(normalizer, {"clean_text": True, "handle_chinese_chars": True})
    added = content["added_tokens"]
    ids, special, more = special_ids(model["vocab"], added, settings)
    if beyond := [token for token in special if token not in model["vocab"]]:
        raise NoGraph(f"its token {beyond[0]!r} is not in its vocabulary.")
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    words = sorted(more, key=more.get)
    if [{**model["vocab"], **more}[token] for token in pieces + words] != [
        *range(len(pieces) + len(words))
    ]:
        raise NoGraph("its vocabulary has gaps.")
    names = _wordpiece_names(pieces, ids, model["unk_token"])
    template = _read_template(content)
    lower_case, strip = normalizer["lowercase"], normalizer["strip_accents"]
    tokenizer = build(WordPiece, pieces, lower_case, strip, template, names, words)
    return with_added(tokenizer, added)


def _wordpiece_names(pieces, ids, unknown):
    """Return the texts of padding, unknown words, the first and the last token."""
    if {"[PAD]", "[CLS]", "[SEP]"} <= set(pieces):  # BERT's, whose settings name no first token
        return "[PAD]", unknown, "[CLS]", "[SEP]"
    if None in ids.values():
        raise NoGraph("its settings do not name its padding, first and last token.")
    return pieces[ids["pad_id"]], unknown, pieces[ids["bos_id"]], pieces[ids["eos_id"]]


def _json_byte_level(content, settings):
    model = content["model"]
    _check_bpe(model)
    if (form := _kind(content["normalizer"])) not in (None, "NFC"):
        raise NoGraph(f"it combines BPE of bytes and {form}.")
    vocabulary = dict(model["vocab"])
    ids, special, more = special_ids(vocabulary, content["added_tokens"], settings)
    pattern, add_space = _pattern(content["pre_tokenizer"])
    tokenizer = build(
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
        added_tokens=more,
    )
    return with_added(tokenizer, content["added_tokens"])


def _pattern(rules):
    """Return the names of the steps that split words, and True if a space is put in front."""
    names, adds_space = [], False
    for rule in steps_of(rules):
        if rule["type"] == "ByteLevel":
            adds_space = rule.get("add_prefix_space", True)
            if adds_space and names:
                raise NoGraph("it puts a space in front of each word that another rule has split.")
            names += (["gpt2"] if rule.get("use_regex", True) else []) + ["bytes"]
        else:
            names.append(_step_name(rule))
    if names[-1] == "bytes":
        names.pop()
    return names[0] if len(names) == 1 else names, adds_space


def _step_name(rule):
    """Return the name of a step that splits words."""
    if rule["type"] == "Digits":
        return "digits" if rule["individual_digits"] else "runs of digits"
    if rule["type"] == "Punctuation":
        _check(rule, {"behavior": "Contiguous"})
        return "punctuation"
    if rule["type"] != "Split":
        raise NoGraph(f"it splits words by {rule['type']}.")
    _check(rule, {"behavior": "Isolated", "invert": False})
    expression = rule["pattern"].get("Regex", rule["pattern"].get("String"))
    names = {**{known: name for name, known in {**PATTERNS, **STEPS}.items()}, **_SAME}
    if expression not in names:
        raise NoGraph(f"its pattern of words is not known: {expression!r}.")
    return names[expression]


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
    ids, special, more = special_ids(tokens, added, settings)
    if ids["bos_id"] is None:
        ids["bos_id"] = ids["pad_id"]  # with which T5 starts its targets
    tokenizer = build(
        Metaspace,
        vocabulary,
        merges,
        content["normalizer"],
        content["pre_tokenizer"],
        special,
        added_tokens=more,
        byte_fallback=bool(model.get("byte_fallback")),
        unk_id=unk_id,
        template=_read_template(content),
        **ids,
    )
    return with_added(tokenizer, added)


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
