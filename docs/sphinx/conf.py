"""Configuration of Sphinx. `docs/site.py` copies it beside the pages that it writes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from mathml import visit_display, visit_inline
from type_names import skip_fields, write_types

import optmatch

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "optmatch"
author = "the optmatch developers"
project_copyright = author
version = optmatch.__version__
release = version

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",  # reads the sections of NumPy's docstrings
    "sphinx.ext.viewcode",  # the source of every documented name
    "sphinx_copybutton",
    "sphinx_design",  # the doors of the first page
    "myst_nb",  # pages in Markdown, and notebooks
]
exclude_patterns = ["_build"]

# Pages.
myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = [
    "misc.highlighting_failure",  # CSV is shown as it is
    "myst.header",  # a page may begin with any head
    "ref.footnote",  # sources that a docstring lists, but does not point to
    "ref.python",  # a word in backticks that many classes have as an attribute
]
nb_execution_mode = "off"  # `docs/site.py` runs the notebooks, two at a time
nb_merge_streams = True
copybutton_prompt_text = "$ "

# The reference.
default_role = "py:obj"  # what stands in single backticks is a name, linked where it is known
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False}
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_preprocess_types = False
autodoc_typehints = "none"  # `type_names` says them with the parameters

# The look of it; everything comes with the theme, so that no page asks a network.
html_theme = "pydata_sphinx_theme"
html_title = f"optmatch {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))  # an absolute path
html_math_renderer = "mathml"
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}


def mend_links_to_names(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Mend the links from pages of source to the names that they define.

    Sphinx takes all names of a module for names of one package; here several packages export names
    of one module, and the page of each name says of which package it is.
    """
    if page.startswith("_modules/"):
        link = r"(reference/([\w.]+)\.(\w+)\.html)#[\w.]*?\.\3\b"
        context["body"] = re.sub(link, r"\1#\2.\3", context["body"])


def setup(app: Sphinx) -> None:
    """Add the renderer of formulas and the types of parameters."""
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(visit_inline, None),
        block_renderers=(visit_display, None),
    )
    app.connect("autodoc-process-docstring", write_types, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("html-page-context", mend_links_to_names)
