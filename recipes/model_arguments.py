"""Arguments of a model from the command line: `--with NAME=VALUE`."""

import dataclasses
import inspect

from .expressions import parse_value
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
        """Return the function of the preset's model, and its arguments, a dict.

        Raises:
            OptionError: if no preset that `fits(name of the function, arguments)` has the name.
        """
        from keras_attn.models.paper_sizes import PRESETS  # not for --help, which answers at once

        known = {n: found for n, found in PRESETS.items() if fits(found[0].__name__, found[1])}
        if self.preset not in known:
            raise OptionError(
                f"--preset must be one of {', '.join(known)}. Received: {self.preset}."
            )
        return known[self.preset]

    def check_model_of(self, build):
        """Refuse a preset of `build` beside another --model."""
        if self.model not in (None, build.__name__):
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
    found = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in known:
            raise ValueError(
                f"--with must name an argument of {build.__name__}, which has {', '.join(known)}. "
                f"Received: {assignment}."
            )
        try:
            found[name] = parse_value(value)
        except ValueError as error:
            raise ValueError(
                f"--with {name} must be a value that fits: {str(error).rstrip('.')}. "
                f"Received: {assignment}."
            ) from error
    return found
