"""Ridge regression for every regularisation at once: one eigen-decomposition, then O(r) per value.

Everything is in terms of features φ with ``L = [φ(x_i)]``. With the weighted (with an intercept: centred) Gram matrix
``LᵀDL = V Λ Vᵀ`` and ``c = VᵀLᵀDy``, the weights at λ are ``V c / (Λ + λ)``; residuals, degrees of freedom and the
likelihood follow from Λ, c and ``yᵀDy`` alone. Only leave-one-out reads the rows again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nystrom.engine import Engine, Sums
from nystrom.engine.survey import Survey
from nystrom.factor import NystromMap
from nystrom.kmeans.lloyd import draw_rows
from nystrom.landmarks.base import row_weights
from nystrom.linalg import psd_eigh
from nystrom.rows import Block, RowBlocks
from nystrom.types import Array

N_AUTO = 100
# From where the factor's own rounding begins to show to where nothing of the target is left.
_AUTO_RANGE = (1e-10, 10.0)
# Rows whose leave-one-out errors are taken: enough to tell regularisations apart, and a small part of a large fit.
MOST_JUDGED = 5000
# Rounding errors of a sum of squares, in units of its eps.
_ROUNDING = 64
_TINY = float(np.finfo(np.float64).tiny)
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class RidgeProblem:
    """A ridge regression on the features of a fitted map, ready to be solved for any regularisation.

    Attributes
    ----------
    values : array (r,)
        Λ, the eigenvalues of the (weighted, centred) Gram matrix.
    vectors : array (r, r) or None
        V; None is the identity.
    cross : array (r, t)
        c, the target in the basis V.
    squares : array (t,)
        ``yᵀDy``, centred if there is an intercept.
    count : float
        The rows, each counted as often as its weight says.
    weight : float
        Sum of the weights in the squares: ``count``, but where some rows' errors matter more than others'.
    feature_mean, target_mean : arrays (r,), (t,)
        Weighted means; zeros without an intercept.
    fit_intercept : bool
        Whether there is one.
    """

    values: Array
    vectors: Array | None
    cross: Array
    squares: Array
    count: float
    weight: float
    feature_mean: Array
    target_mean: Array
    fit_intercept: bool

    def solve(self, alpha: float) -> tuple[Array, Array]:
        """Return the weights (r, t) and the intercepts (t,) at one regularisation."""
        weights = self.cross / (self.values + alpha)[:, None]
        if self.vectors is not None:
            weights = self.vectors @ weights
        return weights, self.target_mean - self.feature_mean @ weights

    @cached_property
    def _parts(self) -> tuple[Array, Array]:
        """The squares of the target along each feature, (r, t), and what no feature explains, (t,).

        The difference is taken once, for all regularisations; what is added to it is positive, so that scores are
        smooth in the regularisation also where next to nothing is left over.
        """
        floor = _ROUNDING * _EPS
        seen = self.values > floor * np.max(self.values, initial=0.0)
        inverse = np.divide(1.0, self.values, out=np.zeros_like(self.values), where=seen)
        inside = np.square(self.cross * np.sqrt(inverse)[:, None])
        return inside, np.maximum(self.squares - inside.sum(axis=0), floor * self.squares)

    def choose(self, alphas: Array, scores: Array) -> int:
        """Return the index of the best score; among scores equal up to rounding, that of the largest regularisation."""
        noise = _ROUNDING * _EPS * float(self.squares.mean()) / self.count
        tied = scores <= np.min(scores) * (1 + _ROUNDING * _EPS) + noise
        return int(np.argmax(np.where(tied, alphas, 0.0)))

    def gcv(self, alphas: Array) -> Array:
        """Return the generalised cross-validation ``(RSS/n) / (1 − df/n)²``, mean of the targets, at each value."""
        inside, outside = self._parts
        shrunk = self.values + alphas[:, None]
        rss = outside + (alphas[:, None] / shrunk) ** 2 @ inside
        df = (self.values / shrunk).sum(axis=1) + self.fit_intercept
        left = np.maximum(1 - df / self.count, _EPS)
        return np.asarray(rss.mean(axis=1) / self.count / left**2)

    def quadratic(self, alphas: Array) -> Array:
        """Return ``yᵀ(L Lᵀ + λI)⁻¹y`` of each target at each value, shape (a, t)."""
        inside, outside = self._parts
        return np.asarray(outside / alphas[:, None] + (1 / (self.values + alphas[:, None])) @ inside)

    def log_determinant(self, alphas: Array) -> Array:
        """Return ``log det(L Lᵀ + λI)`` at each value; of the contrasts if there is an intercept."""
        n = self.count - self.fit_intercept
        ratios = self.values / alphas[:, None]
        return np.asarray(n * np.log(alphas) + np.log1p(ratios).sum(axis=1))

    def negative_log_likelihood(self, alphas: Array) -> Array:
        """Return the negative log marginal likelihood per row, averaged over the targets, at each value.

        The target is normal with covariance ``s (L Lᵀ + λI)``, the scale s at its optimum for each target. With an
        intercept it is the restricted likelihood; weights change it by a constant that is left out.
        """
        n = max(self.count - self.fit_intercept, 1)
        scale = np.maximum(self.quadratic(alphas) / n, _TINY)
        halves = np.log(2 * np.pi * scale).mean(axis=1) + self.log_determinant(alphas) / n + 1
        return np.asarray(halves / 2)


def ridge_problem(fitted: NystromMap, *, fit_intercept: bool = False, count: float | None = None) -> RidgeProblem:
    """Return the ridge regression that the fold of a fitted map has summed up. Cost: O(r³) at most; no row is read.

    ``count`` is the number of rows where the weights say more than how often each is there.
    """
    s, Q = fitted.statistics, fitted.rotation
    count = s.weight if count is None else count
    if not fit_intercept:
        cross, squares = Q.T @ s.raw_cross, s.raw_target_squares
        means = np.zeros(len(cross)), np.zeros(len(squares))
        return RidgeProblem(fitted.eigenvalues, None, cross, squares, count, s.weight, *means, False)
    values, V = psd_eigh(Q.T @ s.scatter @ Q)
    cross = V.T @ (Q.T @ s.cross)
    return RidgeProblem(
        np.maximum(values, 0.0), V, cross, s.target_scatter, count, s.weight, Q.T @ s.mean, s.target_mean, fit_intercept
    )


def auto_alphas(values: Array) -> Array:
    """Return the regularisations that "auto" tries: a grid in proportion to the largest eigenvalue."""
    largest = float(values[0]) if values.size and values[0] > 0 else 1.0
    return largest * np.geomspace(*_AUTO_RANGE, N_AUTO)


def leave_one_out(
    problem: RidgeProblem,
    fitted: NystromMap,
    rows: RowBlocks,
    engine: Engine,
    alphas: Array,
    unit: Callable[[Array], Array] | None = None,
) -> Array:
    """Return the mean squared leave-one-out error at each value, mean of the targets; the map itself stays as it is.

    The error of row i without it in the fit is ``(y_i − f(x_i)) / (1 − h_i)``, h the diagonal of the hat matrix. A row
    of weight 2 stands for two rows, and one of them is left out; of a row whose weight is below 1, all.
    Of more than 5,000 rows a sample of 5,000 is judged, each by the fit to all others: that tells the mean to some 2 %,
    and differences between regularisations, which share the sample, far better.

    Parameters
    ----------
    rows : RowBlocks
        The rows of the fit, with their targets.
    unit : callable, optional
        From the targets of some rows to the weight that each has when it is there once; 1 if not given.

    Notes
    -----
    Cost: one pass; for at most 5,000 rows O(m (p + r)) each for the features and O(r t) for each value.
    """
    projection = fitted.projection if problem.vectors is None else fitted.projection @ problem.vectors
    offset = problem.feature_mean if problem.vectors is None else problem.feature_mean @ problem.vectors
    inverse = 1 / (problem.values[:, None] + alphas)
    (r, a), t = inverse.shape, problem.cross.shape[1]
    weights = (inverse[:, :, None] * problem.cross[:, None, :]).reshape(r, a * t)
    weight_of_mean = 1 / problem.weight if problem.fit_intercept else 0.0
    judged, stands = draw_rows(rows.shape[0], MOST_JUDGED, row_weights(Survey(rows, engine)), np.random.default_rng(0))

    def step(block: Block) -> Sums:
        here = slice(*np.searchsorted(judged, (block.start, block.stop)))
        local = judged[here] - block.start
        phi = fitted.evaluate(block.X[local]).astype(np.float64, copy=False) @ projection
        phi -= offset
        y = np.asarray(block.y, dtype=np.float64)[local].reshape(len(phi), 1, t) - problem.target_mean
        w = np.ones(len(phi)) if block.weight is None else np.asarray(block.weight, dtype=np.float64)[local]
        errors = (phi @ weights).reshape(len(phi), a, t)
        np.subtract(y, errors, out=errors)
        once = np.minimum(w, 1.0 if unit is None else unit(np.asarray(block.y)[local]))
        left = 1 - once[:, None] * (np.square(phi, out=phi) @ inverse + weight_of_mean)
        errors /= np.maximum(left, _EPS)[:, :, None]
        counted = w if stands is None else stands[here]
        return Sums(np.einsum("iat,iat->ia", errors, errors).T @ counted, float(counted.sum()))

    squares, weight = engine.fold(rows, step, label="leave-one-out")
    return np.asarray(squares / (max(weight, _TINY) * t))
