"""EAGLETransformer: learn label embeddings from labels of groups, assign labels to samples."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.extmath import row_norms
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._bounds import check_dense_size
from sklearn_xlc._checks import check_counts, check_X, unchanged_on_error
from sklearn_xlc._compat import N_JOBS, RANDOM_STATE, Interval, StrOptions, fit_context
from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import as_dense, bounded_rows, is_mostly_zeros, row_blocks, unit_rows
from sklearn_xlc._ids import warn_of_order
from sklearn_xlc._part import is_auto, refuse_unusable
from sklearn_xlc._ranking import lists_as_csr, rank_rows
from sklearn_xlc._tags import named_sets, refuse_unnamed
from sklearn_xlc.aggregation import (
    Aggregation,
    aggregation,
    assign_labels,
    expected_samples,
    learn_embeddings,
    make_background,
    sharing_rates,
)
from sklearn_xlc.engine import SMALL_DATA, PlainState, scaled, scales_of
from sklearn_xlc.groups import (
    check_groups,
    labels_of_groups,
    warn_of_group_order,
    warn_without_groups,
)

#: Below this share of non-zeros sums over sparse samples are faster than over dense ones.
SPARSE_SHARE = 0.25


class EAGLETransformer(
    PlainState, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Label embeddings and labels of samples from aggregated labels (EAGLE).

    The transformer learns an embedding of each label, a direction close to at least one sample in
    each group with the label [1]_. :meth:`assign` then gives each label of a group to the sample
    closest to its embedding. Any classifier can be trained on the result.

    ``contrast=None`` is the method of the paper. On sparse text it assigns most labels wrongly in
    random groups of 10: the sum of the samples of a label's groups points along the
    mean of all samples, and one sample close to the mean takes most labels. The default therefore
    discounts the mean and the main directions of all samples, weights the samples of a group
    softly, and shares frequent labels among several samples.

    Parameters
    ----------
    contrast : {"background"} or None, default="background"
        "background": centre the samples, and discount the main directions of all samples
        (`n_components`, `shrinkage`). None: Algorithms 1 and 2 of [1]_.
    normalize : bool, "similarities" or "auto", default="auto"
        Whether to scale samples to norm one, so that inner products are cosines. False and
        "similarities" need ``contrast=None``.

        - "auto": True; and before, columns are brought to one scale as in
          :class:`~sklearn_xlc.encoders.MLP`, those of dense X to mean zero, too. Not so without
          `contrast`, and up to 64 samples.
        - "similarities": scale samples for the similarities only, and add samples as given. This is
          Algorithm 1 of [1]_ as printed: its Table 4 defines the brackets as cosines.
        - False: use samples as given; samples of larger norm count for more in the sums, and win
          labels.
    n_iter : int or "auto", default="auto"
        Number of iterations T after the first sum; 0 is EAGLE-0. "auto": 2, or 20 without contrast.
    step_size : float, "full" or "auto", default="auto"
        The step of ``e = Proj(e + step_size * g)``; "full" is ``e = g``. "auto": "full", or 0.1
        without contrast.
    temperature : float or "auto", default="auto"
        Temperature of a softmax over the samples of a group, the weights of the samples in each
        iteration; in units of the similarities' spread. 0: only the most similar sample counts, or
        all of them on ties. "auto": 1/4, or 0 without contrast.
    sharing : "expected", float in [0, 1], "auto" or None, default="auto"
        Further samples of a label, in addition to the best sample of each group.

        - "expected": the most similar samples of all the label's groups, up to the expected number
          (see Notes), also in the iterations. It helps frequent labels and groups of similar
          samples: a group of ten often holds three samples of a label, but names the label once.
        - float: samples at least as similar as this quantile of the best samples.
        - None: the best sample only.
        - "auto": "expected", or None without contrast.
    n_components : int, default=200
        Number of directions discounted by the contrast; 0: only the mean.
    shrinkage : float or "auto", default="auto"
        Strength of the contrast, as in ridge regression: a direction with the share s of the
        samples' squared norm keeps the part ``shrinkage / (s + shrinkage)`` of the similarity.
        "auto": ``0.2 / sqrt(n_samples)``.
    multiplicity : {"ignore", "top"}, default="ignore"
        Meaning of a number c above 1 in `y` (labels merged as lists). "ignore": the label occurs in
        the group, however often. "top": the label goes to c samples of the group, and `sharing` has
        no effect; with a contrast the group also counts c times in the sums.
    top_k : int, default=None
        Number of labels of a sample in the CSR result of :meth:`transform`. None: all, dense.
    n_jobs : int, default=None
        Number of blocks of labels computed in parallel through joblib, by threads unless a joblib
        context names another backend. The result does not depend on it, nor on scikit-learn's
        `working_memory`, which all blocks together take.
    random_state : int, RandomState instance or None, default=None
        Seed of the decomposition of the background, and of the starting samples of labels with a
        zero sum.

    Attributes
    ----------
    label_embeddings_ : {ndarray, CSR matrix} of shape (n_labels, n_features)
        Embeddings of norm one, computed on access; zero for a label without a non-empty sample. CSR
        if X was sparse and there is no contrast.
    sharing_rates_ : ndarray of shape (n_labels,) or None
        Estimated probability of a sample to carry a label carried by another sample of its group:
        near zero in random groups, up to one in groups of similar samples. None unless `sharing` is
        "expected" and `multiplicity` is "ignore".
    classes_ : ndarray of shape (n_labels,)
        Distinct labels of a 1-D y or of tags, otherwise the column numbers.
    n_features_in_, feature_names_in_ : int, and ndarray of shape (`n_features_in_`,)
        Number of columns of X, and their names, where X had names.

    Notes
    -----
    Similarities are cosines, unless ``normalize=False``; an empty sample has similarity 0, but
    where columns of dense X were brought to mean zero.

    If the samples of a label sum to zero (in Figure 1 of [1]_ every group holds x and -x), the
    label starts from one sample of one of its groups, drawn with `random_state`. Labels with the
    same groups start from different samples.

    "expected" sharing takes the larger of two estimates of the number of samples of a label. The
    first one takes samples as independent, with probability p of the label: a share ``q = 1 - (1 -
    p)^g`` of the groups of g samples then has it, and solving for p gives ``p * n`` samples. In
    groups of similar samples more samples carry the label. The second estimate counts them:
    samples of groups *without* the label do not carry it, so other samples carry it if they are
    more similar to the label than nearly all of these. The count uses embeddings learnt from the
    other half of the groups, and gives `sharing_rates_`. If every group has the label, its rate is
    zero, and only the first estimate counts; samples opposed to the best ones never get it.

    If each sample has one group, the contrast with all samples is the contrast with the groups
    *without* the label: the two differences are proportional.

    **Differences from the paper**

    - ``contrast=None`` is the method of [1]_, with T = 20 steps of 0.1, on samples of norm one. On
      others it is the method with ``normalize="similarities"``. Everything else about the default
      is an addition.
    - A label with a zero sum has no direction in [1]_; here it starts from one sample.
    - Of equally similar samples the first one gets the label.

    Measurements are in docs/measurements.md.

    References
    ----------
    .. [1] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020.

    Examples
    --------
    The toy example of Figure 1: every group has both labels, and its samples are x and -x.

    >>> import numpy as np
    >>> from sklearn_xlc import EAGLETransformer
    >>> X = np.array([[1.0, 2.0], [-1.0, -2.0], [1.0, 2.0], [-1.0, -2.0]])
    >>> y, groups = np.ones((4, 2), dtype=int), [0, 0, 1, 1]
    >>> eagle = EAGLETransformer(contrast=None, random_state=0).fit(X, y, groups)
    >>> assigned = eagle.assign(X, y, groups).toarray()
    >>> bool((assigned.sum(axis=1) == 1).all()), bool((assigned[:2] == assigned[2:]).all())
    (True, True)
    """

    _kind_of_tags: str
    _parameter_constraints: dict[str, list[Any]] = {
        "contrast": [StrOptions({"background"}), None],
        "normalize": ["boolean", StrOptions({"similarities", "auto"})],
        "n_iter": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "step_size": [StrOptions({"auto", "full"}), Interval(Real, 0, None, closed="neither")],
        "temperature": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "sharing": [StrOptions({"auto", "expected"}), Interval(Real, 0, 1, closed="both"), None],
        "n_components": [Interval(Integral, 0, None, closed="left")],
        "shrinkage": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "multiplicity": [StrOptions({"ignore", "top"})],
        "top_k": [None, Interval(Integral, 1, None, closed="left")],
        "n_jobs": N_JOBS,
        "random_state": RANDOM_STATE,
    }

    _scales: dict[str, np.ndarray] = {}

    def __init__(
        self,
        *,
        contrast: str | None = "background",
        normalize: bool | str = "auto",
        n_iter: int | str = "auto",
        step_size: float | str = "auto",
        temperature: float | str = "auto",
        sharing: float | str | None = "auto",
        n_components: int = 200,
        shrinkage: float | str = "auto",
        multiplicity: str = "ignore",
        top_k: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.contrast = contrast
        self.normalize = normalize
        self.n_iter = n_iter
        self.step_size = step_size
        self.temperature = temperature
        self.sharing = sharing
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.multiplicity = multiplicity
        self.top_k = top_k
        self.n_jobs = n_jobs
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, groups: Any = None) -> EAGLETransformer:
        """Learn the label embeddings.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        y : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_groups, n_labels), or \
                array-like of shape (n_samples,)
            Labels of the groups, in one of two forms: row i holds the labels of sample i's group,
            or row j holds the labels of group j, in the order of ``np.unique(groups)`` or of the
            columns of a membership matrix. With ids of as many groups as samples, the first form is
            meant. For counts above 1 see `multiplicity`. A 1-D y holds one label of any type per
            row. Or tags of the rows: a list or column of lists or sets of strings or integers.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_groups), default=None
            Ids of the samples' groups, or a 0/1 membership matrix. None: every sample is a group.

        Returns
        -------
        self : object
            Fitted transformer.
        """
        warn_without_groups(groups)
        warn_of_order(X, y, groups=groups)
        with unchanged_on_error(self):
            refuse_unusable(self, self._unusable())
            if self.normalize in (False, "similarities") and self.contrast is not None:
                raise ValueError(
                    f"normalize={self.normalize!r} needs contrast=None, got "
                    f"contrast={self.contrast!r}; set one or the other"
                )
            X = self._samples(X, reset=True)
            self._learn(X, *self._aggregation(X.shape[0], y, groups))
        return self

    def _unusable(self) -> dict[str, str]:
        """Return the unusable parameters, with the reasons."""
        unread: dict[str, str] = {}
        if self.contrast is None:  # scikit-learn's checks set `n_components` of any estimator
            unread["shrinkage"] = "with contrast=None"
        if self._resolve_auto("n_iter") == 0:
            unread |= dict.fromkeys(("step_size", "temperature"), "with n_iter=0")
        if self.multiplicity == "top" and self.sharing is not None:
            unread["sharing"] = "with multiplicity='top'"
        return unread

    def _samples(self, X: Any, reset: bool = False) -> Any:
        """Validate samples; they are sparse if the X of `fit` has many zeros, in any container."""
        X = check_X(self, X, reset)
        if reset:
            self._was_sparse, self._reads_sparse = sp.issparse(X), is_mostly_zeros(X, SPARSE_SHARE)
        if self._reads_sparse != sp.issparse(X):
            X = sp.csr_matrix(X) if self._reads_sparse else X.toarray()
        if reset:
            is_scaled = is_auto(self.normalize) and self.contrast is not None
            self._scales = scales_of(X) if is_scaled and X.shape[0] > SMALL_DATA else {}
        return scaled(X, self._scales)

    def _scaled(self, X: Any) -> Any:
        """Scale samples to norm one, or all by the largest norm, as ties have a tolerance."""
        return unit_rows(X) if self.normalize else bounded_rows(X)

    def _learn(self, X: Any, data: Aggregation, classes: np.ndarray | None) -> None:
        """Learn the embeddings."""
        norms = row_norms(bounded_rows(X)) if self.normalize == "similarities" else None
        X = self._scaled(X)
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(2**31 - 1))
        background, targets, rates = None, None, None
        if self.contrast is not None:
            shrinkage = self.shrinkage
            if shrinkage == "auto":
                shrinkage = 0.2 / np.sqrt(X.shape[0])
            background = make_background(X, self.n_components, float(shrinkage), rng)
        if self._resolve_auto("sharing") == "expected" and self.multiplicity == "ignore":
            rates = sharing_rates(
                X,
                data,
                background=background,
                seed=int(rng.randint(2**31 - 1)),
                n_jobs=self.n_jobs,
            )
            targets = expected_samples(data, rates) / np.maximum(1, np.diff(data.labels.indptr))
        step_size = self._resolve_auto("step_size")
        self._embeddings = learn_embeddings(
            X,
            data,
            background=background,
            n_iter=self._resolve_auto("n_iter"),
            step_size=None if step_size == "full" else float(step_size),
            temperature=float(self._resolve_auto("temperature")),
            targets=targets,
            use_counts=self.multiplicity == "top" and self.contrast is not None,
            sample_weight=norms,
            seed=seed,
            n_jobs=self.n_jobs,
        ).without_samples()
        self.sharing_rates_ = rates
        self.classes_ = np.arange(data.n_labels) if classes is None else classes
        self._one_label = classes is not None
        self._n_features_out = data.n_labels

    @property
    def label_embeddings_(self) -> Any:
        """Unit vectors of the labels, in columns as scaled by ``normalize="auto"``."""
        embeddings, shape = self._embeddings, self._embeddings.sums.shape
        as_csr = self._was_sparse and embeddings.background is None
        if not as_csr:
            check_dense_size(shape, embeddings.sums.dtype, "transform with top_k")
        if embeddings.background is None:
            rows = unit_rows(embeddings.sums)
        else:
            rows = embeddings.block(0, shape[0])
        if as_csr:
            return sp.csr_matrix(rows)
        return as_dense(rows)

    def transform(self, X: Any) -> Any:
        """Compute the cosine of every sample with every label embedding, or the inner product.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        {ndarray, CSR matrix} of shape (n_samples, n_labels)
            Affinities: cosines, or with ``normalize=False`` inner products. With `top_k`, only the
            largest ones of each sample, as CSR; ties go to the first labels.

        Raises
        ------
        MemoryError
            If dense affinities would be larger than ``sklearn_xlc.get_config()["dense_limit"]``.
        """
        check_is_fitted(self)
        X = self._samples(X)
        if self.normalize:
            X = unit_rows(X)
        shape = (X.shape[0], len(self.classes_))
        if self.top_k is not None:
            return self._top_affinities(X, min(self.top_k, shape[1]))
        check_dense_size(shape, X.dtype, "top_k")
        out = np.empty(shape, dtype=X.dtype)
        for part in self._label_ranges(0):
            out[:, part] = self._affinities(X, part)
        return out

    def assign(self, X: Any, y: Any, groups: Any = None) -> sp.csr_matrix:
        """Assign the labels of groups to their samples.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples, of `fit` or new ones.
        y : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_groups, n_labels), or \
                array-like of shape (n_samples,)
            Labels of the groups, as in :meth:`fit`.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_groups), default=None
            Groups, as in :meth:`fit`.

        Returns
        -------
        csr_matrix of shape (n_samples, n_labels) and dtype int8
            Indicator of the labels of the samples. Samples get labels of their groups only, and
            each label of a group goes to at least one of its samples.
        """
        check_is_fitted(self)
        warn_of_order(X, y, groups=groups)
        X = self._scaled(self._samples(X))
        data, _ = self._aggregation(X.shape[0], y, groups, fitted=True)
        sharing, totals, quantile = self._resolve_auto("sharing"), None, None
        if self.multiplicity == "ignore" and sharing == "expected":
            # They are counted in each group; a sample of several groups is one.
            n_counted = max(1, len(data.groups.samples))
            share = len(np.unique(data.groups.samples)) / n_counted
            totals = share * expected_samples(data, self.sharing_rates_)
        elif self.multiplicity == "ignore" and sharing is not None:
            quantile = float(sharing)
        return assign_labels(
            X,
            data,
            self._embeddings,
            use_counts=self.multiplicity == "top",
            totals=totals,
            quantile=quantile,
            n_jobs=self.n_jobs,
        )

    def _resolve_auto(self, name: str) -> Any:
        """Return the value of a parameter; for "auto" ours, or the paper's without contrast."""
        value = getattr(self, name)
        if not is_auto(value):
            return value
        best = {"n_iter": 2, "step_size": "full", "temperature": 0.25, "sharing": "expected"}
        paper = {"n_iter": 20, "step_size": 0.1, "temperature": 0, "sharing": None}
        return (paper if self.contrast is None else best)[name]

    def _aggregation(
        self, n_samples: int, y: Any, groups: Any, fitted: bool = False
    ) -> tuple[Aggregation, np.ndarray | None]:
        """Return the groups with their labels, and the names of the labels or None."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        classes, as_tags = (self.classes_, self._kind_of_tags == "i") if fitted else (None, None)
        sets = named_sets(y, classes, counts=True, as_tags=as_tags)
        if sets is None:
            if fitted and self._kind_of_tags:
                refuse_unnamed(y)
            Y, classes = labels_of_groups(y, self.classes_ if fitted and self._one_label else None)
        else:
            Y, classes = check_counts(sets.indicator, "y"), sets.classes
        if not fitted:
            self._kind_of_tags = "" if sets is None else sets.kind_of_tags
        if fitted and Y.shape[1] != len(self.classes_):
            raise ValueError(
                f"y must have {len(self.classes_)} labels as in fit, got shape {Y.shape}"
            )
        checked = check_groups(groups, n_samples)
        labels = checked.per_group(Y, "y")
        warn_of_group_order(groups, y)
        return aggregation(checked, labels), classes

    def _label_ranges(self, n_samples: int) -> list[slice]:
        """Return ranges of labels within `working_memory`, with `n_samples` affinities each."""
        n_labels, n_features = self._embeddings.sums.shape
        size = 3 * (n_features + n_samples) * self._embeddings.sums.dtype.itemsize
        return row_blocks(n_labels, size, memory_limit())

    def _affinities(self, X: Any, part: slice) -> np.ndarray:
        """Compute inner products of samples with a range of labels."""
        vectors = self._embeddings.block(part.start, part.stop).astype(X.dtype, copy=False)
        return X @ np.ascontiguousarray(vectors.T)

    def _top_affinities(self, X: Any, k: int) -> sp.csr_matrix:
        """Compute the k largest affinities of each sample, as CSR."""
        scores = np.empty((X.shape[0], 0), dtype=X.dtype)
        labels = np.empty((X.shape[0], 0), dtype=np.int64)
        for part in self._label_ranges(X.shape[0]):
            scores = np.hstack([scores, self._affinities(X, part)])
            new = np.arange(part.start, part.stop)
            labels = np.hstack([labels, np.broadcast_to(new, (X.shape[0], len(new)))])
            scores, labels = rank_rows(scores, k, labels)
        return lists_as_csr(scores, labels, len(self.classes_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
