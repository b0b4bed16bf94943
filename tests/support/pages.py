"""Pages of the project, and what tests read from them."""

import functools
import re
import shlex
from pathlib import Path

from keras_attn.programs import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
# Cards are written by programs.
PAGES = [ROOT / "README.md", *sorted((ROOT / ".github").glob("*.md"))] + sorted(
    page
    for folder in ("keras_attn", "recipes", "serving")
    for page in (ROOT / folder).rglob("*.md")
    if page.parent.name != "cards"
)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://)([^)\s]+)\)")
_PROGRAM = re.compile(r"python -m ((?:keras_attn|recipes|serving)\S*)(.*)")
_WORDS = "|".join(sorted(PROGRAMS, key=len, reverse=True))
_COMMAND = re.compile(rf"\b(?:keras-attn|python -m keras_attn) ({_WORDS})(?!\S)")


def name(page):
    """Return the path of a page in the repository, which names its tests."""
    return page.relative_to(ROOT).as_posix()


def text(page):
    """Return the text of a page."""
    return page.read_text(encoding="utf-8")


@functools.cache
def without_code(page):
    """Return the text of a page without its blocks of code."""
    return _FENCE.sub("", text(page))


def blocks(page, *languages):
    """Return the blocks of code in some languages, in order."""
    return [block for language, block in _FENCE.findall(text(page)) if language in languages]


def shell_lines(page):
    """Return the words of each command in the blocks for a shell, without comments."""
    joined = (block.replace("\\\n", " ") for block in blocks(page, "sh", "shell"))
    lines = (line for block in joined for line in block.splitlines())
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def programs(page):
    """Return pairs (module, arguments) of the project's programs that a page runs.

    They are in the blocks for a shell and, as code, in the text. There `... --option` adds to the
    arguments of the program before it, and `keras-attn COMMAND` alone is its name.
    """
    code = r"`(?:[A-Z_]+=\S+ )*((?:python -m|keras-attn|\.\.\.) [^`]+)`"
    inline = [x for x in re.findall(code, without_code(page)) if not _COMMAND.fullmatch(x)]
    lines = [" ".join(map(shlex.quote, words)) for words in shell_lines(page)] + inline
    commands = []
    for line in lines:
        if match := _PROGRAM.search(in_full(line)):
            commands.append((match[1], shlex.split(match[2])))
        elif line.startswith("..."):
            module, arguments = commands[-1]
            commands.append((module, arguments[:2] + shlex.split(line)[1:]))
    # NAME is a placeholder, and `keras_attn` the list of all commands.
    return [pair for pair in commands if "NAME" not in pair[0] and pair[0] != "keras_attn"]


def in_full(line):
    """Return a line with `python -m` and the module in place of `keras-attn` and its command."""

    def module_of(match):
        program = PROGRAMS[match[1]]
        return " ".join(["python -m", program.module, *program.arguments])

    return _COMMAND.sub(module_of, line)


def links(page):
    """Return the links of a page that lead to files or headings of the project."""
    return _LINK.findall(without_code(page))


@functools.cache
def anchors(page):
    """Return the names by which GitHub links the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", x.strip().lower()).replace(" ", "-") for x in plain}


def sentences(page):
    """Return the sentences of a page without tables and blocks of code; a list item ends one."""
    prose = re.sub(r"^\|.*$", "\n", without_code(page), flags=re.MULTILINE)
    prose = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    prose = re.sub(r"`[^`]*`", "code", prose)
    parts = re.split(r"\n\s*\n|^#+ .*$|^\s*[-*] ", prose, flags=re.MULTILINE)
    return [s for part in parts for s in re.split(r"(?<=[.?!])\s+", " ".join(part.split())) if s]
