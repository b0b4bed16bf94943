"""Sizes of a mesh of devices, from a command line."""

import re


def parse_mesh(text):
    """Return the sizes by axis of a mesh such as "data=2,model=4"; an axis left out is 1.

    Raises:
        ValueError: if it is anything else.
    """
    matches = [re.fullmatch(r"(data|model)=([1-9]\d*)", part) for part in text.split(",")]
    if None in matches or len({part[1] for part in matches}) < len(matches):
        raise ValueError(f"A mesh must be as data=2,model=4. Received: {text!r}.")
    return {"data": 1, "model": 1, **{part[1]: int(part[2]) for part in matches}}
