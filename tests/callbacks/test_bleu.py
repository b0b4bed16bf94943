"""BLEU as a callback."""

import sys

import keras
import numpy as np
import pytest

from keras_attn.callbacks import Bleu, corpus_bleu

SOURCE = ["a", "b"]
REFERENCES = ["the cat sat on the mat .", "it was there all the time ."]


def test_logs_every_few_epochs_and_names_the_signature_once(capsys):
    asked = []

    def translate(source):
        asked.append(source)
        return REFERENCES

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    bleu = Bleu(SOURCE, REFERENCES, translate, every_epochs=2, tokenize="none")
    history = model.fit(np.ones((2, 1)), np.ones(2), epochs=5, verbose=0, callbacks=[bleu])
    assert asked == [SOURCE, SOURCE]
    assert history.history["val_bleu"] == pytest.approx([100.0, 100.0])
    printed = capsys.readouterr().out
    assert printed.count("BLEU signature: nrefs:1|case:mixed|eff:no|tok:none|") == 1


def test_bleu_equals_its_closed_form():
    """Every n-gram is right but three words of seven are missing: only the brevity counts."""
    bleu = Bleu(["a"], ["the cat sat on the mat ."], lambda s: ["the cat sat on"], tokenize="none")
    logs = {}
    bleu.on_epoch_end(0, logs)
    assert logs["val_bleu"] == pytest.approx(100 * np.exp(1 - 7 / 4))


def test_case_counts_unless_lowercase():
    scores = {}
    for lowercase in (False, True):
        bleu = Bleu(
            SOURCE,
            REFERENCES,
            lambda s: [r.upper() for r in REFERENCES],
            tokenize="none",
            lowercase=lowercase,
        )
        logs = {}
        bleu.on_epoch_end(0, logs)
        scores[lowercase] = logs["val_bleu"]
    assert scores[True] == pytest.approx(100.0)
    assert scores[False] < 50


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(references=["one"]), "Received: 1 references for 2 sentences"),
        (dict(source=[], references=[]), "Received: 0 references for 0 sentences"),
        (dict(references=["one", ""]), "an empty one at index 1"),
        (dict(references=["one", " \t"]), "an empty one at index 1"),
        (dict(references="ab"), "`references` must be a list of sentences. Received: .*'ab'"),
        (dict(tokenize="14a"), "Received: tokenize='14a'"),
        (dict(every_epochs=0), "Received: every_epochs=0"),
    ],
)
def test_bad_arguments_raise(arguments, message):
    good = dict(source=SOURCE, references=REFERENCES, translate=list)
    with pytest.raises(ValueError, match=message):
        Bleu(**{**good, **arguments})


def test_the_score_needs_a_reference_for_each_translation():
    with pytest.raises(ValueError, match="Received: 2 references for 1 sentences"):
        corpus_bleu(["a b c d"], ["a b c d", "e"])
    with pytest.raises(ValueError, match="Received: translations='ab'"):
        corpus_bleu("ab", ["a", "b"])


def test_translate_must_return_one_sentence_for_each_source():
    with pytest.raises(ValueError, match="1 sentences for 2 sources"):
        Bleu(SOURCE, REFERENCES, lambda source: ["one"]).on_epoch_end(0, {})


def test_the_import_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match=r"pip install 'keras_attn\[recipes\]'"):
        Bleu(SOURCE, REFERENCES, list)
