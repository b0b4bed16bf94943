"""Print what a preset costs: python -m keras_attn.costs llama_7b --length 4096"""

import argparse
import sys

from keras_attn.costs import explain
from keras_attn.distribution.model_parallel import parse_mesh


def main(arguments=None):
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m keras_attn.costs", description=__doc__)
    parser.add_argument("preset", help="a name of keras_attn.models.presets()")
    parser.add_argument("--length", type=int, required=True, help="length of the inputs")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--precision", help="dtype policy, such as mixed_bfloat16")
    parser.add_argument("--memory", type=float, help="bytes, such as 24e9")
    parser.add_argument("--mesh", help="devices that divide a batch and weights: data=8,model=4")
    parser.add_argument(
        "--shard-parameters", action="store_true", help="the data devices divide the weights too"
    )
    args = parser.parse_args(arguments)
    options = {"precision": args.precision, "memory": args.memory}
    options["shards_parameters"] = args.shard_parameters
    try:
        if args.mesh is not None:
            options["mesh"] = parse_mesh(args.mesh)
        print(explain(args.preset, args.length, args.batch_size, **options))
    except ValueError as error:
        print(f"keras_attn.costs: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
