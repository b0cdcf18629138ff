"""Isotonic regression of scores over a partial order of labels."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_flow

from sklearn_xlc._csr import IntArray

#: Largest sum of whole capacities of connected nodes; SciPy's flows are 32-bit integers.
_LARGEST = 2**29


def isotonic_over(values: np.ndarray, below: IntArray, above: IntArray) -> np.ndarray:
    r"""Find the nearest values (n_nodes,), non-decreasing from a node to a node above it.

    The result q minimises :math:`\sum_i (q_i - v_i)^2` subject to ``q[below] <= q[above]``,
    exactly, for edges without cycles. For every number c, the set of nodes with q > c has the
    largest sum of v - c among all sets that hold with each node all nodes above it (the smallest of
    such sets) [1]_. The algorithm uses this property: it splits connected nodes where v less their
    mean has its largest closed sum, found by a minimum cut [2]_, until no split gains anything; the
    value of nodes that are left together is their mean [3]_.

    References
    ----------
    .. [1] R. E. Barlow, H. D. Brunk, "The Isotonic Regression Problem and Its Dual". Journal of the
       American Statistical Association 67, 1972.
    .. [2] J.-C. Picard, "Maximal Closure of a Graph and Applications to Combinatorial Problems".
       Management Science 22, 1976.
    .. [3] J. Spouge, H. Wan, W. J. Wilbur, "Least Squares Isotonic Regression in Two Dimensions".
       Journal of Optimization Theory and Applications 117, 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.decisions._isotonic import isotonic_over
    >>> isotonic_over(np.array([0.2, 0.6, 0.1]), np.array([1, 2]), np.array([0, 0]))
    array([0.4, 0.4, 0.1])
    """
    fitted = values.astype(np.float64)
    low, high = np.full(len(values), -np.inf), np.full(len(values), np.inf)
    nodes = np.arange(len(values))
    while len(nodes):
        edges = (np.ones(len(below)), (below, above))
        graph = sp.csr_array(edges, shape=(len(nodes), len(nodes)))
        group = connected_components(graph, directed=False)[1]
        sizes = np.bincount(group)
        means = np.bincount(group, values[nodes]) / sizes
        gains = values[nodes] - means[group]
        upper = _largest_closed_sets(gains, group, below, above)
        # Capacities are rounded: a split may gain nothing.
        n_upper = np.bincount(group, upper)
        pays = (np.bincount(group, gains * upper) > 0) & (n_upper < sizes)
        goes_on = pays[group]
        middle = np.clip(means[group], low[nodes], high[nodes])
        fitted[nodes[~goes_on]] = middle[~goes_on]
        low[nodes] = np.where(upper, middle, low[nodes])
        high[nodes] = np.where(upper, high[nodes], middle)
        kept = goes_on[below] & (upper[below] == upper[above])
        number = np.cumsum(goes_on) - 1
        below, above = number[below[kept]], number[above[kept]]
        nodes = nodes[goes_on]
    return fitted


def _largest_closed_sets(
    gains: np.ndarray, group: IntArray, below: IntArray, above: IntArray
) -> np.ndarray:
    """Return the mask of the closed sets with the largest sum of gains, one set a group."""
    n_nodes = len(gains)
    source, sink = n_nodes, n_nodes + 1
    totals = np.bincount(group, np.abs(gains))
    scale = np.divide(_LARGEST, totals, out=np.zeros(len(totals)), where=totals > 1e-290)
    whole = np.rint(gains * scale[group]).astype(np.int32)
    wins, loses = np.flatnonzero(whole > 0), np.flatnonzero(whole < 0)
    rows = np.r_[np.full(len(wins), source), loses, below]
    columns = np.r_[wins, np.full(len(loses), sink), above]
    unlimited = np.full(len(below), 2 * _LARGEST, dtype=np.int32)
    capacities = np.r_[whole[wins], -whole[loses], unlimited]
    graph = sp.csr_matrix((capacities, (rows, columns)), shape=(n_nodes + 2, n_nodes + 2))
    rest = sp.csr_matrix(graph - maximum_flow(graph, source, sink).flow)
    rest.eliminate_zeros()
    reached = np.zeros(n_nodes + 2, dtype=bool)
    reached[breadth_first_order(rest, source, return_predecessors=False)] = True
    return reached[:n_nodes]
