"""Rules of tokenizers as families have them in `tokenizer.json`."""

import base64

from keras_attn.text.tokenizers.byte_level_bpe import PATTERNS
from keras_attn.text.tokenizers.sentencepiece_model import read_model


def precompiled(model):
    """Return the normaliser of a SentencePiece model."""
    charsmap = base64.b64encode(read_model(model)[2]["charsmap"]).decode()
    return {"type": "Precompiled", "precompiled_charsmap": charsmap}


def metaspace(scheme="always", split=True):
    """Return the rule that writes a space as "▁"."""
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def sequence(name, *steps):
    """Return rules as one; `name` is "normalizers" or "pretokenizers"."""
    return {"type": "Sequence", name: list(steps)}


def replaced(old, new, kind="String"):
    """Return the normaliser that replaces a "String" or what a "Regex" finds."""
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def split(pattern):
    """Return the rules that split the words of byte-level tokenizers by an expression."""
    expression = {"type": "Split", "pattern": {"Regex": PATTERNS[pattern]}}
    expression |= {"behavior": "Isolated", "invert": False}
    return sequence("pretokenizers", expression, byte_level(use_regex=False))


def byte_level(**options):
    """Return the rule that writes bytes as letters."""
    rule = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {**rule, "use_regex": True, **options}


WORDS = sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace())
_STRIP = {"type": "Strip", "strip_left": False, "strip_right": True}
ALBERT = [replaced("``", '"'), replaced("''", '"')]
ALBERT += [{"type": kind} for kind in ("NFKD", "StripAccents", "Lowercase")]
_GEMMA = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}
# The normaliser and the splitter of words, by the map of characters of unigrams.
UNIGRAMS = {
    "t5": lambda charsmap: (charsmap, WORDS),
    "albert": lambda charsmap: (sequence("normalizers", *ALBERT, charsmap), WORDS),
    "mbart": lambda charsmap: (None, WORDS),
    "mbart50": lambda charsmap: (
        sequence("normalizers", charsmap, replaced(" {2,}", " ", "Regex")),
        metaspace(),
    ),
    "deberta": lambda charsmap: (
        sequence(
            "normalizers", replaced(r"\s{2,}|[\n\r\t]", " ", "Regex"), {"type": "NFC"}, _STRIP
        ),
        metaspace(),
    ),
}
MERGES = {
    "llama": (None, metaspace("first", split=False)),
    "llama of version 4": (
        sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replaced(" ", "▁")),
        None,
    ),
    "gemma": (replaced(" ", "▁"), _GEMMA),
}
BYTE_LEVEL = {
    "gpt2": (None, byte_level()),
    "qwen2": ({"type": "NFC"}, split("qwen2")),
    "llama3": (None, split("llama3")),
    "o200k": (None, split("o200k")),
    "starcoder": (
        None,
        sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level()),
    ),
}
BERT = (
    {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    {"type": "BertPreTokenizer"},
)
