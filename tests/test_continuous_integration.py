"""Workflows: all tests on one Python, the fast ones on the others; the site; a release."""

import configparser
import re
import shlex

import yaml
from fork_server import ROOT

from recipes.translate.options import RecipeOptions

FOLDER = ROOT / ".github/workflows"
CI, RELEASE, SITE = (
    yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    for name in ("ci", "release", "site")
)
JOBS = CI["jobs"]
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
    events = CI[True]  # YAML 1.1 reads the key `on` so
    assert set(events) == {"push", "pull_request"} and events["push"] == {"branches": ["main"]}


def commands(workflow, job):
    return [step["run"] for step in workflow["jobs"][job]["steps"] if "run" in step]


def test_the_site_is_built_by_the_command_of_the_contributors_page():
    page = (ROOT / ".github/CONTRIBUTING.md").read_text(encoding="utf-8")
    install, build = commands(SITE, "publish")
    assert build in page and "[docs]" in install
    published = [
        step["with"]["path"]
        for step in SITE["jobs"]["publish"]["steps"]
        if "path" in step.get("with", {})
    ]
    assert published == [build.split()[-1]]


def test_a_release_is_tried_from_both_files_before_it_is_published():
    assert RELEASE[True] == {"push": {"tags": ["v*"]}}
    jobs = RELEASE["jobs"]
    assert jobs["try"]["needs"] == "build" and jobs["publish"]["needs"] == "try"
    assert jobs["try"]["strategy"]["matrix"]["file"] == ["*.whl", "*.tar.gz"]
    assert not any("checkout" in step.get("uses", "") for step in jobs["try"]["steps"])
    words = [shlex.split(command) for command in commands(RELEASE, "try")]
    programs = [line[1:] for line in words if line[0] == "keras-attn"]
    assert [line[0] for line in programs] == ["translate", "inspect"]
    options = RecipeOptions.parse(programs[0][1:], "recipes.translate")
    assert programs[1][1:] == [f"{options.out}/export"]


def test_makers_install_what_users_install_and_the_extras_for_tests_and_pages():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    assert extras["dev"].split() == ["keras_attn[all,test,docs]"]
    assert "test" not in re.findall(r"\w+", extras["all"].splitlines()[-1])
    script = (ROOT / "tests/run.sh").read_text(encoding="utf-8")
    assert 'make_environment "$environment" "$checkout" dev' in script
