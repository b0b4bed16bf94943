"""A recipe as a program: what it says when something is wrong, and how it ends."""

import os
import sys
import time

EXIT_USAGE, EXIT_LOST_WORKER, EXIT_INTERRUPTED = 2, 75, 130


def main(name, parse, run):
    """Runs a recipe.

    Args:
        name: str, such as "recipes.translate".
        parse: function of no arguments that gives the options, among them `seed` and `precision`.
        run: function of the options and of the time (monotonic) at which the program started.

    Returns:
        The program's exit code.
    """
    options = parse()
    started = time.monotonic()
    try:
        import keras

        keras.utils.set_random_seed(options.seed)
        keras.config.set_dtype_policy(options.precision)
        run(options, started)
    except (ValueError, ImportError, OSError) as error:
        place = f" (--out {options.out})" if isinstance(error, OSError) else ""
        print(f"{name}: {error}{place}", file=sys.stderr)
        return EXIT_USAGE
    except Exception as error:
        from keras_attn.training import lost_worker

        said = lost_worker(error)
        if said is None and type(error).__name__ == "ResourceExhaustedError":  # of disk or memory
            print(f"{name}: {error} (--out {options.out})", file=sys.stderr)
            return EXIT_USAGE
        if said is None:
            raise
        print(f"{name}: {said}", file=sys.stderr, flush=True)
        os._exit(EXIT_LOST_WORKER)  # TensorFlow would first wait for the others
    except (KeyboardInterrupt, SystemExit) as end:
        print("Stopped; the same command goes on from the last checkpoint.", file=sys.stderr)
        return EXIT_INTERRUPTED if isinstance(end, KeyboardInterrupt) else end.code
    return 0
