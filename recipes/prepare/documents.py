"""Documents in texts: files, paragraphs, lines, fields of JSON lines, and lines of two files."""

import contextlib
import hashlib
import itertools
import json
import os

from keras_attn.text.tokenizers.vocabularies import writable

from . import problems as kinds
from .open_text import damages, open_text
from .parallel_text import PARALLEL_TEXT, count_lines
from .sources import LONGEST, is_json_lines

LONGEST_LINE = 2**26  # bytes of a line of JSON
_END = object()


class Documents:
    """The documents of a part of a corpus, read one after another.

    A `.txt` is one document, or one for each paragraph between blank lines, or one for each line.
    A text of more than 8 MiB is cut at the end of a line into several documents, so that memory is
    bounded. Each line of a `.jsonl` is an object, and one of its fields the document; two fields
    are the sides of a pair. So are the lines with the same number of two parallel files.

    Args:
        folder: str. The corpus.
        sources: list of `Source`s.
        documents: one of `options.DOCUMENTS`, for files `.txt`; or `PARALLEL_TEXT`, with sources
            that are alternately source and target.
        fields: names of the fields of a document's sides, for files `.jsonl`.
        problems: `Problems` to which everything is added that is left out.

    Iteration gives each document as a tuple of its sides.

    Attributes:
        sha256: str. The hash of all that was read so far.
        place: str. A name for the place of the document that was given last.

    Raises:
        ValueError: if no object of a file has the fields, or one of two parallel files has more
            lines.
    """

    def __init__(self, folder, sources, documents, fields, problems):
        self._folder, self._sources, self._problems = folder, sources, problems
        self._documents, self._fields = documents, fields
        self._hash = hashlib.sha256()
        self.place = None

    @property
    def sha256(self):
        return self._hash.hexdigest()

    def __iter__(self):
        if self._documents == PARALLEL_TEXT:
            for sources in zip(self._sources[::2], self._sources[1::2], strict=True):
                yield from self._read(self._pairs, *sources)
            return
        for source in self._sources:
            read = self._json_lines if is_json_lines(source.path) else self._texts
            yield from self._read(read, source)

    def _read(self, read, *sources):
        """Yield what a function reads from the lines of sources."""
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(open_text(self._path(x), x.start)) for x in sources]
            lines = [_Lines(*x, self._hash) for x in zip(opened, sources, strict=True)]
            try:
                yield from read(*lines)
            except damages():
                self._problems.add(kinds.DAMAGED, " or ".join(one.path for one in lines))
            else:
                for one in lines:
                    if not one.read:
                        self._problems.add(kinds.EMPTY_FILE, one.path)

    def _path(self, source):
        return os.path.join(self._folder, source.path)

    def _pairs(self, *sides):
        for pair in itertools.zip_longest(*(x.whole(LONGEST) for x in sides), fillvalue=_END):
            if _END in pair:
                counts = [(x.path, count_lines(self._path(x))) for x in sides]
                raise ValueError(
                    "A text and its translation must have the same number of lines. Received: "
                    + " and ".join(f"{path} with {count}" for path, count in counts)
                )
            texts = [self._line(*x) for x in zip(pair, sides, strict=True)]
            if None not in texts and any(text.strip() for text in texts):
                empty = [
                    x.place() for x, text in zip(sides, texts, strict=True) if not text.strip()
                ]
                self.place = empty[0] if empty else sides[0].place()
                yield tuple(texts)

    def _line(self, line, lines):
        """Return the text of a line; None, and a problem, if it is too long or not UTF-8."""
        try:
            if line is not None:
                return line.decode()
            self._problems.add(kinds.TOO_LONG, lines.place())
        except UnicodeDecodeError:
            self._problems.add(kinds.NOT_UTF8, lines.place())

    def _texts(self, lines):
        pieces, size = [], 0
        for line in lines.pieces(LONGEST):
            is_end = self._documents == "blank_lines" and not line.strip()
            if pieces and (is_end or size + len(line) > LONGEST or self._documents == "lines"):
                yield from self._decoded(pieces)
                pieces, size = [], 0
            if not pieces:
                self.place = lines.place()
            if not is_end and (line.strip() or self._documents != "lines"):
                pieces.append(line)
                size += len(line)
        if pieces:
            yield from self._decoded(pieces)

    def _decoded(self, pieces):
        try:
            text = b"".join(pieces).decode()
        except UnicodeDecodeError:
            self._problems.add(kinds.NOT_UTF8, self.place)
        else:
            yield (text,)

    def _json_lines(self, lines):
        names = None
        for line in lines.whole(LONGEST_LINE):
            if line is not None and not line.strip():
                continue
            self.place = lines.place()
            if line is None:
                self._problems.add(kinds.TOO_LONG_JSON, self.place)
                continue
            content = self._parsed(line)
            if content is None:
                continue
            if all(isinstance(content.get(field), str) for field in self._fields):
                names = ()
                sides = [writable(content[field]) for field in self._fields]
                # The sides of a pair cannot be cut at the same place.
                yield from zip(_cut(*sides)) if len(sides) == 1 else [(*sides,)]
            else:
                names = sorted(content) if names is None else names
                self._problems.add(kinds.NO_FIELD, self.place)
        if names:
            wanted = " and ".join(map(repr, self._fields))
            flags = zip(("--field", "--target-field"), self._fields, strict=False)
            raise ValueError(
                f"No line of {lines.path} has a text in the field{'s' * (len(self._fields) - 1)} "
                f"{wanted}. Received: {' '.join(f'{flag} {field}' for flag, field in flags)}; "
                f"the first object has {', '.join(names[:20])}."
            )

    def _parsed(self, line):
        """Return the dict in a line; None, and a problem more, if it holds none."""
        try:
            content = json.loads(line.decode().lstrip("\ufeff"))
        except UnicodeDecodeError:
            self._problems.add(kinds.NOT_UTF8, self.place)
            return None
        except (ValueError, RecursionError):
            content = None
        if isinstance(content, dict):
            return content
        self._problems.add(kinds.BROKEN, self.place)
        return None


class _Lines:
    """Lines of an open file up to the end of a source.

    Attributes:
        path: str.
        read: int. The bytes that were read.
    """

    def __init__(self, file, source, digest):
        self._file, self._source, self._hash = file, source, digest
        self.path, self.read, self._number, self._begin = source.path, 0, 0, 0

    def place(self):
        """Return a name for the line that was given last."""
        if self._source.start:
            return f"{self.path}, byte {self._source.start + self._begin}"
        return f"{self.path}, line {self._number}"

    def whole(self, longest):
        """Yield each line; None for one that is longer than `longest` bytes."""
        while line := self._next(longest):
            is_long = False
            while not line.endswith(b"\n") and (more := self._next(longest, is_new=False)):
                is_long, line = True, more
            yield None if is_long else line

    def pieces(self, longest):
        """Yield each line; one that is longer than `longest` bytes in several pieces."""
        rest = b""
        while line := rest + self._next(longest - len(rest), not rest):
            rest = b""
            if len(line) == longest and not line.endswith(b"\n"):
                cut = line.rfind(b" ", longest // 2) + 1 or _character_end(line)
                line, rest = line[:cut], line[cut:]
            yield line

    def _next(self, size, is_new=True):
        source = self._source
        if source.stop is not None and source.start + self.read >= source.stop:
            return b""
        if is_new:
            self._number, self._begin = self._number + 1, self.read
        line = self._file.readline(size)
        self._hash.update(line)
        self.read += len(line)
        return line


def _character_end(line):
    """Return where the last whole character of UTF-8 ends."""
    end = len(line)
    while end > len(line) - 4 and line[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if line[end - 1] & 0xC0 == 0xC0 else len(line)


def _cut(text, longest=LONGEST):
    """Yield a text in pieces that end at a line's end and have at most `longest` characters."""
    start = 0
    while len(text) - start > longest:
        end = text.rfind("\n", start + longest // 2, start + longest) + 1 or start + longest
        yield text[start:end]
        start = end
    yield text[start:]
