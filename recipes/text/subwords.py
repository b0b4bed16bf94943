"""Characters that subwords stand for."""


def count_characters(text):
    """Return the number of characters, with a run of spaces as one and none at a line's ends."""
    while "  " in text:
        text = text.replace("  ", " ")
    return len(text.replace("\n ", "\n").replace(" \n", "\n").strip(" "))
