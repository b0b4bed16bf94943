"""Options: one dataclass gives parser, checks, identity and card."""

import dataclasses
import importlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pages
import pytest
import recipe_runs

from recipes.common.options import OptionError, Options, changed, option

ROOT = Path(__file__).resolve().parents[2]
OTHERS = ("common", "prepare", "text")  # which train no model
RECIPES = sorted(
    path.parent.name for path in ROOT.glob("recipes/*/options.py") if path.parent.name not in OTHERS
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example(Options):
    """Options of an example."""

    out: str = changed(Options, "out", "runs/example")
    size: int = option(3, "of a thing", at_least=1)
    rate: float | None = option(None, "default: the inverse of the size", above=0)
    share: float = option(0.5, at_least=0, at_most=1, identity=False)
    lengths: tuple[int, ...] = option((2, 4))
    pair: tuple[int, int] | None = option(None)
    more: tuple[str, ...] = option((), flag="--with", action="append")
    quick: bool = option(False)
    losses: bool = option(True, flag="--no-losses")

    def resolve(self):
        return super().resolve().fill(rate=1 / self.size)

    def check(self):
        super().check()
        if self.size in self.lengths:
            raise OptionError("--lengths must differ from --size.")


def test_an_empty_command_line_gives_the_defaults_and_what_follows_from_them():
    options = Example.parse(["--size", 4, "--lengths", 1])
    assert options == Example(size=4, lengths=(1,), rate=0.25)
    assert (options.seed, options.out, options.devices) == (0, "runs/example", "none")


def test_each_kind_of_option_is_parsed():
    arguments = "--pair 5 6 --lengths 7 8 9 --with a=1 --with b --quick --no-losses --rate 2"
    options = Example.parse(arguments.split(), "recipes.example")
    assert (options.pair, options.lengths, options.more) == ((5, 6), (7, 8, 9), ("a=1", "b"))
    assert (options.quick, options.losses, options.rate) == (True, False, 2.0)
    assert options.command == f"python -m recipes.example {arguments}"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("--size 0", "--size must be at least 1. Received: --size 0."),
        ("--rate 0", "--rate must be above 0. Received: --rate 0.0."),
        ("--rate nan", "--rate must be above 0. Received: --rate nan."),
        ("--rate inf", "--rate must be finite. Received: --rate inf."),
        ("--share 1.5", "--share must be at least 0 and at most 1. Received: --share 1.5."),
        ("--size 2", "--lengths must differ from --size."),
        ("--colour 2", "unrecognized arguments: --colour 2"),
    ],
)
def test_a_wrong_option_ends_the_process_with_its_name(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        Example.parse(arguments.split(), "recipes.example")
    assert capsys.readouterr().err.endswith(f"python -m recipes.example: error: {message}\n")


@pytest.mark.parametrize(
    "recipe, option",
    [
        *((recipe, "--dropout 1.5") for recipe in RECIPES if recipe != "control"),
        ("translate", "--label-smoothing -1"),
        ("translate", "--length-penalty -1"),
        ("algorithmic", "--halting-bias nan"),
        ("image", "--query-shape -1 2"),
        ("image", "--flange 2 -1"),
        ("control", "--entropy-weight -1"),
        ("control", "--steps -1"),
    ],
)
def test_a_value_out_of_bounds_is_refused_in_a_sentence(recipe, option, capsys):
    options = importlib.import_module(f"recipes.{recipe}.options").RecipeOptions
    axis = ["--axis", "depth"] if recipe == "compare" else []
    with pytest.raises(SystemExit, match="2"):
        options.parse([*axis, *option.split()], f"recipes.{recipe}")
    usage, error = capsys.readouterr().err.splitlines()
    assert usage.startswith("usage: ") and f"{option.split()[0]} must be" in error


def test_the_identity_has_the_options_that_a_resumed_run_shares():
    identity = Example.parse(["--size", "5"]).identity()
    assert identity == json.loads(json.dumps(identity))
    assert identity["lengths"] == [2, 4] and identity["rate"] == 0.2
    assert not {"out", "share", "strategy", "command"} & set(identity)
    assert {"seed", "precision", "size"} <= set(identity)


def test_the_card_has_all_options():
    options = Example.parse([])
    names = {field.name for field in dataclasses.fields(Example)}
    assert set(options.as_dict()) == names - {"command", "dry_run"}


@pytest.mark.parametrize("recipe", RECIPES)
def test_options_of_a_recipe_are_frozen_and_explained(recipe, capsys):
    options = importlib.import_module(f"recipes.{recipe}.options").RecipeOptions
    with pytest.raises(SystemExit, match="0"):
        options.parse(["--help"], f"recipes.{recipe}")
    shown = capsys.readouterr().out
    assert f"usage: keras-attn {recipe.replace('_', '-')} " in shown and "--precision" in shown
    parsed = options.parse(["--axis", "depth"] if recipe == "compare" else [])
    assert parsed.resolve() == parsed  # a resolved command line changes no more
    with pytest.raises(dataclasses.FrozenInstanceError):
        parsed.seed = 1


def test_the_command_of_a_card_gives_the_options_on_it():
    """Command lines of published results keep their meaning."""
    num_cards = 0
    for path in sorted(ROOT.glob("recipes/*/cards/*.json")):
        card = json.loads(path.read_text(encoding="utf-8"))
        if "command" not in card:  # of an experiment, each of whose runs has its own
            continue
        _, _, recipe, *arguments = shlex.split(pages.in_full(card["command"]))
        if recipe.removeprefix("recipes.") in RECIPES:
            options = importlib.import_module(f"{recipe}.options").RecipeOptions
            parsed = json.loads(json.dumps(options.parse(arguments, recipe).as_dict()))
            per_run = ("out", "seed", "steps") if recipe == "recipes.control" else ()
            for name in set(parsed) & set(card["options"]) - set(per_run):
                assert parsed[name] == card["options"][name], f"{path}: {name}"
            num_cards += 1
    assert num_cards > 30


def test_options_are_read_without_importing_keras():
    program = "import sys\nsys.argv = ['keras-attn']\n"  # as in a command
    program += f"for name in {RECIPES}: __import__(f'recipes.{{name}}.options')\n"
    program += "assert 'keras' not in sys.modules and 'recipes.image.options' in sys.modules"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_a_mesh_gives_the_arguments_of_the_strategy():
    flags = "--strategy model_parallel --mesh data=2,model=4 --shard-parameters"
    options = Example.parse(flags.split(), "recipes.example")
    expected = {"data": 2, "model": 4, "shards_parameters": True}
    assert (options.devices, options.mesh_arguments) == ("model_parallel", expected)
    options = Example(strategy="model_parallel", mesh="model=4")
    assert options.mesh_arguments == {"data": 1, "model": 4, "shards_parameters": False}
    assert Example().mesh_arguments == {}


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        ({"mesh": "data=2"}, "model_parallel needs --mesh"),
        ({"strategy": "model_parallel"}, "Received: --strategy model_parallel, --mesh None"),
        ({"shard_parameters": True}, "--shard-parameters needs --strategy model_parallel"),
        *(
            (
                {"strategy": "model_parallel", "mesh": mesh},
                f"--mesh: A mesh must be .* Received: '{mesh}'",
            )
            for mesh in ("data=0", "rows=2", "data=2,data=4", "data=2;model=4", "2,4")
        ),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(wrong, sentence):
    with pytest.raises(OptionError, match=sentence):
        Example(**wrong)


def test_jit_compile_takes_no_strategy(capsys):
    error = recipe_runs.error_of(capsys, "image", "--jit-compile", "--strategy", "mirrored")
    assert error.endswith("Received: --jit-compile, --strategy mirrored.")
