"""Replacement of characters by SentencePiece's compiled map, as Hugging Face's library does it."""

import functools
import sys

import numpy as np

from keras_attn.text.tokenizers.operations import load_regex, replace, tf
from keras_attn.text.tokenizers.sentencepiece_model import operation, processor, write_normalizer

# No characters, so that no map and no piece has them.
_BORDER, _JOINED = "\U0010fffe", "\U0010ffff"
_MAX_BYTES = 6  # of the texts of a map that are read; longer ones are replaced by no grapheme


class CharacterMap:
    """Replace characters by the `precompiled_charsmap` of a SentencePiece model.

    SentencePiece replaces the longest text of the map at each position. Hugging Face's library
    works by grapheme, a character with its marks. One of at most five bytes that begins with a text
    of the map becomes the replacement of the shortest such text, and the rest of it is lost. In a
    longer one each character is replaced alone. So the marks that would be lost are deleted here,
    and a border parts the characters that SentencePiece would replace together.

    Args:
        charsmap: bytes. The map.
    """

    def __init__(self, charsmap):
        self._model_proto = write_normalizer(charsmap)
        self._processor = processor(self._model_proto)
        self._marks, self._steps = _grapheme_steps(charsmap)

    def __call__(self, text):
        if tf is not None and tf.is_tensor(text):
            has_marks = tf.reduce_any(tf.strings.regex_full_match(text, f"(?s).*{self._marks}.*"))
            text = tf.cond(has_marks, lambda: replace(text, self._steps), lambda: text)
            pieces = operation(self._model_proto, "string").tokenize(text)
            text = tf.strings.reduce_join(pieces, axis=1)
        else:
            text = "".join(self._processor.encode(replace(text, self._steps), out_type=str))
        return replace(text, [(f"[{_BORDER}{_JOINED}]", "")])


@functools.cache
def _grapheme_steps(charsmap):
    """Return a class of all marks, and the replacements of graphemes before those of a map."""
    texts = _texts_of(charsmap)
    alone = {text for text in texts if len(text) == 1}
    joined = {text for text in texts if len(text) == 2}
    marks, ends = _marks()
    firsts = {text[0] for text in joined} | alone
    steps = [(f"[{_BORDER}{_JOINED}]", "\U0010fffd")]
    if "\r" in alone:
        steps.append(("\r\n", "\r"))
    two, three, four = (character_class(_of_size(marks, size)) for size in (2, 3, 4))
    long, every = _either(three, four), character_class(marks)
    # After a first character of so many bytes: the marks of a grapheme of at least six bytes, and
    # those of a shorter one.
    after = {
        1: (f"(?:{long}{every}|{two}{long}|{two}{two}{every})", f"(?:{long}|{two}{two}?)"),
        2: (f"(?:{four}|{_either(two, three)}{every})", _either(two, three)),
        3: (f"(?:{long}|{two}{every})", two),
    }
    for size, (many, few) in after.items():
        own = {text for text in joined if text[0] not in alone and len(text.encode()) < _MAX_BYTES}
        parts = [
            f"({character_class(_of_size(firsts - marks - ends, size))})({many})",
            f"({character_class(_of_size(alone - marks - ends, size))}){few}",
            f"({_pairs(own, size, marks)}){two}?" if size == 1 else f"({_pairs(own, size, marks)})",
        ]
        steps.append(("|".join(parts), rf"\1{_BORDER}\2\3\4{_JOINED}"))
    followers = character_class(marks | {text[1] for text in joined})
    steps += [(f"({followers})", rf"{_BORDER}\1"), (f"{_BORDER}({followers}){_JOINED}", r"\1")]
    return character_class(marks | {text[1] for text in joined} | {"\r"}), steps


def _texts_of(charsmap):
    """Return the short texts that a map replaces, from its double array of states."""
    size = int.from_bytes(charsmap[:4], "little")
    units = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype("int64")
    children = (units >> 10) << ((units & 512) >> 6)  # those of a state are at this XOR a byte
    byte = np.arange(1, 256)
    texts, states, prefixes = [], children[:1], [b""]
    for _ in range(_MAX_BYTES):
        places = states[:, None] ^ byte
        inside = places < len(units)
        reached = units[np.where(inside, places, 0)]
        parents, columns = np.nonzero(inside & ((reached & 0x800000FF) == byte))
        places, reached = places[parents, columns], reached[parents, columns]
        prefixes = [prefixes[p] + bytes([byte[c]]) for p, c in zip(parents, columns, strict=True)]
        texts += [prefixes[i].decode() for i in np.flatnonzero(reached >> 8 & 1)]
        states = places ^ children[places]
    return texts


def _pairs(texts, size, marks):
    """Return an expression of the texts of a character of so many bytes and a mark."""
    seconds = {}
    for text in texts:
        if text[1] in marks and len(text[0].encode()) == size:
            seconds.setdefault(text[0], set()).add(text[1])
    firsts = {}
    for first, others in seconds.items():
        firsts.setdefault(frozenset(others), set()).add(first)
    pairs = [character_class(same) + character_class(others) for others, same in firsts.items()]
    return "|".join(sorted(pairs)) or _NOTHING


@functools.cache
def _marks():
    """Return the characters that belong to the grapheme before them, and those that end one."""
    regex = load_regex()
    surrogates = range(0xD800, 0xE000)
    everything = "".join(chr(i) for i in range(sys.maxunicode + 1) if i not in surrogates)
    marks = r"[\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]"
    ends = r"[\p{GCB=Control}\p{GCB=CR}\p{GCB=LF}]"
    return tuple(frozenset(regex.findall(name, everything)) for name in (marks, ends))


_NOTHING = "[^\\x00-\U0010ffff]"


def _of_size(characters, size):
    return {c for c in characters if len(c.encode()) == size}


def _either(*classes):
    return "(?:" + "|".join(classes) + ")"


def character_class(characters):
    """Return a class of characters, written in ranges."""
    ranges = []
    for code in sorted(map(ord, characters)):
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    inside = "".join(
        f"{_escaped(low)}-{_escaped(high)}" if low < high else _escaped(low) for low, high in ranges
    )
    return f"[{inside}]" if inside else _NOTHING


def _escaped(code):
    return rf"\x{code:02x}" if code < 128 else chr(code)
