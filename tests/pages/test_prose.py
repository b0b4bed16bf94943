"""Words are spelled right everywhere, and sentences of the pages are short."""

import subprocess
import sys

import pages
import pytest

MOST_WORDS = 40


@pytest.mark.slow
def test_words_are_spelled_right():
    """`pyproject.toml` names the files that codespell leaves out."""
    pytest.importorskip("codespell_lib", reason="needs pip install 'keras_attn[test]'")
    command = [sys.executable, "-m", "codespell_lib", "."]
    done = subprocess.run(command, cwd=pages.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_sentences_are_short():
    long = [
        f"{pages.name(page)}: {sentence}"
        for page in pages.PAGES
        for sentence in pages.sentences(page)
        if len(sentence.split()) > MOST_WORDS
    ]
    assert not long, "\n".join(long)
