"""The benchmark of the server: wrong and lost answers are counted, numbers follow by hand."""

import pytest
import tensorflow as tf

for _name in ("grpc", "starlette", "tensorflow_serving", "uvicorn"):
    pytest.importorskip(_name, reason="needs pip install 'keras_attn[serving]'")

from recipes.benchmarks import serving as benchmark  # noqa: E402
from recipes.benchmarks import serving_process  # noqa: E402
from recipes.benchmarks.serving_clients import Load, same  # noqa: E402
from recipes.benchmarks.serving_model import InProcess, newest  # noqa: E402
from recipes.common.machine import free_ports  # noqa: E402


class Shouting(tf.Module):
    """A small stand-in for a translation model."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def translate(self, text):
        score = tf.cast(tf.strings.length(text), tf.float32)
        return {"translation": tf.strings.upper(text), "score": score}


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    base = tmp_path_factory.mktemp("export")
    model = Shouting()
    tf.saved_model.save(model, str(base / "3"), {"serving_default": model.translate})
    (base / "notes").mkdir()
    return base


@pytest.fixture(scope="module")
def server(export, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "server.log"
    config = log.with_name("batching.config")
    config.write_text(serving_process.BATCHING)
    flags = ["--enable_batching", f"--batching_parameters_file={config}"]
    with serving_process.serving(export, log, *flags) as started:
        yield started


@pytest.mark.slow
def test_a_short_load_without_a_fault(server, export):
    assert newest(export) == str(export / "3")
    model = InProcess(newest(export))
    expected = {text: model(text) for text in ("a", "bcd", "mai")}
    assert expected["bcd"] == ("BCD", 3.0)
    report = benchmark.soak(server, expected, clients=4, seconds=0.5)
    assert report["errors"] == {} and report["wrong"] == []
    assert report["requests"] > 4 and report["seconds"] >= 0.5
    assert report["requests_per_second"] == pytest.approx(
        report["requests"] / report["seconds"], rel=0.02
    )
    assert 0 < report["server_ms"] < 1000
    times = list(report["percentiles_ms"].values())
    assert times == sorted(times) and times[0] > 0
    (_, memory), *_ = report["memory_mb"]
    assert 50 < memory < 20_000
    calls = benchmark.one_sentence(server, model, list(expected), 3)
    assert {name: len(seconds) for name, seconds in calls.items()} == {
        "REST": 3,
        "gRPC": 3,
        "in process": 3,
    }


@pytest.mark.slow
def test_wrong_and_lost_answers_are_counted(server):
    load = Load(server, {"a": ("B", 1.0)}, clients=2)
    load.run(0.3)
    assert load.wrong[0] == ("a", ("A", 1.0), ("B", 1.0)) and not load.seconds
    nobody = serving_process.Server(*free_ports(2), None)
    load = Load(nobody, {"a": ("A", 1.0)}, clients=2)
    load.run(0.3)
    kinds = {message.partition(":")[0] for message in load.errors}
    assert kinds == {"ConnectionRefusedError", "_InactiveRpcError"}
    assert not load.seconds and not load.wrong


def test_scores_may_differ_by_a_rounding():
    assert same(("a", -20.0001), ("a", -20.0))
    assert not same(("a", -20.001), ("a", -20.0))
    assert not same(("b", -20.0), ("a", -20.0))


def test_the_slope_of_memory_is_that_of_the_second_half():
    memory = serving_process.MemoryLog(0)
    memory.samples = [(0, 10), (1, 50), (2, 90), (3, 100), (4, 101), (5, 102)]
    assert memory.slope() == pytest.approx(60)


def test_the_card_has_rates_and_requirements():
    def soak(rate):
        return {
            "requests": 1234,
            "requests_per_second": rate,
            "server_ms": 1.25,
            "percentiles_ms": {50: 1.0, 95: 2.0, 99: 3.0},
            "errors": {"a": 2, "b": 3},
            "num_wrong": 17,
            "wrong": [],
            "memory_mb": [(0, 900.0), (1, 950.0)],
            "memory_mb_per_minute": -0.5,
        }

    results = {
        "soaks": {"one by one": soak(10), "batched": soak(25)},
        "one_sentence": {"REST": [0.012, 0.02], "gRPC": [0.013], "in process": [0.016]},
        "start": [{"server": 8.0, "in process": 4.0}, {"server": 9.0, "in process": 5.0}],
    }
    lines = benchmark.markdown(results, "max_batch_size { value: 5 }\n")
    assert (
        "| batched | 25 | 1.25 | 1.0 | 2.0 | 3.0 | 1,234 | 5 | 17 | 900 to 950 | -0.50 |" in lines
    )
    text = "\n".join(lines)
    assert (
        "**batched**: 2.50 times the requests a second of one by one (at least 2 is asked: met)"
        in text
    )
    assert "**REST**: 1.00 times the time of a call in process (at most 1.05 is asked: met)" in text
    assert "**The start**: 1.90 times loading and one call (at most 1.5 is asked: not met)" in text
    assert "| REST | 16.0 | 8.5 |" in lines and "| in process | 16.0 | 4.5 |" in lines
