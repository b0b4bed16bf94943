"""API pages: for each public package the names of its `__all__`, from their docstrings."""

import functools
import inspect
import re
import textwrap

from sphinx.util.inspect import stringify_signature

import keras_attn

from ..catalogue.entries import HEADING

LISTS = "Args", "Attributes", "Call arguments", "Raises"
_ITEM = re.compile(r"(?P<names>[*\w]+(?:, [*\w]+)*):\s")


def write(folder):
    """Write the sources of the pages into a folder."""
    folder.mkdir()
    for name, module in _modules().items():
        (folder / f"{name}.md").write_text(_page(module), encoding="utf-8")
    (folder / "index.md").write_text(_page(keras_attn), encoding="utf-8")


@functools.cache
def _modules():
    values = {name: getattr(keras_attn, name) for name in keras_attn.__all__}
    return {name: value for name, value in values.items() if inspect.ismodule(value)}


@functools.cache
def _full_names():
    """Return the full name of each public class or function: in the package that defines it."""
    names = {}
    for module in _modules().values():
        for name in module.__all__:
            value = getattr(module, name)
            if value not in names or value.__module__.startswith(f"{module.__name__}."):
                names[value] = f"{module.__name__}.{name}"
    return names


def _page(module):
    parts = [f"# {module.__name__}", _directive("py:module", module.__name__)]
    parts += [inspect.getdoc(module), "", "| name | |", "| --- | --- |"]
    entries = []
    for name in sorted(module.__all__):
        value = getattr(module, name)
        own = f"{module.__name__}.{name}"
        full = own if inspect.ismodule(value) else _full_names()[value]
        shown = name if full == own and not inspect.ismodule(value) else full
        parts.append(f"| `{shown}` | {_summary(value)} |")
        if full == own and not inspect.ismodule(value):
            entries.append(_entry(name, value))
    return "\n".join([*parts, "", *entries])


def _summary(value):
    paragraph = inspect.getdoc(value).split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


def _entry(name, value):
    if not inspect.isclass(value):
        return _directive("py:function", name + _signature(value), _text(value))
    members = [
        text for name, member in vars(value).items() if (text := _member(name, member)) is not None
    ]
    parts = [_text(value), _bases(value), *members]
    return _directive("py:class", name + _signature(value), "\n\n".join(parts), fence=8)


def _member(name, member):
    """Return the entry of a member that its class documents, and of each `call`."""
    function = inspect.unwrap(member)
    if name.startswith("_") or not (member.__doc__ or name == "call"):
        return None
    if isinstance(member, (property, functools.cached_property)):
        return _directive("py:property", name, _text(member))
    if not inspect.isfunction(function):
        return None
    is_static = isinstance(member, staticmethod)
    kind = {staticmethod: ":staticmethod:\n", classmethod: ":classmethod:\n"}.get(type(member), "")
    signature = _signature(function, skip=0 if is_static else 1)
    return _directive("py:method", name + signature, kind + "\n" + _text(member))


def _bases(cls):
    """Return the nearest base class that is public or of another library, and its methods."""
    for base in cls.__mro__[1:-1]:
        if full := _full_names().get(base):
            names = [
                f"`{base.__name__}.{name}`"
                for name, member in vars(base).items()
                if name not in vars(cls) and _member(name, member) is not None
            ]
            return f"Subclass of `{full}`" + (", with " * bool(names)) + ", ".join(names) + "."
        if not base.__module__.startswith("keras_attn."):
            return f"Subclass of `{base.__name__}` of `{base.__module__.partition('.')[0]}`."
    return ""


def _signature(function, skip=0):
    """Return the signature as text, without the first `skip` arguments."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[skip:]
    return stringify_signature(signature.replace(parameters=parameters), show_annotation=False)


def _text(value):
    """Return a docstring with its sections as a list of fields."""
    description, *rest = HEADING.split(inspect.getdoc(value) or "")
    fields = [
        f":{title}:\n{textwrap.indent(_section(title, inspect.cleandoc(body)), '    ')}"
        for title, body in zip(rest[::2], rest[1::2], strict=True)
    ]
    return "\n".join([description, *fields])


def _section(title, body):
    if body.startswith(">>>"):
        return f"```pycon\n{body}\n```"
    if title not in LISTS:
        return body
    items = []
    for item in re.split(r"\n(?=\S)", body):
        match = _ITEM.match(item)
        names = ", ".join(f"`{name}`" for name in match["names"].split(", ")) if match else ""
        items.append(f"- {names}: {item[match.end() :]}" if match else item)
    return "\n".join(items)


def _directive(name, argument, content="", fence=6):
    return f"\n{'`' * fence}{{{name}}} {argument}\n{content}\n{'`' * fence}\n"
