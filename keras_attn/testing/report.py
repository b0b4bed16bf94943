"""The findings of all checks."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Report:
    """The defects of a layer, and which checks stand behind them.

    `str(report)` is a list for reading. A check that does not apply to the layer is not passed
    over in silence: `skipped` says why.

    Args:
        layer: str. What was checked.
        checked: tuple of str. Names of the checks that ran.
        defects: tuple of `Defect`.
        skipped: dict from the name of a check that did not run to the reason.

    Example:
        >>> from keras_attn.testing import Defect, Report
        >>> report = Report("Mine", ("graph",), (Defect("graph", "A graph gives other numbers."),))
        >>> report.ok
        False
        >>> print(report)
        Mine: 1 defect, found by 1 check
          graph: A graph gives other numbers.
    """

    layer: str
    checked: tuple
    defects: tuple
    skipped: dict = dataclasses.field(default_factory=dict)

    @property
    def ok(self):
        """True if there is no defect."""
        return not self.defects

    def raise_if_any(self):
        """Raises an `AssertionError` with the whole list if there is a defect."""
        if not self.ok:
            raise AssertionError(str(self))

    def __str__(self):
        found = f"{_count(self.defects, 'defect')}, found by {_count(self.checked, 'check')}"
        if self.ok:
            found = f"no defect, {_count(self.checked, 'check')}"
        skipped = [f"{name}: not checked: {reason}" for name, reason in self.skipped.items()]
        return "\n  ".join([f"{self.layer}: {found}", *map(str, self.defects), *skipped])


def _count(things, name):
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
