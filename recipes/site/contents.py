"""Contents of the site: the groups of its pages, and each other page below that of its folder."""

from fnmatch import fnmatch

# Title, and patterns of the pages at the top of the group, in order.
GROUPS = (
    (
        "Guides",
        (
            "recipes/guides/index",
            "recipes/tutorials/index",
            "recipes/guides/install",
            "recipes/guides/*",
        ),
    ),
    (
        "Library",
        (
            *("api/index", "keras_attn/index", "keras_attn/convert/index"),
            *("keras_attn/export/index", "serving/index", "keras_attn/distribution/index"),
        ),
    ),
    ("Recipes", ("recipes/index", "recipes/*/index", "recipes/*")),
    ("Project", ("keras_attn/CHANGELOG", "CONTRIBUTING", "tests/*/card")),
)


def write(folder):
    """Add lists of contents, which show in the sidebar alone, to the sources in a folder."""
    paths = sorted(folder.rglob("*.md"))
    texts = {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}
    names = [name for name, path in texts.items() if not _is_orphan(path)]
    names.remove("index")
    lists = {"index": []}
    for title, patterns in GROUPS:
        top = [name for pattern in patterns for name in names if _fits(name, pattern)]
        top = list(dict.fromkeys(top))
        lists["index"].append((title, top))
        names = [name for name in names if name not in top]
    for name in names:
        lists.setdefault(_above(name, texts), [("", [])])[0][1].append(name)
    for name, groups in lists.items():
        with texts[name].open("a", encoding="utf-8") as file:
            file.writelines(_toctree(title, pages) for title, pages in groups)


def _is_orphan(path):
    return path.read_text(encoding="utf-8").startswith("---\norphan")


def _fits(name, pattern):
    return fnmatch(name, pattern) and name.count("/") == pattern.count("/")


def _above(name, names):
    """Return the page of the nearest folder that has one."""
    folders = name.split("/")[:-1]
    while folders:
        above = "/".join([*folders, "index"])
        if above in names and above != name:
            return above
        folders.pop()
    return "index"


def _toctree(title, pages):
    caption = f":caption: {title}\n" if title else ""
    lines = "\n".join(f"/{page}" for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n:titlesonly:\n{caption}\n{lines}\n```\n"
