"""Preconditioners for ridge regression on landmarks: the basis of the iteration, and an approximate inverse.

With features ``F`` of the rows, D their weights and λ the regularisation, the iteration solves
``(FᵀDF + λI) u = FᵀDy``. A preconditioner gives F as ``C T⁻¹`` or holds it, and a triangular L with ``L Lᵀ`` close to
``FᵀDF + λI``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike
from scipy.linalg import blas

from nystrom.engine.threads import blas_threads
from nystrom.exceptions import NotPositiveSemidefiniteError, NystromError
from nystrom.kernels import Kernel
from nystrom.landmarks.base import Landmarks
from nystrom.linalg import cholesky_in_place, shifted_cholesky
from nystrom.nystroem.factor import prepare
from nystrom.types import Array

# Rows of W per panel, and the block size for forming T N Tᵀ.
_PANEL = 1024
# Diagonal shifts, in multiples of the rounding level, tried until W can be factorised.
_SHIFTS = (1.0, 1e1, 1e3, 1e5)
# Error of a kernel value, in multiples of the relative precision.
_VALUE_ERROR = 4.0
# Fraction of the mean that is subtracted with an intercept. Subtracting all of it would remove constant functions, of
# which rows away from their landmarks retain a part: the equations would be singular there except for λ.
_CENTRED_SHARE = 0.9


class Preconditioner(ABC):
    """A basis for the coefficients, and a triangular L for each regularisation."""

    @abstractmethod
    def regularise(self, alpha: float, sizes: Array, *, centred: bool) -> None:
        """Form L for this λ; ``sizes`` are the rows per landmark, ``centred`` says whether there is an intercept."""

    @abstractmethod
    def scale(self, U: Array) -> Array:
        """Return ``L⁻¹ U``."""

    @abstractmethod
    def unscale(self, beta: Array) -> Array:
        """Return ``L⁻ᵀ β``."""

    @abstractmethod
    def rescale(self, U: Array) -> Array:
        """Return ``Lᵀ U``, which undoes :meth:`unscale`."""

    def whiten(self, V: Array) -> Array:
        """Return ``T⁻ᵀ V`` if the passes multiply with C; V itself if they multiply with F."""
        return V

    def unwhiten(self, U: Array) -> Array:
        """Return ``T⁻¹ U``, the transpose of :meth:`whiten`."""
        return U

    @abstractmethod
    def coefficients(self, U: Array) -> Array:
        """Return a with ``C a = F U``."""


class FalkonPreconditioner(Preconditioner):
    """``W ≈ Tᵀ T`` and ``T N Tᵀ + λI = L Lᵀ``, both triangles in one m × m array (Rudi, Carratino and Rosasco, 2017).

    For rows near their landmarks ``CᵀDC ≈ W N W``, with N the rows per landmark, so with ``F = C T⁻¹`` the matrix
    ``FᵀDF + λI`` is near ``T N Tᵀ + λI``. W is shifted, because landmarks may be linearly dependent: by the rounding
    level of kernel values in the dtype of the rows, or by less if λ is known.

    The shift s adds ``λ s ‖a‖²`` to the objective. Kernel values with an error of δ in each of n rows add ``n δ² ‖a‖²``
    anyway, so s need not exceed n δ² / λ: on 100,000 float32 rows and 10,000 landmarks the rounding level, 250 times as
    much, increased the test error by a tenth. ``noise`` is ``n / λ``; None uses the rounding level.

    Rows are near their landmarks only if there are many landmarks. If :meth:`sample` is given some rows, their Gram
    matrix replaces ``T N Tᵀ``.

    Cost: m³ / 3 multiplications for each of the two factors and for the product between them; 8 m² bytes.
    """

    def __init__(
        self, kernel: Kernel, landmarks: Landmarks, block_dtype: DTypeLike, noise: float | None = None
    ) -> None:
        m = len(landmarks)
        # Column-major: BLAS solves with triangular matrices in any other order only after a copy.
        W = np.empty((m, m), order="F")
        _fill(W, kernel, landmarks)
        level = _shift(float(np.max(W.diagonal(), initial=0.0)), m, float(np.finfo(block_dtype).eps), noise)
        for shift in _SHIFTS:
            W[np.diag_indices(m)] += shift * level
            if cholesky_in_place(W):
                break
            _fill(W, kernel, landmarks)
        else:
            raise NotPositiveSemidefiniteError(
                f"the kernel is not positive semidefinite: the kernel matrix of the {m} landmarks has an eigenvalue "
                f"below {-_SHIFTS[-1] * level:.2g}. Use a positive definite kernel such as 'gaussian'."
            )
        self._both = W
        self._upper_diagonal = W.diagonal().copy()
        self._lower_diagonal = np.empty(0)
        self._gram: Array | None = None

    def sample(self, pieces: Iterable[tuple[Array, Array]]) -> None:
        """Estimate ``FᵀDF`` from some rows of kernel values and their weights, piece by piece.

        The rows are centred if there is an intercept. Cost: 2 m² operations per row; 8 m² bytes.
        """
        self._gram = np.zeros_like(self._both)
        for C, weight in pieces:
            F = self.whiten(np.asarray(C, dtype=np.float64).T).T
            self._gram += (F.T * weight) @ F

    def regularise(self, alpha: float, sizes: Array, *, centred: bool) -> None:
        B, m = self._both, len(self._both)
        level, shift = float(np.finfo(np.float64).eps) * m, 0.0
        while True:
            diagonal = self._near_rows(sizes, centred=centred)
            B[np.diag_indices(m)] = diagonal + (alpha + shift * float(np.max(diagonal, initial=0.0)))
            # The lower triangle is the upper one of the transpose.
            if cholesky_in_place(B.T):
                break
            if not shift < 1:
                raise NystromError(
                    f"the preconditioner cannot be factorised at alpha={alpha:.3g}: raise alpha, divide the weights by "
                    f"a constant, or use solver='factor'."
                )
            # With weights of very different sizes, rounding can exceed λ.
            shift = max(100 * shift, level)
        self._lower_diagonal = B.diagonal().copy()

    def _near_rows(self, sizes: Array, *, centred: bool) -> Array:
        """Write the approximation of ``FᵀDF`` below the diagonal, and return its diagonal."""
        if self._gram is None:
            return self._near_landmarks(sizes, centred=centred)
        for start in range(0, len(self._gram), _PANEL):
            self._write_below(start, self._gram[start : start + _PANEL, : start + _PANEL])
        return self._gram.diagonal()

    def _near_landmarks(self, sizes: Array, *, centred: bool) -> Array:
        """Write ``T N Tᵀ`` below the diagonal, and return its diagonal."""
        B, m = self._both, len(self._both)
        B[np.diag_indices(m)] = self._upper_diagonal
        diagonal, mean = np.empty(m), np.zeros(m)
        if centred:
            mean = blas.dtrmv(B, sizes, lower=0) * np.sqrt(_CENTRED_SHARE / sizes.sum())
        # T is read on and above the diagonal and T N Tᵀ written below it, so they do not overlap.
        for start in range(0, m, _PANEL):
            own = slice(start, min(start + _PANEL, m))
            right = np.triu(B[own, start:])
            scaled = right * sizes[start:]
            square = scaled @ right.T - np.outer(mean[own], mean[own])
            diagonal[own] = square.diagonal()
            left = scaled @ B[:start, start:].T - np.outer(mean[own], mean[:start])
            self._write_below(start, np.hstack([left, square]))
        return diagonal

    def _write_below(self, start: int, rows: Array) -> None:
        """Write rows of a symmetric matrix below the diagonal: from row ``start`` on, up to their diagonal block."""
        own = slice(start, start + len(rows))
        self._both[own, :start] = rows[:, :start]
        low = np.tril_indices(len(rows), -1)
        self._both[own, own][low] = rows[:, start:][low]

    def _solve(self, V: Array, *, lower: bool, transposed: bool) -> Array:
        B = self._both
        B[np.diag_indices_from(B)] = self._lower_diagonal if lower else self._upper_diagonal
        if V.shape[1] == 1:
            # A third of dtrsm's time, and limited by memory bandwidth: a second thread gains nothing.
            with blas_threads(1):
                return np.asarray(blas.dtrsv(B, V[:, 0], lower=int(lower), trans=int(transposed)))[:, None]
        return np.asarray(blas.dtrsm(1.0, B, V, lower=int(lower), trans_a=int(transposed)))

    def scale(self, U: Array) -> Array:
        return self._solve(U, lower=True, transposed=False)

    def unscale(self, beta: Array) -> Array:
        return self._solve(beta, lower=True, transposed=True)

    def rescale(self, U: Array) -> Array:
        B = self._both
        B[np.diag_indices_from(B)] = self._lower_diagonal
        return np.asarray(blas.dtrmm(1.0, B, U, lower=1, trans_a=1))

    def whiten(self, V: Array) -> Array:
        return self._solve(V, lower=False, transposed=True)

    def unwhiten(self, U: Array) -> Array:
        return self._solve(U, lower=False, transposed=False)

    def coefficients(self, U: Array) -> Array:
        return self.unwhiten(U)


class SamplePreconditioner(Preconditioner):
    """For whitened features held in memory: L from the Gram matrix of a sample of their rows.

    Parameters
    ----------
    T : array (m, k)
        ``F = C T``.
    gram : array (k, k)
        An estimate of ``FᵀDF``, centred if there is an intercept.
    """

    def __init__(self, T: Array, gram: Array) -> None:
        self._T = T
        self._gram = gram
        self._lower = np.empty((0, 0))

    def regularise(self, alpha: float, sizes: Array, *, centred: bool) -> None:
        shifted = self._gram.copy()
        shifted[np.diag_indices_from(shifted)] += alpha
        self._lower = shifted_cholesky(shifted).T

    def scale(self, U: Array) -> Array:
        return np.asarray(scipy.linalg.solve_triangular(self._lower, U, lower=True))

    def unscale(self, beta: Array) -> Array:
        return np.asarray(scipy.linalg.solve_triangular(self._lower, beta, lower=True, trans="T"))

    def rescale(self, U: Array) -> Array:
        return np.asarray(self._lower.T @ U)

    def coefficients(self, U: Array) -> Array:
        return np.asarray(self._T @ U)


def _shift(top: float, m: int, eps: float, noise: float | None) -> float:
    """Return the diagonal shift of W, for kernel values up to ``top`` with relative precision ``eps``."""
    level, least = (10 * each * float(np.sqrt(m)) * top for each in (eps, float(np.finfo(np.float64).eps)))
    if noise is None:
        return level
    # Multiply by small factors first, so that kernels of any size neither overflow nor underflow.
    return min(level, max(least, noise * (_VALUE_ERROR * eps * top) * (_VALUE_ERROR * eps * top)))


def _fill(W: Array, kernel: Kernel, landmarks: Landmarks) -> None:
    for start, rows in _panels(kernel, landmarks):
        W[:, start : start + len(rows)] = rows.T


def _panels(kernel: Kernel, landmarks: Landmarks) -> Iterator[tuple[int, Array]]:
    """Yield (start, the rows of W from there) in float64."""
    Z = landmarks.points.astype(np.float64)
    evaluate = prepare(kernel, Landmarks(Z, landmarks.indices))
    for start in range(0, len(landmarks), _PANEL):
        yield start, np.asarray(evaluate(Z[start : start + _PANEL]), dtype=np.float64)
