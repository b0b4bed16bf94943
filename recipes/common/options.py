"""Options of a recipe: one frozen dataclass gives its command line, checks, identity and card."""

import argparse
import dataclasses
import inspect
import json
import math
import operator
import shlex
import types
import typing

from keras_attn.mesh import parse_mesh
from keras_attn.programs import command_of

STRATEGIES = ("none", "mirrored", "multi_worker", "tpu", "model_parallel")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
_BOUNDS = {
    "at_least": ("at least", operator.ge),
    "at_most": ("at most", operator.le),
    "above": ("above", operator.gt),
    "below": ("below", operator.lt),
}


class OptionError(ValueError):
    """An option whose value is wrong, or contradicts another option."""


def option(default, help="", *, identity=True, **argument):
    """Declare a field of `Options` that is an option of the command line.

    Args:
        default: value without the option; None if it follows from other options; or a dict of its
            values by `Options.case`, "" for any case that the dict does not name.
        help: str. The default value is added to it.
        identity: bool. True if a run cannot be resumed with another value.
        **argument: bounds of the value where it is not None, the numbers `at_least`, `at_most`,
            `above` and `below`; more arguments of `add_argument`; and `flag`, the option's name
            where it does not follow from the field's.
    """
    cases = default if isinstance(default, dict) else {}
    bounds = {name: argument.pop(name, None) for name in _BOUNDS}
    metadata = {"help": help, "cases": cases, "identity": identity, "argument": argument, **bounds}
    return dataclasses.field(default=None if cases else default, metadata=metadata)


def changed(base, name, default, help=None, **metadata):
    """Declare an option of a base dataclass again, with another default, help or metadata."""
    (field,) = (field for field in dataclasses.fields(base) if field.name == name)
    metadata = {**field.metadata, **metadata}
    metadata.pop("cases")
    metadata["help"] = metadata["help"] if help is None else help
    return option(default, **metadata.pop("argument"), **metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Options of any command.

    A subclass adds fields by `option`, changes defaults of inherited ones by keywords of its class
    statement, sets `DESCRIPTION`, gives options that follow from others their values in `resolve`,
    and compares options with one another in `check`.

    Raises:
        OptionError: if a value is outside its bounds.
    """

    DESCRIPTION: typing.ClassVar[str] = ""

    command: str = dataclasses.field(default="", compare=False)  # as the card shows it

    def __init_subclass__(cls, **defaults):
        bases = [base for base in cls.__mro__[:0:-1] if dataclasses.is_dataclass(base)]
        known = {field.name: (base, field) for base in bases for field in dataclasses.fields(base)}
        for name, default in defaults.items():
            base, field = known[name]
            setattr(cls, name, changed(base, name, default))
            cls.__annotations__[name] = field.type

    def __post_init__(self):
        for field in option_fields(type(self)):
            _check_bounds(field, getattr(self, field.name))

    @classmethod
    def parse(cls, arguments, program=None):
        """Return the options of a command line; a wrong one ends the process with the usage.

        Args:
            arguments: list of str.
            program: str. Module that is run, such as "recipes.translate".
        """
        parser = make_parser(cls, program)
        namespace, others = parser.parse_known_args([str(argument) for argument in arguments])
        values = vars(namespace)
        if others:
            cls.take_others(parser, values, others)
        values = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
        command = f"{command_of(str(program))} {shlex.join(map(str, arguments))}".rstrip()
        try:
            options = cls(**values, command=command).resolve()
            options.check()
        except OptionError as error:
            parser.error(str(error))
        return options

    @classmethod
    def take_others(cls, parser, values, others):
        """Refuse arguments that are no options of the class; or add them to the dict `values`."""
        parser.error(f"unrecognized arguments: {' '.join(others)}")

    @property
    def case(self):
        """Case that decides defaults which are a dict."""
        return ""

    def resolve(self):
        """Return a copy in which options that follow from others have their values."""
        cases = {field.name: field.metadata["cases"] for field in option_fields(type(self))}
        return self.fill(**{n: x.get(self.case, x.get("")) for n, x in cases.items() if x})

    def check(self):
        """Compare options with one another.

        Raises:
            OptionError: if two options do not fit.
        """

    def check_without(self, names, reason):
        """Refuse options that differ from their defaults.

        Args:
            names: of the options.
            reason: str. What they do not fit, for the error.

        Raises:
            OptionError: if one has been given.
        """
        fields = {field.name: field for field in option_fields(type(self))}
        for name in names:
            cases = fields[name].metadata["cases"]
            default = cases.get(self.case, cases.get("", fields[name].default))
            if getattr(self, name) != default:
                flag = f"--{name.replace('_', '-')}"
                raise OptionError(
                    f"{flag} does not fit {reason}. Received: {flag} {getattr(self, name)}."
                )

    def check_files(self):
        """Find the files that the options name, without Keras.

        Raises:
            ValueError: if one is missing.
        """

    def fill(self, **defaults):
        """Return a copy in which options that are None have these values."""
        missing = {name: x for name, x in defaults.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)

    def as_dict(self):
        """Return a dict of all options, as the card shows them; a dry run writes no card."""
        names = [field.name for field in option_fields(type(self))]
        return {name: getattr(self, name) for name in names if name != "dry_run"}

    def identity(self):
        """Return the recipe and the options that a resumed run must not change, in JSON."""
        fields = option_fields(type(self))
        fixed = {f.name: getattr(self, f.name) for f in fields if f.metadata["identity"]}
        return {"recipe": self.recipe, **json.loads(json.dumps(fixed))}

    @property
    def recipe(self):
        """Name of the recipe, such as "translate"."""
        return type(self).__module__.removesuffix(".options").rpartition(".")[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Options of every recipe."""

    out: str = option(None, "directory of the run", identity=False)
    seed: int = option(0, at_least=0)
    precision: str = option("float32", choices=PRECISIONS)
    strategy: str = option("none", identity=False, choices=STRATEGIES)
    mesh: str | None = option(
        None,
        "devices of model_parallel: parts of a batch times parts of the weights",
        identity=False,
        metavar="data=N,model=N",
    )
    shard_parameters: bool = option(
        False, "divide the weights among the data devices of the mesh too", identity=False
    )
    dry_run: bool = option(
        False,
        "measure five steps; print parameters, bytes, expected minutes and where files would go; "
        "write nothing",
        identity=False,
    )

    def __post_init__(self):
        super().__post_init__()
        if (self.strategy == "model_parallel") != (self.mesh is not None):
            raise OptionError(
                "--strategy model_parallel needs --mesh data=N,model=N, and no other strategy "
                f"takes one. Received: --strategy {self.strategy}, --mesh {self.mesh}."
            )
        if self.shard_parameters and self.mesh is None:
            raise OptionError("--shard-parameters needs --strategy model_parallel.")
        if self.mesh is not None:
            _mesh_sizes(self.mesh)

    @property
    def devices(self):
        """Name of the distribution strategy; tokens are prepared without one."""
        return "none" if getattr(self, "prepare", False) else self.strategy

    @property
    def mesh_arguments(self):
        """Arguments of the distribution strategy beside its name."""
        if self.devices != "model_parallel":
            return {}
        return {**_mesh_sizes(self.mesh), "shards_parameters": self.shard_parameters}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """Checkpoints, export and compilation."""

    checkpoint_steps: int | None = option(
        None, "save a checkpoint also every N steps", identity=False, at_least=1, metavar="N"
    )
    export_version: int | None = option(
        None, "default: one above the highest existing version", identity=False, at_least=1
    )
    jit_compile: bool = option(
        False,
        "compile training and validation by XLA, once for each shape of a batch, on one device; "
        "with --dry-run, compare ten steps with and without it (JAX always compiles)",
        identity=False,
    )

    def check(self):
        super().check()
        if self.jit_compile and self.strategy != "none":
            raise OptionError(
                "--jit-compile compiles for one device, so no --strategy takes it. "
                f"Received: --jit-compile, --strategy {self.strategy}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleOptions(Options):
    """Length of the training and learning rate."""

    steps: int | None = option(
        None, "number of training steps, rounded up to equal epochs", at_least=1
    )
    epochs: int = option(
        10, "equal parts of the training, each ended by validation and a checkpoint", at_least=1
    )
    learning_rate: float = option(0.001, "peak of the learning rate", above=0)
    warmup_steps: int | None = option(
        None, "steps up to the peak (default: a twentieth of all steps)", at_least=0
    )
    clip_norm: float = option(
        1.0, "largest norm of the whole gradient; 0 leaves it as it is", at_least=0
    )

    def divide(self, steps):
        """Return a copy with at least `steps` steps in equal epochs."""
        epochs = min(self.epochs, steps)
        return dataclasses.replace(self, epochs=epochs, steps=math.ceil(steps / epochs) * epochs)

    def passes(self, num_batches):
        """Return the number of passes over so many batches: those in `steps`, but at least one.

        Without `steps` it is `epochs`.
        """
        return self.epochs if self.steps is None else max(1, self.steps // num_batches)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SizeOptions(Options):
    """Sizes of the model."""

    num_layers: int | None = option(None, at_least=1)
    num_heads: int | None = option(None, at_least=1)
    hidden_dim: int | None = option(None, at_least=1)
    intermediate_dim: int | None = option(None, at_least=1)

    def check(self):
        super().check()
        if self.hidden_dim and self.num_heads and self.hidden_dim % self.num_heads:
            raise OptionError(
                "--num-heads must divide --hidden-dim. "
                f"Received: {self.num_heads} and {self.hidden_dim}."
            )

    def sizes(self):
        """Return the sizes by name, as functions of `keras_attn.models` take them."""
        names = ("num_layers", "num_heads", "hidden_dim", "intermediate_dim")
        return {name: getattr(self, name) for name in names}


def _mesh_sizes(mesh):
    try:
        return parse_mesh(mesh)
    except ValueError as error:
        raise OptionError(f"--mesh: {error}") from None


def _check_bounds(field, value):
    bounds = {name: field.metadata[name] for name in _BOUNDS}
    limits = [name for name, bound in bounds.items() if bound is not None]
    numbers = () if value is None else value if isinstance(value, tuple) else (value,)
    wanted = " and ".join(f"{_BOUNDS[name][0]} {bounds[name]}" for name in limits)
    fits = all(_BOUNDS[name][1](number, bounds[name]) for name in limits for number in numbers)
    if fits and all(math.isfinite(n) for n in numbers if isinstance(n, float)):
        return
    flag, received = f"--{field.name.replace('_', '-')}", " ".join(map(str, numbers))
    raise OptionError(
        f"{flag} must be {wanted if not fits else 'finite'}. Received: {flag} {received}."
    )


def make_parser(cls, program):
    """Return the parser of the options of an `Options` class.

    Args:
        cls: a subclass of `recipes.common.options.Options`.
        program: str. Module that is run, such as "recipes.translate"; or None.
    """
    parser = argparse.ArgumentParser(
        prog=program and command_of(program),
        usage="%(prog)s [--help] [--OPTION VALUE ...]",  # all of them would hide an error
        description=cls.DESCRIPTION,
    )
    for title, fields in _groups(cls):
        group = parser.add_argument_group(title)
        for field in fields:
            _add_argument(group, field)
    return parser


def option_fields(cls):
    """Return the fields of a dataclass that `recipes.common.options.option` has declared."""
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
