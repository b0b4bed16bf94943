"""Rules of `tokenizer.json` by which a text becomes words, alike in a graph and in Python."""

import base64
import functools
import re
import sys
import unicodedata

from keras_attn.text.tokenizers.character_map import CharacterMap, character_class
from keras_attn.text.tokenizers.operations import WHITE_SPACE, lower, normalize, replace

SPACE = "\u2581"  # which SentencePiece writes for a space
_NUL = "\U0010fffe"  # no character, so that no piece has it
_CLASS = f"[{WHITE_SPACE}]"
_NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
# Expressions without groups that look around, and without classes that the engines read in
# different ways: literal characters, white space, sets of characters, and their repetitions.
_PLAIN = re.compile(r"(?:[^\\()\[\]^$.]|\\[nrt]|\\s|\[(?:[^\\\[\]^&]|\\[nrts])+\])+")


def steps_of(rules):
    """Return the rules of a sequence, which may hold sequences, as one list."""
    if rules is None:
        return []
    if rules["type"] != "Sequence":
        return [rules]
    inner = rules["normalizers"] if "normalizers" in rules else rules["pretokenizers"]
    return [step for rule in inner for step in steps_of(rule)]


class TextRules:
    """Write a text as words that begin with "\u2581", by the rules of a `tokenizer.json`.

    Args:
        normalizer, pre_tokenizer: dicts of that file, or None.

    Raises:
        ValueError: if a rule is unknown, in a sentence that names it.
    """

    def __init__(self, normalizer=None, pre_tokenizer=None):
        self.adds_space = self.splits = False
        self.normalizers = [self._normalizer(rule) for rule in steps_of(normalizer)]
        self.splitters = self._splitters(steps_of(pre_tokenizer))

    def normalized(self, text):
        """Return a string tensor, or a str, after the normalisers."""
        for step in self.normalizers:
            text = step(text)
        return text

    def __call__(self, text):
        """Return a string tensor, or a str, after all rules."""
        return replace(self.normalized(text), self.splitters)

    def _normalizer(self, rule):
        kind = rule["type"]
        if kind == "Precompiled":
            return CharacterMap(base64.b64decode(rule["precompiled_charsmap"]))
        if kind in _NORMAL_FORMS:
            return lambda text: normalize(text, kind)
        if kind == "Lowercase":
            # TensorFlow's operation ends a text at NUL, which no piece has.
            return lambda text: lower(replace(text, [(r"\x00", _NUL)]))
        steps = self._replacements(rule)
        return lambda text: replace(text, steps)

    def _replacements(self, rule):
        """Return the pairs of an expression and its replacement for one rule."""
        kind = rule["type"]
        if kind == "StripAccents":
            return [(_all_marks(), "")]
        if kind == "Prepend":
            self.adds_space = self.adds_space or rule["prepend"] == SPACE
            return [("^(?s:(.))", _literal(rule["prepend"]) + r"\1")]
        if kind == "Strip":
            sides = {f"^{_CLASS}+": rule["strip_left"], f"{_CLASS}+$": rule["strip_right"]}
            return [(side, "") for side, is_stripped in sides.items() if is_stripped]
        if kind == "Replace":
            return [(_expression(rule["pattern"]), _literal(rule["content"]))]
        raise ValueError(f"its normaliser {kind} is not known.")

    def _splitters(self, rules):
        """Return the replacements that write the words of all pre-tokenizers."""
        kinds = [rule["type"] for rule in rules]
        if not rules:
            return []
        if kinds == ["Split"]:
            # Gemma's, which finds no space any more: the normaliser has written all of them.
            expected = ({"String": " "}, "MergedWithPrevious", False)
            if tuple(rules[0].get(n) for n in ("pattern", "behavior", "invert")) == expected:
                return []
        if kinds not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
            raise ValueError(f"it splits words by {kinds}.")
        rule = rules[-1]
        scheme, self.splits = rule.get("prepend_scheme"), rule.get("split", True)
        if scheme is None:  # of older files
            scheme = "always" if rule.get("add_prefix_space", True) else "never"
        if rule["replacement"] != SPACE or scheme not in ("always", "first", "never"):
            raise ValueError(f"it writes spaces as {rule['replacement']!r}, {scheme}.")
        self.adds_space = self.adds_space or scheme != "never"
        start = [(f"^([^{SPACE}])", rf"{SPACE}\1")] if scheme != "never" else []
        if len(rules) == 1:
            return [(" ", SPACE), *start]
        self.splits = True
        if scheme != "always":
            raise ValueError(f"it splits at white space and writes spaces {scheme}.")
        ends = [(f"^{_CLASS}+", ""), (f"{_CLASS}+$", "")]
        return [*ends, (f"{_CLASS}+{SPACE}?", SPACE), *start]


@functools.cache
def _all_marks():
    """Return a class of all combining characters, alike in all engines."""
    characters = map(chr, range(sys.maxunicode + 1))
    return character_class({c for c in characters if unicodedata.category(c)[0] == "M"})


def _literal(text):
    """Return a text as a replacement, in which a backslash is no sign."""
    return text.replace("\\", "\\\\")


def _expression(pattern):
    """Return the expression of a pattern in `tokenizer.json`, in a form that all engines read."""
    if "String" in pattern:
        return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", pattern["String"])
    expression = pattern["Regex"]
    if not _PLAIN.fullmatch(expression):
        raise ValueError(f"it replaces {expression!r}, which a graph may read in another way.")
    in_set = re.sub(r"\[[^\]]*\]", lambda s: s[0].replace(r"\s", WHITE_SPACE), expression)
    return in_set.replace(r"\s", _CLASS)
