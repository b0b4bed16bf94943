"""Addresses of the other processes, from the variables of each scheduler."""

import json

import pytest

from keras_attn.distribution.workers import workers

VARIABLES = [
    *("TF_CONFIG", "KERAS_ATTN_WORKERS", "JOB_COMPLETION_INDEX", "HOSTNAME", "SLURM_PROCID"),
    *("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"),
]


@pytest.fixture
def environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def set_all(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_all


def config(cluster, kind, index):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    "cluster, kind, index, expected",
    [
        ({"worker": ["a:1", "b:1"]}, "worker", 1, (["a:1", "b:1"], 1)),
        ({"chief": ["c:1"], "worker": ["a:1", "b:1"]}, "chief", 0, (["c:1", "a:1", "b:1"], 0)),
        ({"chief": ["c:1"], "worker": ["a:1", "b:1"]}, "worker", 1, (["c:1", "a:1", "b:1"], 2)),
    ],
)
def test_tf_config_gives_addresses_and_index(environment, cluster, kind, index, expected):
    environment(TF_CONFIG=config(cluster, kind, index))
    assert workers() == expected


SLURM = {"SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NODELIST": "n[01-02]"}


@pytest.mark.parametrize("rank", range(3))
def test_srun_gives_addresses_and_index(environment, rank):
    """Two tasks on the first node, one on the second; no program of Slurm's is asked."""
    environment(**SLURM, SLURM_STEP_TASKS_PER_NODE="2,1", SLURM_PROCID=str(rank))
    assert workers() == (["n01:8888", "n01:8889", "n02:8888"], rank)


def test_the_shell_of_a_batch_script_is_no_worker(environment):
    environment(SLURM_PROCID="0")
    with pytest.raises(ValueError, match="srun"):
        workers()


@pytest.mark.parametrize(
    "variables, index",
    [
        ({"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "train-7"}, 1),
        ({"HOSTNAME": "train-0"}, 0),
    ],
)
def test_kubernetes_gives_addresses_and_index(environment, variables, index):
    environment(KERAS_ATTN_WORKERS="train-0.train:2222, train-1.train:2222", **variables)
    assert workers() == (["train-0.train:2222", "train-1.train:2222"], index)


@pytest.mark.parametrize(
    "variables, message",
    [
        ({}, "TF_CONFIG.*srun.*KERAS_ATTN_WORKERS"),
        ({"TF_CONFIG": "{"}, "must be JSON.*JSONDecodeError"),
        ({"TF_CONFIG": "[]"}, "must be JSON"),
        ({"TF_CONFIG": config({"worker": "a:1"}, "worker", 0)}, "must be JSON.*no list of"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "`task`.*KeyError"),
        (
            {"TF_CONFIG": config({"worker": ["a:1"], "ps": ["b:1"]}, "worker", 0)},
            r"Parameter servers are not supported.*\['ps', 'worker'\]",
        ),
        ({"TF_CONFIG": config({"worker": ["a:1"]}, "evaluator", 0)}, "'evaluator'"),
        ({"TF_CONFIG": config({"worker": ["a:1", "b:1"]}, "worker", 2)}, "2, with 2 addresses"),
        ({"TF_CONFIG": config({"worker": ["a"]}, "worker", 0)}, r"host:port.*\['a'\]"),
        ({"TF_CONFIG": config({"worker": ["a:1", "a:1"]}, "worker", 0)}, "differ"),
        ({"KERAS_ATTN_WORKERS": "a:1", "HOSTNAME": "train"}, "HOSTNAME='train'"),
        (
            {"KERAS_ATTN_WORKERS": "a:1", "JOB_COMPLETION_INDEX": "abc"},
            "JOB_COMPLETION_INDEX must be a number.*'abc'",
        ),
    ],
)
def test_malformed_variables_raise(environment, variables, message):
    environment(**variables)
    with pytest.raises(ValueError, match=message):
        workers()
