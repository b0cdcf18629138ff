"""Explain scores of labels by contributions of words or columns, and by training samples."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from torch import Tensor

from sklearn_xlc._bounds import check_integer, check_option
from sklearn_xlc._config import memory_limit
from sklearn_xlc._ids import as_list, refuse_mask
from sklearn_xlc._labels import plain
from sklearn_xlc._tags import index_of
from sklearn_xlc._warn import warn
from sklearn_xlc.batches import Bags, SparseRows, instances_of, threads_for, usual_modes
from sklearn_xlc.encoders import FORMS, MLPEncoder
from sklearn_xlc.engine import (
    PREDICT_BATCH,
    BaseXLCClassifier,
    predictor_of,
    remembers,
    samples_of,
)
from sklearn_xlc.inspection.shading import shaded, style, texts_of
from sklearn_xlc.inspection.topk import check_rows
from sklearn_xlc.metrics import unwrapped

#: Places between an empty sample (0) and the sample (1) at which scores are compared first: layer
#: normalisation turns most where the sample begins to outweigh the biases.
GRID = np.union1d(np.linspace(0, 1, 65), np.logspace(-6, 0, 61))
#: Share of the contributions to a label that may be missing before a warning; less than this of a
#: log odds is nothing.
MAX_ERROR = 0.05


def explain_topk(
    estimator: Any,
    X: Any,
    k: int | None = 5,
    *,
    labels: Any = None,
    examples: int = 0,
    n_columns: int = 10,
    n_steps: int = 64,
) -> Explanation:
    """Explain the scores of the best k labels by words or columns of X, and by training samples.

    The contribution of a column is its integrated gradient [1]_ on the straight line from an empty
    sample, with all columns zero, to the sample. The contributions of all columns add up to the
    score of the network less that of the empty sample. Zero columns contribute nothing. Of dense
    columns with long tails the line is straight in what the network makes of them.

    A :class:`~sklearn_xlc.ranking.BoostedRanker` adds labels of similar training samples. With
    `examples` the result names the nearest of those that have the label.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier of this package with a network, or a
        :class:`~sklearn.pipeline.Pipeline`, search or :class:`~sklearn.frozen.FrozenEstimator`
        around one. For an ``AggregatedLabelClassifier``, its ``estimator_`` is explained.
    X : {array-like, sparse matrix, dataframe} or sequence of str
        Samples, as input of the outermost estimator; of ``MIMLClassifier``, bags of one sample.
    k : int or None, default=5
        Number of labels, at most the number of labels there are. None: 5, or all of fewer.
    labels : array-like of shape (n_labels,), default=None
        Labels to explain, entries of ``classes_``, in place of the best k.
    examples : int, default=0
        Largest number of training samples for each label, with the label and a positive cosine to
        the sample. They are found by the first :class:`~sklearn_xlc.ranking.NearestSamples` of the
        ranker, and named as in ``forget`` of the classifier: by the index of X or y in ``fit``, or
        by positions. The samples that ``estimator_`` of an ``AggregatedLabelClassifier`` is fitted
        to may be a part of X: give it a frame, whose index names them.
    n_columns : int, default=10
        Largest number of columns for each label, by absolute contribution.
    n_steps : int, default=64
        Number of gradients on the line, denser where the scores change more. Without a network
        between columns and scores, the result is exact for any number.

    Returns
    -------
    Explanation
        Triple ``(labels, columns, contributions)`` of arrays of shape (n_samples, k) and, for the
        other two, (n_samples, k, n_columns), or less if no sample has as many columns. Attributes
        `examples` and `cosines` hold the training samples. Notebooks show a table, with the texts
        themselves and their words shaded where X is texts; ``to_frame()`` makes a pandas frame.

    Raises
    ------
    TypeError
        If the estimator is no classifier with a network, or its encoder reads no rows of numbers
        (but a mapping of arrays, or strings without a vectorizer).
    ValueError
        If `labels` or a number is not valid, or `examples` is above 0 and the ranker remembers no
        training samples.

    Warns
    -----
    UserWarning
        If contributions miss more than 5% of their exact sum; raise `n_steps`.

    Notes
    -----
    Names of columns come from ``get_feature_names_out`` of the steps before the classifier, or from
    ``feature_names_in_`` of the classifier, or else are x0, x1, and so on. For
    :class:`~sklearn_xlc.encoders.TextEncoder` they are the tokens and phrases of the text.

    The input layer of :class:`~sklearn_xlc.encoders.MLPEncoder` is linear, so contributions to its
    outputs are exact; only the layers after it need gradients. Memory does not grow with the number
    of labels times samples, nor, for sparse samples, with the number of columns.

    References
    ----------
    .. [1] M. Sundararajan, A. Taly, Q. Yan. Axiomatic Attribution for Deep Networks. ICML 2017.
       Equations 1 and 3.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_xlc import MultiHeadClassifier, explain_topk
    >>> texts = ["a cat on a mat", "a dog on a bed", "a cat and a dog"] * 10
    >>> tags = [["cat"], ["dog"], ["cat", "dog"]] * 10
    >>> clf = MultiHeadClassifier(max_epochs=40, random_state=0)
    >>> model = make_pipeline(TfidfVectorizer(), clf)
    >>> labels, words, _ = explain_topk(model.fit(texts, tags), ["my cat on a sofa"], k=1)
    >>> str(labels[0, 0]), words[0, 0, :2].tolist()
    ('cat', ['cat', 'on'])

    The first of 300 texts that have this label, and the words "cat" and "on":

    >>> clf = MultiHeadClassifier(ranker="boosted", random_state=0)
    >>> model = make_pipeline(TfidfVectorizer(), clf).fit(texts * 10, tags * 10)
    >>> explain_topk(model, ["my cat on a sofa"], k=1, examples=2).examples
    array([[[0, 3]]], dtype=object)
    """
    n_columns, n_steps = check_integer(n_columns, "n_columns"), check_integer(n_steps, "n_steps")
    examples = check_integer(examples, "examples", 0)
    classifier, before = classifier_in(estimator, "explain_topk")
    given, texts = X, texts_of(X)
    for transformer in before:
        X = transformer.transform(X)
        texts = texts_of(X) or texts
    predictor, samples = predictor_of(classifier), samples_of(classifier, X)
    check_rows(given, len(samples))
    classes = unwrapped(estimator)[0].classes_  # of tags, where a meta-estimator has read them
    if labels is None:
        ids = predictor.topk(samples, predictor.check_k(k))[0]
    else:
        ids = np.tile(_ids_of(labels, classes), (len(samples), 1))
    near = _examples(classifier, samples, ids, examples) if examples else ()
    name = _namer(classifier, before, samples.X)
    parts = [
        _best(_contributions(classifier, batch, positions, n_steps), n_columns, name, sample)
        for sample, (batch, positions) in enumerate(
            zip(predictor.batches(samples, 1), predictor.code.label_order[ids])
        )
    ]
    columns, contributions, *values = zip(*parts)
    made = Explanation(
        classes[ids],
        _joined(columns, ""),
        _joined(contributions, 0.0),
        *map(np.stack, values),
        *near,
    )
    made.texts, made.index = texts, index_of(given)
    _warn_of(made, n_steps)
    return made


def classifier_in(estimator: Any, function: str) -> tuple[BaseXLCClassifier, list[Any]]:
    """Return the innermost classifier, and the transformers before it; else name the function."""
    found, before = unwrapped(estimator, deep=True)
    if not isinstance(found, BaseXLCClassifier):
        raise TypeError(
            f"{function} takes a classifier of sklearn_xlc with a network, in a pipeline, a search "
            f"or alone; got {type(found).__name__}"
        )
    return found, before


def remembers_samples(estimator: Any) -> bool:
    """Return whether :func:`explain_topk` can name training samples for an estimator."""
    ranker = classifier_in(estimator, "explain_topk")[0].ranker_
    return ranker is not None and bool(ranker.reads)


def _ids_of(labels: Any, classes: np.ndarray) -> np.ndarray:
    """Return the positions of labels in `classes_`."""
    asked, ids = [labels], {label: number for number, label in enumerate(classes.tolist())}
    try:
        asked = as_list(labels)
        refuse_mask(asked, classes)
        found = [ids.get(plain(label), -1) for label in asked]  # as tolist gives dates
    except TypeError:  # what cannot be hashed, or has no entries, is none of them
        found = [-1]
    if not found or min(found) < 0:
        wrong = repr(asked[found.index(-1)]) if found else "none"
        raise ValueError(f"labels must be entries of classes_, got {wrong}")
    return np.array(found)


def _examples(
    classifier: BaseXLCClassifier, samples: Any, labels: np.ndarray, n_examples: int
) -> tuple[np.ndarray, ...]:
    """Return ids and cosines of the nearest training samples with the labels of samples."""
    ranker = remembers(classifier)
    predictor = replace(predictor_of(classifier), ranker=ranker)
    found = predictor.each(
        samples,
        PREDICT_BATCH,
        "examples",
        lambda rows, batch: ranker.examples(batch.read, labels[rows], n_examples),
    )
    return tuple(map(np.concatenate, zip(*(of_batch for _, of_batch in found))))


# --- names ------------------------------------------------------------------------------------


def _namer(
    classifier: BaseXLCClassifier, before: list[Any], samples: Any
) -> Callable[[int, np.ndarray], list[str]]:
    """Return a function to name columns of a sample."""
    encoder, form = classifier.net_.module_.encoder, classifier._form
    if form == "text" and hasattr(encoder, "tokens_of"):
        return lambda sample, columns: [
            *map(encoder.tokens_of(samples[sample]).__getitem__, columns.tolist())
        ]
    if form != "rows":
        raise TypeError(
            f"explain_topk needs columns, but {type(encoder).__name__} reads {FORMS[form]}; use a "
            "vectorizer in a Pipeline, or sklearn_xlc.encoders.TextEncoder"
        )
    names = None
    for transformer in before:
        names = _names_after(transformer, names)
    names = getattr(classifier, "feature_names_in_", None) if names is None else names
    if names is None or len(names) != classifier.n_features_in_:
        return lambda _, columns: [f"x{column}" for column in columns]
    return lambda _, columns: np.asarray(names, dtype=object)[columns].tolist()


def _names_after(transformer: Any, names: Any) -> Any:
    """Return the names of a transformer's output columns; None if unknown."""
    if isinstance(transformer, FrozenEstimator):
        return _names_after(transformer.estimator, names)
    if isinstance(transformer, Pipeline):  # its own names need those of each step
        for _, step in transformer.steps:
            names = names if step in (None, "passthrough") else _names_after(step, names)
        return names
    for given in [(names,), ()] if names is not None else [()]:
        try:
            return transformer.get_feature_names_out(*given)
        except (AttributeError, ValueError, TypeError):
            continue
    return None


# --- lines from the empty sample to a sample ----------------------------------------------------


class _Line(NamedTuple):
    """Straight line from an empty sample to one sample, before the first nonlinear layer."""

    #: End of the line, at the sample, of shape (d,); the line starts at zero.
    end: Tensor
    #: Columns of X with a possible contribution, of shape (n_entries,).
    columns: np.ndarray
    #: Computes the features of points on the line, of shape (n_points, d).
    features: Callable[[Tensor], Tensor]
    #: Computes contributions, (k, n_entries), from mean gradients of shape (k, d).
    contributions: Callable[[Tensor], Tensor]


def _line_of(encoder: Any, inputs: Any, n_columns: int | None) -> _Line:
    """Return the line to the only sample of a batch; TypeError if inputs are not the columns."""
    is_sparse = isinstance(inputs, SparseRows)
    is_dense = isinstance(inputs, Tensor) and inputs.is_floating_point()
    if not is_sparse and not (is_dense and inputs.numel() == n_columns):
        raise TypeError(
            f"explain_topk needs an encoder that reads the columns of X as numbers; collate of "
            f"{type(encoder).__name__} makes something else of them"
        )
    data = inputs.data if is_sparse else inputs.flatten()
    columns = inputs.indices.cpu().numpy() if is_sparse else np.arange(len(data))
    if type(encoder).forward is MLPEncoder.forward:
        # In the outputs of the input layer, a sum over columns.
        layers = encoder.layers
        of_data = inputs.indices if is_sparse else slice(None)
        weight, bias = (part.detach() for part in encoder.input.of_columns(of_data))
        data = encoder.input.entries(data, of_data)
        return _Line(
            data @ weight,
            columns,
            lambda points: layers(bias + points),
            lambda gradients: gradients @ weight.T * data,
        )

    def features(points: Tensor) -> Tensor:
        rows = _stacked(inputs, points) if is_sparse else points.view(-1, *inputs.shape[1:])
        return encoder(rows)

    return _Line(data, columns, features, lambda gradients: gradients * data)


def _stacked(row: SparseRows, points: Tensor) -> SparseRows:
    """Return CSR rows with the columns of one row and the data of each point."""
    n_points, n_entries = points.shape
    indptr = torch.arange(n_points + 1, device=points.device) * n_entries
    return SparseRows(indptr, row.indices.repeat(n_points), points.flatten(), row.n_features)


# --- integrated gradients ---------------------------------------------------------------------


class _Contributions(NamedTuple):
    """Contributions of a sample's columns to its labels, and scores at both ends of the line."""

    columns: np.ndarray  # (n_entries,)
    values: np.ndarray  # (k, n_entries)
    scores: np.ndarray  # (k,)
    baselines: np.ndarray  # (k,)


def _contributions(
    classifier: BaseXLCClassifier, batch: Any, positions: np.ndarray, n_steps: int
) -> _Contributions:
    """Compute integrated gradients of the scores of labels, for the only sample of a batch."""
    net, rows = classifier.net_, instances_of(batch.inputs)
    module = net.module_
    module.eval()
    with usual_modes(training=True), torch.enable_grad(), threads_for(n_steps * net.n_met):
        line = _line_of(module.encoder, rows, getattr(classifier, "n_features_in_", None))
        labels = torch.as_tensor(positions, device=line.end.device)

        def scores(points: Tensor) -> Tensor:
            features: Any = line.features(points)
            if isinstance(batch.inputs, Bags):  # each point is a bag
                indptr = torch.arange(len(points) + 1, device=points.device)
                features = Bags(features, indptr, features)
            return module.head.scores_at(features, labels.expand(len(points), -1))

        n_rows = max(1, memory_limit() // module.head.bytes_per_row())
        with torch.no_grad():
            parts = _points(GRID, line.end).split(n_rows)
            on_grid = torch.cat([scores(part) for part in parts])
        edges = _edges(on_grid.cpu().numpy(), n_steps)
        middles = _points((edges[1:] + edges[:-1]) / 2, line.end)
        widths = torch.as_tensor(np.diff(edges)).to(line.end)
        gradients = _mean_gradients(scores, middles, widths, n_rows)
        values = line.contributions(gradients)
    ends = on_grid[-1].cpu().numpy(), on_grid[0].cpu().numpy()
    return _Contributions(line.columns, values.cpu().numpy(), *ends)


def _points(places: np.ndarray, end: Tensor) -> Tensor:
    return torch.as_tensor(places).to(end)[:, None] * end


def _edges(on_grid: np.ndarray, n_steps: int) -> np.ndarray:
    """Return the ends of steps with about equal changes of scores; a tenth are equal steps."""
    change = np.abs(np.diff(on_grid.astype(np.float64), axis=0))
    change /= np.maximum(change.sum(axis=0), np.finfo(np.float64).tiny)
    share = 0.9 * change.mean(axis=1) + 0.1 * np.diff(GRID)
    so_far = np.concatenate([[0.0], np.cumsum(share)])
    return np.interp(np.linspace(0, so_far[-1], n_steps + 1), so_far, GRID)


def _mean_gradients(
    scores: Callable[[Tensor], Tensor], points: Tensor, widths: Tensor, n_rows: int
) -> Tensor:
    """Compute the mean gradient of each label's score on the line, (k, d) ([1], Eq. 3)."""
    total = torch.zeros((), device=points.device)
    for part, weights in zip(points.split(n_rows), widths.split(n_rows)):
        of_labels = scores(part.requires_grad_())
        total = total + torch.stack([weights @ _gradient(s, part) for s in of_labels.unbind(1)])
    return total


def _gradient(scores: Tensor, points: Tensor) -> Tensor:
    """Compute the gradient of the score of each point."""
    if scores.requires_grad:
        (found,) = torch.autograd.grad(scores.sum(), points, retain_graph=True, allow_unused=True)
        if found is not None:
            return found
    raise TypeError(
        "explain_topk follows the gradient of scores, but encoder or head compute them without "
        "torch's autograd; a head may define scores_at"
    )


def _best(
    found: _Contributions, n_columns: int, name: Callable[[int, np.ndarray], list[str]], sample: int
) -> tuple[np.ndarray, ...]:
    """Return names and values of the largest contributions, scores, baselines, other sums."""
    widest = np.count_nonzero(found.values, axis=1).max()
    shape = len(found.values), min(n_columns, int(widest))
    columns, values = np.full(shape, "", dtype=object), np.zeros(shape, found.values.dtype)
    places = np.zeros(shape, dtype=np.int64)
    for row, of_label in enumerate(found.values):
        largest = np.argsort(-np.abs(of_label), kind="stable")[:n_columns]
        largest = largest[of_label[largest] != 0]
        largest = largest[np.argsort(-of_label[largest], kind="stable")]
        places[row, : len(largest)] = found.columns[largest]
        values[row, : len(largest)] = of_label[largest]
    columns[values != 0] = name(sample, places[values != 0])  # of all labels at once
    others = found.values.sum(axis=1) - values.sum(axis=1)
    return columns, values, found.scores, found.baselines, others


def _joined(parts: Sequence[np.ndarray], filler: Any) -> np.ndarray:
    """Stack the arrays of samples, of shape (k, any width)."""
    width = max(part.shape[1] for part in parts)
    beside = [[(0, 0), (0, width - part.shape[1])] for part in parts]
    return np.stack([np.pad(*both, constant_values=filler) for both in zip(parts, beside)])


def _warn_of(made: Explanation, n_steps: int) -> None:
    """Warn if contributions do not add up to the scores."""
    size = np.abs(made.contributions).sum(axis=2) + np.abs(made.others)
    share = np.abs(made.errors) / np.maximum(size, 1.0)
    if share.max(initial=0.0) > MAX_ERROR:
        warn(
            f"contributions miss up to {share.max():.0%} of what they add up to, because the "
            f"scores change abruptly between an empty sample and the sample: raise "
            f"n_steps={n_steps}"
        )


class _Triple(NamedTuple):
    labels: np.ndarray
    columns: np.ndarray
    contributions: np.ndarray


class Explanation(_Triple):
    """Contributions of columns to the scores of labels: ``(labels, columns, contributions)``.

    The score of a label is ``baselines + contributions.sum(2) + others``, up to `errors`.

    Attributes
    ----------
    labels, scores : ndarray of shape (n_samples, k)
        Labels, best first, as of ``predict_topk``; and their scores by the network, before a ranker
        changes them. Where lists are ranked, these scores need not fall.
    columns : ndarray of shape (n_samples, k, n_columns)
        Names of the columns, or words, with the largest contributions to the score of each label:
        positive contributions first, then negative ones, largest first. Empty if a sample has
        fewer.
    contributions : ndarray of shape (n_samples, k, n_columns)
        Contribution of each column to the score.
    baselines, others : ndarray of shape (n_samples, k)
        Scores for an empty sample, with all columns zero; sum of all other contributions.
    examples : ndarray of shape (n_samples, k, n_examples), object
        Ids of the nearest training samples that have the label, nearest first. None if there are
        fewer. No columns if none were asked for.
    cosines : ndarray of shape (n_samples, k, n_examples)
        Cosines of the training samples to the sample, 0 where there is none.
    errors : ndarray of shape (n_samples, k)
        Error of the sum of contributions against ``scores - baselines``, from integration in
        `n_steps` steps.
    """

    #: Samples that a notebook or a terminal shows.
    N_SHOWN = 10
    #: Samples that are texts, which a notebook shows with shaded words; None: they are none.
    texts: list[str] | None = None
    #: Index of X, if it was a frame or series of pandas.
    index: Any = None

    def __new__(
        cls,
        labels: np.ndarray,
        columns: np.ndarray,
        contributions: np.ndarray,
        scores: np.ndarray,
        baselines: np.ndarray,
        others: np.ndarray,
        examples: np.ndarray | None = None,
        cosines: np.ndarray | None = None,
    ) -> Explanation:
        """Make the triple and its attributes."""
        made = super().__new__(cls, labels, columns, contributions)
        made.scores, made.baselines, made.others = scores, baselines, others
        none = np.empty((*labels.shape, 0), dtype=object)
        made.examples = none if examples is None else examples
        made.cosines = none.astype(np.float32) if cosines is None else cosines
        return made

    scores: np.ndarray
    baselines: np.ndarray
    others: np.ndarray
    examples: np.ndarray
    cosines: np.ndarray

    def __getnewargs__(self) -> tuple[np.ndarray, ...]:
        return (*self, self.scores, self.baselines, self.others, self.examples, self.cosines)

    @property
    def errors(self) -> np.ndarray:
        """Error of the sum of contributions against scores less baselines."""
        return self.scores - self.baselines - self.contributions.sum(axis=2) - self.others

    def to_frame(self, of: str = "columns") -> Any:
        """Make a pandas frame with a row for each sample, label and column, or training sample.

        Parameters
        ----------
        of : {"columns", "examples"}, default="columns"
            What the rows are about.

        Returns
        -------
        pandas.DataFrame
            Columns "sample" (entry of the index of X, or row of X without one), "rank" (from 1
            on), "label" and "score", then "baseline", "column" and "contribution", or "example"
            (an id) and "cosine".

        Raises
        ------
        ValueError
            If `of` is something else.
        ImportError
            If pandas is not installed.
        """
        import pandas as pd

        is_columns = check_option(of, "of", "columns", "examples") == "columns"
        samples, ranks, _ = at = np.nonzero(self.contributions if is_columns else self.cosines)
        if is_columns:
            named = {"column": self.columns[at], "contribution": self.contributions[at]}
            named = {"baseline": self.baselines[samples, ranks], **named}
        else:
            named = {"example": self.examples[at], "cosine": self.cosines[at]}
        about = {
            "sample": samples if self.index is None else self.index[samples],
            "rank": ranks + 1,
            "label": self.labels[samples, ranks],
            "score": self.scores[samples, ranks],
        }
        return pd.DataFrame({**about, **named})

    def to_list(self) -> list[list[dict[str, Any]]]:
        """Make plain lists and dicts, for JSON.

        Returns
        -------
        list of list of dict
            For each sample a dict for each label, best first: "label", "score", "baseline",
            "columns" (dicts of "column" and "contribution") and "examples" (dicts of "example", an
            id, and "cosine").
        """
        samples, ranks = map(range, self.labels.shape)
        return [[self._entry(sample, rank) for rank in ranks] for sample in samples]

    def _entry(self, *at: int) -> dict[str, Any]:
        """Return a label of a sample as :meth:`to_list` does, without contributions of zero."""
        columns = zip(self.columns[at].tolist(), self.contributions[at].tolist())
        examples = zip(self.examples[at].tolist(), self.cosines[at].tolist())
        return {
            "label": plain(self.labels[at]),
            "score": float(self.scores[at]),
            "baseline": float(self.baselines[at]),
            "columns": [
                {"column": str(each), "contribution": size} for each, size in columns if size
            ],
            "examples": [
                {"example": each, "cosine": cosine} for each, cosine in examples if cosine
            ],
        }

    def __repr__(self) -> str:
        lines = ["Explanation of samples"]
        for sample, labels in enumerate(self.labels[: self.N_SHOWN]):
            shown = sample if self.index is None else self.index[sample]
            for rank, label in enumerate(labels):
                said = self._entry(sample, rank)
                parts = [f"{one['column']} {one['contribution']:+.3g}" for one in said["columns"]]
                line = f"{shown}: {label} {self.scores[sample, rank]:.3g}: {', '.join(parts)}"
                near = _near(said)
                lines.append(f"{line}; near {near}" if near else line)
        return "\n".join([*lines, *self._more()])

    def _more(self) -> list[str]:
        n_more = len(self.labels) - self.N_SHOWN
        return [f"...: {n_more} more samples"] if n_more > 0 else []

    def _repr_html_(self) -> str:
        rows = []
        for sample, labels in enumerate(self.labels[: self.N_SHOWN]):
            # One scale for all labels of a sample, so that colours compare.
            scale = float(np.abs(self.contributions[sample]).max(initial=0.0)) or 1.0
            shown = html.escape(str(sample if self.index is None else self.index[sample]))
            for rank, label in enumerate(labels):
                of_sample = f'<th rowspan="{len(labels)}">{shown}</th>' if rank == 0 else ""
                said = self._entry(sample, rank)
                text, parts = "", [tuple(each.values()) for each in said["columns"]]
                if self.texts is not None:
                    text, parts = shaded(self.texts[sample], parts, scale)
                chips = [_coloured(name, value, scale) for name, value in parts]
                words = " ".join([text, *chips] if text else chips)
                score, baseline, others = (
                    f"<td>{round(float(of[sample, rank]), 2) + 0.0:.2f}</td>"
                    for of in (self.scores, self.baselines, self.others)
                )
                named = f'<td style="text-align:left"><b>{html.escape(str(label))}</b></td>'
                words = f'<td style="text-align:left;line-height:1.9;min-width:16em">{words}</td>'
                near = html.escape(_near(said))
                near = f'<td style="text-align:left">{near}</td>' if self.examples.size else ""
                rows.append(f"<tr>{of_sample}{named}{score}{baseline}{words}{others}{near}</tr>")
        rows += [f'<tr><td colspan="6">{line}</td></tr>' for line in self._more()]
        sides = {"sample": "right", "label": "left", "score": "right", "baseline": "right"}
        sides |= {"contributions": "left", "others": "right"}
        if self.examples.size:
            sides["training samples"] = "left"
        first = "".join(
            f'<th style="text-align:{side}">{head}</th>' for head, side in sides.items()
        )
        return f"<table><tr>{first}</tr>{''.join(rows)}</table>"


def _near(entry: dict[str, Any]) -> str:
    """Return the training samples of an entry of :meth:`Explanation.to_list` as text."""
    return ", ".join(f"{each['example']} ({each['cosine']:.2f})" for each in entry["examples"])


def _coloured(name: str, value: float, scale: float) -> str:
    """Return HTML of a column and its contribution."""
    number = f'<span style="font-size:85%">{value:+.2f}</span>'
    look = f"{style(value, scale)};white-space:nowrap"
    return f'<span style="{look}">{html.escape(name)}&nbsp;{number}</span>'
