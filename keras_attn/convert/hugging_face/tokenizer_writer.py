"""Files from which transformers reads a tokenizer: the inverse of `read_tokenizer`."""

import base64
import dataclasses
import hashlib

from keras_attn.convert.hugging_face.sentencepiece_models import OWN_FILE, as_metaspace
from keras_attn.convert.hugging_face.tensor_files import json_bytes
from keras_attn.text import (
    AddedTokens,
    ByteLevelBPE,
    Bytes,
    Marian,
    Metaspace,
    SentencePiece,
    Template,
    WordPiece,
)
from keras_attn.text.tokenizers.byte_level_bpe import PATTERNS, STEPS

_SENTENCEPIECE = {
    "llama": "LlamaTokenizer",
    "mistral": "LlamaTokenizer",
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "t5": "T5Tokenizer",
    "mt5": "T5Tokenizer",
}
# The settings of special tokens besides those of a tokenizer's ids.
_NAMES = {"[CLS]": "cls", "[SEP]": "sep", "[MASK]": "mask", "<mask>": "mask"}
_NO_CHANGES = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def tokenizer_files(tokenizer, model_type):
    """Return the contents of a tokenizer's files by name: bytes, or dicts for JSON.

    Raises:
        ValueError: if no files give transformers the ids of the tokenizer.
    """
    files = _library_files(tokenizer, model_type)
    if isinstance(getattr(tokenizer, "tokenizer", tokenizer), SentencePiece):
        files["tokenizer.json"] = json_bytes(files["tokenizer.json"])
        changes = tokenizer.changed_attributes()
        if "template" in changes:
            changes["template"] = dataclasses.asdict(changes["template"])
        files[OWN_FILE] = {
            "base64": base64.b64encode(tokenizer.to_bytes()).decode(),
            "changes": changes,
            "sha256": hashlib.sha256(files["tokenizer.json"]).hexdigest(),
        }
    return files


def _library_files(tokenizer, model_type):
    """Return the contents of the files that transformers reads."""
    if isinstance(tokenizer, AddedTokens):
        files = _library_files(tokenizer.tokenizer, model_type)
        words = [{"special": False, **_NO_CHANGES, **t} for t in tokenizer.get_config()["tokens"]]
        content = files.pop("tokenizer.json", None)
        if content is None:
            raise ValueError(
                "The added tokens of `tokenizer` need a `tokenizer.json`, which its kind has not. "
                f"Received: tokenizer={tokenizer.tokenizer!r}."
            )
        content["added_tokens"] = sorted(content["added_tokens"] + words, key=lambda t: t["id"])
        return {"tokenizer.json": content, "tokenizer_config.json": files["tokenizer_config.json"]}
    writers = {
        WordPiece: _wordpiece,
        ByteLevelBPE: _byte_level,
        Bytes: _bytes,
        Metaspace: _metaspace,
        SentencePiece: lambda tokenizer: _sentencepiece(tokenizer, model_type),
        Marian: _marian,
    }
    if type(tokenizer) not in writers:
        names = ", ".join(f"`{kind.__name__}`" for kind in writers)
        raise ValueError(
            f"`tokenizer` must be one of {names}, which transformers has too. "
            f"Received: tokenizer={tokenizer!r}."
        )
    return writers[type(tokenizer)](tokenizer)


def _wordpiece(tokenizer):
    config = tokenizer.get_config()
    pieces = config["vocabulary"]
    names = dict(zip(config["special_pieces"], ("pad", "unk", "cls", "sep"), strict=True))
    names |= {token: name for token, name in _NAMES.items() if name == "mask"}
    special = {token: pieces.index(token) for token in names if token in pieces}
    end = (tokenizer.eos_id,)
    is_bert = tokenizer.template == Template((tokenizer.bos_id,), end, end, second_segment=1)
    content = {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": config["strip_accents"],
            "lowercase": config["lower_case"],
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": config["special_pieces"][1],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {piece: index for index, piece in enumerate(pieces)},
        },
    }
    settings = {
        # The class puts BERT's special tokens around a text, whatever the file says.
        "tokenizer_class": "BertTokenizer" if is_bert else "PreTrainedTokenizerFast",
        "do_lower_case": config["lower_case"],
        "strip_accents": config["strip_accents"],
        **{f"{names[token]}_token": token for token in special},
    }
    if not is_bert:
        settings |= _special_settings(tokenizer)
    return {
        "tokenizer.json": _with_specials(content, tokenizer, special),
        "tokenizer_config.json": settings,
        "vocab.txt": "".join(f"{piece}\n" for piece in pieces).encode(),
    }


def _byte_level(tokenizer):
    config = tokenizer.get_config()
    merges = [merge.split(" ") for merge in config["merges"]]
    byte_level = _byte_level_rule(config["add_space"])
    pattern = config["pattern"]
    steps = _split_rules([pattern] if isinstance(pattern, str) else pattern, byte_level)
    content = {
        "normalizer": config["normal_form"] and {"type": config["normal_form"]},
        "pre_tokenizer": (
            steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
        ),
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "byte_fallback": False,
            "ignore_merges": config["ignore_merges"],
            "vocab": config["vocabulary"],
            "merges": merges,
        },
    }
    merges = "\n".join(["#version: 0.2", *config["merges"], ""])
    return {
        "tokenizer.json": _with_specials(content, tokenizer, config["special_tokens"]),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **_special_settings(tokenizer),
        },
        "vocab.json": config["vocabulary"],
        "merges.txt": merges.encode(),
    }


def _byte_level_rule(adds_space):
    return {"type": "ByteLevel", "add_prefix_space": adds_space, "trim_offsets": True}


def _split_rules(names, byte_level):
    """Return the rules of the steps that split words, and of the letters of their bytes."""
    isolated = {"type": "Split", "behavior": "Isolated", "invert": False}
    rules = {
        "digits": {"type": "Digits", "individual_digits": True},
        "runs of digits": {"type": "Digits", "individual_digits": False},
        "punctuation": {"type": "Punctuation", "behavior": "Contiguous"},
    }
    if "bytes" not in names:
        names = [*names, "bytes"]
    steps = []
    for name, following in zip(names, [*names[1:], None], strict=True):
        if name == "gpt2" and following == "bytes":
            steps.append({**byte_level, "use_regex": True})
        elif name == "bytes":
            is_done = steps and steps[-1]["type"] == "ByteLevel"
            steps += [] if is_done else [{**byte_level, "use_regex": False}]
        else:
            expression = {**PATTERNS, **STEPS}[name]
            steps.append(rules.get(name) or {**isolated, "pattern": {"Regex": expression}})
    return steps


def _metaspace(tokenizer):
    config = tokenizer.get_config()
    vocabulary, merges = config["vocabulary"], config["merges"]
    unknown = None if tokenizer.unk_id is None else tokenizer.vocabulary()[tokenizer.unk_id]
    model = {"vocab": vocabulary, "byte_fallback": config["byte_fallback"]}
    if merges is None:
        model |= {"type": "Unigram", "unk_id": tokenizer.unk_id}
    else:
        merges = [merge.split(" ") for merge in merges]
        model |= {"type": "BPE", "merges": merges, "unk_token": unknown, "fuse_unk": True}
    decoders = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}]
    decoders += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    if tokenizer.adds_space:
        decoders += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    content = {
        "normalizer": config["normalizer"],
        "pre_tokenizer": config["pre_tokenizer"],
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model,
    }
    special = {t: i for t, i in config["special_tokens"].items() if t != f"<unused {i}>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **_special_settings(tokenizer)}
    return {
        "tokenizer.json": _with_specials(content, tokenizer, special),
        "tokenizer_config.json": settings,
    }


def _bytes(tokenizer):
    config = tokenizer.get_config()
    special, more = config["special_tokens"], config["more_tokens"]
    settings = {**_special_settings(tokenizer), "extra_ids": len(more)}
    if special == ["<pad>", "</s>", "<unk>"]:
        settings["tokenizer_class"] = "ByT5Tokenizer"
    elif special == ["[PAD]", "[BOS]", "[EOS]", "[MASK]", "[CLS]", "[SEP]"] and not more:
        settings = {"tokenizer_class": "PerceiverTokenizer"}
    else:
        raise ValueError(
            "The special tokens of `tokenizer` must be those of ByT5 or Perceiver, which "
            f"transformers has. Received: special_tokens={special}."
        )
    return {"tokenizer_config.json": settings}


def _sentencepiece(tokenizer, model_type):
    config, template = tokenizer.get_config(), tokenizer.template
    start, end = template.start, template.end
    # Not the ids that only the model has, which `read_tokenizer` names so.
    special = {t: i for t, i in config["special_tokens"].items() if t != f"<unused {i}>"}
    files = _metaspace(as_metaspace(tokenizer))
    if model_type in ("t5", "mt5") and _is_of_t5(tokenizer, special):
        name, settings = "spiece.model", {"extra_ids": len(special)}
    elif (
        model_type in _SENTENCEPIECE
        and not special
        and start in ((), (tokenizer.bos_id,))
        and end in ((), (tokenizer.eos_id,))
        and template == Template(start, end + start, end)
    ):
        name, settings = "tokenizer.model", _special_settings(tokenizer)
        settings |= {"add_bos_token": bool(start), "add_eos_token": bool(end), "legacy": True}
    else:
        return files
    settings["tokenizer_class"] = _SENTENCEPIECE[model_type]
    return {**files, name: config["model_proto"], "tokenizer_config.json": settings}


def _is_of_t5(tokenizer, special):
    """Return True if a tokenizer has T5's first pieces, template and extra ids."""
    end = (tokenizer.eos_id,)
    last = SentencePiece(tokenizer.get_config()["model_proto"]).vocabulary_size + len(special) - 1
    return (
        tokenizer.vocabulary()[:3] == ["<pad>", "</s>", "<unk>"]
        and tokenizer.template == Template(middle=end, end=end)
        and special == {f"<extra_id_{i}>": last - i for i in range(len(special))}
    )


def _marian(tokenizer):
    config = tokenizer.get_config()
    files = {
        "source.spm": config["source_model"],
        "target.spm": config["target_model"],
        "vocab.json": config["vocabulary"],
        "tokenizer_config.json": {
            "tokenizer_class": "MarianTokenizer",
            "separate_vocabs": config["target_vocabulary"] is not None,
        },
    }
    if config["target_vocabulary"] is not None:
        files["target_vocab.json"] = config["target_vocabulary"]
    return files


def _special_settings(tokenizer):
    """Return the settings of the special tokens that a tokenizer has, by which users name them."""
    pieces, template = tokenizer.vocabulary(), tokenizer.template
    ids = {name: getattr(tokenizer, f"{name}_id") for name in ("pad", "unk", "bos", "eos")}
    if template.start and template.end:
        ids |= {"cls": template.start[0], "sep": template.end[-1]}
    settings = {f"{name}_token": pieces[i] for name, i in ids.items() if i is not None}
    special = tokenizer.get_config().get("special_tokens", {})
    settings |= {f"{name}_token": token for token, name in _NAMES.items() if token in special}
    inputs = ["input_ids", "attention_mask"]
    if template.second_segment and template.start and template.end:  # of an encoder
        inputs.insert(1, "token_type_ids")
    return {**settings, "model_input_names": inputs}


def _with_specials(content, tokenizer, special):
    """Return the content of `tokenizer.json` with the special tokens and their template."""
    template, pieces = tokenizer.template, tokenizer.vocabulary()
    first, second = 0, template.second_segment  # segments

    def special_tokens(ids, segment):
        return [{"SpecialToken": {"id": pieces[i], "type_id": segment}} for i in ids]

    def text(name, segment):
        return [{"Sequence": {"id": name, "type_id": segment}}]

    one = [*special_tokens(template.start, first), *text("A", first)]
    ids = sorted({*template.start, *template.middle, *template.end})
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": token, "special": True, **_NO_CHANGES}
            for token, i in sorted(special.items(), key=lambda item: item[1])
        ],
        **content,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [*one, *special_tokens(template.end, first)],
            "pair": [
                *(*one, *special_tokens(template.middle, first)),
                *(*text("B", second), *special_tokens(template.end, second)),
            ],
            "special_tokens": {
                pieces[i]: {"id": pieces[i], "ids": [i], "tokens": [pieces[i]]} for i in ids
            },
        },
    }
