"""Geometry of output layers: which label sets a linear layer can predict, and a layer that can.

With fewer features than labels a sigmoid layer cannot predict most combinations of labels, whatever
its input. :func:`verify_argmaxable` proves it for the label sets of one's own data and any linear
layer, and :func:`fourier_matrix` is a layer for which it does not happen up to a given number of
active labels. Arrays go in, arrays come out; torch is not needed.
"""

from sklearn_xlc.geometry._argmaxability import is_argmaxable, verify_argmaxable
from sklearn_xlc.geometry._counting import count_argmaxable, count_sign_changes
from sklearn_xlc.geometry._fourier import (
    fourier_adjoint,
    fourier_forward,
    fourier_matrix,
    fourier_witness,
    witness_margin,
)
from sklearn_xlc.geometry._report import ArgmaxabilityReport

__all__ = [
    "ArgmaxabilityReport",
    "count_argmaxable",
    "count_sign_changes",
    "fourier_adjoint",
    "fourier_forward",
    "fourier_matrix",
    "fourier_witness",
    "is_argmaxable",
    "verify_argmaxable",
    "witness_margin",
]
