"""SentencePiece models as the tokenizers of Hugging Face's classes, and as `tokenizer.json`."""

import base64

from keras_attn.convert.hugging_face.tokenizer_json import NoGraph, build
from keras_attn.text import Metaspace, SentencePiece, Template
from keras_attn.text.tokenizers.sentencepiece_model import (
    BYTE,
    CONTROL,
    UNIGRAM,
    UNKNOWN,
    read_model,
    rearranged,
)

# The tokenizer that `to_hugging_face` wrote, and the checksum of the `tokenizer.json` beside it, by
# whose rules some characters have other ids.
OWN_FILE = "keras_attn_tokenizer.json"
FILES = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "spm.model")
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
# Of each class whose ids are not those of its model: the first tokens, how many pieces of the model
# they replace, and the last token.
_LAYOUTS = {
    "XLMRoberta": (_FAIRSEQ, 3, ("<mask>",)),
    "Camembert": (("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1, ("<mask>",)),
    "MBart": (_FAIRSEQ, 3, ("<mask>",)),
    "MBart50": (_FAIRSEQ, 3, ("<mask>",)),
    "Nllb": (_FAIRSEQ, 3, ("<mask>",)),
    "Pegasus": (
        ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, 103))),
        2,
        (),
    ),
}

# The languages of M2M100's two kinds, which newer folders do not list.
_M2M100 = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl "
        "gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml "
        "mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl "
        "tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}


def read_sentencepiece(name, model, settings, codes, vocabulary=None):
    """Return the tokenizer of a class that has a SentencePiece model and no `tokenizer.json`.

    Args:
        name: str. The class, such as "XLMRoberta".
        model: bytes. The model.
        settings: dict. `tokenizer_config.json`.
        codes: list of the codes of languages, in the order of their ids.
        vocabulary: dict of the id of each piece, which M2M100 has beside its model.
    """
    if name in _LAYOUTS:
        first, replaced, last = _LAYOUTS[name]
        pieces = [piece for piece, _, _ in read_model(model)[1]]
        model = rearranged(model, [*first, *pieces[replaced:]])
        return _with_codes(name, model, settings, codes, last)
    if name == "M2M100" and vocabulary is not None:
        lacking = [
            piece
            for piece, _, kind in read_model(model)[1]
            if kind not in (CONTROL, UNKNOWN) and piece not in vocabulary
        ]
        if lacking:
            raise NoGraph(f"'vocab.json' lacks the piece {lacking[0]!r} of its model.")
        model = rearranged(model, sorted(vocabulary, key=vocabulary.get))
        languages = _M2M100.get(settings.get("language_codes", "m2m100"), "")
        codes = codes or [f"__{language}__" for language in languages.split()]
        return _with_codes(name, model, settings, codes, ())
    tokenizer = build(SentencePiece, model)
    size, end = tokenizer.vocabulary_size, (tokenizer.eos_id,)
    if name in ("T5", "Mt5", "MT5"):
        count = settings.get("extra_ids", 100)
        special = {f"<extra_id_{i}>": size + count - 1 - i for i in range(count)}
        return SentencePiece(model, special_tokens=special)
    if name in ("Llama", "Mistral", "Gemma"):
        start = (tokenizer.bos_id,) if settings.get("add_bos_token", True) else ()
        end = end if settings.get("add_eos_token", False) else ()
        return SentencePiece(model, Template(start, end + start, end))
    if name == "DebertaV2" and not settings.get("do_lower_case", False):
        template = Template((tokenizer.bos_id,), end, end, second_segment=1)
        return SentencePiece(model, template, {"[MASK]": size})
    if name == "Albert":
        return _albert(model, settings)
    raise NoGraph(f"the special tokens of the class {name!r} are not known.")


def _with_codes(name, model, settings, codes, last):
    """Return a tokenizer with the codes of languages above the pieces, and their template."""
    tokenizer = build(SentencePiece, model)
    own = set(tokenizer.vocabulary())
    more = [token for token in dict.fromkeys([*codes, *last]) if token not in own]
    special = {token: tokenizer.vocabulary_size + i for i, token in enumerate(more)}
    end = (tokenizer.eos_id,)
    if name in ("XLMRoberta", "Camembert"):
        return SentencePiece(model, Template((tokenizer.bos_id,), end * 2, end), special)
    if name == "Pegasus":
        return SentencePiece(model, Template(end=end), special)
    default = {"MBart": "en_XX", "MBart50": "en_XX", "Nllb": "eng_Latn", "M2M100": "en"}[name]
    language = settings.get("src_lang") or default
    language = f"__{language}__" if name == "M2M100" else language
    if language not in special:
        raise NoGraph(f"its files do not name the code {language!r} among its special tokens.")
    code = (special[language],)
    template = Template(end=end + code) if name == "MBart" else Template(code, (), end)
    return SentencePiece(model, template, special)


def _albert(model, settings):
    quotes = [
        {"type": "Replace", "pattern": {"String": quote}, "content": '"'} for quote in ("``", "''")
    ]
    steps = quotes
    if not settings.get("keep_accents", False):
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if settings.get("do_lower_case", True):
        steps.append({"type": "Lowercase"})
    pieces = [piece for piece, _, _ in read_model(model)[1]]
    ids = {piece: pieces.index(piece) for piece in ("<pad>", "[CLS]", "[SEP]") if piece in pieces}
    if len(ids) < 3:
        raise NoGraph("its model lacks a piece of '<pad>', '[CLS]' and '[SEP]'.")
    pad, start, end = ids.values()
    tokenizer = as_metaspace(build(SentencePiece, model))
    config = tokenizer.get_config()
    own = config["normalizer"]["normalizers"]
    config |= {"normalizer": {"type": "Sequence", "normalizers": steps + own}}
    config |= {"pad_id": pad, "bos_id": start, "eos_id": end}
    return build(Metaspace, **{**config, "template": Template((start,), (end,), (end,), 1)})


def as_metaspace(tokenizer):
    """Return a `SentencePiece` as a tokenizer by the rules of Hugging Face's library.

    Some combining characters and some white space become other ids.
    """
    config = tokenizer.get_config()
    model_type, pieces, rules = read_model(config["model_proto"])
    steps = []
    if rules["charsmap"]:
        charsmap = base64.b64encode(rules["charsmap"]).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    pre_tokenizer = None
    # Such a map writes all white space as spaces.
    if rules["charsmap"] and rules["removes_spaces"] and rules["adds_space"]:
        metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}
        split = [{"type": "WhitespaceSplit"}, {**metaspace, "split": True}]
        pre_tokenizer = {"type": "Sequence", "pretokenizers": split}
    else:
        if rules["removes_spaces"]:
            steps += [
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
                {"type": "Strip", "strip_left": True, "strip_right": True},
            ]
        if rules["adds_space"]:
            steps.append({"type": "Prepend", "prepend": "\u2581"})
        steps.append({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})
    control = {piece: i for i, (piece, _, kind) in enumerate(pieces) if kind == CONTROL}
    if tokenizer.unk_id is not None:
        control[pieces[tokenizer.unk_id][0]] = tokenizer.unk_id
    vocabulary, merges = _unigrams(pieces) if model_type == UNIGRAM else _merges(pieces)
    return Metaspace(
        vocabulary,
        merges,
        {"type": "Sequence", "normalizers": steps},
        pre_tokenizer,
        {**control, **config["special_tokens"]},
        byte_fallback=any(kind == BYTE for _, _, kind in pieces),
        pad_id=tokenizer.pad_id,
        unk_id=tokenizer.unk_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        template=tokenizer.template,
    )


def _unigrams(pieces):
    return [[piece, score] for piece, score, _ in pieces], None


def _merges(pieces):
    """Return the ids of pieces, and the pairs that make each piece, the highest score first."""
    ids = {piece: i for i, (piece, _, _) in enumerate(pieces)}
    pairs = [
        (score, piece[:cut], piece[cut:])
        for piece, score, kind in pieces
        for cut in range(1, len(piece))
        if kind not in (BYTE, CONTROL, UNKNOWN) and piece[:cut] in ids and piece[cut:] in ids
    ]
    pairs.sort(key=lambda pair: (-pair[0], ids[pair[1]], ids[pair[2]]))
    return ids, [f"{left} {right}" for _, left, right in pairs]
