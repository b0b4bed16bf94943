"""The catalogue of all values and models: an index, and a page for each axis, from docstrings.

    python -m recipes.catalogue           write the pages and their pictures
    python -m recipes.catalogue --check   fail if they differ from the docstrings

A new value, such as `scores.ALiBi`, needs the following; `tests/recipes/catalogue` names what is
missing.

1. Its docstring has the formula in indented lines after the first line; a paragraph of at most 20
   words that begins with `Use it for`; the cost, as `Time O(...) and memory O(...)` or `Cost: ...`;
   an `Example:` of 2 to 13 lines; and a `Reference:` with a link. A model has a table of its
   choices too.
2. `drawings.py` has a line in `DRAWINGS`, or `diagrams.py` one in `DIAGRAMS`. A pattern is drawn
   from `keras_attn.viz.patterns.examples`, a model from its table.
3. `needs.py` has its name in a need of the index.
4. `tests/support/catalogue_models.py` has a tiny model with it, by which
   `PYTHONPATH=. python tests/support/catalogue_support.py scores.ALiBi` finds out what it supports,
   and `python tests/torch_backend/run.py` what on torch.
5. `python -m recipes.catalogue` writes the pages and the picture: look at both.

A new axis needs a line in `SECTIONS` of `entries.py`; public names that are no values, such as base
classes, one in `NOT_VALUES`.
"""
