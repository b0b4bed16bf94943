"""Figures of how the code reads: the path of one call, the sizes of files, complex functions.

    python -m recipes.benchmarks.reading --verbose

counts in the checkout whose `keras_attn` is imported; `PYTHONPATH=CHECKOUT python
recipes/benchmarks/reading.py` counts in another one.
"""

import argparse
import ast
import functools
import importlib.util
import io
import json
import os
import pathlib
import sys
import tokenize

PACKAGE = pathlib.Path(importlib.util.find_spec("keras_attn").origin).parent
ROOT = PACKAGE.parent
SHORT, COMPLEX, MOST_COMPLEX = 30, 15, 20  # lines of code; cyclomatic complexity
# Folders whose files hold one value of an axis, or the model of one paper.
VALUES = "feed_forward", "models/papers", "norms", "patterns", "positions", "residuals", "scores"
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
SCOPES = ast.Module, ast.ClassDef, *FUNCTIONS
BRANCHES = ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case
D = 16


def files_called(function):
    """Call a function; return the file of each Python function of `keras_attn` called, in order."""
    files, folder = [], str(PACKAGE)

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(folder):
            files.append(os.path.relpath(frame.f_code.co_filename, folder))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return files


def path_figures(files):
    """Return the files, the switches between them and the calls of a path.

    The first file counts as one switch.
    """
    switches = len(files[:1]) + sum(before != after for before, after in zip(files, files[1:]))
    return {"files": len(set(files)), "switches": switches, "calls": len(files)}


def dense():
    return attention_call(64)


def causal():
    return attention_call(64, pattern="causal")


def local():
    from keras_attn.patterns import Local

    return attention_call(1024, pattern=Local(64))


def lsh():
    from keras_attn.patterns import LSH

    return attention_call(1024, score="shared_qk", pattern=LSH(64))


def cached_step():
    from keras_attn.layers import MultiHeadAttention
    from keras_attn.memory import KVCache

    layer, x = MultiHeadAttention(4, 8, pattern="causal"), sequence(1)
    layer.build((1, None, D))
    cache = KVCache(64).initial(layer, 1)
    return lambda: layer(x, x, cache=cache)


def attention_call(length, **arguments):
    """Return a function that calls a layer of attention on one sequence."""
    from keras_attn.layers import MultiHeadAttention

    layer, x = MultiHeadAttention(4, 8, **arguments), sequence(length)
    return lambda: layer(x, x)


def sequence(length):
    import numpy as np
    from keras import ops

    random = np.random.default_rng(0)
    return ops.convert_to_tensor(random.normal(size=(1, length, D)).astype("float32"))


CALLS = {
    "dense": dense,
    "causal": causal,
    "Local(64), 1,024 positions": local,
    "LSH(64), 1,024 positions": lsh,
    "a cached step": cached_step,
}


def call_figures(name):
    """Return the figures of an eager call that is not the first, and its files in order."""
    call = CALLS[name]()
    call()
    files = files_called(call)
    return path_figures(files), files


def python_files(folder):
    return sorted(path for path in (ROOT / folder).rglob("*.py"))


@functools.cache
def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def count_code(path):
    """Count the lines of a file that are not blank, a comment or a part of a docstring."""
    text = path.read_text(encoding="utf-8")
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(parse(path)):
        if isinstance(node, SCOPES) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, docstring.end_lineno + 1))
    rows = text.splitlines()
    return sum(bool(rows[line - 1].strip()) for line in lines)


def short_modules():
    """List the modules with few lines that are no file of one value, of one paper or of a shim."""
    return [
        path
        for path in python_files("keras_attn")
        if path.name not in ("__init__.py", "__main__.py")
        and not is_in(path, "compat", *VALUES)
        and count_code(path) < SHORT
        and not is_one_value(path)
    ]


def is_in(path, *folders):
    folder = path.relative_to(PACKAGE).as_posix()
    return any(folder.startswith(f"{name}/") for name in folders)


def is_one_value(path):
    """Return True if a module defines one public class of its package, and no public function."""
    public = public_names(path.parent / "__init__.py")
    names = [n for n in parse(path).body if getattr(n, "name", None) in public]
    return len(names) == 1 and isinstance(names[0], ast.ClassDef)


@functools.cache
def public_names(init_file):
    """Return the strings of `__all__`, and of the dict of lazy modules that it may unpack."""
    if not init_file.exists():
        return frozenset()
    return frozenset(
        constant.value
        for node in parse(init_file).body
        if isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", None) in ("__all__", "_MODULES")
        for constant in ast.walk(node.value)
        if isinstance(constant, ast.Constant)
    )


def complexity(function):
    """Return McCabe's cyclomatic complexity of a function, those inside it included.

    As radon counts it: one, and one for each `if`, loop, `except`, `case`, `and`, `or`, and each
    `for` and `if` of a comprehension. Assertions are not counted.
    """
    count = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCHES):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


def complex_functions(*folders):
    """List (complexity, file, line, name) of the functions of at least 15, the greatest first."""
    functions = [
        (complexity(node), str(path.relative_to(ROOT)), node.lineno, node.name)
        for folder in folders
        for path in python_files(folder)
        for node in ast.walk(parse(path))
        if isinstance(node, FUNCTIONS)
    ]
    return sorted((f for f in functions if f[0] >= COMPLEX), key=lambda f: (-f[0], *f[1:]))


def class_of(name, folder):
    """Return the syntax tree of a class that a module of a folder defines."""
    for path in python_files(folder):
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return node
    raise ValueError(f"No module of {folder} defines the class. Received: {name!r}.")


def fields(node):
    """List the fields of a dataclass."""
    return [part.target.id for part in node.body if isinstance(part, ast.AnnAssign)]


def contract(node):
    """List the public attributes and methods that a class defines itself."""
    names = []
    for part in node.body:
        if isinstance(part, FUNCTIONS):
            names.append(part.name)
        elif isinstance(part, (ast.Assign, ast.AnnAssign)):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            names += [x.id for y in targets for x in ast.walk(y) if isinstance(x, ast.Name)]
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]


def file_figures():
    """Return figures of the files by name, and for some names the things that are counted."""
    modules = short_modules()
    functions = complex_functions("keras_attn", "recipes", "serving")
    attention_inputs = fields(class_of("AttentionInputs", "keras_attn/attention"))
    pattern = contract(class_of("Pattern", "keras_attn/patterns"))
    most = [function for function in functions if function[0] > MOST_COMPLEX]
    short = f"modules under {SHORT} lines of code"
    count = f"functions of complexity {COMPLEX} or more"
    details = {
        short: [f"{count_code(path):3} {path.relative_to(ROOT)}" for path in modules],
        count: [f"{n:3} {file}:{line} {name}" for n, file, line, name in functions],
        "fields of AttentionInputs": attention_inputs,
        "names of the contract of Pattern": pattern,
    }
    figures = {"files of keras_attn": len(python_files("keras_attn")), short: len(modules)}
    for folder in ("keras_attn", "recipes", "tests"):
        figures[f"lines of code of {folder}"] = sum(map(count_code, python_files(folder)))
    figures[count] = len(functions)
    figures[f"functions of complexity above {MOST_COMPLEX}"] = len(most)
    for name, things in list(details.items())[2:]:
        figures[name] = len(things)
    return figures, details


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--verbose", action="store_true", help="list what is counted")
    parser.add_argument("--files-only", action="store_true", help="import nothing, make no call")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file, too")
    arguments = parser.parse_args()
    report = {}
    for name in () if arguments.files_only else CALLS:
        report[name], files = call_figures(name)
        print(f"{name}: {', '.join(f'{n:,} {what}' for what, n in report[name].items())}")
        for file in dict.fromkeys(files) if arguments.verbose else ():
            print(f"    {file}")
    figures, details = file_figures()
    for name, figure in figures.items():
        print(f"{name}: {figure:,}")
        for detail in details.get(name, ()) if arguments.verbose else ():
            print(f"    {detail}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({**report, **figures}, file, indent=1)


if __name__ == "__main__":
    main()
