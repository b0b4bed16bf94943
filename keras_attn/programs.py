"""Programs of this package: the commands of `keras-attn`, and the modules that they run.

The module imports nothing heavy, and no program: `keras_attn/__main__.py` runs them by their names.
"""

import os
import sys
from typing import NamedTuple

COMMAND = "keras-attn"


class Program(NamedTuple):
    """A program.

    Attributes:
        module: name of the module as in a checkout; a wheel has `recipes` and `serving` within
            `keras_attn`.
        purpose: a line about it.
        arguments: words that precede the user's arguments.
    """

    module: str
    purpose: str
    arguments: tuple[str, ...] = ()


_EXPORT = "keras_attn.commands.export"
# By group, and by the words that start a program.
GROUPS = {
    "Train": {
        "translate": Program("recipes.translate", "a translator, from dates or texts of your own"),
        "language-model": Program("recipes.language_model", "a model that continues texts"),
        "masked-language-model": Program(
            "recipes.masked_language_model", "an encoder that fills in masked tokens"
        ),
        "fine-tune": Program(
            "recipes.fine_tune", "a model of Hugging Face or your own, on texts with labels"
        ),
        "series": Program("recipes.series", "forecasts or classes of time series, of your own too"),
        "image": Program("recipes.image", "a model that draws, enlarges or classifies images"),
        "algorithmic": Program(
            "recipes.algorithmic", "a model that copies, reverses or adds digits"
        ),
        "control": Program("recipes.control", "actors with memories in an environment"),
        "compare": Program("recipes.compare", "one small model with each value of an axis"),
    },
    "Texts": {
        "prepare": Program("recipes.prepare", "clean, divide and tokenize a corpus"),
    },
    "Time series": {
        "series table": Program(
            "recipes.series.archive", "a table of a .ts file of the UCR and UEA archives"
        ),
    },
    "Finished runs": {
        "results": Program("recipes.results", "a table of runs, and their curves"),
        "translate alignment": Program(
            "recipes.translate.alignment", "a picture of a translator's attention"
        ),
        "masked-language-model nearest": Program(
            "recipes.masked_language_model.nearest", "sentences of a text nearest to a given one"
        ),
    },
    "Sizes": {
        "presets": Program("keras_attn.commands.presets", "the sizes of the papers, by name"),
        "explain": Program(
            "keras_attn.commands.explain", "parameters, products and memory of a preset"
        ),
    },
    "Files": {
        "convert": Program(
            "keras_attn.commands.convert", "a folder of Hugging Face to a .keras file, or back"
        ),
        "export": Program(_EXPORT, "a SavedModel, or a file of ONNX, LiteRT or CTranslate2"),
        "inspect": Program(_EXPORT, "the contents of an export, and a check of it", ("inspect",)),
        "measure": Program(_EXPORT, "which of several exports is fastest here", ("measure",)),
    },
    "Servers": {
        "serve": Program("serving.server", "answer requests by REST and gRPC"),
        "ask": Program("serving.client", "send texts to a server, print its answers"),
    },
    "Learn": {
        "tutorial": Program("keras_attn.commands.tutorial", "run a tutorial"),
    },
}
PROGRAMS = {words: program for group in GROUPS.values() for words, program in group.items()}

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_IS_INSTALLED = os.path.isdir(os.path.join(_FOLDER, "recipes"))


def installed_name(module):
    """Return the name by which a module is imported here: in a wheel it is within `keras_attn`."""
    return f"keras_attn.{module}" if _IS_INSTALLED and _is_beside(module) else module


def command_of(module):
    """Return the command that runs a module, such as "keras-attn translate"."""
    name = module.removeprefix("keras_attn.")
    name = name if _is_beside(name) else module
    for words, program in PROGRAMS.items():
        if program.module == name and not program.arguments:
            return f"{COMMAND} {words}"
    return f"python -m {module}"


def is_running():
    """Return True if this process runs one of the programs.

    A program imports Keras itself, after it has checked its arguments.
    """
    known = {installed_name(program.module) for program in PROGRAMS.values()}
    return _main_module() in {"keras_attn", *known}


def make_importable():
    """Let a checkout's `recipes` and `serving` be imported from any directory."""
    root = os.path.dirname(_FOLDER)
    if not _IS_INSTALLED and root not in sys.path:
        sys.path.insert(0, root)


def _is_beside(module):
    """True for a module of a folder that a checkout has beside `keras_attn`."""
    return module.partition(".")[0] in ("recipes", "serving")


def _main_module():
    """Return the name of the module that this process runs as a program; "" for none of ours.

    A process that `multiprocessing` has started has the words of its parent.
    """
    first = sys.argv[0] if sys.argv else ""
    if first == "-m":  # Python looks for the module, and imports its packages meanwhile
        return sys.orig_argv[-len(sys.argv)].removeprefix("-m")
    if os.path.basename(first).removesuffix(".exe") == COMMAND:
        return "keras_attn"
    root, path = os.path.dirname(_FOLDER) + os.sep, os.path.abspath(first)
    if not path.startswith(root):
        return ""
    name = path.removeprefix(root).removesuffix(".py").replace(os.sep, ".")
    return name.removesuffix(".__main__")
