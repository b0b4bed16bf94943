"""The list of planted mistakes fits the code and the tests."""

import ast

from planted.run import ROOT, complaints, occurrences, read_mistakes

MISTAKES = read_mistakes()
AREAS = """
    masks positions cache softmax chunked block_local block_sparse first_keys fixed strided lsh
    linear fused union intersection gradients seeds dtypes gates halting remat reversible memories
    losses label_shift beam sampling streaming tokenizers saving fingerprints conversions
    export generation server resume
"""


def test_each_mistake_can_be_planted_and_looked_for():
    sentences = [sentence for mistake in MISTAKES for sentence in complaints(mistake)]
    assert not sentences, "\n".join(sentences)


def test_a_planted_file_is_still_python():
    for mistake in MISTAKES:
        text = (ROOT / mistake.file).read_text(encoding="utf-8")
        ast.parse(text.replace(mistake.old, mistake.new), mistake.name)


def test_the_list_holds_at_least_64_mistakes_of_all_areas():
    assert len(MISTAKES) >= 64
    assert {mistake.name.split(".")[0] for mistake in MISTAKES} == set(AREAS.split())


def test_an_old_text_that_has_moved_is_found_again():
    for mistake in MISTAKES[:3]:
        assert mistake.file in occurrences(mistake.old)
