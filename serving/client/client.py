"""What can be asked of a served model, over whichever API."""

import collections.abc
import numbers
import typing

from .errors import ClientError
from .retries import with_retries
from .session import Session

DEFAULT_SIGNATURE = "serving_default"


class Answer(typing.NamedTuple):
    """A text that a model wrote, and its score: None where the model gives none."""

    text: str
    score: float | None


class Client:
    """One served model: `RestClient` or `GrpcClient`, whose answers are the same.

    Safe to use from many threads at once, and a context manager, which closes it. A subclass has
    `_predict(inputs, signature_name, limit)`, one attempt within a `TimeLimit`.

    Args:
        place: string. What the errors call the model.
        timeout: float. Seconds for a call, all attempts together.
        retries: int. Most attempts after the first where the connection is refused or lost, or the
            server has too much to do (503, 429) or stops. What it calls wrong is not asked again.

    Raises:
        ValueError: if `timeout` is not positive, or `retries` is negative.
    """

    def __init__(self, place, timeout, retries):
        if not (isinstance(timeout, numbers.Real) and timeout > 0):
            raise ValueError(f"`timeout` must be positive. Received: timeout={timeout!r}.")
        if not (isinstance(retries, numbers.Real) and retries >= 0):
            raise ValueError(f"`retries` must not be negative. Received: retries={retries!r}.")
        self.place = place
        self._timeout = timeout
        self._retries = retries

    def predict(self, inputs, signature_name=DEFAULT_SIGNATURE):
        """Runs a signature.

        Args:
            inputs: dict of the signature's inputs by name: numbers, strings or bytes, or nested
                lists or arrays of these.
            signature_name: string.

        Returns:
            dict of the outputs by name, as nested lists. Strings are `str`, or bytes where the name
            ends in `_bytes`. Nothing of a number is lost: a float, rounded to the output's type, is
            the one that the model gave.

        Raises:
            ClientError: if there is no answer, the server refuses, or the inputs cannot be sent.
        """
        if not isinstance(inputs, collections.abc.Mapping):
            raise ClientError(f"The inputs must be a dict by name. Received: {inputs!r}.")
        if not isinstance(signature_name, str):
            raise ClientError(f"`signature_name` must be a string. Received: {signature_name!r}.")
        try:
            return with_retries(
                lambda limit: self._predict(dict(inputs), signature_name, limit),
                self._timeout,
                self._retries,
            )
        except (LookupError, StopIteration, TypeError, ValueError) as error:
            # Such as half a character in a name, or bytes that came without their code.
            raise ClientError(
                f"What {self.place} is asked or answers cannot be sent or read: {error!r}"
            ) from error

    def translate(self, texts):
        """A translation of each text, by the export of an encoder-decoder.

        Args:
            texts: list of strings. A server with batching refuses more of them in one call than
                its `max_batch_size`: ask for longer lists in parts.

        Returns:
            List of `Answer`s.

        Raises:
            ClientError: if there is no answer, the server refuses, or the model does not translate.
        """
        return self._write(texts, "translation")

    def complete(self, texts):
        """What follows each text, by the export of a causal language model; otherwise the same."""
        return self._write(texts, "continuation")

    def session(self, batch_size=1):
        """Texts, or episodes, that go on from call to call, by the export of a model with a memory.

        Args:
            batch_size: int. How many at once.

        Returns:
            `Session`.
        """
        return Session(self, batch_size)

    def close(self):
        """Ends the connection."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _write(self, texts, output):
        is_list = isinstance(texts, collections.abc.Iterable)
        if not is_list or isinstance(texts, (str, bytes)):
            raise ClientError(f"`texts` must be a list of strings. Received: texts={texts!r}.")
        texts = list(texts)
        if not texts:
            return []
        outputs = self.predict({"text": texts})
        if output not in outputs:
            raise ClientError(f"{self.place} has no output named {output}.")
        columns = outputs[output], outputs.get("score", [None] * len(texts))
        if not all(isinstance(x, list) and len(x) == len(texts) for x in columns):
            raise ClientError(f"{self.place} did not answer each text.")
        return [Answer(*pair) for pair in zip(*columns)]
