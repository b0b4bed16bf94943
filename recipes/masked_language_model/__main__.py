"""Trains BERT to guess masked tokens, evaluates it, exports it and writes a result card.

    python -m recipes.masked_language_model                   Python's own source
    python -m recipes.masked_language_model --data-dir DIR    a text of yours

See README.md beside this file.
"""

import sys
import time

from recipes import program
from recipes.masked_language_model.options import parse


def main():
    return program.main("recipes.masked_language_model", parse, run)


def run(options, started):
    from recipes.masked_language_model.training import Run

    run = Run(options)
    run.train()
    results = run.evaluate()
    examples = run.examples()
    run.export()
    run.write_card(results, examples, seconds=time.monotonic() - started)
    for masked, filled in examples:
        print(f"{masked}\n    {filled}")
    for split, result in results.items():
        baseline = f"the most frequent token alone: {result['baseline']:.4g}"
        print(f"{split}: {result['metric']} {result['value']:.4g} ({baseline})")
    print(f"Export: {run.exported}\nCard:   {options.out}/card.json")


if __name__ == "__main__":
    sys.exit(main())
