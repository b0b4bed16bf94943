"""The benchmark of the input pipeline on data of a few sentences."""

import gzip
import math

import numpy as np
import pytest

from recipes.benchmarks import pipeline
from recipes.benchmarks.card import execute
from recipes.benchmarks.contenders import pipeline as contenders

RANDOM = np.random.default_rng(0)
SOURCES, TARGETS = (
    [RANDOM.integers(4, 50, length).astype("int32") for length in RANDOM.integers(1, 12, 41)]
    for _ in range(2)
)
SIZES = {"tokens_per_batch": 64, "row_length": 32}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "pairs.npz")


@pytest.mark.parametrize("has_sources", [False, True])
def test_sentences_come_back_from_the_file(path, has_sources):
    contenders.save(path, SOURCES if has_sources else None, TARGETS)
    sources, targets = contenders._load(path)
    assert [x.tolist() for x in targets] == [x.tolist() for x in TARGETS]
    if has_sources:
        assert [x.tolist() for x in sources] == [x.tolist() for x in SOURCES]
    else:
        assert sources is None


@pytest.mark.parametrize("way", [contenders.BUCKETS, contenders.PACKED])
def test_the_pipeline_alone_gives_all_tokens_in_each_call(path, way):
    contenders.save(path, SOURCES, TARGETS)
    task = contenders.alone(path, way, **SIZES)
    assert task.units == sum(len(x) + 1 for side in (SOURCES, TARGETS) for x in side)
    task.call()
    task.call()


@pytest.mark.parametrize("has_sources", [False, True])
def test_all_ways_hold_the_same_tokens(path, has_sources):
    found = []
    contenders.save(path, SOURCES if has_sources else None, TARGETS)
    for way in contenders.WAYS:
        made = contenders._batches(contenders._load(path), way, **SIZES)
        labels = np.concatenate([made[i][1].ravel() for i in range(len(made))])
        found.append(np.sort(labels[labels > 0]).tolist())
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == sum(len(target) + 1 for target in TARGETS)


@pytest.mark.slow
@pytest.mark.parametrize("way", contenders.WAYS)
def test_a_step_of_each_way(path, way, monkeypatch):
    monkeypatch.setattr(contenders, "SMALL", {"num_layers": 1, "num_heads": 2})
    contenders.save(path, None, TARGETS)
    options = {"steps": 2, "vocabulary_size": 50, "hidden_dim": 8}
    task = contenders.training(path, "gpt", way, **SIZES, **options)
    assert 0 < task.units <= sum(len(target) + 1 for target in TARGETS)
    assert 0 <= task.facts["padding"] < 1
    assert math.isfinite(task.call().history["loss"][0])


def test_paragraphs_are_cut_to_rows(tmp_path, monkeypatch):
    (tmp_path / "peps").mkdir()
    text = "\n\n".join(f"word{i} and other words of a paragraph " * (i % 40) for i in range(300))
    (tmp_path / "peps" / "train.txt.gz").write_bytes(gzip.compress(text.encode()))
    monkeypatch.setattr(pipeline, "VOCABULARY_SIZE", 100)
    lengths = [len(ids) for ids in pipeline.paragraphs_of(tmp_path)]
    assert min(lengths) >= 1 and max(lengths) == pipeline.ROW_LENGTHS["peps"] - 1


def test_missing_data_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["pipeline", "--data-dir", str(tmp_path)])
    with pytest.raises(SystemExit):
        execute(pipeline.main)
    error = capsys.readouterr().err
    assert error.startswith("recipes.benchmarks.pipeline: There is no such directory.")
    assert error.count("\n") == 1
