"""Decision for label sets closed under ancestors in a taxonomy."""

from __future__ import annotations

import contextlib
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit

from sklearn_xlc._compat import StrOptions
from sklearn_xlc._csr import IntArray, find_entries, joined_ranges, ones_at, places_of, row_numbers
from sklearn_xlc._part import Names, cloned, named_part
from sklearn_xlc._ranking import ranked_candidates
from sklearn_xlc.decisions._base import Decision
from sklearn_xlc.decisions._isotonic import isotonic_over
from sklearn_xlc.decisions.threshold import Threshold
from sklearn_xlc.decisions.topk import TopK
from sklearn_xlc.metrics import ancestors_of, pairs_with_ancestors, plain_parents

#: Functions from a score to the value that is added up over labels, and back to finite scores.
_LINKS: dict[str | None, tuple[Any, Any]] = {
    "sigmoid": (expit, lambda p: logit(np.clip(p, 1e-300, 1 - 2**-53))),
    "exp": (np.exp, lambda p: np.log(np.maximum(p, 1e-300))),
    None: (lambda scores: np.clip(scores, -1e100, 1e100), np.copy),
}
#: Rules by name.
_RULES: Names = {"threshold": lambda: Threshold(min_labels="auto"), "topk": TopK}


class Taxonomy(Decision):
    r"""Predict label sets with all ancestors of each label.

    Probabilities are made consistent first: they become the nearest ones, by least squares, in
    which no label is more probable than one of its ancestors (isotonic regression). Another
    decision, such as a tuned threshold, then decides on them. For a threshold t, the labels with
    more than t are the set with the largest :math:`\sum_{l \in S} (p_l - t)` among all sets S that
    hold with each label all its ancestors: an improbable ancestor is taken if its descendants make
    up for it. This is exact on trees and on graphs with several parents. The labels of a sample are
    its ranked candidates and their ancestors; an ancestor beyond the list has at most the
    probability of the last label on it, and is given this one.

    Parameters
    ----------
    parents : dict or series
        Parent, or list of parents, of each label, by the names of the labels in y; None, NaN or an
        empty list for none. A series has the labels in its index, several times for several
        parents; a file keeps it as a dict. Labels that do not occur in y only connect others.
    decision : "auto", "threshold", "topk" or Decision, default="auto"
        Rule on the consistent probabilities, which reads ranked labels. "auto":
        ``Threshold(min_labels="auto")``, with a tuned threshold common to all labels.

    Attributes
    ----------
    decision_ : Decision
        Fitted rule.
    ancestors_ : ndarray of shape (n_pairs, 2)
        Pairs of a label and one of its ancestors, as columns of the indicator.
    n_labels_ : int
        Number of labels.

    See Also
    --------
    sklearn_xlc.metrics.label_set_score : With ``parents=``, hierarchical precision, recall and F1.

    References
    ----------
    .. [1] W. Bi, J. T. Kwok, "Multi-Label Classification on Tree- and DAG-Structured Hierarchies".
       ICML 2011. (Best closed sets of a given size, by a greedy algorithm.)
    .. [2] R. E. Barlow, H. D. Brunk, "The Isotonic Regression Problem and Its Dual". Journal of the
       American Statistical Association 67, 1972.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import logit
    >>> from sklearn_xlc.decisions import Taxonomy, Threshold
    >>> classes = np.array(["animal", "cat", "dog"])
    >>> decision = Taxonomy({"cat": "animal", "dog": "animal"}, Threshold(0.5))
    >>> decision = decision.fit(None, np.eye(3), classes=classes)
    >>> decision.decode(logit([[0.4, 0.8, 0.1], [0.4, 0.55, 0.1]])).toarray()
    array([[1, 1, 0],
           [0, 0, 0]], dtype=int8)
    """

    decision_: Decision
    ancestors_: IntArray
    in_repr = ("decision_",)
    _parts = {"decision": _RULES}
    _parameter_constraints: dict[str, Any] = {
        "parents": "no_validation",  # by `ancestors_of`
        "decision": [StrOptions({"auto", *_RULES}), Decision],
    }

    def __init__(self, parents: Any, decision: Any = "auto") -> None:
        self.parents = parents
        self.decision = decision

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the parents as files can hold them."""
        state = super().__getstate__()
        with contextlib.suppress(TypeError):  # parents of another kind wait for `fit`
            return {**state, "parents": plain_parents(self.parents)}
        return state

    @property
    def fitted_on(self) -> str | None:  # type: ignore[override]
        """Samples for fitting the rule."""
        return self._rule.fitted_on

    @property
    def _rule(self) -> Decision:
        """Rule as given."""
        return named_part(self.decision, {"auto": _RULES["threshold"], **_RULES})  # type: ignore[no-any-return]

    def check(self) -> None:
        super().check()
        ancestors_of(self.parents)  # before they are copied: an iterator cannot be

    def check_labels(self, Y: sp.csr_matrix) -> None:
        super().check_labels(Y)
        rule = self._rule
        if rule.reads != "ranked":
            raise ValueError(
                f"decision={rule!r} of Taxonomy reads {rule.reads}, but must read ranked labels, "
                "as Threshold and TopK do"
            )
        if rule.needs_own_samples:
            raise ValueError(
                f"decision={rule!r} guarantees a risk of its own sets, and Taxonomy predicts "
                "others; use one of the two"
            )
        if rule._has_cuts_of_labels:
            raise ValueError(
                f"decision={rule!r} of Taxonomy must have one threshold for all labels: with "
                "others, a label may be above its threshold where its ancestor is not"
            )
        rule.check_labels(Y)

    def check_classes(self, classes: np.ndarray) -> None:
        pairs_with_ancestors(ancestors_of(self.parents), classes)

    def check_head(
        self, Y: sp.csr_matrix, *, link: str | None, n_features: int, layer: Any = None
    ) -> None:
        self._rule.check_head(Y, link=link, n_features=n_features, layer=layer)

    def fit(
        self,
        scores: np.ndarray | None,
        Y: Any,
        *,
        labels: np.ndarray | None = None,
        link: str | None = "sigmoid",
        classes: np.ndarray | None = None,
        **context: Any,
    ) -> Taxonomy:
        super().fit(scores, Y)
        self.link_ = link
        self._connect(np.arange(self.n_labels_) if classes is None else classes)
        if scores is not None:
            scores, labels = self.consistent(scores, labels)
        rule = cloned(self._rule)
        self.decision_ = rule.fit(scores, Y, labels=labels, link=link, classes=classes, **context)
        return self

    def partial_fit(
        self, scores: Any, Y: Any, *, classes: np.ndarray | None = None, **context: Any
    ) -> Taxonomy:
        if classes is not None:
            self._connect(classes)
        self.decision_ = self.decision_.partial_fit(scores, Y, classes=classes, **context)
        return self

    def _connect(self, classes: np.ndarray) -> None:
        self.ancestors_ = pairs_with_ancestors(ancestors_of(self.parents), classes)

    def for_labels(self, origin: np.ndarray) -> Self:
        # New labels are connected by `partial_fit`, which is given their names.
        other = super().for_labels(origin)
        pairs = places_of(origin, self.n_labels_)[self.ancestors_]
        pairs = pairs[(pairs >= 0).all(axis=1)]
        other.ancestors_ = pairs[np.lexsort(pairs.T[::-1])]
        other.decision_ = self.decision_.for_labels(origin)
        return other

    def n_candidates(self, n_labels: int) -> int | None:
        rule: Any = getattr(self, "decision_", self._rule)
        return rule.n_candidates(n_labels)  # type: ignore[no-any-return]

    @property
    def asks_for_more(self) -> bool:
        return self._rule.asks_for_more

    def needs_more(self, scores: np.ndarray) -> bool:
        return self.decision_.needs_more(scores)

    def decode(self, scores: np.ndarray, labels: np.ndarray | None = None) -> sp.csr_matrix:
        sets = sp.csr_matrix(self.decision_.decode(*self.consistent(scores, labels)))
        # Ranked ancestors come first; a rule that leaves some out gets them back.
        closed = sp.csr_matrix(sets + sets.astype(np.int32) @ self._above())
        return ones_at(closed.indices, closed.indptr, self.n_labels_)

    def _above(self) -> sp.csr_matrix:
        """Return the matrix of labels by their ancestors."""
        label, above = self.ancestors_.T
        shape = (self.n_labels_, self.n_labels_)
        return sp.csr_matrix((np.ones(len(label), dtype=np.int32), (label, above)), shape=shape)

    def consistent(
        self, scores: np.ndarray, labels: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rank labels by consistent probabilities, ancestors before their descendants.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_candidates)
            Scores of the candidates, best first; of all labels if `labels` is None.
        labels : ndarray of shape (n_samples, n_candidates), default=None
            Ids of the candidates. None: the columns are the labels.

        Returns
        -------
        scores, labels : ndarray of shape (n_samples, n_candidates)
            Consistent scores, on the scale of `scores`, and labels, best first.
        """
        scores, labels = ranked_candidates(scores, labels, scores.shape[1])
        n_samples, width = labels.shape
        if not len(self.ancestors_) or not n_samples:
            return scores, labels
        above = self._above()
        listed = self.label_sets(np.ones(labels.shape, dtype=bool), labels).astype(np.int32)
        lists = sp.csr_matrix(listed + listed @ above)
        lists.sort_indices()
        rows = row_numbers(lists.indptr)
        value = scores[:, -1].astype(np.float64)[rows]
        value[find_entries(lists, np.arange(n_samples)[:, None], labels)] = scores
        value = self._made_consistent(value, rows, lists, above)
        # Equal values are in the order of the numbers of ancestors: ancestors have fewer.
        depth = np.diff(above.indptr)[lists.indices]
        order = np.lexsort((lists.indices, depth, -value, rows))
        first = order[lists.indptr[:-1, None] + np.arange(width)]
        return value[first], lists.indices[first].astype(labels.dtype)

    def _made_consistent(
        self, scores: np.ndarray, rows: IntArray, lists: sp.csr_matrix, above: sp.csr_matrix
    ) -> np.ndarray:
        """Return scores of the listed entries, non-decreasing towards ancestors."""
        n_above = np.diff(above.indptr)[lists.indices]
        upper = above.indices[joined_ranges(above.indptr[lists.indices], n_above)]
        lower_at = np.repeat(np.arange(lists.nnz), n_above)
        upper_at = find_entries(lists, rows[lower_at], upper)
        wrong = np.zeros(lists.shape[0], dtype=bool)
        wrong[rows[lower_at[scores[lower_at] > scores[upper_at]]]] = True
        if not wrong.any():
            return scores
        at = np.flatnonzero(wrong[rows])
        number = np.cumsum(wrong[rows]) - 1
        edges = wrong[rows[lower_at]]
        to_value, to_score = _LINKS[self.link_]
        fitted = isotonic_over(
            to_value(scores[at]), number[lower_at[edges]], number[upper_at[edges]]
        )
        out = scores.copy()
        out[at] = to_score(fitted)
        return out
