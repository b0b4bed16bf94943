"""Client over REST, with Python's standard library alone."""

import base64
import contextlib
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request

from .client import Client
from .events import read_tokens
from .retries import ClientError, with_retries

_OVERLOADED = (429, 503)
_CHUNK = 1 << 16


class RestClient(Client):
    """Served model over REST.

    Args:
        url: string. The model's address, `http://HOST:PORT/v1/models/NAME`, and after it
            `/versions/N` or `/labels/L` for one version.
        timeout: float. Seconds for a call, all attempts together.
        retries: int. Most attempts after the first.
        headers: dict of strings, sent with each request, as for a gateway before the server.

    Raises:
        ValueError: if an argument is wrong.

    Example:
        >>> import serving.client
        >>> client = serving.client.RestClient("http://127.0.0.1:8501/v1/models/translate")
        >>> client.address
        'http://127.0.0.1:8501/v1/models/translate'

    Reference: https://www.tensorflow.org/tfx/serving/api_rest
    """

    def __init__(self, url, *, timeout=60.0, retries=4, headers=None):
        self._url = _quoted_url(url)
        super().__init__(url.rstrip("/"), timeout, retries, headers)
        self._headers.setdefault("Content-Type", "application/json")

    def _predict(self, inputs, signature_name, limit):
        content = {"signature_name": signature_name, "inputs": inputs}
        outputs = self._request(":predict", "outputs", limit, _json_body(content))
        if not isinstance(outputs, dict) or list(outputs) == ["b64"]:
            # A single output comes without its name.
            outputs = dict.fromkeys(self._signatures(limit)[signature_name]["outputs"], outputs)
        return {n: _decoded(x) if n.endswith("_bytes") else x for n, x in outputs.items()}

    def _signatures(self, limit):
        metadata = self._request("/metadata", "metadata", limit)
        return metadata["signature_def"]["signature_def"]

    def _signature_names(self, limit):
        return list(self._signatures(limit))

    def stream(
        self,
        prompt,
        *,
        max_tokens=64,
        temperature=0.0,
        top_k=None,
        top_p=None,
        seed=None,
        end_tokens=None,
    ):
        """Yield each `Token` as soon as the server has generated it.

        TensorFlow Serving has no such call: it needs the embedded server, with the export of a
        language model with a memory, or one with `stream=True`. Closing the generator ends the
        request on the server. The generator returns why the text has ended, which `yield from`
        gives: "end_token", "max_tokens" or "max_positions".

        Args:
            prompt: string, for an export with a tokenizer, or a list of token ids.
            max_tokens: int. Most tokens to generate.
            temperature: float. 0 takes the most likely token.
            top_k: int. Number of most likely tokens to draw from; None for all.
            top_p: float in (0, 1]. Draw from the smallest set of most likely tokens with this
                probability; None for all.
            seed: int. The same seed gives the same text.
            end_tokens: list of ints. A token of these is the last one. None for those of the
                export.

        Raises:
            ClientError: if there is no answer, the server refuses, or the stream breaks off.
        """
        content = {
            "text" if isinstance(prompt, str) else "token_ids": prompt,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "end_tokens": None if end_tokens is None else list(end_tokens),
        }
        body = _json_body(content)

        def open_answer(limit):
            with self._errors(limit):
                request = urllib.request.Request(self._url + ":stream", body, self._headers)
                return urllib.request.urlopen(request, timeout=limit.wait()), limit

        answer, limit = with_retries(open_answer, self._timeout, self._retries)
        with answer, self._errors(limit):
            return (yield from read_tokens(answer, limit, self.address))

    def _request(self, action, key, limit, body=None):
        """Return the value of a key of the answer."""
        with self._errors(limit):
            request = urllib.request.Request(self._url + action, body, self._headers)
            with urllib.request.urlopen(request, timeout=limit.wait()) as answer:
                return json.loads(_read(answer, limit).decode(errors="replace"))[key]

    @contextlib.contextmanager
    def _errors(self, limit):
        """Turn the failures of a request into `ClientError`s."""
        address = self.address
        try:
            yield
        except urllib.error.HTTPError as error:
            message = f"{address} answered {error.code}: {_reason(error)}"
            raise ClientError(message, error.code in _OVERLOADED) from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise limit.error(address) from error
            lost = isinstance(reason, ConnectionError)
            raise ClientError(f"No server answers at {address}: {reason}", lost) from error
        except http.client.IncompleteRead as error:
            raise ClientError(f"{address} broke off its answer: {error}", True) from error
        except (http.client.HTTPException, KeyError, TypeError, ValueError) as error:
            if isinstance(error, http.client.BadStatusLine):
                error = "the answer is not HTTP; is it the port of gRPC?"
            raise ClientError(f"{address} is not the address of a served model: {error}") from None


def _quoted_url(url):
    """Return a model's address as it is sent, percent-encoded."""
    try:
        parts = urllib.parse.urlsplit(url if isinstance(url, str) else "")
        has_host = parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:  # of a port that is no number
        has_host = False
    is_plain = has_host and not (parts.query or parts.fragment or "@" in parts.netloc)
    if not is_plain or parts.scheme not in ("http", "https") or not parts.path.strip("/"):
        form = "http://HOST:PORT/v1/models/NAME"
        raise ValueError(f"`url` must be a model's address, {form}. Received: url={url!r}.")
    path = urllib.parse.quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~", errors="replace")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _read(answer, limit):
    """Return the body; the socket's own limit is for each wait alone."""
    body = bytearray()
    while chunk := answer.read1(_CHUNK):
        body += chunk
        if limit.left() < 0:
            raise TimeoutError
    if answer.length:  # bytes that were announced and did not come
        raise http.client.IncompleteRead(bytes(body), answer.length)
    return body


def _json_body(content):
    try:
        # Without escapes, so that half a surrogate pair is an error here, not on the server.
        return json.dumps(content, default=_jsonable, ensure_ascii=False).encode()
    except (RecursionError, TypeError, ValueError) as error:  # such as a list that holds itself
        raise ClientError(f"The inputs cannot be sent: {error}") from error


def _reason(error):
    try:
        return json.loads(error.read())["error"]
    except (OSError, http.client.HTTPException, KeyError, TypeError, ValueError):
        return error.reason


def _jsonable(value):
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if hasattr(value, "tolist"):  # an array
        return value.tolist()
    fitting = "numbers, strings or bytes, or nested lists or arrays of these"
    raise ClientError(f"An input must be {fitting}. Received: {value!r}.")


def _decoded(value):
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return base64.b64decode(value["b64"])
