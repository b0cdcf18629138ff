"""Datasets: files of the Extreme Classification Repository, generators, an embedded dataset."""

from sklearn_xlc.datasets._aggregated import make_aggregated
from sklearn_xlc.datasets._csr_folder import open_csr, save_csr
from sklearn_xlc.datasets._generators import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.datasets._label_set_images import make_label_set_images
from sklearn_xlc.datasets._parquet import iter_parquet
from sklearn_xlc.datasets._wordnet_glosses import load_wordnet_glosses
from sklearn_xlc.datasets._xmc_file import dump_xmc_file, load_xmc_file

__all__ = [
    "dump_xmc_file",
    "iter_parquet",
    "load_wordnet_glosses",
    "load_xmc_file",
    "make_aggregated",
    "make_extreme_multiclass",
    "make_extreme_multilabel",
    "make_label_set_images",
    "open_csr",
    "save_csr",
]
