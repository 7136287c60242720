"""Convex losses of scores: value and gradient row by row, and the curvature that a preconditioner needs.

A *coupled* loss has one value per row, in which the scores of all columns meet (softmax). Any other has one value per
row and column: its columns are problems of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit

from nystrom.types import Array


class Loss(Protocol):
    """A convex, differentiable loss ℓ(y, s) of the scores s."""

    coupled: bool

    def curvature(self, n_columns: int) -> float:
        """Return the curvature of ℓ in one score where all scores are 0."""
        ...

    def evaluate(self, y: Array, scores: Array) -> tuple[Array, Array]:
        """Return ℓ, of shape (n, 1) if the loss is coupled, else (n, t); and ∂ℓ/∂s, of shape (n, t)."""
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
