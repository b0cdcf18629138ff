"""Sphinx configuration; `make docs` builds it.

Examples run, so that their pages show what they print and draw, but for `LONG` ones. Set
XLC_RUN_GALLERY=0 to run none, XLC_RUN_GALLERY=all to run all, and XLC_ONLINE=1 to link to the
documentation of scikit-learn, NumPy, SciPy and torch, whose inventories are then fetched.
"""

import os
import sys
from pathlib import Path

# sphinx-gallery reads all names of sklearn.model_selection; some raise without this import, which
# the examples that need it make themselves only when they run.
from sklearn.experimental import enable_halving_search_cv  # noqa: F401

from sklearn_xlc import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "sklearn_xlc"
author = "the sklearn_xlc developers"
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "benchmark_tables",
    "long_names",
    "rules_table",
]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
templates_path = ["_templates"]
exclude_patterns = ["_build", "_generated", "auto_examples/**/GALLERY_HEADER.rst"]

html_theme = "pydata_sphinx_theme"
html_title = f"sklearn_xlc {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "sklearn_xlc"},
    "show_prev_next": False,
    "navbar_align": "left",
    # One list for all versions, above their folders: pages of an old version learn of a newer one.
    "switcher": {"json_url": "../switcher.json", "version_match": version},
    "check_switcher": False,  # it is not beside the sources of a version
    "show_version_warning_banner": True,
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    "navigation_with_keys": False,
    # Code of examples needs the place.
    "secondary_sidebar_items": {"*": ["page-toc"], "generated/*": ["page-toc"]},
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 6,
}
#: Pages that stand alone; the others have the contents of their part at the left side.
ALONE = ["index", "install", "tutorial", "papers", "measurements", "reliability", "glossary"]
html_sidebars = dict.fromkeys([*ALONE, "changelog", "citing"], [])
copyright = author

#: Examples that would take most of the time of a build, which is under three minutes without them.
LONG = ("million_classes", "own_loss", "pretraining_sampling", "text_grid_search")
#: Sections of the gallery, in their order.
SECTIONS = ("start", "label_sets", "tuning", "groups", "large", "own_parts", "theory")
run = os.environ.get("XLC_RUN_GALLERY", "1")
os.environ["SKLEARN_XLC_DOCS"] = ".."  # estimators on the pages of examples link to the API
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "plot_gallery": run != "0",
    "filename_pattern": "/plot_" if run == "all" else f"/plot_(?!{'|'.join(LONG)})",
    "subsection_order": [f"../examples/{section}" for section in SECTIONS],
    "within_subsection_order": "example_order.ReadingOrder",
    "default_thumb_file": str(Path(__file__).parent / "_static" / "example_without_picture.png"),
    "min_reported_time": 10**6,  # the time of a build says nothing about the reader's machine
    "show_signature": False,
    "ignore_repr_types": r"Display'>",  # the picture is there already
    "download_all_examples": False,
}
if os.environ.get("XLC_ONLINE") == "1":
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "skorch": ("https://skorch.readthedocs.io/en/stable", None),
    }
# Inherited docstrings refer to labels of scikit-learn's own guide ("ref.ref").
suppress_warnings = ["config.cache", "ref.ref"]
