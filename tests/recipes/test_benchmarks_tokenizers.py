"""The card of tokenizers: it counts lines of other ids, and times what it compares."""

import gzip
import json

import pytest
import tokenizers

from keras_attn.text import Characters
from recipes.benchmarks import tokenizer_ids

LINES = ["a cat sat on the mat", "the mat sat on a cat", "ein Hund läuft", "a dog ran"] * 9


def test_lines_of_other_ids_are_counted():
    content = tokenizer_ids.content_of((None, None), {"type": "WordLevel", "unk_token": "c"})
    content["model"]["vocab"] = {"a": 4, "b": 6, "c": 5}
    theirs = tokenizers.Tokenizer.from_str(json.dumps(content))
    assert tokenizer_ids.count_unlike(Characters("acx"), theirs, [b"a", b"b", b"c"]) == 1


@pytest.mark.slow
def test_a_card_has_a_row_of_each_family(tmp_path, monkeypatch):
    (tmp_path / "multi30k").mkdir()
    for name in ("train.en", "val.en", "val.de", "val.fr"):
        with gzip.open(tmp_path / f"multi30k/{name}.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(LINES))
    arguments = ["--size=290", "--timed=7", "--tricky=40", "--repetitions=1", "--name=x"]
    arguments += [f"--data-dir={tmp_path}", f"--out={tmp_path}", "--families", "bert", "gemma"]
    monkeypatch.setattr("sys.argv", ["tokenizer_ids", *arguments])
    monkeypatch.setattr(
        tokenizer_ids.tf.config.threading, "set_intra_op_parallelism_threads", print
    )
    monkeypatch.setattr(
        tokenizer_ids.tf.config.threading, "set_inter_op_parallelism_threads", print
    )
    for name in ("RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "1")  # which is undone afterwards
    assert tokenizer_ids.main() == 0
    rows = json.loads((tmp_path / "x.json").read_text())["rows"]
    assert [*rows] == ["bert", "gemma"]
    assert all(row["plain"] == row["tricky"] == 0 < row["graph ratio"] for row in rows.values())
