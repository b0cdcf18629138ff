"""Decision for the most probable label set, where a head gives label sets probabilities."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from sklearn_xlc.decisions._base import Decision


class JointMode(Decision):
    """Predict the most probable label set of every sample: the mode of the joint distribution.

    It is the best rule for subset accuracy, the share of samples whose label set is right in every
    label. It needs a head that ranks whole label sets, such as that of
    ``MultiHeadClassifier("product")``, where it is the meaning of ``decision="auto"``. Labels with
    a probability above one half need not form a probable set; for these use ``Threshold(0.5)``.

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
        """Return the best set of each sample.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_candidates)
            Scores of the best label sets of each sample, best first.
        sets : CSR matrix of shape (n_samples * n_candidates, n_labels)
            These sets, those of a sample below each other.

        Returns
        -------
        CSR matrix of shape (n_samples, n_labels)
            Indicator of the label sets.
        """
        return sets[:: scores.shape[1]]
