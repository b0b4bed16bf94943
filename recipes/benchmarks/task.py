"""What a contender's function returns to the worker that times it."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Task:
    """One call to time.

    Args:
        call: function without arguments that does the work and waits for its result.
        units: float. How much work (tokens, say) one call is, for rates.
        facts: dict. Whatever the card should say about the contender (parameters, say).
    """

    call: Callable[[], object]
    units: float = 1.0
    facts: dict = dataclasses.field(default_factory=dict)
