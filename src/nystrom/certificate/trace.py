"""The trace-norm error: exact, and free with the fit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nystrom.certificate.estimate import ErrorEstimate, ratio_of
from nystrom.engine.base import Engine, Sums
from nystrom.factor import NystromMap
from nystrom.rows.base import Block, RowBlocks
from nystrom.rows.finite import require_finite


@dataclass(frozen=True)
class Certificate:
    """The exact trace-norm error of a fit, as the pass that made it leaves it, and a look at some of the rows.

    Attributes
    ----------
    trace_norm : float
        ``‖K − L Lᵀ‖_*``, which also bounds the Frobenius and the spectral error.
    kernel_trace : float
        ``‖K‖_* = Σ k(x, x)``.
    n_rows : int
        Rows of the fit.
    landmark_norm : float
        What the landmarks leave in trace norm with every direction that they span; the rest of ``trace_norm`` is the
        rank's fault.
    n_looked, n_lost : int
        Rows drawn after the fit and looked at, and those of them of which the landmarks explain less than a tenth. None
        are drawn from a source that can only be read from its beginning, or on a cluster.
    n_apart, n_apart_lost : int
        Rows that resembled no landmark in the pass over all of them, such as outliers and rare clusters, and those of
        them of which the landmarks explain less than a tenth. Counted for ``landmarks="auto"`` and k(x, x) = 1.
    n_cut : int
        About how many rows, or more, the landmarks explain and the cut of the rank loses; ``unexplained_rows(X)``
        counts them.
    stages : tuple of (str, float)
        The pieces of the fit and their seconds.
    each_row : bool
        Whether ``k(x, x) − ‖φ(x)‖² ≥ 0`` was checked for each row of the fit. If not, the kernel is positive
        semidefinite by theorem, and the sum over all rows was checked.
    """

    trace_norm: float
    kernel_trace: float
    n_rows: int
    landmark_norm: float = 0.0
    n_looked: int = field(default=0, compare=False)
    n_lost: int = field(default=0, compare=False)
    n_apart: int = field(default=0, compare=False)
    n_apart_lost: int = field(default=0, compare=False)
    n_cut: int = field(default=0, compare=False)
    stages: tuple[tuple[str, float], ...] = field(default=(), compare=False)
    each_row: bool = field(default=False, compare=False)

    @property
    def trace(self) -> ErrorEstimate:
        """The relative error in trace norm."""
        value = ratio_of(self.trace_norm, self.kernel_trace)
        return ErrorEstimate(value, value, value, "trace")

    @property
    def unexplained(self) -> float:
        """The share of the kernel that the landmarks leave, whatever the rank."""
        return ratio_of(self.landmark_norm, self.kernel_trace)

    @property
    def rare(self) -> list[str]:
        """What became of the rows that stand apart, and of those that the rank leaves out, in a few words each."""
        words = []
        if self.n_apart:
            words.append(f"{self.n_apart_lost:,} of {self.n_apart:,} rows that stood apart are lost")
        if self.n_cut:
            words.append(f"about {self.n_cut:,} rows or more are lost by the cut of the rank")
        return words

    def __str__(self) -> str:
        lines = [f"error {self.trace} on {self.n_rows:,} rows"]
        if self.trace_norm > self.landmark_norm > 0:
            lines.append(f"of it {self.unexplained:.4g} left by the landmarks, the rest by the rank")
        how = "for each row" if self.each_row else "in the sum of all rows, for a kernel that is so by theorem"
        lines.append(f"k(x, x) − ‖φ(x)‖² ≥ 0 was checked {how}")
        if self.n_looked:
            lines.append(f"{self.n_lost:,} of {self.n_looked:,} rows looked at are not explained (less than a tenth)")
        lines += self.rare
        if self.stages:
            lines.append("seconds: " + ", ".join(f"{name} {seconds:.2g}" for name, seconds in self.stages))
        return "\n".join(lines)


def certify(fitted: NystromMap) -> Certificate:
    """Return the certificate of a fitted map. Costs nothing: the fold has summed the diagonal of K."""
    trace = fitted.statistics.trace
    # Rounding can leave the difference a hair below zero when nothing is left over.
    left = max(trace - float(fitted.eigenvalues.sum()), 0.0)
    spanned = fitted.statistics.spanned
    unexplained = min(max(trace - spanned, 0.0), left)
    s = fitted.statistics
    return Certificate(left, trace, s.count, unexplained, each_row=s.n_checked == s.count)


def trace_error(rows: RowBlocks, fitted: NystromMap, engine: Engine) -> ErrorEstimate:
    """Return the exact relative trace-norm error on any rows: one pass."""
    name = rows.name

    def step(block: Block) -> Sums:
        require_finite(block.X, name, block.start)
        diagonal = fitted.kernel.diag(block.X, start=block.start)
        return Sums(float(np.sum(diagonal)), float(fitted.residual(block.X, start=block.start).sum()))

    total, left = engine.fold(rows, step, label="trace error")
    return ErrorEstimate.exact(ratio_of(left, total), "trace", rows.dtype)
