"""Manager of versions, with models that only record that they were loaded (core/)."""

import asyncio
import gc
import threading
import weakref

import pytest
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from serving.errors import ServingError
from serving.manager import ModelManager
from serving.model_service import reload_models
from serving.servable import Servable
from serving.versions import State


@pytest.mark.point(n=18)
@pytest.mark.parametrize("allowed", [False, True])
def test_labels_of_unavailable_versions_need_the_flag(allowed):
    manager = ModelManager(None, unavailable_labels=allowed)
    labels = {"stable": 1}
    if not allowed:
        with pytest.raises(ServingError, match="label to version 1 of model toy, which is not cur"):
            manager.configure([ModelConfig(name="toy", version_labels=labels)])
        return
    manager.configure([ModelConfig(name="toy", version_labels=labels)])
    manager.configure([ModelConfig(name="toy", version_labels={**labels, "new": 2})])
    with pytest.raises(ServingError, match="label to version 3 "):
        manager.configure([ModelConfig(name="toy", version_labels={"stable": 3})])


def test_an_unloaded_version_is_garbage_collected(tmp_path):
    """The version's objects refer to one another, as those of a TensorFlow graph do."""

    class Loaded:
        def __init__(self, *_):
            self.itself = self
            alive.add(self)

        def close(self):
            pass

    alive = weakref.WeakSet()
    manager = ModelManager(Loaded)
    manager.configure([ModelConfig(name="toy", base_path=str(tmp_path))])
    gc.disable()
    try:
        for version in range(1, 4):
            (tmp_path / str(version)).mkdir()
            manager.poll()
            assert len(alive) == 1
    finally:
        gc.enable()


@pytest.fixture
def loads():
    """Class that stands for a loaded version and records the versions loaded."""

    class Loaded:
        versions = []

        def __init__(self, name, version, path):
            self.version = version
            self.versions.append(version)

        def close(self):
            self.version = None

    return Loaded


def test_the_greatest_loaded_version_answers(loads, tmp_path):
    manager, every = ModelManager(loads), {"all": {}}
    base = {"name": "toy", "base_path": str(tmp_path), "model_version_policy": every}
    manager.configure([ModelConfig(**base)])
    for version in ("9", "10"):
        (tmp_path / version).mkdir()
    manager.poll()
    assert sorted(loads.versions) == [9, 10]
    with manager.use(ModelSpec(name="toy")) as servable:
        assert servable.version == 10


def test_a_version_that_returns_during_unloading_loads_again(loads, tmp_path):
    manager = ModelManager(loads)
    manager.configure([ModelConfig(name="toy", base_path=str(tmp_path))])
    (tmp_path / "3").mkdir()
    manager.poll()
    with manager.use(ModelSpec(name="toy")) as servable:
        (tmp_path / "3").rename(tmp_path / "away")
        manager.poll()
        assert manager.versions("toy")[0].state == State.UNLOADING
        (tmp_path / "away").rename(tmp_path / "3")
        manager.poll()
        assert servable.version == 3 and loads.versions == [3], "not twice in memory"
    manager.poll()
    with manager.use(ModelSpec(name="toy")) as servable:
        assert servable.version == 3 and loads.versions == [3, 3]


@pytest.mark.point(n=16)
@pytest.mark.point(n=17)
def test_the_newest_version_by_number_is_served_and_the_one_before_when_it_goes(loads, tmp_path):
    manager = ModelManager(loads)
    manager.configure([ModelConfig(name="toy", base_path=str(tmp_path))])

    def served_after_a_poll():
        manager.poll()
        with manager.use(ModelSpec(name="toy")) as servable:
            return servable.version

    for version in (2, 10):  # as strings, 10 is older
        (tmp_path / str(version)).mkdir()
        assert served_after_a_poll() == version
    old = ModelSpec(name="toy")
    old.version.value = 2
    with pytest.raises(ServingError, match=r"Specific\(toy, 2\)"), manager.use(old):
        pass
    assert [x.version for x in manager.versions("toy")] == [10, 2]
    (tmp_path / "10").rmdir()
    assert served_after_a_poll() == 2 and loads.versions == [2, 10, 2]


def test_a_model_that_fails_to_close_neither_blocks_nor_fails_a_request(loads, tmp_path, caplog):
    locked = []

    class Stubborn(loads):
        name = "toy"

        def close(self):
            locked.append(manager._lock.locked())
            raise RuntimeError("will not go")

    manager = ModelManager(Stubborn)
    manager.configure([ModelConfig(name="toy", base_path=str(tmp_path))])
    (tmp_path / "3").mkdir()
    manager.poll()
    with manager.use(ModelSpec(name="toy")):
        (tmp_path / "3").rename(tmp_path / "4")
        manager.poll()
    assert locked == [False] and "Version 3 of toy was not closed" in caplog.text


def test_an_event_loop_closes_no_model_itself(loads, tmp_path):
    closed = []

    class Slow(loads):
        def close(self):
            closed.append(threading.current_thread())

    async def main():
        manager = ModelManager(Slow)
        manager.configure([ModelConfig(name="toy", base_path=str(tmp_path))])
        (tmp_path / "3").mkdir()
        manager.poll()
        with manager.use(ModelSpec(name="toy")):
            (tmp_path / "3").rename(tmp_path / "4")
            manager.poll()

    asyncio.run(main())  # waits for the threads of the loop
    assert len(closed) == 1 and closed[0] is not threading.current_thread()


def test_a_version_that_was_given_up_is_not_loaded_again(tmp_path):
    tried = []

    def load(name, version, path):
        tried.append(version)
        raise ValueError("broken")

    manager = ModelManager(load, max_retries=1, retry_seconds=0)
    manager.configure([ModelConfig(name="toy", base_path=str(tmp_path))])
    (tmp_path / "3").mkdir()
    for _ in range(5):
        manager.poll()
    assert tried == [3, 3]
    (tmp_path / "3").rename(tmp_path / "away")
    manager.poll()
    (tmp_path / "away").rename(tmp_path / "3")
    manager.poll()
    assert tried == [3, 3, 3]


def test_errors_show_paths_as_text(tmp_path):
    folder = tmp_path / "ü" / "3"
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"not a graph")
    manager = ModelManager(Servable)
    manager.configure([ModelConfig(name="toy", base_path=str(tmp_path / "ü"))])
    manager.poll()
    message = manager.versions("toy")[0].message
    assert message.startswith(f"Cannot parse file '{folder}/saved_model.pb': ")


def test_nothing_is_loaded_after_stop(loads, tmp_path):
    stopping = threading.Event()

    def load(*arguments):
        stopping.set()  # a signal comes in during the first load
        return loads(*arguments)

    manager = ModelManager(load, stopping=stopping)
    configs = [ModelConfig(name=name, base_path=str(tmp_path)) for name in ("one", "two")]
    for config in configs:
        config.model_version_policy.all.SetInParent()
    manager.configure(configs)
    for version in ("3", "5"):
        (tmp_path / version).mkdir()
    manager.poll()
    assert loads.versions == [5]


@pytest.mark.point(n=18)
def test_reload_waits_for_new_models(loads, tmp_path):
    def load(name, version, path):
        if name == "broken":
            raise ValueError("not a graph")
        return loads(name, version, path)

    def model(name, base=tmp_path, **labels):
        return ModelConfig(name=name, base_path=str(base), version_labels=labels)

    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "empty").mkdir()
    manager = ModelManager(load, unavailable_labels=True)
    reload_models(manager, [model("one"), model("two", **{"a/b": 3})])
    assert loads.versions == [3, 3]

    def refusal(*configs):
        with pytest.raises(ServingError) as info:
            reload_models(manager, configs)
        return info.value.code.name, info.value.message

    # What is wrong in itself changes nothing.
    for configs, message in [
        ([model("one"), model("")], "Each model must have a name."),
        ([model("one", **{"": 3})], "The labels of model one must not be empty"),
        ([model("new", tmp_path / "missing")], "The base path of model new must be a directory"),
    ]:
        code, text = refusal(*configs)
        assert code == "INVALID_ARGUMENT" and text.startswith(message)
        assert manager.names() == ["one", "two"]

    assert refusal(model("one"), model("broken"), model("none", tmp_path / "3" / "empty")) == (
        "UNKNOWN",
        "2 servable(s) did not become available: {{{name: broken version: 3} due to error: not a "
        f"graph}}, {{No versions of servable none found under {tmp_path}/3/empty}}, }}",
    )
    # The others are served, and who was there before is not waited for.
    assert manager.names() == ["broken", "none", "one"]
    reload_models(manager, [model("broken"), model("new")])
    with manager.use(ModelSpec(name="new")) as servable:
        assert servable.version == 3


def test_polling_continues_after_an_error(waiting):
    looks = []

    class Surprised(ModelManager):
        def poll(self):
            looks.append(1)
            raise RuntimeError("no such surprise")

    stopping = threading.Event()
    Surprised(None, stopping=stopping).poll_every(0.01)
    waiting(lambda: len(looks) > 2)
    stopping.set()
