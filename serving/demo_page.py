"""Web page at `/` with a form for each task of the served models."""

import base64
import hashlib
import json
import pathlib
import re

_FOLDER = pathlib.Path(__file__).parent
_ELEMENTS = (_FOLDER / "demo_elements.js").read_text(encoding="utf-8")
_HTML = (_FOLDER / "demo.html").read_text(encoding="utf-8").replace("/* elements */\n", _ELEMENTS)
_MODELS = "[]/* models */"
_POLICY = (
    "default-src 'none'; connect-src 'self'; script-src {}; style-src {}; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def render(manager):
    """Return the page as bytes, and its headers.

    The file gets the script that shows answers and the names of a `ModelManager`'s models; the rest
    comes over REST. Its security policy allows its own script and this server alone: no answer is
    run as code.
    """
    names = json.dumps(manager.names()).replace("<", r"\u003c")
    html = _HTML.replace(_MODELS, names)
    return html.encode(), {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": _POLICY.format(_hashes("script", html), _hashes("style", html)),
        "Cache-Control": "no-store",
    }


def _hashes(tag, html):
    """Return a policy's sources for the contents of a tag: their hashes."""
    contents = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digests = (hashlib.sha256(content.encode()).digest() for content in contents)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
