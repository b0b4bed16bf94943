"""Web page at `/` that shows a translation and its attention."""

import base64
import hashlib
import json
import pathlib
import re

_FILE = pathlib.Path(__file__).with_name("demo.html")
_MODELS = "[]/* models */"


class DemoPage:
    """One HTML file with the names of the models; it gets everything else from the REST API.

    Its security policy allows its own script and this server alone: no answer is run as code.

    Args:
        manager: `ModelManager` of the models that the page offers.
    """

    def __init__(self, manager):
        self._manager = manager
        self._html = _FILE.read_text(encoding="utf-8")

    def content(self):
        """Return the page as bytes, and its headers."""
        names = json.dumps(self._manager.names()).replace("<", r"\u003c")
        html = self._html.replace(_MODELS, names)
        policy = "; ".join(
            [
                "default-src 'none'",
                "connect-src 'self'",
                f"script-src {_hashes('script', html)}",
                f"style-src {_hashes('style', html)}",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            ]
        )
        headers = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
        }
        return html.encode(), headers


def _hashes(tag, html):
    """Return a policy's sources for the contents of a tag: their hashes."""
    contents = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digests = (hashlib.sha256(content.encode()).digest() for content in contents)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
