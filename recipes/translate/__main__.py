"""Trains a Transformer to translate, evaluates it, exports it and writes a result card.

    python -m recipes.translate                                            dates, minutes
    python -m recipes.translate --data-dir DIR --source en --target de     a parallel text

See README.md beside this file.
"""

import sys
import time

from recipes.translate.options import parse

EXIT_USAGE, EXIT_INTERRUPTED = 2, 130


def main():
    options = parse()
    started = time.monotonic()
    try:
        run(options, started)
    except (ValueError, ImportError, OSError) as error:
        print(f"recipes.translate: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("Stopped; the same command goes on from the last checkpoint.", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def run(options, started):
    import keras

    from recipes.translate.training import Run

    keras.utils.set_random_seed(options.seed)
    keras.config.set_dtype_policy(options.precision)
    run = Run(options)
    run.train()
    results = run.evaluate()
    run.export()
    run.write_card(results, seconds=time.monotonic() - started)
    for split, result in results.items():
        print(f"{split}: {result['metric']} {result['value']:.4g} ({result['signature']})")
    print(f"Export: {run.exported}\nCard:   {options.out}/card.json")


if __name__ == "__main__":
    sys.exit(main())
