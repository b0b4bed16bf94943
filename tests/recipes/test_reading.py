"""The counters of lines and of complexity, on sources whose figures are known."""

import ast
import textwrap

from recipes.benchmarks import reading

SOURCE = '''
"""A module.

With a docstring.
"""

# A comment.
import os  # with a remark


def branches(x, *more):
    """One line."""
    if x and more or not x:  # 1 and 2 operators
        return [y for y in more if y]  # 2

    for y in more:  # 1
        try:
            y()
        except (KeyError, ValueError):  # 1
            text = """a

            b"""
    assert x

    def inner():
        return 1 if x else 2  # 1

    return inner
'''


def test_lines_of_code_have_no_docstrings_comments_and_blank_lines(tmp_path):
    (tmp_path / "module.py").write_text(SOURCE)
    assert reading.count_code(tmp_path / "module.py") == 14


def test_complexity_counts_each_branch_once():
    function = ast.parse(SOURCE).body[2]
    assert reading.complexity(function) == 1 + 3 + 2 + 1 + 1 + 1


def test_fields_and_public_names_are_those_of_the_class_itself():
    (node,) = ast.parse(
        textwrap.dedent("""
        class Value(Base):
            size: int
            names, _cache = {}, None
            causal = False
            def __and__(self, other): ...
            def mask(self): ...
            def _part(self): ...
        """)
    ).body
    assert reading.fields(node) == ["size"]
    assert reading.contract(node) == ["size", "names", "causal", "mask"]


def test_a_path_counts_files_switches_and_calls():
    figures = reading.path_figures(["a", "a", "b", "a"])
    assert figures == {"files": 2, "switches": 3, "calls": 4}
