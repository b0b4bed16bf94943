"""Tokenize lines by the tokenizers of transformers: python tokenize_lines.py LINES.npz FOLDER ...

Each folder gets `theirs.npz`: the ids of each line, and those of each line with the next one.
"""

import sys

import numpy as np
import transformers


def flat(rows):
    """Return rows of numbers as one array, and their lengths."""
    values = [value for row in rows for value in row]
    return np.array(values, "int32"), np.array([len(row) for row in rows], "int32")


def main(lines, *folders):
    with np.load(lines) as file:
        values, lengths = file.values()
    rows = np.split(values, np.cumsum(lengths)[:-1])
    texts = [bytes(row.astype("uint8")).decode(errors="replace") for row in rows]
    for folder in folders:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        pairs = zip(texts, texts[1:] + texts[:1], strict=True)
        one = flat([tokenizer(text)["input_ids"] for text in texts])
        two = flat([tokenizer(*pair)["input_ids"] for pair in pairs])
        np.savez(f"{folder}/theirs.npz", *one, *two)


if __name__ == "__main__":
    main(*sys.argv[1:])
