"""The trace-norm error: exact, and free with the fit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nystrom.engine.base import Engine, Sums
from nystrom.nystroem.factor import NystromMap
from nystrom.rows.base import Block, RowBlocks, require_finite

NORMS = ("fro", "trace", "spectral")
# A relative error below this is rounding: ten times the dtype's eps, as a round number.
_RESOLUTION = {"float32": 1e-6, "float64": 1e-14}


def resolution(dtype: np.dtype) -> float:
    """Return the least relative error that features of this dtype can tell from none."""
    return _RESOLUTION[np.dtype(dtype).name]


@dataclass(frozen=True)
class ErrorEstimate:
    """A relative error ``‖K − L Lᵀ‖ / ‖K‖`` with the interval that holds it.

    Attributes
    ----------
    value, low, high : float
        The estimate and its interval; all equal where the error is exact.
    norm : str
        "trace", "fro" or "spectral".
    confidence : float
        Probability that the interval holds the error; 1 where it is exact or bounded.
    dtype : str
        The rows' dtype, where the error is below what it resolves; else empty. Then ``low`` is 0 and ``high`` is at
        least the least error that the dtype can tell from none.

    Examples
    --------
    >>> print(ErrorEstimate(0.1, 0.09, 0.11, "fro", 0.95))
    0.1 in [0.09, 0.11] (fro, 95%)
    """

    value: float
    low: float
    high: float
    norm: str
    confidence: float = 1.0
    dtype: str = ""

    @classmethod
    def exact(cls, value: float, norm: str, dtype: np.dtype) -> ErrorEstimate:
        """Return an error that is known, or "below what the dtype resolves"."""
        return cls(value, value, value, norm).resolved(dtype)

    def resolved(self, dtype: np.dtype) -> ErrorEstimate:
        """Return the estimate, or one that says that the error is below what ``dtype`` resolves."""
        least = resolution(dtype)
        if self.value >= least:
            return self
        return ErrorEstimate(self.value, 0.0, max(self.high, least), self.norm, self.confidence, np.dtype(dtype).name)

    def __str__(self) -> str:
        if self.dtype:
            return f"below {self.high:.0e} ({self.norm}, {self.dtype})".replace("e-0", "e-")
        if self.low == self.high:
            return f"{self.value:.4g} ({self.norm}, exact)"
        kind = "bounds" if self.confidence == 1 else f"{100 * self.confidence:.4g}%"
        return f"{self.value:.4g} in [{self.low:.4g}, {self.high:.4g}] ({self.norm}, {kind})"


def check_norm(norm: object) -> str:
    """Return the name of a norm, or raise."""
    if not isinstance(norm, str) or norm not in NORMS:
        raise ValueError(f"norm must be one of {NORMS}; got {norm!r}.")
    return norm


def check_confidence(confidence: object) -> float:
    """Return a probability strictly between 0 and 1, or raise."""
    number = isinstance(confidence, (int, float, np.floating)) and not isinstance(confidence, bool)
    if not number or not 0 < confidence < 1:  # type: ignore[operator]
        raise ValueError(
            f"confidence must be a number between 0 and 1, neither included, such as 0.95; got {confidence!r}."
        )
    return float(confidence)  # type: ignore[arg-type]


def ratio_of(part: float, whole: float) -> float:
    """Return ``part / whole``, and 0 for a kernel that is zero everywhere."""
    return part / whole if whole > 0 else 0.0


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
