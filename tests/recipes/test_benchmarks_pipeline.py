"""The benchmark of the input pipeline on data of a few sentences."""

import gzip

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


@pytest.mark.slow
@pytest.mark.parametrize("way", [contenders.BUCKETS, contenders.PACKED])
def test_the_pipeline_alone_gives_all_tokens_in_each_call(path, way):
    contenders.save(path, SOURCES, TARGETS)
    task = contenders.alone(path, way, **SIZES)
    assert task.units == sum(len(x) + 1 for side in (SOURCES, TARGETS) for x in side)
    task.call()
    task.call()


def test_all_ways_hold_the_same_tokens(path):
    sorted_labels = []
    contenders.save(path, SOURCES, TARGETS)
    for way in contenders.WAYS:
        made = contenders._batches(contenders._load(path), way, **SIZES)
        labels = np.concatenate([made[i][1].ravel() for i in range(len(made))])
        sorted_labels.append(np.sort(labels[labels > 0]).tolist())
    assert sorted_labels[0] == sorted_labels[1] == sorted_labels[2]
    assert len(sorted_labels[0]) == sum(len(target) + 1 for target in TARGETS)


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
