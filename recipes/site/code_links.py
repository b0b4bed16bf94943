"""Extension of Sphinx: names of the library in code lead to their API pages."""

import re
from collections import defaultdict

from docutils import nodes
from sphinx.util.nodes import make_refnode

_NAME = re.compile(r"((?:\w+\.)*\w+)(?:\(.*\))?", re.DOTALL)  # with or without arguments


def setup(app):
    """Connect the extension to the events of Sphinx."""
    links = CodeLinks()
    app.connect("env-check-consistency", links.collect)  # once, after all pages are read
    app.connect("doctree-resolved", links.add)


class CodeLinks:
    """Links of names in code: `keras_attn.patterns.Local`, `patterns.Local(4)`, classes as `Local`.

    Attributes:
        entries: dict of the entry of Sphinx for each name that only one object has.
    """

    def __init__(self):
        self.entries = {}

    def collect(self, app, env):
        """Read the names of all API pages."""
        same_names = defaultdict(list)
        for name, entry in env.domains.python_domain.objects.items():
            parts = name.split(".")
            for start in range(len(parts)):
                short = ".".join(parts[start:])
                if "." in short or short[0].isupper():
                    same_names[short].append(entry)
        self.entries = {
            name: entries[0] for name, entries in same_names.items() if len(entries) == 1
        }

    def add(self, app, tree, page):
        """Make links of the names on a page."""
        module = page.replace("api/", "keras_attn.")  # on its page names of a module stand alone
        for code in list(tree.findall(nodes.literal)):
            match = _NAME.fullmatch(code.astext())
            name = match[1] if match else ""
            entry = self.entries.get(name) or self.entries.get(f"{module}.{name}")
            if entry and not isinstance(code.parent, nodes.reference) and not _is_of_keras(code):
                target = entry.docname, entry.node_id
                code.replace_self(make_refnode(app.builder, page, *target, code.deepcopy()))


def _is_of_keras(code):
    before = code.previous_sibling()
    return isinstance(before, nodes.Text) and before.endswith(("Keras's ", "KerasHub's "))
