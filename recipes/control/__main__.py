"""Trains actors with different memories in one environment.

    python -m recipes.control

See README.md beside this file.
"""

import copy
import os
import sys
import time

from .. import files, program
from .options import parse


def main():
    return program.main("recipes.control", parse, run)


def run(options, started):
    import keras

    if options.strategy not in ("none", "mirrored"):
        raise ValueError(
            "Agents act in environments of one process: --strategy must be none or mirrored. "
            f"Received: --strategy {options.strategy}."
        )
    cards = {name: [] for name in options.models}
    for name in options.models:
        for seed in range(options.seed, options.seed + options.seeds):
            own = copy.copy(options)
            own.seed, own.out = seed, os.path.join(options.out, f"{name}-{seed}")
            cards[name].append(_card(name, own))
    if keras.backend.backend() != "tensorflow":
        print(
            f"Trained: {options.out}/*/model.keras. The same command with KERAS_BACKEND=tensorflow "
            "tests the agents, exports them and compares them."
        )
        return
    from .returns import draw, table

    lines = table(cards)
    draw(cards, os.path.join(options.out, "returns.png"))
    print("\n".join(lines))
    files.write(os.path.join(options.out, "table.md"), "\n".join(lines) + "\n")
    print(f"Curves: {options.out}/returns.png\nTable:  {options.out}/table.md")


def _card(name, options):
    """The card of one run, trained unless it is there, and tested anew for other `--episodes`."""
    import keras

    from ..settings import check_settings
    from .options import settings
    from .training import Run

    path = os.path.join(options.out, "card.json")
    if os.path.exists(path):
        before = os.path.join(options.out, "settings.json")
        check_settings(before, {"model": name, **settings(options)}, options.out)
        names = ("task", "results", "history", "steps", "parameters")
        remedy = "delete it, and the run is tested again"
        card = files.read_object(path, remedy, *names)
        if card["results"]["test"]["episodes"] == options.episodes:
            return card
    print(f"{name}, seed {options.seed}", flush=True)
    started = time.monotonic()
    keras.backend.clear_session()
    keras.utils.set_random_seed(options.seed)
    return Run(name, options).complete(started)


if __name__ == "__main__":
    sys.exit(main())
