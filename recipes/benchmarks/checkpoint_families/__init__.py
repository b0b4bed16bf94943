"""Families of checkpoints that are compared with transformers, in a module a group of them."""

import importlib
import pkgutil
from typing import NamedTuple


class Family(NamedTuple):
    """The comparison of a family, by options of its configuration in transformers.

    A value may be a function of the options of the size, which returns the value for it. The first
    value of an option is the one of cases of a single refusal.

    Args:
        classes: names of classes of transformers.
        sizes: three dicts of options, from which all others follow.
        options: dict of each other option and a list of its values that are converted.
        excluded: dicts of options, `class` and `size` (an index), that transformers itself does not
            compute together.
        refused: pairs of a name and a dict of options or `class`, which `from_hugging_face` refuses
            in a sentence with that name: that of the option, or what names its value.
        not_written: dicts as in `excluded` whose models `to_hugging_face` refuses.
        needed: dict of options that files with all other options absent have beside the sizes,
            which the defaults do not fit.
    """

    classes: tuple
    sizes: tuple
    options: dict = {}
    excluded: tuple = ()
    refused: tuple = ()
    not_written: tuple = ()
    needed: dict = {}


def families():
    """Return the `Family` of each `model_type`: those of all modules of this package."""
    known = {}
    for module in pkgutil.iter_modules(__path__):
        name = f"{__name__}.{module.name}"
        known.update(importlib.import_module(name).FAMILIES)
    return dict(sorted(known.items()))
