"""Decision for the most probable label set, for heads with probabilities of label sets."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from sklearn_xlc.decisions._base import Decision


class JointMode(Decision):
    """Predict the most probable label set of every sample: the mode of the joint distribution.

    It is the best rule for subset accuracy, the share of samples with exactly the right label set.
    It needs a head that ranks whole label sets, such as ``MultiHeadClassifier("product")`` has;
    there it is the default, ``decision="auto"``. The set of all labels with a probability above one
    half need not be probable; for this set use ``Threshold(0.5)``.

    Attributes
    ----------
    n_labels_ : int
        Number of labels.

    See Also
    --------
    Threshold : Decides about each label by its own, marginal probability.

    References
    ----------
    .. [1] K. Dembczyński, W. Waegeman, W. Cheng and E. Hüllermeier, "On Label Dependence and Loss
       Minimization in Multi-label Classification". Machine Learning 88, 2012.

    Examples
    --------
    Sets of the two samples, two each, best first:

    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.decisions import JointMode
    >>> scores = np.log([[0.6, 0.3], [0.5, 0.4]])
    >>> sets = csr_matrix([[1, 0, 1], [1, 0, 0], [0, 0, 0], [0, 1, 0]])
    >>> JointMode().fit(None, np.eye(3)).decode(scores, sets=sets).toarray()
    array([[1, 0, 1],
           [0, 0, 0]])
    """

    reads = "sets"

    def n_candidates(self, n_labels: int) -> int:
        return 1

    def decode(self, scores: Any, *, sets: sp.csr_matrix) -> sp.csr_matrix:
        return sets[:: scores.shape[1]]
