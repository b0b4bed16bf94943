"""Files for schedulers: exit codes 75 and 143 start a run again, others do not."""

import os
import re
import subprocess

import pytest
from fork_server import ROOT

SLURM = ROOT / "recipes" / "cluster" / "train.slurm"
JOBSET = ROOT / "recipes" / "cluster" / "jobset.yaml"

# Stand-ins: every task runs the command with its number; `python` ends with the code of its task.
PROGRAMS = {
    "srun": """#!/bin/bash
shift
worst=0
for task in $(seq 0 $((TASKS - 1))); do
    SLURM_PROCID=$task "$@" || { code=$?; [ $code -gt $worst ] && worst=$code; }
done
exit $worst""",
    "scontrol": '#!/bin/bash\necho "$@" >> "$RECORD/scontrol"',
    "python": '#!/bin/bash\necho "$@" >> "$RECORD/python"\n'
    "set -- $CODES; shift $SLURM_PROCID; exit $1",
}


@pytest.fixture
def submit(tmp_path):
    """Run the script as a job whose tasks end with some codes; return its code and its requeues."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def run(*codes, **variables):
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_SUBMIT_DIR": str(tmp_path),
            "RECORD": str(tmp_path),
            "TASKS": str(len(codes)),
            "CODES": " ".join(map(str, codes)),
            **variables,
        }
        options = environment.pop("OPTIONS", "").split()
        command = ["bash", SLURM, "language_model", "--out", "a folder", *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        asked = tmp_path / "scontrol"
        requeued = asked.read_text().splitlines() if asked.exists() else []
        asked.unlink(missing_ok=True)
        return done.returncode, requeued, done.stdout + done.stderr

    return run


def test_the_slurm_script_has_no_error_of_syntax():
    done = subprocess.run(["bash", "-n", SLURM], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    options = re.findall(r"^#SBATCH (\S+)", SLURM.read_text(), re.M)
    assert {"--requeue", "--signal=TERM@60", "--ntasks-per-node=1"} <= set(options)


@pytest.mark.parametrize("codes", [(143, 75), (0, 143), (2, 75), (0, 0)])
def test_slurm_starts_a_run_again_only_for_75_and_143(submit, tmp_path, codes):
    """The code of every task counts: the others of a task with an error end with 75."""
    code, requeued, said = submit(*codes)
    is_interrupted = bool({75, 143} & set(codes)) and set(codes) <= {0, 75, 143}
    assert code == max(codes)
    assert requeued == (["requeue 7"] if is_interrupted else []), said
    commands = set((tmp_path / "python").read_text().splitlines())
    assert commands == {"-m keras_attn language-model --strategy multi_worker --out a folder"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["programs", "python"]


def test_the_strategy_of_the_command_comes_last_and_counts(submit, tmp_path):
    assert submit(0, OPTIONS="--strategy model_parallel --mesh model=2")[0] == 0
    (command,) = (tmp_path / "python").read_text().splitlines()
    assert command.endswith("--out a folder --strategy model_parallel --mesh model=2")


def test_slurm_does_not_start_a_run_again_without_end(submit):
    assert submit(75, SLURM_RESTART_COUNT="99")[1] == ["requeue 7"]
    code, requeued, said = submit(75, SLURM_RESTART_COUNT="100")
    assert (code, requeued) == (75, []) and "100 times" in said
    assert submit(75, SLURM_RESTART_COUNT="3", MAX_RESTARTS="3")[1] == []


@pytest.fixture
def jobset():
    return pytest.importorskip("yaml").safe_load(JOBSET.read_text())


def test_the_jobset_starts_again_only_for_75_and_143(jobset):
    """As Kubernetes applies the rules: the first that matches."""
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    lost, error = job["podFailurePolicy"]["rules"]
    assert lost["action"] == "Count" and lost["onPodConditions"][0]["type"] == "DisruptionTarget"
    codes = error["onExitCodes"]
    assert (error["action"], codes["operator"], codes["values"]) == ("FailJob", "NotIn", [75, 143])
    assert job["backoffLimit"] == 0
    rules = jobset["spec"]["failurePolicy"]["rules"]
    assert [(r["action"], r["onJobFailureReasons"]) for r in rules] == [
        ("FailJobSet", ["PodFailurePolicy"])
    ]


def test_the_pods_of_the_jobset_know_each_other(jobset):
    """By the names that JobSet gives them: JobSet, job, its replica, the pod; and the domain."""
    name, (replicated,) = jobset["metadata"]["name"], jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    (port,) = (port["containerPort"] for port in container["ports"])
    count = job["completions"]
    expected = [f"{name}-{replicated['name']}-0-{pod}.{name}:{port}" for pod in range(count)]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment["KERAS_ATTN_WORKERS"] == ",".join(expected)
    assert job["parallelism"] == count and job["completionMode"] == "Indexed"
    rules = job["podFailurePolicy"]["rules"]
    assert rules[1]["onExitCodes"]["containerName"] == container["name"]
