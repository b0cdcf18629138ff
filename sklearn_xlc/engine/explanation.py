"""Contributions of columns to the scores of labels, as arrays, a frame and a coloured table."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

import numpy as np


class Explanation(tuple[np.ndarray, np.ndarray, np.ndarray]):
    """Contributions of columns to the scores of labels: ``(labels, columns, contributions)``.

    The score of a label is ``baselines + contributions.sum(2) + others``, up to `errors`.

    Attributes
    ----------
    labels : ndarray of shape (n_samples, k)
        Labels, best first.
    columns : ndarray of shape (n_samples, k, n_columns)
        Names of the columns, or words, with the largest contributions to the score of each label:
        first those that raise it, largest first, then those that lower it. Empty where a sample
        has fewer.
    contributions : ndarray of shape (n_samples, k, n_columns)
        By how much each column raises the score; negative: lowers it.
    scores : ndarray of shape (n_samples, k)
        Scores of the labels, as of ``predict_topk``.
    baselines : ndarray of shape (n_samples, k)
        Scores of the labels for an empty sample, all of whose columns are zero.
    others : ndarray of shape (n_samples, k)
        Sum of the contributions of all other columns.
    errors : ndarray of shape (n_samples, k)
        What the contributions miss of ``scores - baselines``, because integrals are computed in
        `n_steps` steps.
    """

    #: Samples that a notebook or a terminal shows.
    N_SHOWN = 10

    def __new__(
        cls,
        labels: np.ndarray,
        columns: np.ndarray,
        contributions: np.ndarray,
        scores: np.ndarray,
        baselines: np.ndarray,
        others: np.ndarray,
    ) -> Explanation:
        """Make the triple, with what else is known of the labels."""
        made = super().__new__(cls, (labels, columns, contributions))
        made.scores, made.baselines, made.others = scores, baselines, others
        return made

    scores: np.ndarray
    baselines: np.ndarray
    others: np.ndarray

    def __getnewargs__(self) -> tuple[np.ndarray, ...]:
        return (*self, self.scores, self.baselines, self.others)

    @property
    def labels(self) -> np.ndarray:
        """Labels, best first."""
        return self[0]

    @property
    def columns(self) -> np.ndarray:
        """Names of the columns with the largest contributions."""
        return self[1]

    @property
    def contributions(self) -> np.ndarray:
        """Contributions of the columns to the scores."""
        return self[2]

    @property
    def errors(self) -> np.ndarray:
        """What the contributions miss of the difference between scores and baselines."""
        return self.scores - self.baselines - self.contributions.sum(axis=2) - self.others

    def to_frame(self) -> Any:
        """Make a pandas frame: a row for each column of each label of each sample.

        Returns
        -------
        pandas.DataFrame
            Columns "sample" (row of X), "rank" (from 1 on), "label", "score", "baseline", "column"
            and "contribution".

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        import pandas as pd

        samples, ranks, _ = at = np.nonzero(self.contributions)
        return pd.DataFrame(
            {
                "sample": samples,
                "rank": ranks + 1,
                "label": self.labels[samples, ranks],
                "score": self.scores[samples, ranks],
                "baseline": self.baselines[samples, ranks],
                "column": self.columns[at],
                "contribution": self.contributions[at],
            }
        )

    def _parts(self, sample: int, rank: int) -> Iterator[tuple[str, float]]:
        for name, value in zip(self.columns[sample, rank], self.contributions[sample, rank]):
            if value:
                yield str(name), float(value)

    def __repr__(self) -> str:
        lines = ["Explanation of samples"]
        for sample, labels in enumerate(self.labels[: self.N_SHOWN]):
            for rank, label in enumerate(labels):
                parts = [f"{name} {value:+.3g}" for name, value in self._parts(sample, rank)]
                lines.append(
                    f"{sample}: {label} {self.scores[sample, rank]:.3g}: {', '.join(parts)}"
                )
        return "\n".join([*lines, *self._more()])

    def _more(self) -> list[str]:
        n_more = len(self.labels) - self.N_SHOWN
        return [f"...: {n_more} more samples"] if n_more > 0 else []

    def _repr_html_(self) -> str:
        rows = []
        for sample, labels in enumerate(self.labels[: self.N_SHOWN]):
            # One scale for all labels of a sample, so that colours compare.
            scale = float(np.abs(self.contributions[sample]).max(initial=0.0)) or 1.0
            for rank, label in enumerate(labels):
                of_sample = f'<th rowspan="{len(labels)}">{sample}</th>' if rank == 0 else ""
                words = " ".join(
                    _coloured(name, value, scale) for name, value in self._parts(sample, rank)
                )
                numbers = (
                    self.scores[sample, rank],
                    self.baselines[sample, rank],
                    self.others[sample, rank],
                )
                score, baseline, others = (
                    f"<td>{round(float(value), 2) + 0.0:.2f}</td>" for value in numbers
                )
                named = f'<td style="text-align:left"><b>{html.escape(str(label))}</b></td>'
                words = f'<td style="text-align:left;line-height:1.9;min-width:16em">{words}</td>'
                rows.append(f"<tr>{of_sample}{named}{score}{baseline}{words}{others}</tr>")
        rows += [f'<tr><td colspan="6">{line}</td></tr>' for line in self._more()]
        heads = ("sample", "label", "score", "baseline", "contributions", "others")
        sides = ("right", "left", "right", "right", "left", "right")
        first = "".join(
            f'<th style="text-align:{side}">{head}</th>' for side, head in zip(sides, heads)
        )
        return f"<table><tr>{first}</tr>{''.join(rows)}</table>"


def _coloured(name: str, value: float, scale: float) -> str:
    """A word on blue where it raises a score, on orange where it lowers it; with its number."""
    colour = "0,114,178" if value > 0 else "230,120,0"
    style = (
        f"background:rgba({colour},{0.08 + 0.47 * abs(value) / scale:.2f});"
        "border-radius:3px;padding:1px 4px;white-space:nowrap"
    )
    number = f'<span style="font-size:85%">{value:+.2f}</span>'
    return f'<span style="{style}">{html.escape(name)}&nbsp;{number}</span>'
