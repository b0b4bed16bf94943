"""Reads JSON and quotes JSON values the way TensorFlow Serving's parser (RapidJSON) does."""

import json
import math
import re

from .errors import invalid_argument

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_REASONS = {
    "Expecting value": "Invalid value.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
    "Invalid control character at": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
}
NUMBER_TOO_BIG = "JSON Parse error: Number too big to be stored in double."
_DEBUG_LENGTH = 256
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_object(body):
    """The JSON object at the start of a request's body; what follows it is ignored.

    `NaN` and `Infinity` are numbers. Bytes that are not UTF-8 pass through as surrogates, and
    `encode` gives them back.

    Args:
        body: bytes.

    Returns:
        Dictionary.

    Raises:
        ServingError: if the body does not start with a JSON object.
    """
    if not body:
        raise invalid_argument("JSON Parse error: The document is empty")
    text = body.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    start = _SPACE.match(text).end()
    if start == len(text):
        raise invalid_argument(f"JSON Parse error: The document is empty. at offset: {start}")
    try:
        document, _ = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise invalid_argument(
            f"JSON Parse error: {_reason(error, text)} at offset: {error.pos}"
        ) from error
    except RecursionError as error:
        raise invalid_argument("JSON Parse error: Values are nested too deeply.") from error
    except ValueError as error:  # more digits than Python turns into an integer
        raise invalid_argument(NUMBER_TOO_BIG) from error
    if not isinstance(document, dict):
        raise invalid_argument(f"JSON Value: {quote(document)} Is not object")
    return document


def encode(text):
    """The bytes that a parsed string stood for.

    Raises:
        ServingError: if an escape in the string was half of a surrogate pair.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise invalid_argument(
            "JSON Parse error: The surrogate pair in string is invalid."
        ) from error


def dump(value):
    """A value as JSON bytes; the surrogates of `parse_object` become bytes again."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")


def dump_error(message):
    """The body of an answer that is an error: always UTF-8, whatever the message quotes."""
    return json.dumps({"error": readable(message)}, ensure_ascii=False).encode()


def readable(text):
    """A text whose characters that were no UTF-8 are question marks."""
    return _SURROGATE.sub("\ufffd", text)


def quote(value):
    """A value as error texts show it: indented, lists on one line, cut near 256 characters."""
    text = ""
    for token in _tokens(value, 0):
        if len(text) >= _DEBUG_LENGTH:
            break
        text += token
    return text


def type_name(value):
    """RapidJSON's name of a parsed value's type."""
    if value is None or isinstance(value, bool):
        return {None: "Null", True: "True", False: "False"}[value]
    names = {dict: "Object", list: "Array", str: "String", int: "Number", float: "Number"}
    return names[type(value)]


def _tokens(value, depth):
    if isinstance(value, list):
        yield "["
        for index, item in enumerate(value):
            if index:
                yield ", "
            yield from _tokens(item, depth + 1)
        yield "]"
    elif isinstance(value, dict):
        yield "{"
        indent = "\n" + "    " * (depth + 1)
        for index, (name, item) in enumerate(value.items()):
            yield f"{',' if index else ''}{indent}{json.dumps(name, ensure_ascii=False)}"
            yield ": "
            yield from _tokens(item, depth + 1)
        yield ("\n" + "    " * depth if value else "") + "}"
    else:
        yield json.dumps(value, ensure_ascii=False)


def _finite(text):
    number = float(text)
    if math.isinf(number):
        raise invalid_argument(NUMBER_TOO_BIG)
    return number


def _reason(error, text):
    """RapidJSON's sentence for Python's; which comma is missing depends on what is open."""
    if error.msg in _REASONS:
        return _REASONS[error.msg]
    opened = []
    for bracket in re.findall(r"[][{}]", _STRING.sub("", text[: error.pos])):
        if bracket in "[{":
            opened.append(bracket)
        elif opened:
            opened.pop()
    if opened and opened[-1] == "[":
        return "Missing a comma or ] after an array element."
    return "Missing a comma or } after an object member."


_DECODER = json.JSONDecoder(parse_float=_finite)
