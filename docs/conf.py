"""Sphinx configuration: MyST Markdown, the furo theme, no network."""

from wsl_toolkit.version import __version__

project = "wsl_toolkit"
author = "the wsl_toolkit maintainers"
version = release = __version__
extensions = ["myst_nb"]  # Markdown, and the notebooks in docs/notebooks, which the build carries out
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_output_stderr = "remove"
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"wsl_toolkit {__version__}"
html_show_copyright = False
suppress_warnings = ["myst.header"]  # a generated page may start below a heading of level one
