"""Versions that bring their own batching parameters (bundle_factory_util.cc)."""

import concurrent.futures
import dataclasses

import pytest

from serving.batch_scheduler import BatchScheduler
from serving.config_files import BatchingOptions, read_own_batching_options
from serving.errors import ServingError

COMMON = BatchingOptions(max_batch_size=2, num_batch_threads=3, thread_pool_name="common")


def test_a_version_overrides_all_options_but_the_threads(tmp_path):
    assert read_own_batching_options(tmp_path, COMMON) is None
    (tmp_path / "batching_params.pbtxt").write_text(
        'max_batch_size { value: 5 } num_batch_threads { value: 7 } thread_pool_name { value: "a" }'
    )
    options = read_own_batching_options(tmp_path, COMMON)
    assert options == dataclasses.replace(
        BatchingOptions(max_batch_size=5), num_batch_threads=3, thread_pool_name="common"
    )
    (tmp_path / "batching_params.pbtxt").write_text("max_batch_size { value: 0 }")
    with pytest.raises(ValueError, match="batching_params.pbtxt: max_batch_size must be positive"):
        read_own_batching_options(tmp_path, COMMON)


@dataclasses.dataclass
class Task:
    size: int
    done: concurrent.futures.Future = dataclasses.field(default_factory=concurrent.futures.Future)


def test_queues_of_one_scheduler_have_their_own_sizes():
    scheduler = BatchScheduler(COMMON)

    def run(batch):
        for task in batch:
            task.done.set_result([other.size for other in batch])

    forever = {"batch_timeout_micros": 60_000_000}
    small, large = (BatchingOptions(max_batch_size=size, **forever) for size in (2, 5))
    first, second, third = Task(2), Task(3), Task(2)
    scheduler.submit("large", [second], run, large)
    scheduler.submit("small", [first], run, small)
    assert first.done.result(30) == [2]
    assert not second.done.done()
    scheduler.submit("large", [third], run, large)
    assert third.done.result(30) == second.done.result(30) == [3, 2]
    with pytest.raises(ServingError, match="larger than maximum input batch size 2"):
        scheduler.submit("small", [Task(3)], run, small)


def test_only_versions_with_parameters_are_batched(start_server, toys, tmp_path, waiting):
    base = tmp_path / "base"
    base.mkdir()
    toys.export_small(tmp_path, 2)
    # One row a request: what is more is refused by the batching, and only by that.
    (tmp_path / "2" / "batching_params.pbtxt").write_text("max_batch_size { value: 1 }")
    toys.export_small(base, 1)
    with start_server(
        "--model_name=toy",
        f"--model_base_path={base}",
        "--enable_batching",
        "--enable_per_model_batching_parameters",
    ) as server:
        assert server.predict({"instances": ["a", "b"]})[0] == 200
        (tmp_path / "2").rename(base / "2")
        waiting(lambda: server.states() == {1: "END", 2: "AVAILABLE"})
        assert server.predict({"instances": ["a"]})[0] == 200
        message = "Task size 2 is larger than maximum input batch size 1"
        assert server.predict({"instances": ["a", "b"]}) == (400, {"error": message})
