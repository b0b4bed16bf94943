"""Running checks and reporting the defects that they find.

A check is a function of a subject (`keras_attn.testing.subject`) that yields a sentence for each
defect. An exception that it raises is a defect too, except `NotApplicable`.
"""

import dataclasses
import re


class NotApplicable(Exception):
    """Raised by a check that does not apply to the layer; the message is the reason."""


@dataclasses.dataclass(frozen=True)
class Defect:
    """One defect of a layer.

    Args:
        check: str. Name of the check that found it.
        sentence: str. The change or call that was made, the expected result and the actual one.

    Example:
        >>> from keras_attn.testing import Defect
        >>> print(Defect("no_leak", "Changing key 7 changed the output of query 3."))
        no_leak: Changing key 7 changed the output of query 3.
    """

    check: str
    sentence: str

    def __str__(self):
        return f"{self.check}: {self.sentence}"


@dataclasses.dataclass(frozen=True)
class Report:
    """The defects of a layer, and the checks that ran.

    `str(report)` is a readable list, with the reason for each check that was skipped.

    Args:
        layer: str. Name of the class of the layer.
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
        """Raise an `AssertionError` with the whole list if there is a defect."""
        if not self.ok:
            raise AssertionError(str(self))

    def __str__(self):
        found = "no defect," if self.ok else f"{_count(self.defects, 'defect')}, found by"
        found = f"{found} {_count(self.checked, 'check')}"
        skipped = [f"{name}: not checked: {reason}" for name, reason in self.skipped.items()]
        return "\n  ".join([f"{self.layer}: {found}", *map(str, self.defects), *skipped])


def _count(items, name):
    return f"{len(items)} {name}{'' if len(items) == 1 else 's'}"


def run_checks(subject, checks):
    """Run checks, a dict from name to function, on a subject and return a `Report`."""
    checked, defects, skipped, raised_in = [], [], {}, {}
    for name, check in checks.items():
        try:
            sentences = list(check(subject))
        except NotApplicable as reason:
            skipped[name] = str(reason)
            continue
        except Exception as error:
            text = _format_exception(error)
            first = raised_in.setdefault(text, name)
            same = f"The check raised the same exception as `{first}`."
            sentences = [f"The check raised an exception: {text}" if first == name else same]
        checked.append(name)
        defects.extend(Defect(name, sentence) for sentence in sentences)
    layer = type(subject.layer)
    name = f"{layer.__module__}.{layer.__qualname__}"
    return Report(name, tuple(checked), tuple(defects), skipped)


def _format_exception(error):
    # Keras colours its messages, begins with a whole configuration and appends all arguments.
    text = str(error).split("Arguments received by")[0].split("Exception encountered:")[-1]
    text = " ".join(re.sub(r"\x1b\[\d*m", "", text).split())
    return f"{type(error).__name__}: {text if len(text) <= 300 else text[:300] + '...'}"
