"""Options that recipes share, and what is checked of all."""

import ast
import inspect


def add_run_options(add):
    """Adds, by a parser's `add_argument`, what every run has."""
    add("--checkpoint-steps", type=int, help="checkpoints also every so many steps")
    add("--export-version", type=int, help="by default one more than the highest there is")
    add("--precision", default="float32", choices=["float32", "mixed_bfloat16", "mixed_float16"])
    add("--strategy", default="none", choices=["none", "mirrored"])
    add("--seed", type=int, default=0)


def check_at_least(parser, options, least, *names):
    """Ends the program where one of the options is given and too small."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not value >= least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}")


def check_learning_rate(parser, options):
    if not options.learning_rate > 0:
        parser.error("--learning-rate must be above 0")


def page_arguments(assignments, page):
    """What `--with` gives, NAME=VALUE each, as arguments of a model's page."""
    known = list(inspect.signature(page).parameters)
    found = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in known:
            raise ValueError(
                f"--with must name an argument of {page.__name__}, which has {', '.join(known)}. "
                f"Received: {assignment}."
            )
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found
