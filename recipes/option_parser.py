"""Command line of a dataclass of options."""

import argparse
import dataclasses
import inspect
import types
import typing


def make_parser(cls, program):
    """Return the parser of the options of an `Options` class.

    Args:
        cls: a subclass of `recipes.options.Options`.
        program: str. Module that is run, such as "recipes.translate"; or None.
    """
    parser = argparse.ArgumentParser(
        prog=program and f"python -m {program}",
        usage="%(prog)s [--help] [--OPTION VALUE ...]",  # all of them would hide an error
        description=cls.DESCRIPTION,
    )
    for title, fields in _groups(cls):
        group = parser.add_argument_group(title)
        for field in fields:
            _add_argument(group, field)
    return parser


def option_fields(cls):
    """Return the fields of a dataclass that `recipes.options.option` has declared."""
    return [field for field in dataclasses.fields(cls) if "argument" in field.metadata]


def _groups(cls):
    """Yield a title and the fields of each dataclass, the recipe's own first."""
    fields = {field.name: field for field in option_fields(cls)}
    bases = [base for base in cls.__mro__ if dataclasses.is_dataclass(base)]
    annotations = [inspect.get_annotations(base) for base in bases]
    for index, base in enumerate(bases):
        inherited = set().union(*annotations[index + 1 :])
        own = [fields[n] for n in annotations[index] if n in fields and n not in inherited]
        if own:
            title = base.__doc__.partition("\n")[0].rstrip(".").lower()
            yield "recipe" if base is cls else title, own


def _add_argument(group, field):
    argument, annotation = dict(field.metadata["argument"]), field.type
    flag = argument.pop("flag", f"--{field.name.replace('_', '-')}")
    if annotation is bool:
        argument["action"] = "store_false" if field.default else "store_true"
    else:
        if isinstance(annotation, types.UnionType):
            annotation = typing.get_args(annotation)[0]
        if typing.get_origin(annotation) is tuple:
            annotation, *others = typing.get_args(annotation)
            if "action" not in argument:
                argument["nargs"] = "+" if others == [...] else 1 + len(others)
        argument["type"] = annotation
    argument["help"] = f"{field.metadata['help']} {_default(field)}".strip()
    # What is not given is left out, so that the dataclass alone knows the defaults.
    group.add_argument(flag, dest=field.name, default=argparse.SUPPRESS, **argument)


def _default(field):
    """Return the default for the help, of all cases; empty for a flag, a list or None."""
    cases = field.metadata["cases"] or {"": field.default}
    shown = [f"of {case} {value}" if case else f"{value}" for case, value in cases.items()]
    is_shown = not isinstance(field.default, (bool, tuple)) and [*cases.values()] != [None]
    return f"(default: {'; '.join(shown)})" if is_shown else ""
