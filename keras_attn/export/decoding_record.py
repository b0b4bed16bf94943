"""Record of an export's decoding, by which exports with the same search are compared."""

import dataclasses
import json
import os

_SEARCHES = {"Greedy": "greedy", "Beam": "beam", "Sample": "sampling"}
DECODING_FILE = os.path.join("assets.extra", "decoding.json")  # a server reads nothing of it


@dataclasses.dataclass(frozen=True)
class Decoding:
    """A decoding strategy without its numbers and tables.

    Attributes:
        search: str. "greedy", "beam", "sampling", or the name of another strategy's class.
        beams: int. Hypotheses of a beam search, else 1.
        length_penalty: float. Of a beam search, else 0.
        wrappers: list of str. Names of the strategies around it, such as "Constrained".
        max_length: int or None. Most tokens of an answer, where it is known.
    """

    search: str = "greedy"
    beams: int = 1
    length_penalty: float = 0.0
    wrappers: list = dataclasses.field(default_factory=list)
    max_length: int | None = None

    @classmethod
    def of(cls, strategy, max_length):
        """Return the record of a strategy."""
        wrappers = []
        while hasattr(strategy, "strategy"):
            wrappers.append(type(strategy).__name__)
            strategy = strategy.strategy
        name, beams = type(strategy).__name__, getattr(strategy, "beams", 1)
        search = "greedy" if (name, beams) == ("Beam", 1) else _SEARCHES.get(name, name)
        penalty = getattr(strategy, "length_penalty", 0.0)
        return cls(search, int(beams), float(penalty), wrappers, max_length)

    def has_same_search(self, other):
        """Return True if the other one searches as long for each token."""
        return (self.search, self.beams) == (other.search, other.beams)

    def __str__(self):
        search = f"{self.beams} beams" if self.search == "beam" else self.search
        return ", ".join([search, *self.wrappers])


def write_decoding(directory, decoding):
    """Record in a SavedModel's directory how it decodes."""
    with open(os.path.join(directory, DECODING_FILE), "w", encoding="utf-8") as file:
        json.dump(dataclasses.asdict(decoding), file)


def read_decoding(directory):
    """Return the recorded `Decoding`; None for an export of a version before there were records."""
    path = os.path.join(directory, DECODING_FILE)
    if not os.path.isfile(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return Decoding(**json.load(file))
    except (TypeError, ValueError) as error:
        message = f"The record of the decoding is damaged. Received: {path}."
        raise ValueError(message) from error
