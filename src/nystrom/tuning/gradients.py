"""Outer products of the gradients of ``f = k(·, Z) A``: the directions along which f changes, and by how much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from nystrom.kernels import Gaussian, Kernel, Laplacian, Matern
from nystrom.types import Array, Matrix, SparseMatrix, issparse, to_dense

_TILE_NUMBERS = 2**20


def sum_outer_products(
    kernel: Kernel, Z: Matrix, coefficients: Array, X: Matrix, weight: Array | None, kind: str
) -> Array:
    """Return ``Σ w ∇f ∇fᵀ`` over some rows, (p, p), or its diagonal, (p,).

    With ``k = h(‖x − z‖²)`` the gradient is ``2 Σ_j a_j h'(‖x − z_j‖²)(x − z_j)``. The Laplacian kernel's is
    ``−γ Σ_j a_j k(x, z_j) sign(x − z_j)``, whose diagonal alone is a metric.
    """
    A = np.asarray(coefficients, dtype=np.float64)
    p = Z.shape[1]
    if kind == "diagonal" and issparse(X) and issparse(Z):
        # Every gradient is 0 in a column without entries.
        used = np.union1d(X.indices, Z.indices)
        if 2 * len(used) < p:
            whole = np.zeros(p)
            whole[used] = sum_outer_products(kernel, _among(used, Z), A, _among(used, X), weight, kind)
            return whole
    total: Array = np.zeros(p if kind == "diagonal" else (p, p))
    tile = max(_TILE_NUMBERS // max(p, len(A)), 16)
    for start in range(0, X.shape[0], tile):
        part = X[start : start + tile].astype(np.float64)
        w = None if weight is None else np.sqrt(weight[start : start + tile])[:, None]
        if isinstance(kernel, Laplacian):
            total += _sum_of_signs(kernel, Z, A, part, w)
            continue
        S = 2 * _slope(kernel)(_squared_distances(part, Z))
        dense = to_dense(part)
        for a in A.T:
            pull = S * a
            gradient = dense * pull.sum(axis=1)[:, None] - np.asarray(pull @ Z)
            gradient = gradient if w is None else w * gradient
            total += np.einsum("ij,ij->j", gradient, gradient) if kind == "diagonal" else gradient.T @ gradient
    return total


def _among(used: Array, X: SparseMatrix) -> SparseMatrix:
    """Return the columns ``used`` of CSR rows that have entries in no other."""
    return sp.csr_matrix((X.data, np.searchsorted(used, X.indices), X.indptr), shape=(X.shape[0], len(used)))


def _sum_of_signs(kernel: Laplacian, Z: Matrix, A: Array, X: Matrix, w: Array | None) -> Array:
    """Return the diagonal for the Laplacian kernel; a column in which row and landmark agree contributes no slope.

    With ``u = γ(x − z)`` and ``d = ‖u‖_p`` the slope in column j is ``−γ q d^(q − p) |u_j|^(p − 1) sign(u_j) k``.
    """
    gamma, p, q = float(kernel.gamma), kernel.p, kernel.q  # type: ignore[arg-type]
    K = np.asarray(kernel(X, Z), dtype=np.float64) * q * gamma
    rows, landmarks = gamma * to_dense(X), gamma * to_dense(Z)
    if q != p:
        from scipy.spatial.distance import cdist  # imported on use: it takes long

        d = np.asarray(cdist(rows, landmarks, "minkowski", p=p))
        K *= np.where(d > 0, d, 1.0) ** (q - p)
    K = K if w is None else w * K
    total = np.empty(Z.shape[1])
    for j in range(len(total)):
        step = rows[:, j, None] - landmarks[:, j]
        slope = np.sign(step) if p == 1 else np.sign(step) * np.abs(step) ** (p - 1)
        total[j] = np.square((K * slope) @ A).sum()
    return total


def _squared_distances(X: Matrix, Z: Matrix) -> Array:
    products = X @ Z.T
    products = np.asarray(to_dense(products))
    return np.maximum(_squares(X)[:, None] + _squares(Z) - 2 * products, 0.0)


def _squares(X: Matrix) -> Array:
    return np.asarray((X.multiply(X) if issparse(X) else np.square(X)).sum(axis=1)).ravel()


@dataclass(frozen=True)
class _Slope:
    """The derivative of a kernel with respect to the squared distance."""

    nu: float | None
    gamma: float

    def __call__(self, squares: Array) -> Array:
        g = self.gamma
        if self.nu is None:
            return np.asarray(-g * np.exp(-g * squares))
        t = np.sqrt(2 * self.nu * g * squares)
        decay = np.exp(-t)
        if self.nu == 0.5:
            # The kink at a landmark has no slope: such a pair contributes 0.
            return np.where(t > 1e-7, -g / 2 * decay / np.maximum(t, 1e-7), 0.0)
        return np.asarray(-1.5 * g * decay if self.nu == 1.5 else -5 / 6 * g * (1 + t) * decay)


def _slope(kernel: Kernel) -> _Slope:
    if isinstance(kernel, Gaussian):
        return _Slope(None, float(kernel.gamma))  # type: ignore[arg-type]
    assert isinstance(kernel, Matern)
    return _Slope(kernel.nu, float(kernel.gamma))  # type: ignore[arg-type]
