"""Contents of an installed wheel, and its commands."""

import configparser
import os

from fork_server import ROOT, run_python


def packages(folder):
    files = (ROOT / folder).rglob("__init__.py")
    return {".".join(path.parent.relative_to(ROOT).parts) for path in files}


def test_a_wheel_holds_every_package_below_keras_attn():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    mapped = {f"keras_attn.{name}" for name in packages("recipes") | packages("serving")}
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
