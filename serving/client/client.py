"""Methods of a served model's clients, whichever API they use."""

import collections.abc
import numbers
import re
import typing

from .retries import ClientError, TimeLimit, with_retries

DEFAULT_SIGNATURE = "serving_default"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Answer(typing.NamedTuple):
    """Text that a model generated, and its score, or None if the export gives none."""

    text: str
    score: float | None


class Client:
    """One served model: `RestClient` or `GrpcClient`, whose answers are the same.

    Safe to use from many threads at once, and a context manager that closes it. A call is repeated
    if the connection is refused or lost, or the server is overloaded (503, 429) or stops, but not
    if the server rejects the request as wrong. A subclass gives its `address` for errors and has
    `_predict(inputs, signature_name, limit)`, one attempt within a `TimeLimit`, and
    `_signature_names(limit)`.
    """

    def __init__(self, address, timeout=60.0, retries=4, headers=None):
        if not (isinstance(timeout, numbers.Real) and timeout > 0):
            raise ValueError(f"`timeout` must be positive. Received: timeout={timeout!r}.")
        if not (isinstance(retries, numbers.Real) and retries >= 0):
            raise ValueError(f"`retries` must not be negative. Received: retries={retries!r}.")
        self.address, self._timeout, self._retries = address, timeout, retries
        self._headers = _checked_headers(headers)

    def predict(self, inputs, signature_name=DEFAULT_SIGNATURE):
        """Run a signature.

        Args:
            inputs: dict of the signature's inputs by name: numbers, strings or bytes, or nested
                lists or arrays of these.
            signature_name: string.

        Returns:
            dict of the outputs by name, as nested lists. Strings are `str`, or bytes where the name
            ends in `_bytes`. A float, rounded to the output's type, is exactly the model's.

        Raises:
            ClientError: if there is no answer, the server refuses, or the inputs cannot be sent.
        """
        if not isinstance(inputs, collections.abc.Mapping):
            raise ClientError(f"The inputs must be a dict by name. Received: {inputs!r}.")
        if not isinstance(signature_name, str):
            raise ClientError(f"`signature_name` must be a string. Received: {signature_name!r}.")

        def attempt(limit):
            return self._predict(dict(inputs), signature_name, limit)

        try:
            return with_retries(attempt, self._timeout, self._retries)
        except (LookupError, OverflowError, StopIteration, TypeError, ValueError) as error:
            # Such as half a surrogate pair in a name, or bytes that are not base64.
            raise ClientError(
                f"The request to {self.address} or its answer cannot be sent or read: {error!r}"
            ) from error

    def translate(self, texts):
        """Return a list of `Answer`s: a translation of each text, by an encoder-decoder's export.

        It raises a `ClientError` like `predict`. A server with batching refuses more texts in one
        call than its `max_batch_size`.
        """
        return self._write(texts, "translation")

    def complete(self, texts):
        """Return a list of `Answer`s: a continuation of each text, by a causal model's export."""
        return self._write(texts, "continuation")

    def session(self, batch_size=1):
        """Return a `Session` of `batch_size` texts, for the export of a model with a memory."""
        return Session(self, batch_size)

    def close(self):
        """End the connection."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _write(self, texts, output):
        if isinstance(texts, (str, bytes)) or not isinstance(texts, collections.abc.Iterable):
            raise ClientError(f"`texts` must be a list of strings. Received: texts={texts!r}.")
        texts = list(texts)
        try:
            outputs = self.predict({"text": texts}) if texts else {output: []}
        except ClientError as error:
            if not error.is_retryable:
                self._refuse_steps(error)
            raise
        if output not in outputs:
            names = ", ".join(sorted(outputs))
            raise ClientError(f"{self.address} has no output named {output}. There are: {names}.")
        columns = outputs[output], outputs.get("score", [None] * len(texts))
        if not all(isinstance(x, list) and len(x) == len(texts) for x in columns):
            raise ClientError(f"{self.address} did not answer each text.")
        return [Answer(*pair) for pair in zip(*columns)]

    def _refuse_steps(self, error):
        """Say what fits an export that answers step by step, if the server holds one."""
        try:
            names = self._signature_names(TimeLimit(self._timeout))
        except (ClientError, LookupError, TypeError, ValueError):
            return
        if "step" not in names:
            return
        fitting = "`stream` of a `RestClient`, which is --stream with --url on the command line"
        if "initial_memory" in names:
            fitting += ", or `session`"
        raise ClientError(
            f"{self.address} holds an export that answers step by step, with its memory in between "
            f"and without a whole text: use {fitting}."
        ) from error


def _checked_headers(headers):
    """Return a dict of headers, empty for None. Errors do not show values, which may be secret."""
    if headers is not None and not isinstance(headers, dict):
        raise ValueError(f"`headers` must be a dict of strings. Received: {type(headers)}.")
    for name, value in (headers or {}).items():
        is_name = isinstance(name, str) and _HEADER_NAME.fullmatch(name)
        is_line = isinstance(value, str) and value.isascii() and value.isprintable()
        if not is_name or not is_line:
            wanted = "single lines of ASCII by name"
            raise ValueError(f"`headers` must be {wanted}. Received: the one of {name!r}.")
    return dict(headers or {})


class Session:
    """Memory of a model between calls, which the client keeps and the server does not.

        outputs_t, memory_{t+1} = step(segment_t, memory_t)

    For one thread. A step that fails leaves the memory as it was, so it can be repeated.

    Args:
        client: `Client` of an export with the signatures `initial_memory` and `step`.
        batch_size: int. Rows of each segment.

    Attributes:
        memory: dict of the memory tensors of the next step, as nested lists.
    """

    def __init__(self, client, batch_size=1):
        self._client = client
        self.memory = client.predict({"batch_size": batch_size}, "initial_memory")

    def step(self, *, lengths=None, **segment):
        """Read one more segment and return its outputs, without the memory.

        Args:
            lengths: list of B ints. Real length of each row; by default that of the whole row.
            **segment: `token_ids` (B, T) or `states` (B, T, ...).
        """
        if lengths is None:
            try:
                (rows,) = segment.values()
                lengths = [len(row) for row in rows]
            except (TypeError, ValueError) as error:
                reads = "A step without `lengths` reads rows of `token_ids` or of `states` alone"
                raise ClientError(f"{reads}. Received: {segment!r}.") from error
        outputs = self._client.predict({**segment, "lengths": lengths, **self.memory}, "step")
        self.memory = {name: outputs.pop(name) for name in self.memory}
        return outputs
