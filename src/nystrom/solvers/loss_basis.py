"""The basis in which a convex loss is minimised, and the metric of the steps there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np

from nystrom.linalg import add_thin_cross, algebra_threads, thin_product
from nystrom.solvers.preconditioner import Preconditioner
from nystrom.types import Array


class Metric(Protocol):
    """A change of unknowns ``x = S u`` after which the Hessian of the objective is near the identity."""

    def spread(self, u: Array) -> Array:
        """Return ``S u``."""
        ...

    def gather(self, x: Array) -> Array:
        """Return ``S⁻¹ x``."""
        ...

    def pull(self, gradient: Array) -> Array:
        """Return ``Sᵀ g``: the gradient in the new unknowns."""
        ...


class LossBasis(ABC):
    """Functions f with ``f(x) = k(x, Z) M w`` and ``‖f‖² = ‖w‖²``."""

    @property
    @abstractmethod
    def n_unknowns(self) -> int:
        """The length of w."""

    @abstractmethod
    def coefficients(self, W: Array) -> Array:
        """Return ``M W``."""

    @abstractmethod
    def pull(self, products: Array) -> Array:
        """Return ``Mᵀ P``."""

    @abstractmethod
    def metric(self, bend: float) -> Metric:
        """Return the metric for a Hessian of ``I + bend FᵀDF``, where F are the features of the rows, centred."""

    def spread(self, coefficients: Array) -> Array:
        """Return the coefficients of all landmarks of the machine, of which the basis may use some."""
        return coefficients


class _Diagonal:
    def __init__(self, roots: Array) -> None:
        self._roots = roots[:, None]

    def spread(self, u: Array) -> Array:
        return np.asarray(u / self._roots)

    def gather(self, x: Array) -> Array:
        return np.asarray(x * self._roots)

    def pull(self, gradient: Array) -> Array:
        return np.asarray(gradient / self._roots)


class EigenBasis(LossBasis):
    """The basis in which the Gram matrix of the features is diagonal.

    Parameters
    ----------
    matrix : array (m, r)
        M.
    values : array (r,)
        The diagonal.
    """

    def __init__(self, matrix: Array, values: Array) -> None:
        self._matrix = matrix
        self._values = values

    @property
    def n_unknowns(self) -> int:
        return len(self._values)

    def coefficients(self, W: Array) -> Array:
        return thin_product(self._matrix, W)

    def pull(self, products: Array) -> Array:
        pulled = np.zeros((len(self._values), products.shape[1]))
        add_thin_cross(pulled, self._matrix, products)
        return pulled

    def metric(self, bend: float) -> Metric:
        return _Diagonal(np.sqrt(1 + bend * self._values))


class LandmarkBasis(LossBasis):
    """The triangular basis of a preconditioner, for landmarks too many for eigenvectors.

    Parameters
    ----------
    inner : Preconditioner
        ``M = T⁻¹`` with ``TᵀT = W``.
    sizes : array (m,)
        Rows of each landmark.
    centred : bool
        Whether there is an intercept.
    kept, n_landmarks
        The numbers of the landmarks used among those of the machine, None for all, and how many it has.
    """

    def __init__(
        self, inner: Preconditioner, sizes: Array, *, centred: bool, kept: Array | None, n_landmarks: int
    ) -> None:
        self._inner = inner
        self._sizes = sizes
        self._centred = centred
        self._kept = kept
        self._n_landmarks = n_landmarks
        self._formed = 0.0

    @property
    def n_unknowns(self) -> int:
        return len(self._sizes)

    def coefficients(self, W: Array) -> Array:
        with algebra_threads(len(W)):
            return self._inner.unwhiten(W)

    def pull(self, products: Array) -> Array:
        with algebra_threads(len(products)):
            return self._inner.whiten(products)

    def metric(self, bend: float) -> Metric:
        # One preconditioner serves one metric at a time; a minimisation asks for its own first.
        if bend != self._formed:
            with algebra_threads(len(self._sizes)):
                self._inner.regularise(1 / bend, self._sizes, centred=self._centred)
            self._formed = bend
        return _Triangular(self._inner, float(np.sqrt(bend)))

    def spread(self, coefficients: Array) -> Array:
        if self._kept is None:
            return coefficients
        whole = np.zeros((self._n_landmarks, coefficients.shape[1]))
        whole[self._kept] = coefficients
        return whole


class _Triangular:
    """``S = L⁻ᵀ / √bend`` with ``L Lᵀ`` near ``FᵀDF + I / bend``."""

    def __init__(self, inner: Preconditioner, root: float) -> None:
        self._inner = inner
        self._root = root

    def spread(self, u: Array) -> Array:
        with algebra_threads(len(u)):
            return np.asarray(self._inner.unscale(u) / self._root)

    def gather(self, x: Array) -> Array:
        with algebra_threads(len(x)):
            return np.asarray(self._inner.rescale(x) * self._root)

    def pull(self, gradient: Array) -> Array:
        with algebra_threads(len(gradient)):
            return np.asarray(self._inner.scale(gradient) / self._root)
