"""Print the presets: the sizes of the papers, by name."""

import argparse
import sys

from keras_attn.preset_sizes import SIZES

_COLUMNS = {
    "layers": "num_layers",
    "heads": "num_heads",
    "width": "hidden_dim",
    "inner": "intermediate_dim",
    "vocabulary": "vocabulary_size",
}


def main(arguments=None):
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="keras-attn presets", description=__doc__)
    parser.add_argument("part", nargs="?", default="", help="of the names to print (default: all)")
    part = parser.parse_args(arguments).part
    names = [name for name in sorted(SIZES) if part in name or part == SIZES[name][0]]
    if not names:
        print(f"keras-attn presets: No preset has {part!r} in its name.", file=sys.stderr)
        return 2
    rows = [["preset", "model", *_COLUMNS]]
    for name in names:
        model, sizes = SIZES[name]
        rows.append([name, model, *(str(sizes.get(size, "")) for size in _COLUMNS.values())])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [x.ljust(n) if i < 2 else x.rjust(n) for i, (x, n) in enumerate(zip(row, widths))]
        print("  ".join(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
