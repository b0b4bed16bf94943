"""Tutorials as notebooks: cells of prose and code, as the strings of the program divide them."""

import jupytext
from nbformat.v4 import new_markdown_cell


def read(path):
    """Return the notebook of a tutorial.

    Args:
        path: the program, with a header as the examples on keras.io have it.

    Returns:
        A notebook of nbformat. Its first cell holds the title and the description.
    """
    notebook = jupytext.read(path, fmt="py:sphinx")
    _, header, *cells = notebook.cells  # jupytext's first cell draws pictures, as kernels do anyway
    fields = dict(line.split(": ", 1) for line in header.source.splitlines())
    first = new_markdown_cell(f"# {fields['Title']}\n\n{fields['Description']}", id=header.id)
    notebook.cells = [first, *cells]
    return notebook


def page(path, picture):
    """Return the page of a tutorial in Markdown.

    Args:
        path: the program.
        picture: str. The link to the picture that it draws.
    """
    notebook = read(path)
    notebook.cells.insert(
        1,
        new_markdown_cell(
            f"As [a notebook]({path.stem}.ipynb), as [a program]({path.name}), "
            f"or `python -m recipes.tutorials.{path.stem}`.\n\n![The result]({picture})"
        ),
    )
    parts = [
        cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source.strip()}\n```"
        for cell in notebook.cells
    ]
    return "\n\n".join(parts) + "\n"
