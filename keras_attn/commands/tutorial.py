"""Run a tutorial, which trains in minutes and draws a picture."""

import argparse
import runpy
import sys

from keras_attn import programs, startup

# The name of its file, and what it shows.
TUTORIALS = {
    "first-transformer": "classify sentences by the order of their words",
    "own-pattern": "a pattern of your own, proven and trained",
    "my-time-series": "forecast and classify series of numbers",
    "long-text": "thousands of positions in little memory",
    "memory-across-calls": "a model that reads a text in segments",
    "served-translator": "train, export, serve and ask a translator",
}


def main(arguments=None):
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="keras-attn tutorial",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:20} {shown}" for name, shown in TUTORIALS.items()),
    )
    parser.add_argument("name", choices=TUTORIALS, metavar="NAME", help="one of those below")
    parser.add_argument("--out", default=".", metavar="FOLDER", help="for its files (default: .)")
    options = parser.parse_args(arguments)
    try:
        startup.import_library()
    except (ImportError, ValueError) as error:
        print(f"keras-attn tutorial: {error}", file=sys.stderr)
        return 2
    module = f"recipes.tutorials.{options.name.replace('-', '_')}"
    sys.argv = [sys.argv[0], "--out", options.out]
    runpy.run_module(programs.installed_name(module), run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
