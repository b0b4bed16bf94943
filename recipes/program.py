"""A recipe as a program: what it says when something is wrong, and how it ends."""

import os
import sys
import threading
import time

from .options import devices_of

EXIT_USAGE, EXIT_LOST_WORKER, EXIT_INTERRUPTED = 2, 75, 130
LEAVE = 5.0  # seconds that one of several processes has for taking leave of the others


def main(name, parse, run):
    """Runs a recipe.

    Args:
        name: str, such as "recipes.translate".
        parse: function of no arguments that gives the options, among them `seed` and `precision`.
        run: function of the options and of the time (monotonic) at which the program started.

    Returns:
        The program's exit code.
    """
    options, code = parse(), 1
    try:
        code = _code(name, options, run)
    finally:
        if code and devices_of(options) == "multi_worker":
            _leave(code)
    return code


def _leave(code):
    """Ends this process, if it has not ended by itself by then.

    At its end either backend waits for the other processes, and they may be waiting for this one.
    """
    sys.stdout.flush()
    end = threading.Timer(LEAVE, os._exit, [code])
    end.daemon = True
    end.start()


def _code(name, options, run):
    """Runs a recipe, and says in a sentence why it ends early. Gives the exit code."""
    started = time.monotonic()
    try:
        import keras

        keras.utils.set_random_seed(options.seed)
        keras.config.set_dtype_policy(options.precision)
        run(options, started)
    except ImportError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except Exception as error:
        from keras_attn.distribution import worker_failure_message

        said = worker_failure_message(error)
        if said is not None:
            print(f"{name}: {said}", file=sys.stderr, flush=True)
            os._exit(EXIT_LOST_WORKER)  # the backend would first wait for the others
        is_full = type(error).__name__ == "ResourceExhaustedError"  # disk or memory
        if not is_full and not isinstance(error, (ValueError, OSError)):
            raise
        place = "" if isinstance(error, ValueError) else f" (--out {options.out})"
        print(f"{name}: {error}{place}", file=sys.stderr)
        return EXIT_USAGE
    except (KeyboardInterrupt, SystemExit) as end:
        print("Stopped; the same command goes on from the last checkpoint.", file=sys.stderr)
        return EXIT_INTERRUPTED if isinstance(end, KeyboardInterrupt) else end.code
    return 0
