"""Nearest sentences by the export of a masked language model."""

from types import SimpleNamespace

import numpy as np
import pytest
import recipe_runs
import tensorflow as tf

from keras_attn import text
from recipes.masked_language_model import nearest

SENTENCES = ["dab cab bad dad.", "cc cc cc cc.", "abcd abcd abcd abcd!", "bd bd bd ac"]
SMALL = [
    *("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "16", "--intermediate-dim", "32"),
    *("--context", "23", "--batch-size", "4", "--steps", "4", "--epochs", "1"),
    *("--tokenizer", "characters"),
]


@pytest.mark.slow
def test_sentences_are_ranked_by_the_cosine_of_their_centred_means(tmp_path, capsys, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("abcd .!" * 400 + " ".join(SENTENCES))
    out = str(tmp_path / "run")
    assert recipe_runs.run("masked_language_model", *SMALL, "--text", path, "--out", out) == 0
    neighbours = nearest.nearest(out, SENTENCES[2], SENTENCES, count=4)
    assert neighbours[0] == (pytest.approx(1, abs=1e-5), SENTENCES[2])

    tokenizer = text.load(f"{out}/tokenizer.model")
    encode = tf.saved_model.load(f"{out}/export/1").signatures["encode"]
    means = []
    for row in tokenizer.encode_as_lists(SENTENCES):
        ids = tf.constant([row], "int32")
        features = encode(token_ids=ids, lengths=tf.constant([len(row)]))["features"]
        means.append(features.numpy()[0].mean(axis=0))
    centred = np.array(means) - np.mean(means, axis=0)
    norms = np.linalg.norm(centred, axis=1)
    expected = centred @ centred[2] / norms / norms[2]
    similarities = {sentence: similarity for similarity, sentence in neighbours}
    assert [similarities[x] for x in SENTENCES] == pytest.approx(expected, abs=1e-4)
    assert [x for x, _ in neighbours] == sorted(similarities.values(), reverse=True)

    capsys.readouterr()
    assert nearest.main([out, SENTENCES[2], "--text", str(path), "--count", "1"]) == 0
    assert capsys.readouterr().out == f"1.000  {SENTENCES[2]}\n"
    assert nearest.main([out, "", "--text", str(path)]) == 2
    assert "QUERY must have a token at least" in capsys.readouterr().err
    monkeypatch.setattr(tf.saved_model, "load", lambda path: SimpleNamespace(signatures={"ids": 0}))
    assert nearest.main([out, "a", "--text", str(path)]) == 2
    assert "RUN must be a run of `keras-attn masked-language-model`" in capsys.readouterr().err


def test_sentences_end_at_full_stops_and_empty_lines():
    written = "One two three\nfour. Five six. Is this a question? Yes\n\n\nOne two three four.\n"
    assert nearest.split_sentences(written) == ["One two three four.", "Is this a question?"]


def test_a_directory_without_a_run_has_no_neighbours(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("One two three four. " * 40)
    assert nearest.main([str(tmp_path), "one", "--text", str(tmp_path / "text.txt")]) == 2
    assert "RUN must be the directory of a finished run" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        nearest.main([str(tmp_path), "one", "--count", "-1"])
    assert "--count must be at least 1. Received: --count -1." in capsys.readouterr().err
    with pytest.raises(SystemExit):
        nearest.main([str(tmp_path), "one", "--text", "a", "--data-dir", "b"])
    assert "--data-dir and --text exclude each other" in capsys.readouterr().err
