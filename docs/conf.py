"""Sphinx configuration; `make docs` builds it. Set XLC_RUN_GALLERY=1 to run the examples too."""

import os

from sklearn_xlc import __version__

project = "sklearn_xlc"
author = "the sklearn_xlc developers"
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
exclude_patterns = ["_build", "auto_examples/GALLERY_HEADER.rst"]
html_theme = "alabaster"
html_theme_options = {"description": "Extreme label classification for scikit-learn"}
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "plot_gallery": os.environ.get("XLC_RUN_GALLERY") == "1",
    "download_all_examples": False,
}
# Inherited docstrings refer to labels of scikit-learn's own guide ("ref.ref").
suppress_warnings = ["config.cache", "ref.ref"]
