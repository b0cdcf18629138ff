"""Geometry of output layers: predictable label sets of a linear layer, and fixed layers.

With fewer features than labels a sigmoid layer cannot predict most combinations of labels, whatever
its input. :func:`verify_argmaxable` proves for given label sets whether a linear layer can predict
them, and :func:`certify_reachability` bounds the share of the label sets to come that it can.
:func:`fourier_matrix` computes a layer for all label sets up to a given size. For softmax
classifiers, :func:`simplex_etf` computes a fixed layer, and :func:`nearest_label_sets`,
:func:`divergence_label_sets` and :func:`seen_label_sets` turn logits or features into label sets.
All functions work on arrays, without torch. An argument of an invalid type, shape or value raises a
`TypeError` or `ValueError` that names the argument.
"""

from sklearn_xlc.geometry._argmaxability import (
    ArgmaxabilityReport,
    is_argmaxable,
    verify_argmaxable,
)
from sklearn_xlc.geometry._counting import count_argmaxable, count_sign_changes
from sklearn_xlc.geometry._fourier import (
    fourier_adjoint,
    fourier_forward,
    fourier_matrix,
    fourier_rows,
    fourier_witness,
    witness_margin,
)
from sklearn_xlc.geometry._label_set_fitting import fit_label_set_scales, fit_temperature
from sklearn_xlc.geometry._label_sets import (
    divergence_label_sets,
    greedy_label_sets,
    label_sets_to_csr,
    nearest_label_sets,
)
from sklearn_xlc.geometry._optimal_scales import optimal_label_set_scales
from sklearn_xlc.geometry._reachability import Reachability, certify_reachability
from sklearn_xlc.geometry._seen_label_sets import seen_label_sets
from sklearn_xlc.geometry._simplex_etf import coherence, simplex_etf, welch_bound
from sklearn_xlc.geometry._sizes import between_best, verify_at_cut, verify_by_size

__all__ = [
    "ArgmaxabilityReport",
    "Reachability",
    "certify_reachability",
    "coherence",
    "count_argmaxable",
    "count_sign_changes",
    "divergence_label_sets",
    "fit_label_set_scales",
    "fit_temperature",
    "fourier_adjoint",
    "fourier_forward",
    "fourier_matrix",
    "fourier_witness",
    "greedy_label_sets",
    "is_argmaxable",
    "label_sets_to_csr",
    "nearest_label_sets",
    "optimal_label_set_scales",
    "seen_label_sets",
    "simplex_etf",
    "verify_argmaxable",
    "welch_bound",
    "witness_margin",
]
