"""How far the approximation is from K, without forming K.

In trace norm the error is exact and free: ``K − L Lᵀ`` is positive semidefinite, so its trace norm is
``Σ k(x, x) − Σ λ``. In Frobenius norm it is estimated from random pairs of rows, with an interval; in spectral norm
it is found by Lanczos iteration on the rows' kernel where their number allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse.linalg
import scipy.stats

from nystrom.engine.base import Engine, Sums
from nystrom.factor import NystromMap
from nystrom.kernels import Kernel, Precomputed
from nystrom.rows.base import Block, RowBlocks, require_finite
from nystrom.types import Array, Matrix

# Up to this many rows all pairs are cheaper than a good sample of them.
_EXACT_ROWS = 3000
_TILE = 512
_PAIR_TILE = 32
# Pairs of rows held at a time, and the bytes of them that may come from a cluster at once.
_PAIRS_HERE = 4096
_PAIR_BYTES = 64 * 2**20


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
    """

    value: float
    low: float
    high: float
    norm: str
    confidence: float = 1.0

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.value:.4g} ({self.norm}, exact)"
        return f"{self.value:.4g} in [{self.low:.4g}, {self.high:.4g}] ({self.norm}, {self.confidence:.0%})"


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
        value = self.trace_norm / self.kernel_trace if self.kernel_trace > 0 else 0.0
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
    value = left / total if total > 0 else 0.0
    return ErrorEstimate(value, value, value, "trace")


class _Pairs(NamedTuple):
    """Squared entries at sampled pairs, already divided by the probability of drawing the pair."""

    error: Array
    kernel: Array


def frobenius_error(
    rows: RowBlocks,
    fitted: NystromMap,
    engine: Engine,
    *,
    rng: np.random.Generator,
    n_pairs: int = 100_000,
    confidence: float = 0.95,
) -> ErrorEstimate:
    """Return the relative Frobenius error: exact for few rows, else from random pairs with an interval.

    The sums of ``(K_ij − φ_iᵀφ_j)²`` and ``K_ij²`` over the pairs i ≠ j are estimated by importance sampling: half
    the pairs are drawn uniformly, half among rows that share their nearest landmark, where both matrices are large.
    The diagonal is added exactly. The interval is the delta method's on the root of the ratio.

    Cost: O(n m p) for the diagonal and the nearest landmarks (one pass, on the cluster for Dask rows), one number a row
    and O(n_pairs (m + p)) for the pairs here.
    """
    n = rows.shape[0]
    if n <= _EXACT_ROWS:
        X = rows.take(np.arange(n))
        value = float(np.sqrt(_all_pairs_ratio(X, fitted)))
        return ErrorEstimate(value, value, value, "fro")
    diagonal_error, diagonal_kernel, labels = _diagonal_and_labels(rows, fitted, engine)
    pairs = _sample_pairs(rows, fitted, labels, rng, n_pairs)
    error = pairs.error.mean() + diagonal_error
    kernel = pairs.kernel.mean() + diagonal_kernel
    ratio = error / kernel if kernel > 0 else 0.0
    # Delta method: the variance of (A/n)/(B/n) is that of (a − ratio b)/B, and d√q = dq / (2√q).
    spread = float(np.std(pairs.error - ratio * pairs.kernel, ddof=1)) / np.sqrt(n_pairs) / max(kernel, 1e-300)
    value = float(np.sqrt(max(ratio, 0.0)))
    z = float(scipy.stats.norm.ppf(0.5 + confidence / 2))
    low = float(np.sqrt(max(ratio - z * spread, 0.0)))
    high = float(np.sqrt(max(ratio, 0.0) + z * spread))
    return ErrorEstimate(value, low, high, "fro", confidence)


def _kernel_tiles(X: Matrix, fitted: NystromMap) -> Iterator[tuple[int, Array]]:
    """Yield (start, k(X[start:start + tile], X)) in float64."""
    X64 = X.astype(np.float64)
    for start in range(0, X.shape[0], _TILE):
        tile = X64[start : start + _TILE]
        K = tile if isinstance(fitted.kernel, Precomputed) else fitted.kernel(tile, X64)
        yield start, np.asarray(K, dtype=np.float64)


def _kernel_of_pairs(kernel: Kernel, A: Matrix, B: Matrix, columns: Array) -> Array:
    """Return k(a_i, b_i) for the rows of A and B; ``columns`` are the row numbers of B."""
    if isinstance(kernel, Precomputed):
        return np.asarray(A[np.arange(len(columns)), columns], dtype=np.float64).ravel()
    # The diagonal of small square tiles works for every kernel, and costs little beside the features.
    A, B = A.astype(np.float64), B.astype(np.float64)
    tiles = (slice(start, start + _PAIR_TILE) for start in range(0, A.shape[0], _PAIR_TILE))
    return np.concatenate([np.diag(kernel(A[tile], B[tile])) for tile in tiles])


def _all_pairs_ratio(X: Matrix, fitted: NystromMap) -> float:
    phi = fitted.features(X).astype(np.float64)
    error = kernel = 0.0
    for start, K in _kernel_tiles(X, fitted):
        kernel += float(np.einsum("ij,ij->", K, K))
        K = K - phi[start : start + K.shape[0]] @ phi.T
        error += float(np.einsum("ij,ij->", K, K))
    return error / kernel if kernel > 0 else 0.0


def _diagonal_and_labels(rows: RowBlocks, fitted: NystromMap, engine: Engine) -> tuple[float, float, Array]:
    """Return Σ (K_ii − ‖φ_i‖²)², Σ K_ii² and the landmark most like each row: one pass."""
    name = rows.name

    def step(block: Block) -> tuple[float, float, Array]:
        require_finite(block.X, name, block.start)
        C = fitted.evaluate(block.X)
        diagonal = fitted.kernel.diag(block.X, start=block.start)
        phi = (C @ fitted.projection.astype(C.dtype, copy=False)).astype(np.float64)
        left = diagonal - np.einsum("ij,ij->i", phi, phi)
        return float(left @ left), float(diagonal @ diagonal), np.argmax(C, axis=1).astype(np.int32)

    labels = np.empty(rows.shape[0], dtype=np.int32)
    error = kernel = 0.0
    for start, (left, whole, nearest) in engine.map(rows, step, label="diagonal of the error"):
        labels[start : start + len(nearest)] = nearest
        error += left
        kernel += whole
    return error, kernel, labels


def _sample_pairs(rows: RowBlocks, fitted: NystromMap, labels: Array, rng: np.random.Generator, n_pairs: int) -> _Pairs:
    n = rows.shape[0]
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    starts = np.cumsum(sizes) - sizes
    within_pairs = float(np.sum(sizes.astype(np.float64) * (sizes - 1)))
    half = n_pairs // 2 if within_pairs > 0 else 0
    first = rng.integers(n, size=n_pairs)
    second = (first + rng.integers(1, n, size=n_pairs)) % n
    if half:
        # A row is drawn in proportion to the partners it has in its cluster, then a partner uniformly.
        cluster = rng.choice(len(sizes), size=half, p=sizes * (sizes - 1.0) / within_pairs)
        a = rng.integers(sizes[cluster])
        b = (a + rng.integers(1, sizes[cluster])) % sizes[cluster]
        first[:half], second[:half] = order[starts[cluster] + a], order[starts[cluster] + b]
    share = half / n_pairs
    probability = (1 - share) / (n * (n - 1.0)) + np.where(
        labels[first] == labels[second], share / max(within_pairs, 1.0), 0.0
    )
    error, kernel = np.empty(n_pairs), np.empty(n_pairs)
    # A cluster looks through all its chunks for each piece, so there should be few; elsewhere small ones are best.
    row_bytes = max(rows.block_bytes // rows.block_rows, 1)
    size = max(_PAIRS_HERE, _PAIR_BYTES // (2 * row_bytes)) if rows.on_cluster else _PAIRS_HERE
    for start in range(0, n_pairs, size):
        piece = slice(start, start + size)
        both = rows.take(np.concatenate([first[piece], second[piece]]))
        count = both.shape[0] // 2
        A, B = both[:count], both[count:]
        K = _kernel_of_pairs(fitted.kernel, A, B, second[piece])
        phi = np.einsum("ij,ij->i", fitted.features(A).astype(np.float64), fitted.features(B).astype(np.float64))
        kernel[piece] = K**2
        error[piece] = (K - phi) ** 2
    return _Pairs(error / probability, kernel / probability)


def spectral_error(rows: RowBlocks, fitted: NystromMap, *, rng: np.random.Generator) -> ErrorEstimate:
    """Return the relative spectral error by Lanczos iteration on ``K − L Lᵀ``, its products formed tile by tile.

    Cost: O(n² p) for each of some dozens of products, O(n) memory beyond a tile; meant for up to a few 10⁴ rows.
    """
    n = rows.shape[0]
    X = rows.take(np.arange(n))
    phi = fitted.features(X).astype(np.float64)

    def kernel_times(v: Array) -> Array:
        return np.concatenate([K @ v for _, K in _kernel_tiles(X, fitted)])

    def error_times(v: Array) -> Array:
        return kernel_times(v) - phi @ (phi.T @ v)

    top = _largest_eigenvalue(kernel_times, n, rng)
    value = abs(_largest_eigenvalue(error_times, n, rng)) / top if top > 0 else 0.0
    return ErrorEstimate(value, value, value, "spectral")


def _largest_eigenvalue(product: Callable[[Array], Array], n: int, rng: np.random.Generator) -> float:
    if n == 1:
        return float(product(np.ones(1))[0])
    operator = scipy.sparse.linalg.LinearOperator((n, n), matvec=product, dtype=np.float64)
    return float(
        scipy.sparse.linalg.eigsh(
            operator, k=1, which="LM", v0=rng.standard_normal(n), return_eigenvectors=False, tol=1e-6
        )[0]
    )
