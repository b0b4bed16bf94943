"""Trains a Transformer to translate, evaluates it, exports it and writes a result card.

    python -m recipes.translate                                            dates, minutes
    python -m recipes.translate --data-dir DIR --source en --target de     a parallel text

See README.md beside this file.
"""

import sys
import time

from recipes import program
from recipes.translate.options import parse


def main():
    return program.main("recipes.translate", parse, run)


def run(options, started):
    from recipes.translate.training import Run

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
