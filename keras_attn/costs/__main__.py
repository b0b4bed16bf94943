"""Print what a preset costs: python -m keras_attn.costs llama_7b --length 4096"""

import argparse
import sys

from keras_attn.costs import explain


def main(arguments=None):
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m keras_attn.costs", description=__doc__)
    parser.add_argument("preset", help="a name of keras_attn.models.presets()")
    parser.add_argument("--length", type=int, required=True, help="length of the inputs")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--precision", help="dtype policy, such as mixed_bfloat16")
    parser.add_argument("--memory", type=float, help="bytes, such as 24e9")
    given = parser.parse_args(arguments)
    options = {"precision": given.precision, "memory": given.memory}
    try:
        print(explain(given.preset, given.length, given.batch_size, **options))
    except ValueError as error:
        print(f"keras_attn.costs: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
