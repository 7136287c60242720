"""What a fit says of itself when the approximation fails: how much is left, the likely cause, and the next step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nystrom.errors.trace import Certificate
from nystrom.exceptions import ApproximationWarning, warn_caller
from nystrom.kernels.base import kernel_dtype
from nystrom.nystroem.factor import NystromMap, landmark_kernel
from nystrom.rows.base import RowBlocks
from nystrom.types import Array

# A fit that leaves a larger share of the kernel unexplained, whatever its rank, warns. Below it a machine can still be
# good: what it predicts may lie in the part that is explained.
WARN_ABOVE = 0.75
# Fewer landmarks cannot be expected to explain the kernel, so they do not warn.
_LEAST_LANDMARKS = 10
# A row of which less than this share is explained is lost.
LOST_BELOW = 0.1
_LOOKED_ROWS = 1000
# So many rows, and so large a share of them, that the cut of the rank loses are a reason to warn where what is left of
# all rows is below that; else they are in the certificate alone.
_LEAST_CUT = 10
_MOST_CUT = 0.05
_CUT_BELOW = 0.5
# A landmark of which the rank leaves less than this share is cut; rows that share it with others are left with less.
_CUT_LANDMARK = 0.25
# Relative difference that is rounding.
_SAME = 1e-6
# Landmarks of which more is left than this, by a product in the dtype of the rows, need no closer look.
_CLEARLY_KEPT = 0.3
# Looking at one row in so many takes a small part of the fit's time.
_ROWS_PER_LOOK = 16
# Landmarks whose kernel with all others is below this explain only themselves.
_NARROW = 1e-3
# Sparse rows of so many columns are taken for text.
_MANY_COLUMNS = 1000


def look_at_rows(
    certificate: Certificate, rows: RowBlocks, fitted: NystromMap, kept: Array | None = None
) -> Certificate:
    """Return the certificate with the rows lost by the cut of the rank, and among some spread evenly over all.

    ``kept`` is k(X, Z) of all rows, where the fit has kept it.
    """
    n = rows.shape[0]
    certificate = replace(certificate, n_cut=rows_cut(fitted))
    if rows.on_cluster or not rows.random_access or not fitted.kernel.has_coordinates:
        return certificate
    count = min(_LOOKED_ROWS, max(n // _ROWS_PER_LOOK, min(n, 50)))
    numbers = np.linspace(0, n - 1, count).astype(np.intp)
    X = rows.take(numbers)
    if kept is not None and kernel_dtype(fitted.kernel, fitted.landmarks.points, rows.dtype) != kept.dtype:
        kept = None
    C = fitted.evaluate(X) if kept is None else kept[numbers]
    # In float64: features of float32 rows may be beyond its range, which is for `transform` to say.
    features = C.astype(np.float64, copy=False) @ fitted.projection
    lost = lost_rows(fitted.residual(X, features), fitted.kernel.diag(X))
    return replace(certificate, n_looked=count, n_lost=int(lost.sum()))


def lost_rows(residual: Array, diagonal: Array) -> Array:
    """Return a mask of the rows of which the landmarks explain less than a tenth."""
    return np.asarray(residual > (1 - LOST_BELOW) * diagonal)


def warn_if_unexplained(certificate: Certificate, rows: RowBlocks, fitted: NystromMap) -> None:
    """Warn where the landmarks leave most of the kernel unexplained."""
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
    """Return about how many rows, or more, the landmarks explain and the cut of the rank loses; no row is read.

    Landmarks of which the rank leaves less than a quarter span some of the directions that were cut. In these the rows
    hold ``tr(B Σ f fᵀ Bᵀ)``, for f their features and B a basis: one for each row that such landmarks explain in full,
    and less for one that they explain in part. For kernels whose k(x, x) is the same for every row. Cost: O(m³).
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
    """Whether the rank leaves well over a quarter of every landmark, in the dtype of the rows: the usual case."""
    Z = fitted.landmarks.points
    C = fitted.evaluate(Z)
    # What overflows is not clear.
    with np.errstate(over="ignore", invalid="ignore"):
        kept = fitted.project(C)
        squares = np.einsum("ij,ij->i", kept, kept)
    return bool((squares > _CLEARLY_KEPT * fitted.kernel.diag(Z)).all() and np.isfinite(squares).all())


def warn_if_cut(certificate: Certificate, fitted: NystromMap) -> None:
    """Warn where the landmarks explain rare rows, the rank loses them again, and most other rows are explained."""
    rare = _LEAST_CUT <= certificate.n_cut <= _MOST_CUT * certificate.n_rows
    if not rare or certificate.trace.value > _CUT_BELOW:
        return
    warn_caller(
        f"the rank of {fitted.n_components:,} loses about {certificate.n_cut:,} rows or more of rare clusters that "
        f"the landmarks explain. Likely cause: the other rows have as many directions that hold more. Next: "
        f"n_components=None keeps every direction of the {len(fitted.landmarks):,} landmarks; unexplained_rows(X) "
        f"names the rows.",
        ApproximationWarning,
    )


def likely_cause(rows: RowBlocks, fitted: NystromMap) -> tuple[str, str]:
    """Return why so much is left, and what to do."""
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
