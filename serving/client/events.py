"""Tokens that the embedded server sends one by one, as server-sent events."""

import json
import typing

from .retries import ClientError


class Token(typing.NamedTuple):
    """Token that a model generated: `text` is None if the export has no tokenizer."""

    token_id: int
    text: str | None
    log_probability: float


def read_tokens(answer, limit, address):
    """Yield the `Token`s of an answer, its lines of bytes, within a `TimeLimit`.

    The generator returns the reason of the end.
    """
    is_error = False
    for line in answer:
        name, _, value = line.decode().strip().partition(": ")
        if name == "event":
            is_error = value == "error"
        if name != "data":
            continue
        if limit.left() < 0:
            raise TimeoutError
        event = json.loads(value)
        if is_error:
            raise ClientError(f"{address} ended the stream: {event['error']}")
        if "finish_reason" in event:
            return event["finish_reason"]
        yield Token(event["token_id"], event.get("text"), event["log_probability"])
    raise ClientError(f"{address} broke off the stream.", True)
