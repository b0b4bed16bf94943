"""Print what a preset costs: keras-attn explain llama_7b --length 4096"""

import argparse
import sys

from keras_attn import startup
from keras_attn.mesh import parse_mesh
from keras_attn.preset_sizes import check_preset, check_preset_length


def main(arguments=None):
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="keras-attn explain", description=__doc__)
    parser.add_argument("preset", help="a name that `keras-attn presets` lists")
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
        check_preset(preset=args.preset)
        check_preset_length(args.preset, args.length)
        if args.mesh is not None:
            options["mesh"] = parse_mesh(args.mesh)
        startup.import_library()
        from keras_attn.costs import explain

        print(explain(args.preset, args.length, args.batch_size, **options))
    except (ImportError, ValueError) as error:
        print(f"keras-attn explain: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
