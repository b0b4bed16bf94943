"""Arguments of a model from the command line: `--with NAME=VALUE`.

A value may be an expression of the axes: `Local(32, causal=False) | Global(1)`.
"""

import ast
import dataclasses
import inspect
import math
import operator

from keras_attn.preset_sizes import SIZES

from .options import OptionError, Options, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelArguments(Options):
    """Other arguments of the model."""

    preset: str | None = option(
        None, "a paper's sizes, in place of --model and its sizes", identity=False
    )
    more: tuple[str, ...] = option(
        (),
        "other arguments of the model (any number of times); a value may be an expression of "
        "classes of the axes, such as 'pattern=Local(32)'",
        flag="--with",
        action="extend",
        nargs="+",
        metavar="NAME=VALUE",
    )

    def find_preset(self, fits):
        """Return the name of the preset's builder, and its arguments, a dict.

        Raises:
            OptionError: if no preset that `fits(name of the builder, arguments)` has the name.
        """
        known = {name: preset for name, preset in SIZES.items() if fits(*preset)}
        if self.preset not in known:
            raise OptionError(
                f"--preset must be one of {', '.join(known)}. Received: {self.preset}."
            )
        return known[self.preset]

    def check_model_of(self, build):
        """Refuse a preset of the builder `build` beside another --model."""
        if self.model not in (None, build):
            raise OptionError(
                "--preset must be one of the model's. "
                f"Received: --preset {self.preset} and --model {self.model}."
            )


def build_model(build, arguments, assignments):
    """Build a model.

    Args:
        build: function of `keras_attn.models`.
        arguments: dict of its arguments.
        assignments: NAME=VALUE strings of `--with`, added to `arguments` or in their place.

    Raises:
        ValueError: if the function has no such argument, or a value does not fit.
    """
    more = _parse_assignments(assignments, build)
    try:
        return build(**{**arguments, **more})
    except (TypeError, AttributeError, IndexError, ArithmeticError) as error:
        if not more:
            raise
        raise ValueError(
            f"--with must fit {build.__name__}, which says: {error}. "
            f"Received: {', '.join(assignments)}."
        ) from error


def _parse_assignments(assignments, build):
    # The data decide the size of the vocabulary.
    known = [name for name in inspect.signature(build).parameters if name != "vocabulary_size"]
    arguments = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in known:
            raise ValueError(
                f"--with must name an argument of {build.__name__}, which has {', '.join(known)}. "
                f"Received: {assignment}."
            )
        try:
            arguments[name] = parse_value(value)
        except ValueError as error:
            raise ValueError(
                f"--with {name} must be a value that fits: {str(error).rstrip('.')}. "
                f"Received: {assignment}."
            ) from error
    return arguments


_OPERATORS = {ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.Add: operator.add}


def parse_value(text):
    """Return the value that a text stands for.

    It is a literal, such as 32 or (4, 4); an expression of classes of the axes, such as
    `Local(32)`, joined by `&`, `|` and `+`, in which a bare word is a name; or any other text as it
    is. Nothing but these classes is called.

    Raises:
        ValueError: if a text with parentheses is no such expression, or its classes refuse their
            arguments.
    """
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    if "(" not in text:
        return text
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"{text} is no expression such as Local(32) | Global(1)") from error
    except (TypeError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{text} does not fit its classes, which say: {error}") from error


def _evaluate(node):
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_evaluate(element) for element in node.elts]
    if isinstance(node, ast.Call) and all(keyword.arg for keyword in node.keywords):
        build = _class(ast.unparse(node.func))
        keywords = {keyword.arg: _evaluate(keyword.value) for keyword in node.keywords}
        return build(*map(_evaluate, node.args), **keywords)
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        what = "which is neither a literal nor a class of an axis with its arguments"
        raise ValueError(f"it has {ast.unparse(node)}, {what}") from error


def _class(name):
    """Return the class of an axis."""
    # Not for --help, which answers at once.
    from keras_attn import feed_forward, norms, patterns, positions, residuals, scores
    from keras_attn.hints import closest

    classes = {
        known: value
        for axis in (feed_forward, norms, patterns, positions, residuals, scores)
        for known, value in vars(axis).items()
        if inspect.isclass(value) and known in axis.__all__
    }
    if name not in classes:
        nearest = closest(name, classes)
        hint = f"; did you mean {nearest}?" if nearest else ""
        raise ValueError(f"{name} is no class of an axis{hint}")
    return classes[name]


def grid(context):
    """Return the most square (rows, columns) with as many places as the context."""
    rows = next(n for n in range(math.isqrt(context), 0, -1) if context % n == 0)
    return rows, context // rows
