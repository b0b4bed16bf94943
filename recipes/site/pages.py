"""Copies of the repository's pages, in which each link leads to a page or a file of the site."""

import os
import re
from pathlib import Path

import jupytext

from . import notebooks

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "recipes" / "tutorials"
PICTURES = ROOT / ".github" / "images" / "tutorials"
# A source that a page links to is a page with its text; any other file is one to download.
LANGUAGES = {
    ".config": "text",
    ".py": "python",
    ".slurm": "bash",
    ".toml": "toml",
    ".yaml": "yaml",
}
# Sources are in no list of contents. The search leaves out them and the cards, whose tables of
# names and numbers would come before the pages that explain.
ORPHAN = "---\norphan: true\nnosearch: true\n---\n\n"
CARD = "---\nnosearch: true\n---\n\n"
FENCE = "`" * 6  # a docstring may have a shorter one
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:)([^)\s#]+)(#[^)\s]*)?\)")


def write(folder):
    """Write the sources of all pages, and of what they link to, into a folder."""
    written = set()
    for path in [*_pages(), *_tutorials()]:
        _write(path, folder, written)


def _pages():
    pages = [ROOT / "README.md", ROOT / ".github" / "CONTRIBUTING.md"]
    for part in ("keras_attn", "recipes", "serving", "tests"):
        pages += sorted((ROOT / part).rglob("*.md"))
    return pages


def _tutorials():
    return sorted(path for path in TUTORIALS.glob("*.py") if path.name != "__init__.py")


def _write(path, folder, written):
    if path in written:
        return
    written.add(path)
    target = folder / _target(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix != ".md":
        target.symlink_to(path)
    elif path.suffix in LANGUAGES and path not in _tutorials():
        target.write_text(_listing(path), encoding="utf-8")
    else:
        text = _text(path, target)
        place = path if path.is_dir() else path.parent

        def link(match):
            linked = Path(os.path.normpath(place / match[1]))
            if not linked.exists():
                return match[0]
            _write(linked, folder, written)
            relative = os.path.relpath(folder / _target(linked), target.parent)
            return f"]({relative}{match[2] or ''})"

        parts = _FENCED.split(text)
        parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
        target.write_text("".join(parts), encoding="utf-8")


def _target(path):
    """Return the path in the folder of the source of the page, or of the file, of `path`."""
    relative = path.relative_to(ROOT)
    if relative.parts[0] == ".github":  # left out by the action that uploads pages
        relative = Path(*relative.parts[1:])
    if path.is_dir():
        return relative / "index.md"
    if path.name == "README.md":
        return relative.with_name("index.md")
    if path in _tutorials():
        return relative.with_suffix(".md")
    return relative.with_name(f"{path.name}.md") if path.suffix in LANGUAGES else relative


def _text(path, target):
    """Return the text of the page of a page in Markdown, a tutorial or a folder."""
    if path.is_dir():
        names = sorted(file.name for file in path.iterdir() if file.is_file())
        items = "\n".join(f"- [{name}]({name})" for name in names)
        return f"{ORPHAN}# {path.relative_to(ROOT)}\n\n{items}\n"
    if path in _tutorials():
        jupytext.write(notebooks.read(path), target.with_suffix(".ipynb"))
        target.with_suffix(".py").symlink_to(path)
        return notebooks.page(path, os.path.relpath(PICTURES / f"{path.stem}.png", TUTORIALS))
    text = path.read_text(encoding="utf-8")
    if not text.startswith("# "):
        text = f"# {path.stem.replace('_', ' ')}\n\n{text}"
    return CARD + text if path.parent.name == "cards" else text


def _listing(path):
    """Return the page of a source."""
    code = path.read_text(encoding="utf-8")
    language = LANGUAGES[path.suffix]
    return f"{ORPHAN}# {path.relative_to(ROOT)}\n\n{FENCE}{language}\n{code}{FENCE}\n"
