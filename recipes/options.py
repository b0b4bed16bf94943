"""Options that recipes share, and what is checked of all."""

import ast
import inspect
import math


def add_run_options(add):
    """Adds, by a parser's `add_argument`, what every run has."""
    add("--checkpoint-steps", type=int, help="checkpoints also every so many steps")
    add("--export-version", type=int, help="by default one more than the highest there is")
    add_device_options(add)


def add_device_options(add):
    """Adds on what is computed, how exactly, and from which seed."""
    add("--precision", default="float32", choices=["float32", "mixed_bfloat16", "mixed_float16"])
    add("--strategy", default="none", choices=["none", "mirrored", "multi_worker", "tpu"])
    add("--seed", type=int, default=0)


def add_prepare_option(add):
    add(
        "--prepare",
        action="store_true",
        help="only read and tokenise the data, once, for the processes of --strategy multi_worker",
    )


def devices_of(options):
    """The name of the strategy that a command trains with; one that only prepares needs none."""
    return "none" if getattr(options, "prepare", False) else getattr(options, "strategy", "none")


def add_size_options(add, sizes):
    """Adds the sizes of a model, which a preset may give too."""
    for name, value in sizes.items():
        option = f"--{name.replace('_', '-')}"
        add(option, type=type(value), help=f"default: {value}, or the preset's")


def add_page_option(add, example):
    """Adds `--with`, for `build_model`."""
    add(
        "--with",
        dest="more",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"another argument of keras_attn.models.MODEL, as {example} (any number of times)",
    )


def add_schedule_options(add, warmup="a twentieth"):
    """Adds what `recipes.optimizer.adam` reads, and how the training is divided."""
    add(
        "--epochs",
        type=int,
        default=10,
        help="equal parts of the training, each ended by validation and a checkpoint "
        "(default: %(default)s)",
    )
    add("--learning-rate", type=float, default=0.001, help="the peak (default: %(default)s)")
    add("--warmup-steps", type=int, help=f"up to the peak (default: {warmup} of all steps)")
    add("--clip-norm", type=float, default=1.0, help="of the whole gradient (default: %(default)s)")


def divide(options, steps):
    """Sets `steps` and `epochs`: whole steps in whole epochs, at least as many as asked for."""
    options.epochs = min(options.epochs, steps)
    options.steps = math.ceil(steps / options.epochs) * options.epochs


def set_missing(options, defaults):
    """Sets those options that were not given."""
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)


def check_at_least(parser, options, least, *names):
    """Ends the program where one of the options is given and too small."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not value >= least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}")


def check_learning_rate(parser, options):
    if not options.learning_rate > 0:
        parser.error("--learning-rate must be above 0")


def build_model(page, arguments, assignments):
    """A model.

    Args:
        page: function of `keras_attn.models`.
        arguments: dict of its arguments.
        assignments: list of what `--with` gives beside them or in their place, NAME=VALUE each.

    Raises:
        ValueError: if the page has no such argument, or a value does not fit.
    """
    more = _page_arguments(assignments, page)
    try:
        return page(**{**arguments, **more})
    except (TypeError, AttributeError, IndexError, ArithmeticError) as error:
        if not more:
            raise
        raise ValueError(
            f"--with must fit {page.__name__}, which says: {error}. "
            f"Received: {', '.join(assignments)}."
        ) from error


def _page_arguments(assignments, page):
    # How many ids there are is for the data to say.
    known = [name for name in inspect.signature(page).parameters if name != "vocabulary_size"]
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
