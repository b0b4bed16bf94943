"""Command line of all recipes: `keras-attn NAME`, its messages and exit codes."""

import importlib
import os
import sys
import threading
import time

from keras_attn import startup
from keras_attn.programs import command_of

EXIT_USAGE, EXIT_LOST_WORKER, EXIT_INTERRUPTED = 2, 75, 130
SEVERAL_PROCESSES = "multi_worker", "model_parallel"  # the latter may have one
EXIT_DELAY = 5.0  # seconds that one of several processes waits for the others at its end


def main(recipe, arguments=None):
    """Run a recipe.

    Args:
        recipe: str. Package with a class `options.RecipeOptions` and a function
            `training.run(options, started)`, such as "recipes.translate".
        arguments: list of str; by default those of the process.

    Returns:
        The exit code.
    """
    parse = importlib.import_module(".options", recipe).RecipeOptions.parse
    options = parse(sys.argv[1:] if arguments is None else arguments, recipe)
    try:
        options.check_files()
    except (ValueError, OSError) as error:
        return fail(recipe, sentence(error))

    def run(options, started):
        # Imported late, so that --help and wrong options answer at once.
        importlib.import_module(".training", recipe).run(options, started)

    return execute(recipe, options, run)


def execute(recipe, options, run):
    """Call `run(options, started)`, and return the exit code."""
    code = 1
    try:
        code = _execute(recipe, options, run)
    finally:
        if code and options.devices in SEVERAL_PROCESSES:
            _exit_soon(code)
    return code


def fail(module, message):
    """Print what ends a program, and return the exit code."""
    print(f"{command_of(module)}: {message}", file=sys.stderr, flush=True)
    return EXIT_USAGE


def sentence(error):
    """Return the message of an error; of an `OSError` without its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or type(error).__name__
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def place_of(error, options):
    """Return the run's directory, for an error that names no place."""
    is_named = isinstance(error, ValueError) or getattr(error, "filename", None)
    return "" if is_named else f" (--out {options.out})"


def _is_full(error):
    """True if a disk, or the memory of the host or of a device, is full."""
    is_tensorflows = type(error).__name__ == "ResourceExhaustedError"
    is_jaxs = "RESOURCE_EXHAUSTED" in str(error)
    return is_tensorflows or is_jaxs or isinstance(error, MemoryError)


def _exit_soon(code):
    """End this process after a delay: at its end a backend waits for other processes."""
    sys.stdout.flush()
    end = threading.Timer(EXIT_DELAY, os._exit, [code])
    end.daemon = True
    end.start()


def _execute(recipe, options, run):
    started = time.monotonic()
    try:
        startup.import_library()
        import keras

        keras.utils.set_random_seed(options.seed)
        keras.config.set_dtype_policy(options.precision)
        run(options, started)
    except (ImportError, startup.BackendError) as error:
        return fail(recipe, error)
    except Exception as error:
        from keras_attn.callbacks.resume import wait_for_writes
        from keras_attn.distribution import worker_failure_message

        message = worker_failure_message(error)
        if message is not None:
            fail(recipe, message)
            wait_for_writes()
            os._exit(EXIT_LOST_WORKER)  # the backend would first wait for the others
        if not _is_full(error) and not isinstance(error, (ValueError, OSError)):
            raise
        return fail(recipe, sentence(error) + place_of(error, options))
    except (KeyboardInterrupt, SystemExit) as end:
        resumes = "; the same command resumes from the last checkpoint, if there is one"
        remedy = "" if options.dry_run else resumes
        print(f"Stopped{remedy}.", file=sys.stderr)
        return EXIT_INTERRUPTED if isinstance(end, KeyboardInterrupt) else end.code
    return 0
