"""Report of a verification, with one answer per label set."""

import html
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sklearn_xlc._csr import BoolArray, FloatArray, IntArray

STATUS_NAMES = {1: "argmaxable", 0: "not argmaxable", -1: "unknown"}


@dataclass(frozen=True, repr=False, eq=False)
class ArgmaxabilityReport:
    """Answers of :func:`verify_argmaxable`, one per label set.

    Attributes
    ----------
    status : ndarray of shape (n_sets,), int8
        1: argmaxable, 0: not argmaxable, -1: unknown.
    radius : ndarray of shape (n_sets,), float64
        Distance of the witness from the nearest label boundary. For the reason "linear program" it
        is mostly within a tenth of the largest distance inside the box. For other reasons it may be
        smaller by many decades, unless the call had ``search_radius=True``. Without biases it is
        proportional to the `box` of the call. With biases the first witness found may be outside of
        the box; with ``search_radius=True`` only if there is none inside. 0 if not argmaxable, NaN
        if unknown.
    witness : ndarray of shape (n_sets, n_features), float64
        Features for which the layer predicts exactly the set; NaN if there are none.
    reason : ndarray of shape (n_sets,), str
        Method that found the answer.

        - Argmaxable: "point", "closed form", "perceptron" or "linear program"; "sign changes" if
          the theorem on Fourier columns applies and no float is a witness. The radius is then that
          of the closed form in exact arithmetic.
        - Not argmaxable: "constant label", "parallel labels" or "certificate".
        - Unknown: "time limit" or "unresolved".
    conflicts : list of ndarray or None
        For sets that are not argmaxable, the labels that contradict each other: no features give
        all of them the wanted signs. None for all other sets.
    n_active : ndarray of shape (n_sets,), int64
        Number of active labels.
    n_labels : int
        Number of labels.
    min_radius : float
        Radius below which argmaxable sets count as narrow.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import verify_argmaxable
    >>> report = verify_argmaxable(np.array([[1.0], [2.0]]), [[1, 1], [1, 0], [0, 0]])
    >>> report
    ArgmaxabilityReport(n_sets=3, argmaxable=2 (narrow: 0), not argmaxable=1, unknown=0)
    >>> report.n_argmaxable, report.n_unargmaxable, report.n_unknown
    (2, 1, 0)
    """

    status: npt.NDArray[np.int8]
    radius: FloatArray
    witness: FloatArray
    reason: npt.NDArray[np.str_]
    conflicts: list[IntArray | None]
    n_active: IntArray
    n_labels: int
    min_radius: float

    def __len__(self) -> int:
        return len(self.status)

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return len(self.status)

    @property
    def n_argmaxable(self) -> int:
        """Number of label sets with a proven witness."""
        return int(np.sum(self.status == 1))

    @property
    def n_unargmaxable(self) -> int:
        """Number of label sets with a proven contradiction."""
        return int(np.sum(self.status == 0))

    @property
    def n_unknown(self) -> int:
        """Number of label sets with neither a proven witness nor a proven contradiction."""
        return int(np.sum(self.status == -1))

    @property
    def narrow(self) -> BoolArray:
        """Mask of the argmaxable sets whose radius is below `min_radius`."""
        return (self.status == 1) & (self.radius < self.min_radius)

    def to_frame(self) -> Any:
        """Return a table with one row per label set; needs pandas.

        Returns
        -------
        pandas.DataFrame
            Columns status (as words), reason, radius, narrow, n_active and conflict.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas") from error
        return pd.DataFrame(
            {
                "status": [STATUS_NAMES[int(status)] for status in self.status],
                "reason": self.reason,
                "radius": self.radius,
                "narrow": self.narrow,
                "n_active": self.n_active,
                "conflict": self.conflicts,
            }
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_sets={self.n_sets}, argmaxable={self.n_argmaxable} "
            f"(narrow: {int(self.narrow.sum())}), not argmaxable={self.n_unargmaxable}, "
            f"unknown={self.n_unknown})"
        )

    def _repr_html_(self) -> str:
        """HTML table of the numbers of label sets by answer and reason."""
        lines = []
        for status, name in STATUS_NAMES.items():
            chosen = self.status == status
            for reason in np.unique(self.reason[chosen]):
                mask = chosen & (self.reason == reason)
                cells = (name, str(reason), f"{mask.sum()}", f"{self.n_active[mask].mean():.1f}")
                lines.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
        head = "".join(
            f"<th>{title}</th>" for title in ("answer", "reason", "sets", "mean active labels")
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return (
            f"<table><caption>{self.n_sets} label sets of {self.n_labels} labels</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )
