"""The trace-norm error, exact and free with the fit; warnings if a fit explains too little."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from nystrom.engine.base import Engine, Sums
from nystrom.engine.passes import Passes
from nystrom.exceptions import ApproximationWarning, warn_caller
from nystrom.kernels.base import kernel_dtype
from nystrom.nystroem.factor import NystromMap, landmark_kernel
from nystrom.rows.base import Block, RowBlocks, require_finite
from nystrom.types import Array

NORMS = ("fro", "trace", "spectral")
# A relative error below this is rounding: about ten times the dtype's eps.
_RESOLUTION = {"float32": 1e-6, "float64": 1e-14}


def resolution(dtype: np.dtype) -> float:
    """Return the smallest relative error that features of this dtype can distinguish from zero."""
    return _RESOLUTION[np.dtype(dtype).name]


@dataclass(frozen=True)
class ErrorEstimate:
    """A relative error ``‖K − L Lᵀ‖ / ‖K‖`` with its interval.

    Attributes
    ----------
    value, low, high : float
        The estimate and its interval; all equal if the error is exact.
    norm : str
        "trace", "fro" or "spectral".
    confidence : float
        Probability that the interval contains the error; 1 if the error is exact or bounded.
    dtype : str
        The rows' dtype if the error is below its resolution, else empty. Then ``low`` is 0 and ``high`` is at least the
        resolution.

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
        """Return a known error, or "below what the dtype resolves"."""
        return cls(value, value, value, norm).resolved(dtype)

    def resolved(self, dtype: np.dtype) -> ErrorEstimate:
        """Return the estimate, or one that says that the error is below the resolution of ``dtype``."""
        least = resolution(dtype)
        if self.value >= least:
            return self
        return ErrorEstimate(self.value, 0.0, max(self.high, least), self.norm, self.confidence, np.dtype(dtype).name)

    def __str__(self) -> str:
        if self.dtype:
            return f"below {self.high:.0e} ({self.norm}, {self.dtype})".replace("e-0", "e-")
        if self.confidence == 1 and f"{self.low:.4g}" == f"{self.high:.4g}":
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
    """Return ``part / whole``, or 0 for a kernel that is zero everywhere."""
    return part / whole if whole > 0 else 0.0


@dataclass(frozen=True)
class Certificate:
    """The exact trace-norm error of a fit, from the pass of the fit, and the result of checking some rows.

    Attributes
    ----------
    trace_norm : float
        ``‖K − L Lᵀ‖_*``, which also bounds the Frobenius and the spectral error.
    kernel_trace : float
        ``‖K‖_* = Σ k(x, x)``.
    n_rows : int
        Rows in the fit.
    landmark_norm : float
        The trace-norm error with every direction that the landmarks span; the rest of ``trace_norm`` is due to the
        rank.
    n_looked, n_lost : int
        Rows drawn and checked after the fit, and how many of them the landmarks explain to less than a tenth. Zero for
        a source that can only be read from its beginning, and on a cluster.
    n_apart, n_apart_lost : int
        Rows unlike every landmark in the pass over all rows, such as outliers and rare clusters, and how many of them
        the landmarks explain to less than a tenth. Counted for ``landmarks="auto"`` and k(x, x) = 1.
    n_cut : int
        Estimated lower bound on the number of rows that the landmarks explain but the rank cut loses;
        ``unexplained_rows(X)`` counts them.
    stages : tuple of (str, float)
        The stages of the fit and their seconds.
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
        """The fraction of the kernel trace that the landmarks leave unexplained at any rank."""
        return ratio_of(self.landmark_norm, self.kernel_trace)

    @property
    def rare(self) -> list[str]:
        """Short texts on rows unlike every landmark, and on rows lost by the rank cut."""
        words = []
        if self.n_apart:
            words.append(f"{self.n_apart_lost:,} of {self.n_apart:,} isolated rows are lost")
        if self.n_cut:
            words.append(f"about {self.n_cut:,} rows or more are lost by the cut of the rank")
        return words

    def __str__(self) -> str:
        lines = [f"error {self.trace} on {self.n_rows:,} rows"]
        if self.trace_norm > self.landmark_norm > 0:
            lines.append(f"{self.unexplained:.4g} due to the landmarks, the rest to the rank")
        how = "for each row" if self.each_row else "for the sum over all rows; for each row it holds by theorem"
        lines.append(f"k(x, x) − ‖φ(x)‖² ≥ 0 was checked {how}")
        if self.n_looked:
            lines.append(f"{self.n_lost:,} of {self.n_looked:,} checked rows are explained to less than a tenth")
        lines += self.rare
        if self.stages:
            lines.append("seconds: " + ", ".join(f"{name} {seconds:.2g}" for name, seconds in self.stages))
        return "\n".join(lines)


def certify(fitted: NystromMap) -> Certificate:
    """Return the certificate of a fitted map. Costs nothing: the pass has summed the diagonal of K."""
    trace = fitted.statistics.trace
    # Rounding can make the difference slightly negative if everything is explained.
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


# Warn if more than this fraction of the kernel trace is unexplained at any rank. A fit with less can still predict
# well: the target may lie in the explained part.
WARN_ABOVE = 0.75
# Do not warn with fewer landmarks: they cannot be expected to explain the kernel.
_LEAST_LANDMARKS = 10
# A row is lost if less than this fraction of it is explained; at most this many rows are checked.
LOST_BELOW = 0.1
_LOOKED_ROWS = 1000
# Warn if the rank cut loses 10 rows to 5 % and the error is below 0.5; else only the certificate reports them.
_LEAST_CUT = 10
_MOST_CUT = 0.05
_CUT_BELOW = 0.5
# A landmark is cut if the rank keeps less than this fraction of it; rows that share it with others keep even less.
_CUT_LANDMARK = 0.25
# Relative differences below this are rounding.
_SAME = 1e-6
# Landmarks above this fraction, computed in the dtype of the rows, need no check in float64.
_CLEARLY_KEPT = 0.3
# Check at most one row in 16, a small part of the fit's time.
_ROWS_PER_LOOK = 16
# A kernel is too narrow if a landmark's largest kernel value with the others is below this.
_NARROW = 1e-3
# Sparse rows with at least this many columns are assumed to be text.
_MANY_COLUMNS = 1000


def look_at_rows(
    certificate: Certificate, passes: Passes, fitted: NystromMap, kept: Array | None = None
) -> Certificate:
    """Return the certificate with the number of rows lost by the rank cut, and lost rows among an even sample.

    ``kept`` is k(X, Z) of all rows, if the fit has kept it.
    """
    rows, n = passes.rows, passes.rows.shape[0]
    certificate = replace(certificate, n_cut=rows_cut(fitted))
    if not passes.engine.reads_here(rows) or not rows.random_access or not fitted.kernel.has_coordinates:
        return certificate
    count = min(_LOOKED_ROWS, max(n // _ROWS_PER_LOOK, min(n, 50)))
    numbers = np.linspace(0, n - 1, count).astype(np.intp)
    X = rows.take(numbers)
    if kept is not None and kernel_dtype(fitted.kernel, fitted.landmarks.points, rows.dtype) != kept.dtype:
        kept = None
    C = fitted.evaluate(X) if kept is None else kept[numbers]
    # In float64: features of float32 rows may overflow, which `transform` reports.
    features = C.astype(np.float64, copy=False) @ fitted.projection
    lost = lost_rows(fitted.residual(X, features), fitted.kernel.diag(X))
    return replace(certificate, n_looked=count, n_lost=int(lost.sum()))


def lost_rows(residual: Array, diagonal: Array) -> Array:
    """Return a mask of the rows that the landmarks explain to less than a tenth."""
    return np.asarray(residual > (1 - LOST_BELOW) * diagonal)


def warn_if_unexplained(certificate: Certificate, rows: RowBlocks, fitted: NystromMap) -> None:
    """Warn if the landmarks leave most of the kernel unexplained."""
    m, n = len(fitted.landmarks), certificate.n_rows
    if certificate.unexplained <= WARN_ABOVE or m < _LEAST_LANDMARKS:
        return
    cause, advice = likely_cause(rows, fitted)
    warn_caller(
        f"{m:,} landmarks leave {certificate.unexplained:.0%} of the kernel of {n:,} rows unexplained (trace norm). "
        f"Likely cause: {cause}. Next: {advice}.",
        ApproximationWarning,
    )


def rows_cut(fitted: NystromMap) -> int:
    """Return an estimated lower bound on the rows that the landmarks explain but the rank cut loses; reads no row.

    Landmarks of which the rank keeps less than a quarter span some of the directions that were cut. The rows hold
    ``tr(B Σ f fᵀ Bᵀ)`` in these directions, for f their features and B a basis: 1 per row that such landmarks explain
    fully, and less per row explained in part. Only for kernels with constant k(x, x). Cost: O(m³).
    """
    if fitted.n_components == fitted.whitening.shape[1] or not fitted.kernel.has_coordinates:
        return 0
    if _clearly_kept(fitted):
        return 0
    W = landmark_kernel(fitted.kernel, fitted.landmarks)
    top = float(W[0, 0])
    if top <= 0 or np.ptp(np.diag(W)) > _SAME * top:
        return 0
    F = W @ fitted.whitening
    kept = F @ fitted.rotation
    lost = np.einsum("ij,ij->i", kept, kept) < _CUT_LANDMARK * top
    if not lost.any():
        return 0
    cut = F[lost] - kept[lost] @ fitted.rotation.T
    _, size, B = np.linalg.svd(cut, full_matrices=False)
    B = B[size > _SAME * size[0]]
    return round(float(np.einsum("ij,ij->", B @ fitted.statistics.gram, B)) / top)


def _clearly_kept(fitted: NystromMap) -> bool:
    """Whether the rank keeps well over a quarter of every landmark, computed in the rows' dtype: the usual case."""
    Z = fitted.landmarks.points
    C = fitted.evaluate(Z)
    # An overflow is not a clear case.
    with np.errstate(over="ignore", invalid="ignore"):
        kept = fitted.project(C)
        squares = np.einsum("ij,ij->i", kept, kept)
    return bool((squares > _CLEARLY_KEPT * fitted.kernel.diag(Z)).all() and np.isfinite(squares).all())


def warn_if_cut(certificate: Certificate, fitted: NystromMap) -> None:
    """Warn if the landmarks explain rare rows, the rank loses them again, and most other rows are explained."""
    rare = _LEAST_CUT <= certificate.n_cut <= _MOST_CUT * certificate.n_rows
    if not rare or certificate.trace.value > _CUT_BELOW:
        return
    warn_caller(
        f"the rank of {fitted.n_components:,} loses about {certificate.n_cut:,} rows or more of rare clusters that "
        f"the landmarks explain. Likely cause: the other rows fill the rank with directions that explain more. Next: "
        f"n_components=None keeps every direction of the {len(fitted.landmarks):,} landmarks; unexplained_rows(X) "
        f"names the rows.",
        ApproximationWarning,
    )


def likely_cause(rows: RowBlocks, fitted: NystromMap) -> tuple[str, str]:
    """Return the likely cause of a large error, and a remedy."""
    if rows.is_sparse and rows.shape[1] >= _MANY_COLUMNS:
        return (
            "sparse rows of very many columns, such as text, have few neighbours",
            "a linear model on the columns is often better there (scikit-learn's, or kernel='linear')",
        )
    W = landmark_kernel(fitted.kernel, fitted.landmarks)
    scale = np.sqrt(np.diag(W))
    alike = np.abs(W) / np.maximum(np.multiply.outer(scale, scale), np.finfo(np.float64).tiny)
    np.fill_diagonal(alike, 0.0)
    if len(W) > 1 and float(np.median(alike.max(axis=1))) < _NARROW:
        return (
            "the bandwidth is so narrow that rows resemble only themselves",
            "a smaller gamma (gamma='scale' or 'auto')",
        )
    return (
        "too few landmarks for how the rows spread",
        "more landmarks (a larger n_landmarks, or Nystroem(tol=...) to learn how many), or a smaller gamma",
    )
