"""Trains a model on an algorithmic task, tests it on longer examples, exports it, writes a card.

    python -m recipes.algorithmic --task reverse       a Universal Transformer with ACT
    python -m recipes.algorithmic --task parity        an RNN with ACT

See README.md beside this file.
"""

import sys
import time

from recipes import program
from recipes.algorithmic.options import parse


def main():
    return program.main("recipes.algorithmic", parse, run)


def run(options, started):
    from recipes.algorithmic.parity_run import ParityRun
    from recipes.algorithmic.sequence_run import SequenceRun

    run = (ParityRun if options.task == "parity" else SequenceRun)(options)
    run.train()
    results = run.evaluate()
    run.export()
    run.write_card(results, seconds=time.monotonic() - started)
    for name, result in results.items():
        print(f"{name}: {result['metric']} {result['value']:.4g} ({result['signature']})")
    print(f"Export: {run.exported}\nCard:   {options.out}/card.json")


if __name__ == "__main__":
    sys.exit(main())
