"""The finding of a check."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Defect:
    """One thing that a layer does wrong.

    Args:
        check: str. Name of the check that found it.
        sentence: str. What was done, what was expected and what came.

    Example:
        >>> from keras_attn.testing import Defect
        >>> print(Defect("no_leak", "Changing key 7 changed the output of query 3."))
        no_leak: Changing key 7 changed the output of query 3.
    """

    check: str
    sentence: str

    def __str__(self):
        return f"{self.check}: {self.sentence}"
