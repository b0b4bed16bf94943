"""Contents and commands of a wheel and an sdist, which can be installed."""

import configparser
import os
import re
import shutil
import subprocess
import sys

import pytest
from fork_server import ROOT, run_python

import keras_attn


def packages(folder):
    files = (ROOT / folder).rglob("__init__.py")
    return {".".join(path.parent.relative_to(ROOT).parts) for path in files}


# Programs of makers, which need a checkout.
MAKERS = "benchmarks", "catalogue", "experiments", "site"
NOT_IN_A_WHEEL = tuple(f"recipes.{name}" for name in MAKERS)


def test_a_wheel_holds_every_package_below_keras_attn():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    programs = packages("recipes") | packages("serving")
    mapped = {f"keras_attn.{name}" for name in programs if not name.startswith(NOT_IN_A_WHEEL)}
    assert set(setup["options"]["packages"].split()) == packages("keras_attn") | mapped


PRINT_HELP = """
import runpy, sys
for name in ["recipes.translate", "recipes.results", "serving.client", "serving.server"]:
    sys.argv = [name, "--help"]
    try:
        runpy.run_module(f"keras_attn.{name}", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert not end.code, name
assert not {"recipes", "serving"} & set(sys.modules)
"""


def test_programs_of_a_wheel_run_as_modules_of_keras_attn(tmp_path):
    (tmp_path / "keras_attn").mkdir()  # laid out as setup.cfg maps it, outside the checkout
    for path in [*(ROOT / "keras_attn").iterdir(), ROOT / "recipes", ROOT / "serving"]:
        (tmp_path / "keras_attn" / path.name).symlink_to(path)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = run_python("-c", PRINT_HELP, cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == 4


def test_the_newest_section_of_the_changelog_is_that_of_the_version():
    changes = (ROOT / "keras_attn/CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.+?)\] - \d{4}-\d\d-\d\d$", changes, re.MULTILINE)[0] == (
        keras_attn.__version__
    )


IMPORT_ALL = """
import importlib, pkgutil, sys
import keras_attn

folder = sys.argv[1]
left_out = {"torch", "tutorials"}  # not installed here; programs that run when they are imported
for module in pkgutil.walk_packages(keras_attn.__path__, "keras_attn."):
    if not left_out & set(module.name.split(".")):
        imported = importlib.import_module(module.name)
        assert imported.__file__.startswith(folder), imported.__file__
assert not {"recipes", "serving"} & set(sys.modules)
print(keras_attn.__version__)
"""


@pytest.mark.slow
def test_all_modules_of_a_wheel_are_imported_where_it_is_installed(tmp_path):
    """The wheel is made from an sdist of the checkout."""
    folder = tmp_path / "distributions"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "runs")
    shutil.copytree(ROOT, folder / "checkout", ignore=ignored)
    command = [sys.executable, "-m", "build", "--outdir", folder, folder / "checkout"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    target = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile"]
    subprocess.run([*install, "--target", target, wheel], check=True, capture_output=True)
    assert not list(target.rglob("py.typed")), "public signatures carry no annotations"
    assert (target / "keras_attn/recipes/README.md").is_file()
    assert not list(target.rglob("*.sh")), "scripts make an environment of a checkout"
    environment = os.environ | {"PYTHONPATH": str(target)}
    program = ("-c", IMPORT_ALL, str(target))
    done = run_python(*program, cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == keras_attn.__version__
