"""Trains a model of images, evaluates it, draws samples, exports it and writes a result card.

    python -m recipes.image                                       scikit-learn's digits
    python -m recipes.image --dataset cifar10 --data-dir DIR      files of yours

See README.md beside this file.
"""

import sys
import time

from recipes import program
from recipes.image.options import parse


def main():
    return program.main("recipes.image", parse, run)


def run(options, started):
    from recipes.image.training import Run

    run = Run(options)
    run.train()
    results = run.evaluate()
    run.sample()
    run.export()
    run.write_card(results, seconds=time.monotonic() - started)
    for split, result in results.items():
        print(f"{split}: {result['metric']} {result['value']:.4g} ({result['signature']})")
    print(f"Samples: {options.out}/samples.png\nExport:  {run.exported}")
    print(f"Card:    {options.out}/card.json")


if __name__ == "__main__":
    sys.exit(main())
