"""Words of byte-level BPE, and the letters that represent bytes."""

from keras_attn.text.packages import load_regex, load_tensorflow_text
from keras_attn.text.regex_steps import WHITE_SPACE, normalize, replace, valid
from keras_attn.text.rows import tf

# The expressions in Hugging Face's files.
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
# Two code points that are no characters, of which a text gets U+FFFD in their place. The first is
# put into white space before its last character if that one belongs to the next word. The second
# replaces NUL, at which `regex_split` ends a text.
_BORDER, _NUL = "\U0010ffff", "\U0010fffe"


def _letters():
    """Return the letter of each byte: itself if it prints, else one from U+0100 on."""
    prints = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in prints else next(others)) for byte in range(256)]


LETTERS = _letters()


class WordSplitter:
    """Split texts into words by one of the `PATTERNS`.

    Args:
        pattern: str. A name in `PATTERNS`.
        normal_form: "NFC" or None.
        add_space: bool. Put a space in front of a text that begins with none.
    """

    def __init__(self, pattern, normal_form=None, add_space=False):
        self._normal_form, self._add_space = normal_form, add_space
        no_space, space = f"[^{WHITE_SPACE}]", f"[{WHITE_SPACE}]"
        written = PATTERNS[pattern].replace(r"[^\s", no_space[:-1]).replace(r"\S", no_space)
        self._in_python = written.replace(r"\s", space)
        # TensorFlow's expressions have no look-ahead: `\s+(?!\S)` matches white space up to its
        # last character where a word follows, and so does `\s+` up to a border.
        in_graph = written.replace(rf"\s+(?!{no_space})|", "").replace(r"\s", space)
        self._in_graph = in_graph.replace(r"\p{N}]", rf"\p{{N}}{_BORDER}]") + f"|{_BORDER}"
        last = space
        if pattern != "gpt2":  # the others end a word after a line end
            last = space.replace("\t-\r", "\t\x0b\x0c")
        self._borders = [(f"({space})({last})({no_space})", rf"\1{_BORDER}\2\3")]

    def _prepared(self, text):
        text = replace(valid(text), [(f"[{_BORDER}{_NUL}]", "\ufffd")])
        if self._normal_form is not None:
            text = normalize(text, self._normal_form)
        return replace(text, [("^([^ ])", r" \1")]) if self._add_space else text

    def split(self, text):
        """Return the words of a string tensor (B,), ragged (B, words), for `as_letters`."""
        text = replace(self._prepared(text), [(r"\x00", _NUL), *self._borders])
        split = load_tensorflow_text().regex_split
        return split(text, self._in_graph, rf"(?s)[^{_BORDER}].*")

    def split_in_python(self, text):
        """Return the words of a str or of bytes."""
        return load_regex().findall(self._in_python, self._prepared(text))


def as_letters(words):
    """Write each byte of words that `split` returned, a string tensor (W,), as its letter."""
    split = tf.strings.bytes_split(replace(words, [(_NUL, "\0")]))
    codes = tf.io.decode_raw(split.flat_values, tf.uint8, fixed_length=1)[:, 0]
    letters = tf.gather(tf.constant(LETTERS), tf.cast(codes, tf.int32))
    return tf.strings.reduce_join(split.with_flat_values(letters), axis=1)


def as_letters_in_python(word):
    """Write each byte of a str as its letter."""
    return "".join(LETTERS[byte] for byte in word.encode())
