"""Prepare a corpus for training; see README.md."""

import os
import sys
import time

from ..common import cli
from .light import without_keras
from .options import RecipeOptions


def main(arguments=None):
    """Prepare a corpus, and return the exit code."""
    options = RecipeOptions.parse(sys.argv[1:] if arguments is None else arguments, __package__)
    without_keras()
    try:
        _run(options)
    except ImportError as error:
        return cli.fail(__package__, error)
    except (ValueError, OSError) as error:
        return cli.fail(__package__, cli.sentence(error) + cli.place_of(error, options))
    except KeyboardInterrupt:
        print("Stopped; the same command resumes.", file=sys.stderr)
        return cli.EXIT_INTERRUPTED
    return 0


def _run(options):
    # Imported late, so that --help and wrong options answer at once.
    from ..common import files
    from .plan import WORK, make_plan
    from .report import summary
    from .steps import remove_work

    started = time.monotonic()
    plan = make_plan(options)
    with files.exclusive_directory(os.path.join(plan.out, WORK, f"worker-{options.worker}")):
        if options.engine == "beam":
            from .pipeline import prepare

            prepare(plan, options)
        else:
            from .steps import prepare

            pool = prepare(plan, options)
            _print_cost(pool, time.monotonic() - started)
        if options.worker == 0:
            remove_work(plan)
            print("\n".join(summary(plan.out)))


def _print_cost(pool, seconds):
    from ..common.progress import duration

    if pool.seconds:
        print(
            f"Done in {duration(seconds)}: {len(pool.seconds)} processes, at most "
            f"{max(pool.memory.values()):.0f} MB each, "
            f"{sum(pool.seconds.values()):.1f} s of processor time"
        )


if __name__ == "__main__":
    sys.exit(main())
