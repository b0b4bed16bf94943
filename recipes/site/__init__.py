"""The site: all pages of the repository, the API pages and the tutorials, with a search.

    python -m recipes.site --out OUT

Sphinx builds it with MyST, which reads Markdown, and the theme Furo (extra `docs`); no network is
needed. The pages stay where they are and read well on GitHub. `pages.py` copies them into a
temporary folder, in which links to sources, cards and folders lead to pages too. A new page needs
no entry anywhere: it is below the nearest page of a folder, or in a group of `contents.py`.

The API pages are written from `__all__` by `api.py`, not by Sphinx's autodoc: docstrings are
Markdown, which autodoc reads as reStructuredText. Tutorials are read by jupytext.

The package is here, not in `.github`, since the linter, the contracts of imports and the tests
cover what is in `recipes`; like the catalogue it is for makers, and no part of a wheel.
"""
