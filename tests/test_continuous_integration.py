"""The workflow runs all tests, divided into groups, on every Python that is supported."""

import configparser
import re

import yaml
from fork_server import ROOT

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
JOB = WORKFLOW["jobs"]["tests"]
MATRIX = JOB["strategy"]["matrix"]


def test_the_groups_of_the_workflow_are_all_groups():
    (command,) = [step["run"] for step in JOB["steps"] if "run" in step]
    program, _, splits, _, group = command.split(maxsplit=4)
    assert (ROOT / program).is_file() and group == "${{ matrix.group }}"
    assert MATRIX["group"] == list(range(1, int(splits) + 1))


def test_the_workflow_runs_on_the_pythons_that_the_scripts_accept():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options"]["python_requires"] == f">={MATRIX['python'][0]}"
    script = (ROOT / "recipes/environment.sh").read_text(encoding="utf-8")
    bounds = re.search(r"\((\d+), (\d+)\) <= .* <= \((\d+), (\d+)\)", script).groups()
    first, last = int(bounds[1]), int(bounds[3])
    assert MATRIX["python"] == [f"3.{minor}" for minor in range(first, last + 1)]


def test_all_tests_are_run():
    assert "tests/run.sh --all" in (ROOT / ".ci/run").read_text(encoding="utf-8")
