"""Order of the examples in a section: first those to begin with, then by title."""

from sphinx_gallery.sorting import ExampleTitleSortKey

FIRST = ("quick_start", "text_in", "explain", "label_set_decoding", "text_grid_search")


class ReadingOrder(ExampleTitleSortKey):
    """Sort key of an example's file."""

    def __call__(self, filename):
        name = filename.removeprefix("plot_").removesuffix(".py")
        place = FIRST.index(name) if name in FIRST else len(FIRST)
        return f"{place} {super().__call__(filename)}"
