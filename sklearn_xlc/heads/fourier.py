"""Fourier output layer: every set of up to k labels can be predicted, for any number of labels."""

from __future__ import annotations

import numpy as np
import torch
from scipy.fft import next_fast_len
from torch import Tensor, nn

from sklearn_xlc._bounds import check_integer, check_option
from sklearn_xlc._compat import StrOptions
from sklearn_xlc.geometry import fourier_matrix, fourier_rows
from sklearn_xlc.heads._base import Head, HeadPart, Update, draw_rows, origins
from sklearn_xlc.heads._whole import ShardOf, whole
from sklearn_xlc.heads.chunked import CHUNK, ChunkedHead, slices
from sklearn_xlc.heads.losses import Loss

#: Up to this many labels one product with the whole matrix is the fastest way (benchmarks/
#: sweep_fourier.py); beyond, chunks of labels share one small basis.
MATRIX_LIMIT = 10_000
#: A fast transform beats products with 2 k + 1 columns for so many active labels, between so many
#: labels, if their number has small prime factors only: with a large one it is five times slower.
FFT_ACTIVE, FFT_LABELS = 64, (2_000, 200_000)
#: Rows whose logits must fit the memory limit, as a transform makes all labels at once.
FFT_ROWS = 256
#: Size of a Fourier column's entries as the optimiser sees them. Of columns of norm one they would
#: fall with the number of labels, and with them the effect of a step; 0.05 to 0.2 are equally good
#: on 1 000 to 17 000 labels, 0.7 is worse.
ENTRY = 0.1


class FourierHead(ChunkedHead):
    r"""Output layer of fixed Fourier columns and learnt slack columns.

    The logits are :math:`W p + S q`. W is :func:`~sklearn_xlc.geometry.fourier_matrix` for n labels
    with k active ones; it guarantees that every set of up to k labels can be predicted. S is a
    learnt matrix of shape (n, s). The coefficients p and q are linear in the features. W is never
    trained, and beyond 10 000 labels never stored [1]_.

    Parameters
    ----------
    n_features, n_labels, multilabel : int, int and bool
        As of :class:`Head`.
    max_active : int
        Largest number k of active labels in the guarantee; ``2 k + 1`` must not exceed n.
    n_slack : int, default=0
        Number s of learnt columns.
    memory_limit : int, default=2**30
        As of :class:`ChunkedHead`.
    method : {"auto", "matrix", "fft", "chunk"}, default="auto"
        Algorithm for the product with W; the result is the same. "matrix": store W. "fft": a fast
        Fourier transform. "chunk": chunks of labels; the coefficients are rotated by the phase of
        the chunk's first label and multiplied with one common basis. "auto": the fastest, "matrix"
        up to 10 000 labels and "chunk" beyond; but "fft" for 64 or more active labels, if the
        number of labels is between 2000 and 200 000 and has no prime factor above 11.
    loss : str or Loss, default="auto"
        As of :class:`ChunkedHead`.
    init : {"frequencies", "random"}, default="frequencies"
        As of :class:`Fourier`.
    precision : {"float32", "bfloat16"}, default="float32"
        Precision of the matrix products of gradients. Logits keep theirs: where most labels are
        rare they are about -9, and "bfloat16" has steps of 1/16 there. A Fourier transform has
        "float32" only.
    shard_of : callable, default=whole
        As of :class:`ChunkedHead`.

    Attributes
    ----------
    projection : Linear
        Layer that computes the coefficients of W, then of S.
    slack : Parameter of shape (n_labels, n_slack)
    gain : float
        Factor of the Fourier coefficients; 1 with ``init="random"``.

    Notes
    -----
    **Differences from the paper**

    - The start at the label frequencies, and the factor `gain`, without effect on what the layer
      can compute; ``init="random"`` has neither.
    - Products with W may also be made in chunks; [1]_ has a fast Fourier transform.

    References
    ----------
    .. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable
       Sparse Multi-Label Classification. AAAI 2024. Equation 8 and Section 5.1.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import FourierHead
    >>> head = FourierHead(n_features=4, n_labels=10, multilabel=True, max_active=2, n_slack=1)
    >>> head.scores(torch.zeros(3, 4)).shape
    torch.Size([3, 10])
    """

    leaves_out = True
    is_linear = True
    shards = True
    #: Number of labels at the first fit, whose grid later labels keep; None: no label has come.
    n_grid: int | None = None

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        max_active: int,
        n_slack: int = 0,
        memory_limit: int = 2**30,
        method: str = "auto",
        loss: str | Loss = "auto",
        init: str = "frequencies",
        precision: str = "float32",
        shard_of: ShardOf = whole,
    ) -> None:
        super().__init__(n_features, n_labels, multilabel, memory_limit, loss, shard_of)
        check_integer(n_slack, "n_slack", 0)
        if 2 * check_integer(max_active, "max_active", 0) + 1 > n_labels:
            raise ValueError(
                f"max_active={max_active} needs {2 * max_active + 1} Fourier columns, more than "
                f"n_labels={n_labels}; use a flat layer, which represents every label set"
            )
        if method == "auto":
            method = _fastest(n_labels, max_active, memory_limit)
        check_option(init, "init", "frequencies", "random")
        self.max_active, self.n_slack, self.method = max_active, n_slack, method
        self.low_precision = precision == "bfloat16" and method != "fft"
        self.init, self.width = init, 2 * max_active + 1
        self.gain = 1.0 if init == "random" else ENTRY * n_labels**0.5
        self.projection = nn.Linear(n_features, self.width + n_slack)
        self.slack = nn.Parameter(torch.zeros(n_labels, n_slack))
        self._start_slack()
        # After all of it was drawn: these are few numbers a label.
        for table in self.fused_parameters():
            table.data = table.data[self.all_held()].clone()

    @torch.no_grad()
    def _start_slack(self) -> None:
        """Draw slack columns in pairs with a sum of zero; they learn like random columns."""
        weight, bias = self.projection.weight, self.projection.bias
        if self.init == "random":
            bound = max(1, self.n_slack) ** -0.5  # as nn.Linear has it
            self.slack.uniform_(-bound, bound)
            bias.zero_()
            return
        # Coefficients of W, and of the first slack column, start at their biases. That column, with
        # the coefficient one, is a bias for every label.
        weight[: self.width + 1] = 0.0
        bias[: self.width] = 0.0
        bias[self.width : self.width + 1] = 1.0
        half = max(0, (self.n_slack - 1) // 2)
        own, twin = slice(1, 1 + half), slice(1 + half, 1 + 2 * half)
        self.slack[:, own].normal_(std=0.7 * max(1, self.n_slack) ** -0.5)
        self.slack[:, twin].copy_(self.slack[:, own]).mul_(-1)
        for part in (weight[self.width :], bias[self.width :]):
            part[twin] = part[own]

    def fused_parameters(self) -> list[nn.Parameter]:
        return [self.slack] if self.n_slack else []

    def bias_columns(self) -> list[tuple[nn.Parameter, int, int]]:
        has_biases = self.n_slack > 1 and self.init == "frequencies"
        return [(self.slack, self.n_slack, 0)] if has_biases else []

    def set_prior(self, frequency: Tensor) -> None:
        """Start at the mean number of labels per sample; with slack, at each label's frequency."""
        if self.init == "random":
            share = torch.full_like(frequency[:1], self.max_active / self.n_labels)
            with torch.no_grad():  # Section 5.1: sqrt(n) logit(k / n)
                self.projection.bias[0] = self.n_labels**0.5 * self.criterion.prior(share)[0]
            return
        target = self.criterion.prior(frequency)
        constant = target.mean()
        if not self.n_slack and not self.criterion.needs_normaliser:
            constant = torch.logit((frequency.sum() / self.n_labels).clamp(1e-7, 1 - 1e-3))
        with torch.no_grad():
            # The first column of W is constant, 1 / sqrt(n).
            self.projection.bias[0] = self.n_labels**0.5 * constant / self.gain
            if self.n_slack:
                self.slack[:, 0] = (target - constant)[self.all_held()]

    def room_for(self, n_labels: int) -> list[tuple[Tensor, Tensor]]:
        n_more = n_labels - self.n_labels
        return [(self.slack, origins(self.n_labels, n_more, self.slack.device))]

    def set_n_labels(self, n_labels: int) -> None:
        self.n_grid = self._n_grid
        super().set_n_labels(n_labels)

    @property
    def _n_grid(self) -> int:
        """Number of labels of the first fit, the Fourier grid; later labels lie between them."""
        return self.n_grid or self.n_labels

    @torch.no_grad()
    def start_labels(self, positions: Tensor, frequency: Tensor) -> None:
        if not self.n_slack:
            return
        draw_rows(self.slack, positions, 0.7 * self.n_slack**-0.5)
        if self.init == "frequencies":  # the first column is a bias beside the constant one
            constant = self.projection.bias[0] * self.gain / self._n_grid**0.5
            target = self.criterion.prior(frequency)[positions].to(constant)
            self.slack[positions] = 0.0
            self.slack[positions, 0] = target - constant

    def inputs(self, features: Tensor) -> Tensor:
        """Compute the coefficients of the columns of :meth:`output_weights`."""
        gains = np.ones(self.width + self.n_slack)
        gains[: self.width] = self.gain
        coefficients = self.projection(features)
        return coefficients * self._table("gains", coefficients, lambda: gains)

    def classifier(self, like: Tensor, chunk: slice = slice(None)) -> Tensor:
        """Return the weights of the labels, of shape (chunk, width + n_slack)."""
        return torch.as_tensor(self.output_weights(chunk)).to(like)

    def chunk_size(self) -> int:
        by_chunk = self.method == "chunk"
        return self._on_device(CHUNK) if by_chunk else self.shard.n_held(self._n_grid)

    def chunks(self, n: int = 1) -> list[slice]:
        """Return slices of labels, in order; labels added later have separate slices."""
        start, stop, _ = self.all_held().indices(self.n_labels)
        grid = min(max(start, self._n_grid), stop)
        return slices(start, grid, self.chunk_size()) + slices(grid, stop, self._on_device(CHUNK))

    def _for_graph(self, k: int) -> Head:
        head = super()._for_graph(k)
        vars(head)["method"] = "matrix"
        return head

    def logits(self, inputs: Tensor, chunk: slice) -> Tensor:
        coefficients = inputs[:, : self.width]
        if chunk.start >= self._n_grid:
            logits = coefficients @ self._between(inputs, chunk).T
        elif self.method == "fft":
            logits = _inverse_transform(coefficients, self._n_grid)[:, chunk]
        else:
            if chunk.start:
                coefficients = _turn(coefficients, *self._phase(chunk.start, inputs))
            logits = coefficients @ self._basis(inputs)[: chunk.stop - chunk.start].T
        if self.n_slack:
            logits = logits.addmm_(inputs[:, self.width :], self.slack[self.held(chunk)].T)
        return logits

    def backward(
        self, inputs: Tensor, chunk: slice, gradient: Tensor, into: Tensor, update: Update
    ) -> None:
        if self.low_precision:
            gradient = gradient.bfloat16()
        if chunk.start >= self._n_grid:
            coefficients = (gradient @ self._between(gradient, chunk)).to(into.dtype)
        elif self.method == "fft":
            others = chunk.start, self._n_grid - chunk.stop
            padded = nn.functional.pad(gradient, others) if any(others) else gradient
            coefficients = _transform(padded, self.max_active)
        else:
            basis = self._basis(gradient)[: chunk.stop - chunk.start]
            coefficients = (gradient @ basis).to(into.dtype)
            if chunk.start:
                cosines, sines = self._phase(chunk.start, inputs)
                coefficients = _turn(coefficients, cosines, -sines)
        into[:, : self.width] += coefficients
        if self.n_slack:
            held = self.held(chunk)
            into[:, self.width :] += gradient @ self.slack[held].to(gradient.dtype)
            to_slack = gradient.T @ inputs[:, self.width :].to(gradient.dtype)
            update(self.slack, held, to_slack.to(into.dtype))

    def output_weights(self, chunk: slice = slice(None)) -> np.ndarray:
        """Return Fourier and slack columns, (chunk, 2 * max_active + 1 + n_slack)."""
        slack = self.slack.detach()[self.held(chunk)].cpu().numpy()
        rows = fourier_matrix(self._n_grid, self.max_active)
        return np.hstack([np.vstack([rows, self._rows_between()])[chunk], slack])

    def _basis(self, like: Tensor) -> Tensor:
        """Return the first rows of W, one for each label of a chunk."""
        size = min(self.chunk_size(), self._n_grid)
        return self._table(
            "basis", like, lambda: fourier_matrix(self._n_grid, self.max_active, stop=size)
        )

    def _between(self, like: Tensor, chunk: slice) -> Tensor:
        """Return the rows of W of a chunk of labels added later."""
        rows = self._table("between", like, self._rows_between)
        return rows[chunk.start - self._n_grid : chunk.stop - self._n_grid]

    def _rows_between(self) -> np.ndarray:
        """Compute the rows of labels added later: Eq. 8 of the paper at intermediate angles.

        The guarantee holds for any distinct angles: the function can change its sign 2 k times.
        """
        n, later = self._n_grid, np.arange(self.n_labels - self._n_grid)
        # Halves of the gaps, then quarters, and so on: bits of the round in reverse order.
        rounds = range(1, 2 + int(later.max(initial=0)) // n)
        parts = np.array([int(f"{r:b}"[::-1], 2) / 2 ** r.bit_length() for r in rounds])
        return fourier_rows(n, self.max_active, later % n + parts[later // n])

    def _phase(self, shift: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of each frequency's rotation over `shift` labels."""

        def make() -> np.ndarray:
            # f * shift modulo n is exact in integers, so that high frequencies lose no digits.
            turns = np.arange(1, self.max_active + 1) * shift % self._n_grid
            angles = 2 * np.pi / self._n_grid * turns
            return np.stack([np.cos(angles), np.sin(angles)])

        cosines, sines = self._table(shift, like, make)
        return cosines, sines


def _turn(coefficients: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate Fourier coefficients, to start at a later label."""
    turned = coefficients.clone()
    even, odd = coefficients[:, 1::2], coefficients[:, 2::2]
    turned[:, 1::2] = even * cosines + odd * sines
    turned[:, 2::2] = odd * cosines - even * sines
    return turned


def _fastest(n_labels: int, max_active: int, memory_limit: int) -> str:
    """Return the fastest algorithm for the product with W, by benchmarks/sweep_fourier.py."""
    fits = 8 * FFT_ROWS * n_labels <= memory_limit
    smooth = next_fast_len(n_labels) == n_labels
    if max_active >= FFT_ACTIVE and FFT_LABELS[0] <= n_labels <= FFT_LABELS[1] and smooth and fits:
        return "fft"
    return "matrix" if n_labels <= MATRIX_LIMIT else "chunk"


def _inverse_transform(coefficients: Tensor, n_labels: int) -> Tensor:
    """Multiply with W by an inverse real Fourier transform."""
    spectrum = torch.complex(coefficients[:, 1::2], -coefficients[:, 2::2]) / 2**0.5
    constant = torch.complex(coefficients[:, :1], torch.zeros_like(coefficients[:, :1]))
    return torch.fft.irfft(torch.cat([constant, spectrum], dim=1), n=n_labels, norm="ortho")


def _transform(gradient: Tensor, max_active: int) -> Tensor:
    """Multiply with the transpose of W by a real Fourier transform."""
    spectrum = torch.fft.rfft(gradient, norm="ortho")[:, : max_active + 1]
    pairs = torch.stack([spectrum.real, -spectrum.imag], dim=2)[:, 1:] * 2**0.5
    return torch.cat([spectrum.real[:, :1], pairs.flatten(1)], dim=1)


class Fourier(HeadPart):
    """Fixed Fourier columns and learnt slack columns.

    :class:`~sklearn_xlc.DFTSigmoidClassifier` has the numbers of columns, `max_active` and
    `n_slack`.

    Parameters
    ----------
    init : {"frequencies", "random"}, default="frequencies"
        Start of the layer. "frequencies": the first logits are those of the label frequencies, and
        the slack columns start in pairs that cancel. "random" is the start of [1]_: random slack
        columns, and the probability ``max_active_ / n_labels`` for all labels, by the constant
        Fourier column. Its validation loss falls more slowly.

    References
    ----------
    .. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable
       Sparse Multi-Label Classification. AAAI 2024.

    Examples
    --------
    >>> from sklearn_xlc import DFTSigmoidClassifier
    >>> DFTSigmoidClassifier().set_params(output__init="random").output
    Fourier(init='random')
    """

    head = FourierHead

    _parameter_constraints = {"init": [StrOptions({"frequencies", "random"})]}

    def __init__(self, init: str = "frequencies") -> None:
        self.init = init
