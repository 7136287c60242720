"""Errors against the true kernel matrix, without holding it in memory if n is large.

Every quantity here is a sum over rows of K: row i of ``K − L Lᵀ`` has the squared norm
``‖k_i‖² − 2 k_iᵀ L l_i + l_iᵀ (LᵀL) l_i``. Up to ``EXACT_ROWS`` rows all are summed, so the error is exact.
Beyond, one random sample of rows is summed for every method: an estimate with an interval, and a fair comparison.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from nystrom.engine import blas_threads
from nystrom.kernels import Kernel
from nystrom.types import Array, Matrix

EXACT_ROWS = 20_000
SAMPLED_ROWS = 2048
_DOUBLE_ROWS = 9000
_TILE = 1024
_MAX_ITERATIONS = 30
_EIGEN_TOLERANCE = 1e-7


@dataclass(frozen=True)
class Measured:
    """An error and its 95 % interval; all three values are equal if the error is exact."""

    value: float
    low: float
    high: float


class KernelRows:
    """Rows of K, all of them or a random sample, shared by all errors of a study.

    Cost: O(n s p) time and n s numbers of memory for s rows; then O(n s r) for an error.
    """

    def __init__(self, X: Matrix, kernel: Kernel, *, exact_rows: int = EXACT_ROWS, seed: int = 0) -> None:
        n = X.shape[0]
        self.n = n
        self.exact = n <= exact_rows
        rng = np.random.default_rng(seed)
        self.index = np.arange(n) if self.exact else np.sort(rng.choice(n, SAMPLED_ROWS, replace=False))
        self.dtype = np.dtype(np.float64 if n <= _DOUBLE_ROWS else np.float32)
        self.K = np.empty((self.index.size, n), dtype=self.dtype)
        rows = X[self.index]
        for start in range(0, n, _TILE):
            piece = slice(start, min(start + _TILE, n))
            self.K[:, piece] = kernel.prepare(X[piece])(rows)
        self.squares = np.concatenate([np.einsum("ij,ij->i", tile, tile, dtype=np.float64) for tile in self._tiles()])

    def _tiles(self) -> list[Array]:
        return [self.K[start : start + _TILE] for start in range(0, len(self.K), _TILE)]

    def errors(self, factors: list[Array]) -> list[Measured]:
        """Return ‖K − L Lᵀ‖_F / ‖K‖_F for each L (n × r); one product with K serves all of them."""
        stacked = np.ascontiguousarray(np.hstack(factors), dtype=self.dtype)
        product = self.K @ stacked
        found, start = [], 0
        for L in factors:
            wide = L.astype(np.float64)
            piece = product[:, start : start + L.shape[1]].astype(np.float64)
            start += L.shape[1]
            own = wide[self.index]
            cross = np.einsum("ij,ij->i", piece, own)
            inner = np.einsum("ij,ij->i", own @ (wide.T @ wide), own)
            found.append(self._ratio(self.squares - 2 * cross + inner))
        return found

    def _ratio(self, rest: Array) -> Measured:
        """Return the root of Σ rest / Σ squares, with the delta method's interval if rows were sampled."""
        total = float(self.squares.sum())
        ratio = max(float(rest.sum()) / total, 0.0)
        value = float(np.sqrt(ratio))
        if self.exact:
            return Measured(value, value, value)
        s = self.index.size
        spread = np.std(rest - ratio * self.squares, ddof=1) * np.sqrt(s * (1 - s / self.n)) / total
        margin = 1.96 * float(spread)
        return Measured(value, float(np.sqrt(max(ratio - margin, 0))), float(np.sqrt(ratio + margin)))

    def best(self, rank: int) -> tuple[Array, Array]:
        """Return the leading eigenvalues and eigenvectors of K, largest first; K must be exact."""
        if self.n <= 4 * rank + 40:
            with blas_threads(1):
                values, vectors = scipy.linalg.eigh(self.K.astype(np.float64))
            return values[::-1][:rank], vectors[:, ::-1][:, :rank]
        # Subspace iteration with twice the columns: a few large products instead of Lanczos's hundreds of small ones.
        start = np.random.default_rng(0).standard_normal((self.n, 2 * rank + 20)).astype(self.dtype)
        Q, _ = np.linalg.qr(self.K @ start)
        found = np.zeros(rank)
        for _ in range(_MAX_ITERATIONS):
            Y = self.K @ Q
            values, rotation = np.linalg.eigh((Q.T @ Y).astype(np.float64))
            values, rotation = values[::-1][:rank], rotation[:, ::-1][:, :rank]
            if np.abs(values - found).max() <= _EIGEN_TOLERANCE * values[0]:
                break
            found = values
            Q, _ = np.linalg.qr(Y)
        vectors = Q.astype(np.float64) @ rotation
        return values, vectors

    def best_error(self, values: Array) -> float:
        """Return the error of the best approximation that keeps these eigenvalues."""
        total = float(self.squares.sum())
        rest = 1.0 - float(np.square(values).sum()) / total
        return float(np.sqrt(max(rest, 0.0)))


class RidgeAnswer:
    """The exact dual α* = (K + λI)⁻¹ y, and how far an approximation's α̂ is from it.

    Cost: O(n³) once, by Cholesky; then O(nr²) for an error.
    """

    def __init__(self, K: Array, y: Array, ridge: float) -> None:
        shifted = K.astype(np.float64)
        shifted.flat[:: len(K) + 1] += ridge
        began = time.perf_counter()
        self.alpha = scipy.linalg.solve(shifted, y, assume_a="pos", overwrite_a=True, check_finite=False)
        self.seconds = time.perf_counter() - began
        self.y = y
        self.ridge = ridge

    def error(self, L: Array) -> float:
        """Return ‖α̂ − α*‖ / ‖α*‖ for α̂ = (y − L w)/λ, w = (LᵀL + λI)⁻¹ Lᵀ y: the paper's formula times y."""
        wide = L.astype(np.float64)
        with blas_threads(1):
            gram = wide.T @ wide + self.ridge * np.eye(wide.shape[1])
            w = scipy.linalg.solve(gram, wide.T @ self.y, assume_a="pos")
        alpha = (self.y - wide @ w) / self.ridge
        return float(np.linalg.norm(alpha - self.alpha) / np.linalg.norm(self.alpha))
