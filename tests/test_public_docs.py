"""Docstrings of public names: arguments, shapes, results and methods."""

import importlib
import inspect
import re

import keras
from each import check_each

import keras_attn

NAMES = [
    f"{package}.{name}"
    for package in keras_attn.__all__
    if inspect.ismodule(getattr(keras_attn, package))
    for name in importlib.import_module(f"keras_attn.{package}").__all__
]
HEADING = re.compile(r"(?m)^([A-Z][a-z]+(?: [a-z]+)*):$")
VARIADIC = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def find(name):
    package, attribute = name.split(".")
    return getattr(importlib.import_module(f"keras_attn.{package}"), attribute)


def is_called(value):
    """True for a layer or a model with inputs of its own."""
    is_layer = inspect.isclass(value) and issubclass(value, keras.Layer)
    return is_layer and value.call not in (keras.Layer.call, keras.Model.call)


def sections(docstring):
    """The text of each section of a docstring, by heading."""
    _, *parts = HEADING.split(docstring)
    indented = [re.match(r"(?:\n(?: .*)?)*", part)[0] for part in parts[1::2]]
    return dict(zip(parts[::2], indented, strict=True))


def items(section):
    """The names that the items of a section begin with: "a, b: ..." gives both."""
    lines = re.findall(r"(?m)^    (?! )(.+)", section)
    heads = [re.match(r"([\w, ]+):( |$)", line) for line in lines]
    return [] if None in heads else [n for head in heads for n in head[1].split(", ")]


def unnamed(parameters, section):
    """The parameters that a section neither names nor leaves to another docstring."""
    if re.match(r"\s*As `", section):
        return set()
    named = {p.name for p in parameters if p.kind not in VARIADIC} - {"name"}
    return named - set(items(section))


def documented(name):
    """The sections of the docstring of a public name."""
    return sections(inspect.cleandoc(find(name).__doc__))


def test_a_docstring_names_each_argument():
    def check(name):
        section = documented(name).get("Args", documented(name).get("Attributes", ""))
        assert unnamed(inspect.signature(find(name)).parameters.values(), section) == set()

    check_each(check, NAMES)


def test_the_docstring_of_a_function_names_the_result():
    def check(name):
        begins = inspect.cleandoc(find(name).__doc__).startswith("Return ")
        assert begins or "Returns" in documented(name)

    check_each(check, [name for name in NAMES if inspect.isfunction(find(name))])


def test_the_docstring_of_a_layer_has_shapes():
    def check(name):
        both = documented(name).get("Call arguments and returns")
        for heading in ("Call arguments", "Returns"):
            assert re.search(r"\(B\b|\b[Aa]s\b", both or documented(name)[heading]), heading

    check_each(check, [name for name in NAMES if is_called(find(name))])


def test_sections_of_arguments_are_lists():
    """An item begins with its name, so that pages and help show each on lines of its own."""

    def check(name):
        for heading in {"Args", "Attributes", "Call arguments"} & set(documented(name)):
            section = documented(name)[heading]
            assert items(section) or re.match(r"\s*As `", section), heading

    check_each(check, NAMES)


def test_public_methods_are_documented_where_they_are_first_defined():
    def check(name):
        value, missing = find(name), []
        for attribute, member in vars(value).items():
            is_method = inspect.isroutine(member) or isinstance(member, (property, classmethod))
            overrides = any(hasattr(base, attribute) for base in value.__mro__[1:])
            if is_method and not attribute.startswith("_") and not overrides:
                if not inspect.getdoc(getattr(value, attribute)):
                    missing.append(attribute)
        assert missing == []

    check_each(check, [name for name in NAMES if inspect.isclass(find(name))])
