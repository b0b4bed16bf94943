"""Trains a language model, evaluates it, exports it and writes a result card.

    python -m recipes.language_model                                        Python's own source
    python -m recipes.language_model --data-dir DIR --model transformer_xl  a text of yours

See README.md beside this file.
"""

import sys
import time

from recipes import program
from recipes.language_model.options import parse


def main():
    return program.main("recipes.language_model", parse, run)


def run(options, started):
    from recipes.language_model.training import Run

    run = Run(options)
    run.train()
    results = run.evaluate()
    sample = run.sample()
    run.export()
    run.write_card(results, sample, seconds=time.monotonic() - started)
    print(f"{sample['prompt']}[...]{sample['continuation']}\n")
    for split, result in results.items():
        print(f"{split}: {result['metric']} {result['value']:.4g} ({result['signature']})")
    print(f"Export: {run.exported}\nCard:   {options.out}/card.json")


if __name__ == "__main__":
    sys.exit(main())
