"""Embedded dataset: definitions of nouns, labelled with all their hypernyms."""

import gzip
from importlib import resources
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import Bunch

from sklearn_xlc._bounds import check_flag


def load_wordnet_glosses(*, return_X_y: bool = False) -> Any:
    """Load definitions of nouns from WordNet, labelled with all their hypernyms.

    A sample is the definition of a noun as raw text, such as "a town in central Vermont". Its
    labels are the hypernyms of the noun, direct and indirect: the noun is a town, a municipality,
    an urban area, and so on. Every label has at least 3 training samples, and no label belongs to
    more than a fifth of the samples.

    =======================  =====================
    Training / test samples  7 958 / 2 098
    Labels                   2 475
    Labels per sample        5.82 (mean)
    Features                 raw text
    =======================  =====================

    The data are a selection from WordNet 3.0 [1]_. The licence notice is at the end of `DESCR`.

    Parameters
    ----------
    return_X_y : bool, default=False
        If True, return ``(data, target)`` alone.

    Returns
    -------
    bunch : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray of shape (n_samples,) and dtype object
            The definitions, as str.
        target : csr_matrix of shape (n_samples, n_labels) and dtype int32
            Label indicator.
        target_names : ndarray of shape (n_labels,)
            Names of the labels: first word, part of speech and number of the sense, such as
            ``'town.n.01'``.
        synset_names : ndarray of shape (n_samples,)
            Names of the defined nouns, in the same form. The name of a sample may be a label of
            other samples.
        train_indices, test_indices : ndarray of int64
            Indices of the training and the test samples, a fixed random split.
        DESCR : str
            Full description of the data, and the licence notice.

    (data, target) : tuple
        If `return_X_y` is True.

    References
    ----------
    .. [1] G. A. Miller, "WordNet: A lexical database for English",
       Communications of the ACM 38(11), 1995.

    Examples
    --------
    >>> from sklearn_xlc.datasets import load_wordnet_glosses
    >>> glosses = load_wordnet_glosses()
    >>> glosses.data[0]
    'a town in central Vermont'
    >>> glosses.target_names[glosses.target[0].indices[-3:]].tolist()
    ['region.n.03', 'town.n.01', 'urban_area.n.01']
    >>> len(glosses.train_indices), len(glosses.test_indices)
    (7958, 2098)
    """
    files = resources.files("sklearn_xlc.datasets") / "data"
    packed = (files / "wordnet_glosses.tsv.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()[1:]
    parts, synsets, hypernyms, definitions = zip(*(line.split("\t") for line in lines))
    data = np.array(definitions, dtype=object)
    binarizer = MultiLabelBinarizer(sparse_output=True)
    target = sp.csr_matrix(binarizer.fit_transform(names.split(" ") for names in hypernyms))
    target = target.astype(np.int32)
    target.sort_indices()
    if check_flag(return_X_y, "return_X_y"):
        return data, target
    is_train = np.array(parts) == "train"
    description = (files / "wordnet_glosses.rst").read_text(encoding="utf-8")
    notice = (files / "LICENSE-WordNet.txt").read_text(encoding="utf-8")
    return Bunch(
        data=data,
        target=target,
        target_names=binarizer.classes_.astype(str),
        synset_names=np.array(synsets),
        train_indices=np.flatnonzero(is_train),
        test_indices=np.flatnonzero(~is_train),
        DESCR=f"{description}\n{notice}",
    )
