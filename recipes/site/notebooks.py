"""Tutorials as notebooks: cells of prose and code, as the strings of the program divide them."""

import jupytext
from nbformat.v4 import new_markdown_cell

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


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
    for cell in cells:
        cell.source = cell.source.strip()
    notebook.cells = [first, *cells]
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
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
            f"or `keras-attn tutorial {path.stem.replace('_', '-')}`.\n\n![The result]({picture})"
        ),
    )
    parts = [
        cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```"
        for cell in notebook.cells
    ]
    return "\n\n".join(parts) + "\n"
