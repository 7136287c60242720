"""The spectral error as a bracket: Lanczos iteration where the rows' number allows, norms' inequalities beyond."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg

from nystrom.devices import fetch
from nystrom.engine.base import Engine
from nystrom.engine.passes import Passes
from nystrom.errors.frobenius import DEFAULT_PAIRS, TILE, kernel_with, squared_norms
from nystrom.errors.trace import ErrorEstimate, ratio_of
from nystrom.nystroem.factor import NystromMap
from nystrom.rows.base import RowBlocks, array_rows
from nystrom.rows.draw import gather
from nystrom.types import Array, Matrix

# Beyond so many rows the products with K take longer than most fits.
LANCZOS_ROWS = 10_000
_HELD_BYTES = 256 * 2**20
_STEPS = 60


class Bracket(NamedTuple):
    """Two numbers with a norm between them."""

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

    Up to 10,000 rows, or with ``exact`` for any number, by Lanczos iteration from a random start: the largest Ritz
    value is a lower bound, and one over ``1 − ε`` of it an upper bound with the probability that Kuczyński and
    Woźniakowski (1992) give. Beyond, ``‖E‖_F² / tr E ≤ ‖E‖₂ ≤ ‖E‖_F`` and ``λ₁(L Lᵀ) ≤ ‖K‖₂ ≤ λ₁(L Lᵀ) + ‖E‖₂``,
    with the Frobenius norm's interval.

    Cost: O(n² p) for each of at most 120 products with all rows in memory; beyond, that of the Frobenius error.
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
    # The norms' lower ends are nearest to the truth where both are Ritz values; else this is the bracket's middle.
    value = min(max(float(np.sqrt(low * high)), low), high)
    return ErrorEstimate(value, low, high, "spectral", confidence).resolved(dtype)


def _kernel_product(rows: RowBlocks, between: Callable[[Matrix], Array], engine: Engine) -> Callable[[Array], Array]:
    """Return the function v ↦ K v; K is held where it is small, and evaluated again in each product where not."""
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
    at most ``1.648 √n exp(−√ε (2k − 1))`` (Kuczyński and Woźniakowski, 1992). Where the iteration ends by itself the
    Krylov space holds the eigenvector, and both bounds are θ up to rounding. Products that are differences of larger
    numbers have a rounding of their own, ``noise``: the iteration ends there, and the bounds allow for it.
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
        # Twice is enough: each pass takes the rounding of the one before.
        for _ in range(2):
            w = w - basis[: k + 1].T @ (basis[: k + 1] @ w)
        beside[k] = np.linalg.norm(w)
        top = max(float(scipy.linalg.eigvalsh_tridiagonal(diagonal[: k + 1], beside[:k])[-1]), 0.0)
        if k + 1 == n or beside[k] <= max(rounding * max(top, np.finfo(np.float64).tiny), noise):
            return Bracket(max(top * (1 - rounding) - noise, 0.0), top * (1 + rounding) + noise)
        v = w / beside[k]
    root = np.log(1.648 * np.sqrt(n) / failure) / (2 * steps - 1)
    return Bracket(max(top * (1 - rounding) - noise, 0.0), top / (1 - root**2) + noise if root < 1 else np.inf)
