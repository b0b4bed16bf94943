"""Files of tokenizers: a JSON object of the class and of the arguments of its constructor."""

import base64
import dataclasses
import json


def write(class_name, config):
    """Return the content of a file."""
    content = {"class_name": class_name, "config": config}
    return json.dumps(content, ensure_ascii=False, default=_plain).encode()


def class_name_of(content):
    """Return the name of the class in a file's content, or None."""
    try:
        return json.loads(content)["class_name"]
    except (ValueError, KeyError, TypeError):
        return None


def read(class_name, content):
    """Return the arguments in a file's content; raise ValueError if it is of another class."""
    if class_name_of(content) != class_name:
        raise ValueError(f"This is no file of a {class_name}.")
    config = json.loads(content, object_hook=_with_bytes).get("config")
    if not isinstance(config, dict):
        raise ValueError(f"The file of a {class_name} is damaged: it has no config.")
    return config


def _plain(value):
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return dataclasses.asdict(value)


def _with_bytes(value):
    return base64.b64decode(value["base64"]) if list(value) == ["base64"] else value
