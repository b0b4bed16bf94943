"""The workflow runs all tests on one Python and the fast ones on the others."""

import configparser
import re

import yaml
from fork_server import ROOT

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
JOBS = WORKFLOW["jobs"]
MATRICES = {name: job["strategy"]["matrix"] for name, job in JOBS.items()}


def only(key, name):
    """The one value of a key in the steps of a job."""
    (value,) = [step[key] for step in JOBS[name]["steps"] if key in step]
    return value


def test_the_groups_of_the_workflow_are_all_groups():
    program, _, splits, _, group = only("run", "all").split(maxsplit=4)
    assert (ROOT / program).is_file() and group == "${{ matrix.group }}"
    assert MATRICES["all"]["group"] == list(range(1, int(splits) + 1))
    assert "tests/run.sh --all" in (ROOT / program).read_text(encoding="utf-8")


def test_the_other_job_runs_the_fast_tests():
    assert set(JOBS) == {"all", "fast"} and only("run", "fast") == "bash tests/run.sh"


def test_the_workflow_runs_on_the_pythons_that_the_scripts_accept():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    script = (ROOT / "recipes/environment.sh").read_text(encoding="utf-8")
    bounds = re.search(r"\((\d+), (\d+)\) <= .* <= \((\d+), (\d+)\)", script).groups()
    accepted = [f"3.{minor}" for minor in range(int(bounds[1]), int(bounds[3]) + 1)]
    assert setup["options"]["python_requires"] == f">={accepted[0]}"
    assert only("with", "fast")["python-version"] == "${{ matrix.python }}"
    whole = only("with", "all")["python-version"]
    assert sorted([whole, *MATRICES["fast"]["python"]]) == accepted


def test_a_pull_request_is_tested_once():
    events = WORKFLOW[True]  # YAML 1.1 reads the key `on` so
    assert set(events) == {"push", "pull_request"} and events["push"] == {"branches": ["main"]}
