"""Convex losses of scores: value and gradient row by row, and the curvature that a preconditioner needs.

A *coupled* loss has one value per row that depends on the scores of all columns (softmax). Any other loss has one value
per row and column: its columns are independent problems.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit, softmax

from nystrom.engine.threads import blas_threads
from nystrom.linalg import add_thin_cross, thin_product
from nystrom.solvers.preconditioner import Preconditioner
from nystrom.types import Array


class Loss(Protocol):
    """A convex, differentiable loss ℓ(y, s) of the scores s."""

    coupled: bool

    def curvature(self, n_columns: int) -> float:
        """Return the curvature of ℓ with respect to one score, at scores 0."""
        ...

    def evaluate(self, y: Array, scores: Array) -> tuple[Array, Array]:
        """Return ℓ, of shape (n, 1) if the loss is coupled, else (n, t); and ∂ℓ/∂s, of shape (n, t)."""
        ...

    def second(self, y: Array, scores: Array) -> Array:
        """Return ∂²ℓ/∂s² for each score, of shape (n, t)."""
        ...


@dataclass(frozen=True)
class Logistic:
    """``log(1 + exp(−y s))`` for y = ±1.

    Examples
    --------
    >>> value, gradient = Logistic().evaluate(np.array([[1]]), np.array([[0.0]]))
    >>> value.round(4), gradient
    (array([[0.6931]]), array([[-0.5]]))
    """

    coupled = False

    def curvature(self, n_columns: int) -> float:
        return 0.25

    def evaluate(self, y: Array, scores: Array) -> tuple[Array, Array]:
        margin = y * scores
        return np.logaddexp(0.0, -margin), np.asarray(-y * expit(-margin))

    def second(self, y: Array, scores: Array) -> Array:
        return np.asarray(expit(scores) * expit(-scores))


@dataclass(frozen=True)
class Multinomial:
    """``log Σ_k exp(s_k) − s_y`` for a class number y: the loss of the softmax.

    Examples
    --------
    >>> value, gradient = Multinomial().evaluate(np.array([1]), np.zeros((1, 4)))
    >>> value.round(4), gradient
    (array([[1.3863]]), array([[ 0.25, -0.75,  0.25,  0.25]]))
    """

    coupled = True

    def curvature(self, n_columns: int) -> float:
        return (n_columns - 1) / n_columns**2

    def evaluate(self, y: Array, scores: Array) -> tuple[Array, Array]:
        rows, y = np.arange(len(scores)), y.reshape(-1)
        shifted = scores - scores.max(axis=1, keepdims=True)
        gradient = np.exp(shifted)
        total = gradient.sum(axis=1)
        value = np.log(total) - shifted[rows, y]
        gradient /= total[:, None]
        gradient[rows, y] -= 1
        return value[:, None], gradient

    def second(self, y: Array, scores: Array) -> Array:
        p = softmax(scores, axis=1)
        return np.asarray(p * (1 - p))


@dataclass(frozen=True)
class SquaredHinge:
    """``max(0, 1 − y s)²`` for y = ±1.

    Examples
    --------
    >>> SquaredHinge().evaluate(np.array([[1, 1]]), np.array([[-1.0, 2.0]]))
    (array([[4., 0.]]), array([[-4., -0.]]))
    """

    coupled = False

    def curvature(self, n_columns: int) -> float:
        return 2.0

    def evaluate(self, y: Array, scores: Array) -> tuple[Array, Array]:
        short = np.maximum(1 - y * scores, 0.0)
        return np.square(short), -2 * y * short

    def second(self, y: Array, scores: Array) -> Array:
        return 2.0 * (y * scores < 1)


@dataclass(frozen=True)
class SquaredEpsilonInsensitive:
    """``max(0, |s − y| − ε)²``.

    Examples
    --------
    >>> SquaredEpsilonInsensitive(0.5).evaluate(np.zeros((1, 2)), np.array([[0.25, -2.5]]))
    (array([[0., 4.]]), array([[ 0., -4.]]))
    """

    epsilon: float
    coupled = False

    def curvature(self, n_columns: int) -> float:
        return 2.0

    def evaluate(self, y: Array, scores: Array) -> tuple[Array, Array]:
        residual = scores - y
        excess = np.maximum(np.abs(residual) - self.epsilon, 0.0)
        return np.square(excess), 2 * np.sign(residual) * excess

    def second(self, y: Array, scores: Array) -> Array:
        return 2.0 * (np.abs(scores - y) > self.epsilon)


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
        """Return the metric for a Hessian of ``I + bend FᵀDF``, with F the centred features of the rows."""

    def spread(self, coefficients: Array) -> Array:
        """Return the coefficients for all landmarks of the machine; the basis may use only some of them."""
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
    """The triangular basis of a preconditioner, for too many landmarks for eigenvectors.

    Parameters
    ----------
    inner : Preconditioner
        ``M = T⁻¹`` with ``TᵀT = W``.
    sizes : array (m,)
        Rows per landmark.
    centred : bool
        Whether there is an intercept.
    kept, n_landmarks
        The numbers of the machine's landmarks that are used (None for all), and how many the machine has.
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
        with blas_threads(1):
            return self._inner.unwhiten(W)

    def pull(self, products: Array) -> Array:
        with blas_threads(1):
            return self._inner.whiten(products)

    def metric(self, bend: float) -> Metric:
        # A preconditioner holds one metric at a time; a minimisation requests its own first.
        if bend != self._formed:
            with blas_threads(1):
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
        with blas_threads(1):
            return np.asarray(self._inner.unscale(u) / self._root)

    def gather(self, x: Array) -> Array:
        with blas_threads(1):
            return np.asarray(self._inner.rescale(x) * self._root)

    def pull(self, gradient: Array) -> Array:
        with blas_threads(1):
            return np.asarray(self._inner.scale(gradient) / self._root)
