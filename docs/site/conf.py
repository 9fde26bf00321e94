"""Settings of the site for Sphinx; ``docs/site/build.py`` runs it."""

project = "headprune"
author = "the authors of headprune"
copyright = author  # Sphinx's own name for the line at the end of a page
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "headprune"
html_copy_source = False
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_mock_imports = ["fairseq"]
# The command reference has words in angle brackets and lists that begin with a dash in code.
suppress_warnings = ["myst.header", "docutils"]
