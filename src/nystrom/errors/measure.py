"""The error of a map in each norm (the spectral one as a bracket), and the best possible error of a rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg

from nystrom.devices import fetch
from nystrom.engine.base import Engine
from nystrom.engine.passes import Passes
from nystrom.errors.frobenius import DEFAULT_PAIRS, TILE, check_n_pairs, frobenius_error, kernel_with, squared_norms
from nystrom.errors.trace import ErrorEstimate, certify, check_confidence, check_norm, ratio_of, trace_error
from nystrom.kernels import Kernel
from nystrom.kernels.base import near_one
from nystrom.landmarks.base import Selector
from nystrom.nystroem.factor import NystromMap, optimal, truncate
from nystrom.rows.base import RowBlocks, array_rows
from nystrom.rows.draw import draw_rows, gather
from nystrom.types import Array, Matrix

# Beyond this many rows, products with K take longer than most fits.
LANCZOS_ROWS = 10_000
# Most bytes of K to hold between products.
_HELD_BYTES = 256 * 2**20
# Lanczos steps per norm: docs/errors.md promises at most 120 products with K.
_STEPS = 60


class Bracket(NamedTuple):
    """A lower and an upper bound on a norm."""

    low: float
    high: float


def spectral_error(
    rows: RowBlocks,
    fitted: NystromMap,
    engine: Engine,
    *,
    rng: np.random.Generator,
    confidence: float = 0.95,
    n_pairs: int = DEFAULT_PAIRS,
    exact: bool = False,
) -> ErrorEstimate:
    """Return a bracket of ``‖K − L Lᵀ‖₂ / ‖K‖₂``.

    Up to 10,000 rows, or for any number with ``exact``, by Lanczos iteration from a random start: the largest Ritz
    value is a lower bound, and that value divided by ``1 − ε`` an upper bound with the probability of Kuczyński and
    Woźniakowski (1992). For more rows, ``‖E‖_F² / tr E ≤ ‖E‖₂ ≤ ‖E‖_F`` and
    ``λ₁(L Lᵀ) ≤ ‖K‖₂ ≤ λ₁(L Lᵀ) + ‖E‖₂``, with the interval of the Frobenius norm.

    Cost: O(n² p) for each of at most 120 products, with all rows in memory; for more rows, that of the Frobenius error.
    """
    if exact or rows.shape[0] <= LANCZOS_ROWS:
        return _by_lanczos(rows, fitted, engine, rng, confidence)
    return _by_norms(rows, fitted, engine, rng, confidence, n_pairs)


def _by_lanczos(
    rows: RowBlocks, fitted: NystromMap, engine: Engine, rng: np.random.Generator, confidence: float
) -> ErrorEstimate:
    n = rows.shape[0]
    numbers = np.arange(n)
    X = gather(Passes(rows, engine), numbers)
    phi = fitted.features(X).astype(np.float64)
    X = X.astype(np.float64)
    times = _kernel_product(array_rows(X, block_rows=TILE), kernel_with(X, numbers, fitted.kernel), engine)
    # Split the probability of failure evenly between the two norms.
    failure = (1 - confidence) / 2
    kernel = largest_eigenvalue(times, n, rng, failure)
    noise = 4 * np.sqrt(n) * float(np.finfo(np.float64).eps) * kernel.low
    error = largest_eigenvalue(lambda v: times(v) - phi @ (phi.T @ v), n, rng, failure, noise=noise)
    return _quotient(error, kernel, confidence, rows.dtype)


def _by_norms(
    rows: RowBlocks, fitted: NystromMap, engine: Engine, rng: np.random.Generator, confidence: float, n_pairs: int
) -> ErrorEstimate:
    norms = squared_norms(rows, fitted, engine, rng=rng, n_pairs=n_pairs)
    relative = norms.estimate(confidence, rows.dtype)
    frobenius = Bracket(relative.low * np.sqrt(norms.kernel), relative.high * np.sqrt(norms.kernel))
    error = Bracket(ratio_of(frobenius.low**2, norms.error_trace), min(frobenius.high, norms.error_trace))
    kernel = Bracket(norms.feature_norm, norms.feature_norm + error.high)
    return _quotient(error, kernel, confidence, rows.dtype)


def _quotient(error: Bracket, kernel: Bracket, confidence: float, dtype: np.dtype) -> ErrorEstimate:
    low, high = ratio_of(error.low, kernel.high), min(ratio_of(error.high, kernel.low), 1.0)
    # If both norms are Ritz values, their lower ends are closest to the truth; else take the middle of the bracket.
    value = min(max(float(np.sqrt(low * high)), low), high)
    return ErrorEstimate(value, low, high, "spectral", confidence).resolved(dtype)


def _kernel_product(rows: RowBlocks, between: Callable[[Matrix], Array], engine: Engine) -> Callable[[Array], Array]:
    """Return the function v ↦ K v; a small K is held in memory, a large one is evaluated again in each product."""
    n = rows.shape[0]
    if 8 * n * n <= _HELD_BYTES:
        K = fetch(engine.emit(rows, lambda block: between(block.X), n, np.float64, label="kernel of the rows"))
        return lambda v: np.asarray(K @ v)
    return lambda v: fetch(
        engine.emit(rows, lambda block: between(block.X) @ v, None, np.float64, label="product with the kernel")
    )


def largest_eigenvalue(
    product: Callable[[Array], Array],
    n: int,
    rng: np.random.Generator,
    failure: float,
    *,
    steps: int = _STEPS,
    noise: float = 0.0,
) -> Bracket:
    """Bracket the largest eigenvalue of a positive semidefinite matrix by Lanczos iteration from a random start.

    The largest Ritz value θ is a lower bound, up to rounding. After k steps ``λ₁ ≤ θ / (1 − ε)`` fails with probability
    at most ``1.648 √n exp(−√ε (2k − 1))`` (Kuczyński and Woźniakowski, 1992). If the iteration breaks down, the Krylov
    space contains the eigenvector, and both bounds are θ up to rounding. Products that are differences of larger
    numbers have a rounding error ``noise``: the iteration ends at that level, and the bounds include it.
    """
    steps = min(steps, n)
    rounding = min(4 * n * float(np.finfo(np.float64).eps), 1e-6)
    basis = np.zeros((steps, n))
    diagonal, beside = np.zeros(steps), np.zeros(steps)
    v = rng.standard_normal(n)
    v /= np.linalg.norm(v)
    for k in range(steps):
        basis[k] = v
        w = product(v)
        diagonal[k] = v @ w
        # Orthogonalise twice: the second time removes the rounding of the first.
        for _ in range(2):
            w = w - basis[: k + 1].T @ (basis[: k + 1] @ w)
        beside[k] = np.linalg.norm(w)
        top = max(float(scipy.linalg.eigvalsh_tridiagonal(diagonal[: k + 1], beside[:k])[-1]), 0.0)
        if k + 1 == n or beside[k] <= max(rounding * max(top, np.finfo(np.float64).tiny), noise):
            return Bracket(max(top * (1 - rounding) - noise, 0.0), top * (1 + rounding) + noise)
        v = w / beside[k]
    root = np.log(1.648 * np.sqrt(n) / failure) / (2 * steps - 1)
    return Bracket(max(top * (1 - rounding) - noise, 0.0), top / (1 - root**2) + noise if root < 1 else np.inf)


# Range of k(x, x) for which sums of fourth powers, and their squares, neither overflow nor underflow.
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
    """Return the relative error of a map on any rows; see the function of each norm for cost and method."""
    norm, confidence, n_pairs = check_norm(norm), check_confidence(confidence), check_n_pairs(n_pairs)
    if norm == "trace":
        return trace_error(rows, fitted, engine)
    measure = frobenius_error if norm == "fro" else spectral_error
    return measure(rows, map_near_one(fitted), engine, rng=rng, n_pairs=n_pairs, confidence=confidence, exact=exact)


def map_near_one(fitted: NystromMap) -> NystromMap:
    """Return a map with the same relative errors whose kernel values can be raised to the fourth power."""
    if not fitted.kernel.has_coordinates:
        return fitted
    points = fitted.landmarks.points
    diagonal = fitted.kernel.diag(points)
    kernel, scaled = near_one(fitted.kernel, diagonal, points.dtype, _POWERS)
    if kernel is fitted.kernel:
        return fitted
    at = int(diagonal.argmax())
    return replace(fitted, kernel=kernel, projection=fitted.projection * np.sqrt(diagonal[at] / scaled[at]))


# Up to this many rows the eigenvalues of K itself are cheap.
EXACT_ROWS = 2000
# Landmarks per rank of the first of two maps, and the least number; the second map has twice as many. Rows per sample.
_LANDMARKS_PER_RANK = 4
_LEAST_LANDMARKS = 200
_SAMPLE_ROWS = 1500
# Rows from which the size of the kernel values is estimated.
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

    Up to 2,000 rows from the eigenvalues of K. For more rows, from maps with many more landmarks than r. The error of
    their best rank r is an upper bound. Their eigenvalues beyond r give a lower bound, because those of K are larger.
    If the spectrum is flat, so do the leading eigenvalues of a sample of the rows, which are too large on average. The
    estimate is the upper bound minus half of the decrease that doubling the landmarks brought.

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
    """Return the error of the map's best rank r, and its eigenvalues beyond r relative to ``‖K‖``."""
    cut, beyond = truncate(fitted, rank), np.maximum(fitted.eigenvalues[rank:], 0.0)
    # Even exact sums differ by rounding.
    rounding = 1 - 1e-9
    if norm == "trace":
        certificate = certify(cut)
        return _Bounds(certificate.trace, rounding * ratio_of(float(beyond.sum()), certificate.kernel_trace))
    # The same seed for both maps: similar samples have similar errors.
    norms = squared_norms(passes.rows, cut, passes.engine, rng=np.random.default_rng(seed))
    kernel = norms.kernel + 2 * norms.kernel_spread
    lower = rounding * float(np.sqrt(ratio_of(float(beyond @ beyond), kernel)))
    return _Bounds(norms.estimate(confidence, passes.rows.dtype), lower)


def _tail(eigenvalues: Array, rank: int, norm: str) -> float:
    """Return the norm of the eigenvalues beyond ``rank``, relative to that of all."""
    power = 2 if norm == "fro" else 1
    values = np.maximum(eigenvalues, 0.0) ** power
    return float(ratio_of(float(values[rank:].sum()), float(values.sum())) ** (1 / power))


def _sample_tail(passes: Passes, kernel: Kernel, rank: int, norm: str, rng: np.random.Generator) -> float:
    """Return a low-biased estimate of the best error from a sample of rows.

    Sums of leading eigenvalues are convex in the matrix, so those of a sample are too large on average. The weight of
    the diagonal is reduced, because rows are paired with themselves more often in the sample.
    """
    n = passes.rows.shape[0]
    numbers = draw_rows(n, _SAMPLE_ROWS, None, rng)[0]
    K = _kernel_matrix(passes, kernel, numbers)
    s = len(K)
    leading = np.maximum(np.linalg.eigvalsh(K)[::-1][:rank], 0.0)
    # If a few rows hold most of the kernel, a sample without them says little.
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
