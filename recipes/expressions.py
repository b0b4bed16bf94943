"""Values of the axes from the command line: `Local(32, causal=False) | Global(1)`."""

import ast
import inspect
import operator

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
