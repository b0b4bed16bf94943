"""The page at `/`: a sentence, its translation, and what each written token looked at."""

import base64
import hashlib
import json
import pathlib
import re

_FILE = pathlib.Path(__file__).with_name("demo.html")
_MODELS = "[]/* models */"


class DemoPage:
    """One file of HTML in which the names of the models stand; all else it asks the REST API.

    The page may run its own script and talk to this server: what a model answers is never code.

    Args:
        manager: `ModelManager`. Whose models the page offers.
    """

    def __init__(self, manager):
        self._manager = manager
        self._html = _FILE.read_text(encoding="utf-8")

    def content(self):
        """The page as it is now: bytes, and the headers that go with it."""
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
    """The sources that may run, as a policy names them: those that stand in the page."""
    contents = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digests = (hashlib.sha256(content.encode()).digest() for content in contents)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
