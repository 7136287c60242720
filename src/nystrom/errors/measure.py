"""The error of a map in any norm, and the best error of its rank."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nystrom.engine.base import Engine
from nystrom.engine.passes import Passes
from nystrom.errors.frobenius import DEFAULT_PAIRS, TILE, check_n_pairs, frobenius_error, kernel_with, squared_norms
from nystrom.errors.spectral import spectral_error
from nystrom.errors.trace import ErrorEstimate, certify, check_confidence, check_norm, ratio_of, trace_error
from nystrom.kernels import Kernel
from nystrom.kernels.base import near_one
from nystrom.landmarks.base import Selector
from nystrom.nystroem.factor import NystromMap, optimal, truncate
from nystrom.rows.base import RowBlocks, array_rows
from nystrom.rows.draw import draw_rows, gather
from nystrom.types import Array

# The sizes of k(x, x) of which sums of fourth powers, and their squares, can be taken.
_POWERS = (1e-15, 1e15)


def measure_error(
    rows: RowBlocks,
    fitted: NystromMap,
    engine: Engine,
    norm: str = "fro",
    *,
    rng: np.random.Generator,
    exact: bool = False,
    n_pairs: int = DEFAULT_PAIRS,
    confidence: float = 0.95,
) -> ErrorEstimate:
    """Return the relative error of a map on any rows; see the functions of the norms for cost and method."""
    norm, confidence, n_pairs = check_norm(norm), check_confidence(confidence), check_n_pairs(n_pairs)
    if norm == "trace":
        return trace_error(rows, fitted, engine)
    measure = frobenius_error if norm == "fro" else spectral_error
    return measure(rows, map_near_one(fitted), engine, rng=rng, n_pairs=n_pairs, confidence=confidence, exact=exact)


def map_near_one(fitted: NystromMap) -> NystromMap:
    """Return a map of the same relative errors, of a kernel whose values can be raised to the powers of an interval."""
    if not fitted.kernel.has_coordinates:
        return fitted
    points = fitted.landmarks.points
    diagonal = fitted.kernel.diag(points)
    kernel, scaled = near_one(fitted.kernel, diagonal, points.dtype, _POWERS)
    if kernel is fitted.kernel:
        return fitted
    at = int(diagonal.argmax())
    return replace(fitted, kernel=kernel, projection=fitted.projection * np.sqrt(diagonal[at] / scaled[at]))


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
    passes: Passes,
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
    n = passes.rows.shape[0]
    if kernel.has_coordinates:
        few = gather(passes, np.arange(min(n, _SCALE_ROWS)))
        kernel, _ = near_one(kernel, kernel.diag(few), passes.rows.dtype)
    if n <= EXACT_ROWS:
        return _from_eigenvalues(_kernel_matrix(passes, kernel, np.arange(n)), rank, norm, passes.rows.dtype)
    first = min(max(_LANDMARKS_PER_RANK * rank, _LEAST_LANDMARKS), n)
    seed = int(rng.integers(2**32))
    found = []
    for m in (first, min(2 * first, n)):
        landmarks = selector.select(passes, m, kernel, np.random.default_rng(seed), announce=False)
        found.append(_bounds(passes, optimal(passes, kernel, landmarks, None), rank, norm, confidence, seed))
    now = found[1]
    gained = max(found[0].upper.value - now.upper.value, 0.0)
    low = max(now.lower, min(_sample_tail(passes, kernel, rank, norm, rng), now.upper.low))
    value = min(max(now.upper.value - gained / 2, low), now.upper.high)
    return ErrorEstimate(value, min(low, value), now.upper.high, norm, confidence)


class _Bounds(NamedTuple):
    upper: ErrorEstimate
    lower: float


def _bounds(passes: Passes, fitted: NystromMap, rank: int, norm: str, confidence: float, seed: int) -> _Bounds:
    """Return the error of the map's best rank r, and what its eigenvalues beyond r are of ``‖K‖``."""
    cut, beyond = truncate(fitted, rank), np.maximum(fitted.eigenvalues[rank:], 0.0)
    # Even exact sums differ by rounding.
    rounding = 1 - 1e-9
    if norm == "trace":
        certificate = certify(cut)
        return _Bounds(certificate.trace, rounding * ratio_of(float(beyond.sum()), certificate.kernel_trace))
    # One seed for both maps: their samples are alike, and so are the errors of these.
    norms = squared_norms(passes.rows, cut, passes.engine, rng=np.random.default_rng(seed))
    kernel = norms.kernel + 2 * norms.kernel_spread
    lower = rounding * float(np.sqrt(ratio_of(float(beyond @ beyond), kernel)))
    return _Bounds(norms.estimate(confidence, passes.rows.dtype), lower)


def _tail(eigenvalues: Array, rank: int, norm: str) -> float:
    """Return the norm of the eigenvalues beyond ``rank``, over that of all."""
    power = 2 if norm == "fro" else 1
    values = np.maximum(eigenvalues, 0.0) ** power
    return float(ratio_of(float(values[rank:].sum()), float(values.sum())) ** (1 / power))


def _sample_tail(passes: Passes, kernel: Kernel, rank: int, norm: str, rng: np.random.Generator) -> float:
    """Return an estimate of the best error from a sample of rows that errs low.

    Sums of leading eigenvalues are convex in the matrix, so those of a sample are too large on average. Its diagonal
    stands for less than in the sample, where rows meet themselves more often.
    """
    n = passes.rows.shape[0]
    numbers = draw_rows(n, _SAMPLE_ROWS, None, rng)[0]
    K = _kernel_matrix(passes, kernel, numbers)
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


def _kernel_matrix(passes: Passes, kernel: Kernel, numbers: Array) -> Array:
    """Return the kernel between the rows with these numbers, in float64."""
    X = gather(passes, numbers)
    X = X if not kernel.has_coordinates else X.astype(np.float64)
    between = kernel_with(X, numbers, kernel)
    rows, size = array_rows(X, block_rows=TILE, name=passes.rows.name), len(numbers)
    return np.asarray(passes.engine.emit(rows, lambda b: between(b.X), size, np.float64, label="kernel of rows"))
