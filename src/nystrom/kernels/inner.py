"""Kernels of inner products and of histograms."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from nystrom.checks import check_degree, check_number
from nystrom.devices import DeviceArray, host, on_device
from nystrom.kernels.base import Gamma, Kernel, PlainGammaKernel, Prepared
from nystrom.kernels.pairwise import InnerProducts, as_matrix, check_columns, quick_norms, squared_norms
from nystrom.loops.device import minus_chi2
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
        # Overflow is found where the values are summed, and raises an error with advice.
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
        # Rows with infinity give NaN here, and an error where they are read.
        with np.errstate(invalid="ignore"):
            out *= _inverse_norms(X).astype(X.dtype)[:, None]
        return out


def _inverse_norms(A: Matrix) -> Array:
    """Return ``1 / ‖a‖`` for each row, 0 for a row of zeros; correct even if squares leave the range of float64."""
    if on_device(A):
        return _inverse_on_device(A)
    with np.errstate(over="ignore"):
        squares = quick_norms(A).astype(np.float64, copy=False)
    norms = np.sqrt(squares)
    far = np.flatnonzero(~((squares > _SQUARES[0]) & (squares < _SQUARES[1])))
    if far.size:
        norms[far] = _scaled_norms(A[far])
    # The reciprocal of a denormal norm is infinite: such a row counts as zeros.
    return np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > _LEAST)


def _inverse_on_device(A: DeviceArray) -> Array:
    """Do the same on a device, scaling each row by its largest entry; the norms are returned on the host."""
    peaks = host(np.abs(A).max(axis=1))
    scale = np.divide(1.0, peaks, out=np.zeros_like(peaks), where=peaks > float(np.finfo(A.dtype).tiny))
    norms = peaks * np.sqrt(squared_norms(A * scale.astype(A.dtype)[:, None]))
    return np.divide(1.0, norms, out=np.zeros_like(norms), where=(norms > _LEAST) & (scale > 0))


def _scaled_norms(A: Matrix) -> Array:
    """Return ``‖a‖`` for each row, scaled by its largest entry."""
    A = A.astype(np.float64)
    peaks = np.asarray(abs(A).max(axis=1).todense() if issparse(A) else np.abs(A).max(axis=1, initial=0.0)).ravel()
    scale = np.divide(1.0, peaks, out=np.zeros_like(peaks), where=peaks > _LEAST)
    with np.errstate(invalid="ignore"):
        return peaks * np.sqrt(squared_norms(sp.diags(scale) @ A if issparse(A) else A * scale[:, None]))


# Range of squared norms that keep full precision.
_SQUARES = (1e-280, 1e280)
_LEAST = 4 * float(np.finfo(np.float64).tiny)

# Largest negative entry treated as 0, in roundings of the largest entry.
_ROUNDING = 16


@dataclass(frozen=True)
class Chi2(PlainGammaKernel):
    """The exponential chi-squared kernel ``exp(−γ Σ (x_i − y_i)² / (x_i + y_i))`` of rows without negative entries.

    Parameters
    ----------
    gamma : float, "scale" or None
        "scale" is 1, scikit-learn's default; None is 1 / n_features.

    Examples
    --------
    >>> import numpy as np
    >>> Chi2()(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])).round(4)
    array([[0.1353]])
    """

    gamma: Gamma = "scale"

    @property
    def is_psd(self) -> bool:
        return True

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        Z = _histograms(Z, "Z")
        gamma = self._number(Z.shape[1])

        def evaluate(X: Matrix) -> Array:
            X = _histograms(X, "X")
            check_columns(X, Z.shape[1])
            # scikit-learn's function returns minus the sum.
            out = _minus_chi2(X, Z.astype(X.dtype, copy=False))
            out *= gamma
            return np.exp(out, out=out)

        return evaluate

    def diag(self, A: Matrix, start: int = 0) -> Array:
        return np.ones(A.shape[0])


@dataclass(frozen=True)
class AdditiveChi2(Kernel):
    """The additive chi-squared kernel ``Σ 2 x_i y_i / (x_i + y_i)`` of rows without negative entries.

    scikit-learn's function of this name is ``−Σ (x_i − y_i)² / (x_i + y_i)``, which differs by terms of a single row
    and is not an inner product; this form is one (Vedaldi and Zisserman, 2012).

    Examples
    --------
    >>> import numpy as np
    >>> AdditiveChi2()(np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]]))
    array([[3.]])
    """

    @property
    def is_psd(self) -> bool:
        return True

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        Z = _histograms(Z, "Z")
        totals = Z.sum(axis=1, dtype=np.float64)

        def evaluate(X: Matrix) -> Array:
            X = _histograms(X, "X")
            check_columns(X, Z.shape[1])
            # 2xy / (x + y) = (x + y) / 2 − (x − y)² / 2(x + y)
            out = _minus_chi2(X, Z.astype(X.dtype, copy=False))
            out += (X.sum(axis=1, dtype=np.float64)[:, None] + totals).astype(out.dtype)
            out /= 2
            return out

        return evaluate

    def diag(self, A: Matrix, start: int = 0) -> Array:
        return host(_histograms(A, "A").sum(axis=1, dtype=np.float64))


@dataclass(frozen=True)
class Sigmoid(PlainGammaKernel):
    """``tanh(γ⟨x, y⟩ + coef0)``: not an inner product in general; a fit checks this on its rows and raises if not.

    Parameters
    ----------
    gamma : float, "scale" or None
        "scale" and None are 1 / n_features, scikit-learn's default.
    coef0 : float
        Any finite number.
    """

    gamma: Gamma = "scale"
    coef0: float = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.coef0, numbers.Real) and math.isfinite(self.coef0)):
            raise ValueError(f"coef0 must be a finite number; got {self.coef0!r}.")

    def _plain_scale(self, n_features: int) -> float:
        return 1.0 / n_features

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        Z = as_matrix(Z, "Z")
        products, coef0 = InnerProducts(Z, self._number(Z.shape[1])), float(self.coef0)

        def evaluate(X: Matrix) -> Array:
            out = products(X)
            out += coef0
            return np.tanh(out, out=out)

        return evaluate

    def diag(self, A: Matrix, start: int = 0) -> Array:
        return np.tanh(self._number(A.shape[1]) * squared_norms(A) + float(self.coef0))


def _minus_chi2(X: Array, Z: Array) -> Array:
    if on_device(X):
        return minus_chi2(X, X.beside(Z))
    # Imported on use: scikit-learn's metrics are slow to import.
    from sklearn.metrics.pairwise import additive_chi2_kernel

    return np.asarray(additive_chi2_kernel(X, Z))


def _histograms(A: Matrix, name: str) -> Array:
    """Return the rows, checked to be dense and without negative entries."""
    A = as_matrix(A, name)
    if issparse(A):
        raise TypeError("the chi-squared kernels need dense rows; give X.toarray(), or use kernel='linear'.")
    least = float(A.min()) if A.size else 0.0
    if least >= 0:
        return A
    # Means of rows, such as landmarks, may be below 0 by rounding.
    if least >= -_ROUNDING * float(np.finfo(np.result_type(A.dtype, np.float32)).eps) * float(np.abs(A).max()):
        return np.maximum(A, 0)
    raise ValueError(
        f"the chi-squared kernels need rows without negative entries; {name} holds {least:.3g}. Scale the "
        f"columns to [0, 1], or use kernel='gaussian'."
    )
