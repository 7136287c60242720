"""The error of the exact best rank r: how much of an error is the rank's fault, and how much the landmarks'."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nystrom.certificate.estimate import ErrorEstimate, check_confidence, ratio_of
from nystrom.certificate.frobenius import squared_norms
from nystrom.certificate.pairs import TILE, kernel_with
from nystrom.certificate.trace import certify
from nystrom.engine.survey import Survey
from nystrom.factor import NystromMap, optimal, truncate
from nystrom.kernels import Kernel, Precomputed
from nystrom.kernels.ranges import near_one
from nystrom.kmeans.lloyd import draw_rows
from nystrom.landmarks.base import Selector, gather
from nystrom.rows.arrays import array_rows
from nystrom.types import Array

# Up to so many rows the eigenvalues of K itself are cheap.
EXACT_ROWS = 2000
# Landmarks of the first of two maps; the second has twice as many.
_LANDMARKS_PER_RANK = 4
_LEAST_LANDMARKS = 200
_SAMPLE_ROWS = 1500
# Rows that tell how large the values of the kernel are.
_SCALE_ROWS = 1000
NORMS = ("fro", "trace")


def best_error(
    survey: Survey,
    kernel: Kernel,
    rank: int,
    selector: Selector,
    rng: np.random.Generator,
    *,
    norm: str = "fro",
    confidence: float = 0.95,
) -> ErrorEstimate:
    """Return ``min ‖K − B‖ / ‖K‖`` over all B of rank r.

    Up to 2,000 rows from the eigenvalues of K. Beyond, from maps of many more landmarks than r. The error of their best
    rank r is an upper bound. Their eigenvalues beyond r give a lower one, for those of K are larger; so do, where the
    spectrum is flat, the leading eigenvalues of a sample of the rows, which on average are too large. The estimate
    takes off half of what twice the landmarks took off.

    Cost: that of two fits of 4r and 8r landmarks (at least 200 and 400), of their Frobenius errors, and of the
    eigenvalues of a kernel matrix of 1,500 rows.
    """
    check_confidence(confidence)
    n = survey.rows.shape[0]
    if not isinstance(kernel, Precomputed):
        few = gather(survey, np.arange(min(n, _SCALE_ROWS)))
        kernel, _ = near_one(kernel, kernel.diag(few), survey.rows.dtype)
    if n <= EXACT_ROWS:
        return _from_eigenvalues(_kernel_matrix(survey, kernel, np.arange(n)), rank, norm, survey.rows.dtype)
    first = min(max(_LANDMARKS_PER_RANK * rank, _LEAST_LANDMARKS), n)
    seed = int(rng.integers(2**32))
    found = []
    for m in (first, min(2 * first, n)):
        landmarks = selector.select(survey, m, kernel, np.random.default_rng(seed), announce=False)
        found.append(_bounds(survey, optimal(survey, kernel, landmarks, None), rank, norm, confidence, seed))
    now = found[1]
    gained = max(found[0].upper.value - now.upper.value, 0.0)
    low = max(now.lower, min(_sample_tail(survey, kernel, rank, norm, rng), now.upper.low))
    value = min(max(now.upper.value - gained / 2, low), now.upper.high)
    return ErrorEstimate(value, min(low, value), now.upper.high, norm, confidence)


class _Bounds(NamedTuple):
    upper: ErrorEstimate
    lower: float


def _bounds(survey: Survey, fitted: NystromMap, rank: int, norm: str, confidence: float, seed: int) -> _Bounds:
    """Return the error of the map's best rank r, and what its eigenvalues beyond r are of ``‖K‖``."""
    cut, beyond = truncate(fitted, rank), np.maximum(fitted.eigenvalues[rank:], 0.0)
    # Even exact sums differ by rounding.
    rounding = 1 - 1e-9
    if norm == "trace":
        certificate = certify(cut)
        return _Bounds(certificate.trace, rounding * ratio_of(float(beyond.sum()), certificate.kernel_trace))
    # One seed for both maps: their samples are alike, and so are the errors of these.
    norms = squared_norms(survey.rows, cut, survey.engine, rng=np.random.default_rng(seed))
    kernel = norms.kernel + 2 * norms.kernel_spread
    lower = rounding * float(np.sqrt(ratio_of(float(beyond @ beyond), kernel)))
    return _Bounds(norms.estimate(confidence, survey.rows.dtype), lower)


def _tail(eigenvalues: Array, rank: int, norm: str) -> float:
    """Return the norm of the eigenvalues beyond ``rank``, over that of all."""
    power = 2 if norm == "fro" else 1
    values = np.maximum(eigenvalues, 0.0) ** power
    return float(ratio_of(float(values[rank:].sum()), float(values.sum())) ** (1 / power))


def _sample_tail(survey: Survey, kernel: Kernel, rank: int, norm: str, rng: np.random.Generator) -> float:
    """Return an estimate of the best error from a sample of rows that errs low.

    Sums of leading eigenvalues are convex in the matrix, so those of a sample are too large on average. Its diagonal
    stands for less than in the sample, where rows meet themselves more often.
    """
    n = survey.rows.shape[0]
    numbers = draw_rows(n, _SAMPLE_ROWS, None, rng)[0]
    K = _kernel_matrix(survey, kernel, numbers)
    s = len(K)
    leading = np.maximum(np.linalg.eigvalsh(K)[::-1][:rank], 0.0)
    # Where few rows hold most of the kernel, a sample without them says little.
    held = np.diag(K) if norm == "trace" else np.einsum("ij,ij->i", K, K)
    allowed = 1 + 3 * (1 + ratio_of(float(held.std()), float(held.mean()))) / np.sqrt(s)
    if norm == "trace":
        return max(1 - allowed * ratio_of(float(leading.sum()), float(np.trace(K))), 0.0)
    diagonal = float(np.sum(np.diag(K) ** 2))
    whole = float(np.einsum("ij,ij->", K, K)) - (1 - s / n) * diagonal
    return float(np.sqrt(max(1 - allowed * ratio_of(float(leading @ leading), whole), 0.0)))


def _from_eigenvalues(K: Array, rank: int, norm: str, dtype: np.dtype) -> ErrorEstimate:
    return ErrorEstimate.exact(_tail(np.linalg.eigvalsh(K)[::-1], rank, norm), norm, dtype)


def _kernel_matrix(survey: Survey, kernel: Kernel, numbers: Array) -> Array:
    """Return the kernel between the rows with these numbers, in float64."""
    X = gather(survey, numbers)
    X = X if isinstance(kernel, Precomputed) else X.astype(np.float64)
    between = kernel_with(X, numbers, kernel)
    rows, size = array_rows(X, block_rows=TILE, name=survey.rows.name), len(numbers)
    return np.asarray(survey.engine.emit(rows, lambda b: between(b.X), size, np.float64, label="kernel of rows"))
