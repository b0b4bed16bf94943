"""Settings of Sphinx."""

import keras_attn

project = "keras_attn"
release = keras_attn.__version__
extensions = [
    "myst_parser",
    "sphinx_copybutton",
    "recipes.site.code_links",
]
root_doc = "index"
html_theme = "furo"
html_title = f"keras_attn {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = html_show_copyright = False
html_copy_source = False
smartquotes = False  # quotes are as in the repository
copybutton_exclude = ".linenos, .gp, .go"  # prompts and results of examples
add_module_names = False
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["fieldlist", "linkify"]
myst_linkify_fuzzy_links = False  # "keras.io" alone is no link
myst_heading_anchors = 6  # GitHub's names of headings
