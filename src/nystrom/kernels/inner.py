"""Kernels of the inner product of two rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from nystrom.checks import check_degree, check_number
from nystrom.kernels.base import Gamma, Kernel, PlainGammaKernel, Prepared
from nystrom.kernels.pairwise import InnerProducts, as_matrix, quick_norms, squared_norms
from nystrom.types import Array, Matrix, issparse


@dataclass(frozen=True)
class Polynomial(PlainGammaKernel):
    """The polynomial kernel ``(γ⟨x, y⟩ + coef0)^degree``.

    Parameters
    ----------
    degree : int
        At least 1.
    gamma : float, "scale" or None
        "scale" is 1, the paper's form; None is 1 / n_features, scikit-learn's default.
    coef0 : float
        At least 0: the kernel is not positive semidefinite otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> Polynomial(degree=2)(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[144.]])
    """

    degree: int = 3
    gamma: Gamma = "scale"
    coef0: float = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_degree(self.degree)
        if check_number(self.coef0, "coef0") < 0:
            raise ValueError(
                f"coef0 must be a finite number, 0 or more; got {self.coef0!r}. "
                "With a negative coef0 the kernel is not positive semidefinite."
            )

    @property
    def is_psd(self) -> bool:
        return True

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        Z = as_matrix(Z, "Z")
        return _Polynomial(InnerProducts(Z, self._number(Z.shape[1])), float(self.coef0), int(self.degree))

    def diag(self, A: Matrix, start: int = 0) -> Array:
        with np.errstate(over="ignore"):
            base = self._number(A.shape[1]) * squared_norms(A) + float(self.coef0)
            return _whole_power(base, int(self.degree))


@dataclass(frozen=True)
class _Polynomial:
    products: InnerProducts
    coef0: float
    degree: int

    def __call__(self, X: Matrix) -> Array:
        base = self.products(X)
        base += self.coef0
        # Overflow is found by whoever sums the values, where it is an error with advice.
        with np.errstate(over="ignore"):
            return _whole_power(base, self.degree)


def _whole_power(base: Array, degree: int) -> Array:
    """Return ``base ** degree`` by squaring: NumPy's power calls the C library for each element."""
    if degree == 1:
        return base
    root = _whole_power(base, degree // 2)
    square = root * root
    if degree % 2:
        square *= base
    return square


@dataclass(frozen=True)
class Linear(Kernel):
    """The inner product ``⟨x, y⟩``."""

    @property
    def is_psd(self) -> bool:
        return True

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        return InnerProducts(as_matrix(Z, "Z"))

    def diag(self, A: Matrix, start: int = 0) -> Array:
        return squared_norms(A)


@dataclass(frozen=True)
class Cosine(Kernel):
    """The cosine of the angle, ``⟨x, y⟩ / (‖x‖ ‖y‖)``; 0 where a row is 0."""

    @property
    def is_psd(self) -> bool:
        return True

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        Z = as_matrix(Z, "Z").astype(np.float64)
        inverse = _inverse_norms(Z)
        with np.errstate(invalid="ignore"):
            unit = sp.diags(inverse) @ Z if issparse(Z) else Z * inverse[:, None]
        return _Cosine(InnerProducts(unit.tocsr() if issparse(unit) else unit))

    def diag(self, A: Matrix, start: int = 0) -> Array:
        return (_inverse_norms(A) > 0).astype(np.float64)


@dataclass(frozen=True)
class _Cosine:
    products: InnerProducts

    def __call__(self, X: Matrix) -> Array:
        out = self.products(X)
        # Rows with infinity give NaN here, and an error from whoever reads them.
        with np.errstate(invalid="ignore"):
            out *= _inverse_norms(X).astype(X.dtype)[:, None]
        return out


def _inverse_norms(A: Matrix) -> Array:
    """Return ``1 / ‖a‖`` for each row, 0 for a row of zeros; right also where squares leave the range of float64."""
    with np.errstate(over="ignore"):
        squares = quick_norms(A).astype(np.float64, copy=False)
    norms = np.sqrt(squares)
    far = np.flatnonzero(~((squares > _SQUARES[0]) & (squares < _SQUARES[1])))
    if far.size:
        norms[far] = _scaled_norms(A[far])
    # The reciprocal of a denormal norm is infinite: such a row counts as zeros.
    return np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > _LEAST)


def _scaled_norms(A: Matrix) -> Array:
    """Return ``‖a‖`` for each row by way of its largest entry."""
    A = A.astype(np.float64)
    peaks = np.asarray(abs(A).max(axis=1).todense() if issparse(A) else np.abs(A).max(axis=1, initial=0.0)).ravel()
    scale = np.divide(1.0, peaks, out=np.zeros_like(peaks), where=peaks > _LEAST)
    with np.errstate(invalid="ignore"):
        return peaks * np.sqrt(squared_norms(sp.diags(scale) @ A if issparse(A) else A * scale[:, None]))


# Squared norms in this range have all their digits.
_SQUARES = (1e-280, 1e280)
_LEAST = 4 * float(np.finfo(np.float64).tiny)
