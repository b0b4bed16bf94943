"""Checks of a client's constructor arguments; each raises a `ValueError`."""

import numbers
import re
import urllib.parse

_INT64 = 2**63
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def quoted_url(url):
    """Return a model's address as it is sent, percent-encoded."""
    try:
        parts = urllib.parse.urlsplit(url if isinstance(url, str) else "")
        has_host = parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:  # of a port that is no number
        has_host = False
    is_plain = has_host and not (parts.query or parts.fragment or "@" in parts.netloc)
    if not is_plain or parts.scheme not in ("http", "https") or not parts.path.strip("/"):
        raise ValueError(
            "`url` must be a model's address, http://HOST:PORT/v1/models/NAME. "
            f"Received: url={url!r}."
        )
    path = urllib.parse.quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~", errors="replace")
    return f"{parts.scheme}://{parts.netloc}{path}"


def check_grpc_model(address, model_name, version, label):
    """Refuse what does not name a server and one model or version."""
    is_url = isinstance(address, str) and address.startswith(("http://", "https://"))
    if not isinstance(address, str) or not address or is_url:
        raise ValueError(f"`address` must be HOST:PORT. Received: address={address!r}.")
    if not isinstance(model_name, str) or not model_name:
        raise ValueError(f"`model_name` must be a string. Received: model_name={model_name!r}.")
    if version is not None and label is not None:
        raise ValueError(
            "A `version` or a `label` is given, not both. "
            f"Received: version={version}, label={label!r}."
        )
    is_whole = isinstance(version, numbers.Integral) and not isinstance(version, bool)
    if version is not None and not (is_whole and -_INT64 <= version < _INT64):
        raise ValueError(f"`version` must be a whole number. Received: version={version!r}.")
    if label is not None and not isinstance(label, str):
        raise ValueError(f"`label` must be a string. Received: label={label!r}.")


def checked_headers(headers):
    """Return a dict of headers, empty for None. Errors do not show values, which may be secret."""
    if headers is not None and not isinstance(headers, dict):
        raise ValueError(f"`headers` must be a dict of strings. Received: {type(headers)}.")
    for name, value in (headers or {}).items():
        is_name = isinstance(name, str) and _HEADER_NAME.fullmatch(name)
        is_line = isinstance(value, str) and value.isascii() and value.isprintable()
        if not is_name or not is_line:
            raise ValueError(
                f"`headers` must be single lines of ASCII by name. Received: the one of {name!r}."
            )
    return dict(headers or {})
