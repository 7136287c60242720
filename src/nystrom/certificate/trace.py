"""The trace-norm error: exact, and free with the fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nystrom.certificate.estimate import ErrorEstimate, ratio_of
from nystrom.engine.base import Engine, Sums
from nystrom.factor import NystromMap
from nystrom.rows.base import Block, RowBlocks, require_finite


@dataclass(frozen=True)
class Certificate:
    """The exact trace-norm error of a fit, as the pass that made it leaves it.

    Attributes
    ----------
    trace_norm : float
        ``‖K − L Lᵀ‖_*``, which also bounds the Frobenius and the spectral error.
    kernel_trace : float
        ``‖K‖_* = Σ k(x, x)``.
    n_rows : int
        Rows of the fit.
    """

    trace_norm: float
    kernel_trace: float
    n_rows: int

    @property
    def trace(self) -> ErrorEstimate:
        """The relative error in trace norm."""
        value = ratio_of(self.trace_norm, self.kernel_trace)
        return ErrorEstimate(value, value, value, "trace")


def certify(fitted: NystromMap) -> Certificate:
    """Return the certificate of a fitted map. Costs nothing: the fold has summed the diagonal of K."""
    trace = fitted.statistics.trace
    # Rounding can leave the difference a hair below zero when nothing is left over.
    return Certificate(max(trace - float(fitted.eigenvalues.sum()), 0.0), trace, fitted.statistics.count)


def trace_error(rows: RowBlocks, fitted: NystromMap, engine: Engine) -> ErrorEstimate:
    """Return the exact relative trace-norm error on any rows: one pass."""
    name = rows.name

    def step(block: Block) -> Sums:
        require_finite(block.X, name, block.start)
        diagonal = fitted.kernel.diag(block.X, start=block.start)
        return Sums(float(np.sum(diagonal)), float(fitted.residual(block.X, start=block.start).sum()))

    total, left = engine.fold(rows, step, label="trace error")
    return ErrorEstimate.exact(ratio_of(left, total), "trace", rows.dtype)
