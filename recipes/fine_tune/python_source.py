"""Python's standard library as data: docstrings and their packages, words and their kinds.

The texts differ between versions of Python.
"""

import ast
import keyword
import sysconfig
import tokenize
from pathlib import Path

PACKAGES = (
    "asyncio",
    "email",
    "http",
    "importlib",
    "logging",
    "multiprocessing",
    "unittest",
    "xml",
)
_LEAST_CHARACTERS, _LEAST_WORDS = 20, 4
_KINDS = {tokenize.NUMBER: "number", tokenize.OP: "operator", tokenize.STRING: "string"}
_DOCUMENTED = (ast.AsyncFunctionDef, ast.ClassDef, ast.FunctionDef, ast.Module)


def docstrings_by_package():
    """Return a list of (docstring, name of its package), without repetitions."""
    texts = {}
    for package in PACKAGES:
        for path in _files(package):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                text = ast.get_docstring(node) if isinstance(node, _DOCUMENTED) else None
                if text and len(text) >= _LEAST_CHARACTERS:
                    texts.setdefault(text, package)
    return list(texts.items())


def code_lines():
    """Return a list of (words, their kinds), strings with spaces, without repetitions.

    Lines with a comment, or with a space inside a word, are left out.
    """
    texts = {}
    for path in _files("logging"):
        with tokenize.open(path) as file:
            line = []
            for token in tokenize.generate_tokens(file.readline):
                if token.type in (tokenize.NEWLINE, tokenize.COMMENT):
                    words = [word for word, _ in line]
                    is_code = token.type == tokenize.NEWLINE and len(line) >= _LEAST_WORDS
                    if is_code and not any(len(word.split()) != 1 for word in words):
                        texts[" ".join(words)] = " ".join(kind for _, kind in line)
                    line = []
                elif token.string.strip():
                    line.append((token.string, _kind(token)))
    return list(texts.items())


def _kind(token):
    if token.type == tokenize.NAME:
        return "keyword" if keyword.iskeyword(token.string) else "name"
    return _KINDS.get(token.type, "other")


def _files(package):
    return sorted(Path(sysconfig.get_path("stdlib"), package).rglob("*.py"))
