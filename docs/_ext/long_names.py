"""Literals with a long word get the class "long": in tables, these alone are broken.

A column is then as wide as the names of classes and parameters in it, and no wider because of the
path of a test.
"""

from docutils import nodes

#: Characters of the longest word that is kept in one piece.
LONGEST = 28


def mark(app, doctree):
    """Mark the literals of a page."""
    for literal in doctree.findall(nodes.literal):
        if max(map(len, literal.astext().split()), default=0) > LONGEST:
            literal["classes"].append("long")


def setup(app):
    """Connect to Sphinx."""
    app.connect("doctree-read", mark)
    return {"parallel_read_safe": True}
