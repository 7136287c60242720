"""Ridge regression on a factor, and the choice of the cheapest solver with the same answer by operation counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nystrom.devices import to_host
from nystrom.engine import Engine, Sums
from nystrom.engine.passes import Passes
from nystrom.linalg import psd_eigh
from nystrom.nystroem.factor import NystromMap
from nystrom.rows import Block, RowBlocks
from nystrom.rows.draw import draw_rows, row_weights
from nystrom.types import Array

_TINY = float(np.finfo(np.float64).tiny)


class Optimum(NamedTuple):
    """The noise and amplitude that maximise the bound, and the negative of the bound per row and target."""

    alpha: float
    amplitude: float
    objective: float


def log_likelihood(problem: RidgeProblem, alpha: float, amplitude: float) -> float:
    """Return ``log N(y; 0, s L Lᵀ + αI)``, with s the amplitude and α the noise; summed over the targets."""
    ratio = np.array([alpha / amplitude])
    n, t = problem.count, problem.cross.shape[1]
    quadratic = float(problem.quadratic(ratio).sum()) / amplitude
    determinant = float(problem.log_determinant(ratio)[0])
    return -0.5 * (quadratic + t * (determinant + n * np.log(2 * np.pi * amplitude)))


def optimum(problem: RidgeProblem, unexplained: float, alpha: float | None, amplitude: float | None) -> Optimum:
    """Return the noise α and the amplitude s that maximise the bound on the likelihood; given values are kept.

    The bound is ``log N(y; 0, s L Lᵀ + αI) − s tr(K − L Lᵀ) / 2α`` (Titsias, 2009), at most the likelihood of the exact
    process. Without the second term, the noise would be too small wherever the landmarks explain the rows poorly.

    Parameters
    ----------
    problem : RidgeProblem
        Without weights and intercept.
    unexplained : float
        ``tr(K − L Lᵀ)`` for an amplitude of 1.
    alpha, amplitude : float or None
        None: to be optimised.

    Notes
    -----
    In the ratio λ = α/s the problem is one-dimensional: the best s for a given λ is ``yᵀ(L Lᵀ + λI)⁻¹y / n``.
    """

    def amplitudes(ratios: Array) -> Array:
        if amplitude is not None:
            return np.full(len(ratios), amplitude)
        if alpha is not None:
            return alpha / ratios
        return np.maximum(problem.quadratic(ratios).mean(axis=1) / problem.count, _TINY)

    def objective(ratios: Array) -> Array:
        scale = amplitudes(ratios)
        n = problem.count
        quadratic = problem.quadratic(ratios).mean(axis=1) / scale
        total = n * np.log(2 * np.pi * scale) + problem.log_determinant(ratios) + quadratic + unexplained / ratios
        return np.asarray(total / (2 * n))

    if alpha is not None and amplitude is not None:
        ratios = np.array([alpha / amplitude])
    else:
        ratios = _likely_ratios(problem, unexplained, alpha, amplitude)
        values = objective(ratios)
        # Of equal values take the last: the largest noise that explains the target equally well.
        best = len(values) - 1 - int(np.argmin(values[::-1]))
        bounds = np.log(ratios[[max(best - 1, 0), min(best + 1, len(ratios) - 1)]])
        from scipy.optimize import minimize_scalar

        found = minimize_scalar(
            lambda log_ratio: float(objective(np.exp([log_ratio]))[0]), bounds=bounds, method="bounded"
        )
        ratios = np.exp([found.x]) if found.fun < values[best] else ratios[[best]]
    scale = float(amplitudes(ratios)[0])
    return Optimum(float(ratios[0]) * scale, scale, float(objective(ratios)[0]))


def _likely_ratios(problem: RidgeProblem, unexplained: float, alpha: float | None, amplitude: float | None) -> Array:
    """Return ratios λ of noise to amplitude, ten per decade, that enclose the optimum for any unit of y.

    Above the largest eigenvalue, all is noise. Below the rounding of the eigenvalues, nothing changes, unless the noise
    or the amplitude is given and the target requires a smaller ratio.
    """
    n, largest = problem.count, max(float(np.max(problem.values, initial=0.0)), _TINY)
    low, high = _EPS * largest, 1e8 * largest
    outside, power = (max(float(np.mean(each)) / n, _TINY) for each in (problem._parts[1], problem.squares))
    if amplitude is not None:
        low, high = min(low, 0.01 * outside / amplitude), max(high, 100 * (power / amplitude + unexplained / n))
    elif alpha is not None:
        low = min(low, 0.01 * alpha * low / power)
    low = max(low, _EPS**2 * largest)
    return np.geomspace(low, high, 2 + int(10 * np.log10(high / low)))


N_AUTO = 100
# Range of "auto", relative to the largest eigenvalue: from the rounding of the factor to a fit that is constant.
_AUTO_RANGE = (1e-10, 10.0)
# Rows with leave-one-out errors: enough to distinguish regularisations, and a small part of a large fit.
MOST_JUDGED = 5000
# Largest rounding error of a sum of squares, relative to the sum, in multiples of ε.
_ROUNDING = 64
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class RidgeProblem:
    """A ridge regression on the features of a fitted map, which can be solved for any regularisation.

    Attributes
    ----------
    values : array (r,)
        Λ, the eigenvalues of the (weighted, centred) Gram matrix.
    vectors : array (r, r) or None
        V; None means the identity.
    cross : array (r, t)
        c, the target in the basis V.
    squares : array (t,)
        ``yᵀDy``, centred if there is an intercept.
    count : float
        Number of rows: each counted by its weight, unless only the ratios of the weights have a meaning.
    weight : float
        Sum of the weights in the squares: ``count``, unless weights are not whole, or class weights emphasise rows.
    feature_mean, target_mean : arrays (r,), (t,)
        Weighted means; zeros without an intercept.
    fit_intercept : bool
        Whether there is an intercept.
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
        """The squares of the target along each feature, (r, t), and the part that no feature explains, (t,).

        The difference is computed once for all regularisations; only positive terms are added to it, so scores are
        smooth in the regularisation even if almost nothing is unexplained.
        """
        floor = _ROUNDING * _EPS
        seen = self.values > floor * np.max(self.values, initial=0.0)
        inverse = np.divide(1.0, self.values, out=np.zeros_like(self.values), where=seen)
        inside = np.square(self.cross * np.sqrt(inverse)[:, None])
        return inside, np.maximum(self.squares - inside.sum(axis=0), floor * self.squares)

    def choose(self, alphas: Array, scores: Array) -> int:
        """Return the index of the best score; among scores equal up to rounding, of the largest regularisation."""
        noise = _ROUNDING * _EPS * float(self.squares.mean()) / self.weight
        tied = scores <= np.min(scores) * (1 + _ROUNDING * _EPS) + noise
        return int(np.argmax(np.where(tied, alphas, 0.0)))

    def gcv(self, alphas: Array) -> Array:
        """Return the generalised cross-validation ``(RSS/Σw) / (1 − df/n)²``, averaged over targets, for each value."""
        inside, outside = self._parts
        shrunk = self.values + alphas[:, None]
        rss = outside + (alphas[:, None] / shrunk) ** 2 @ inside
        df = (self.values / shrunk).sum(axis=1) + self.fit_intercept
        left = np.maximum(1 - df / self.count, _EPS)
        return np.asarray(rss.mean(axis=1) / self.weight / left**2)

    def quadratic(self, alphas: Array) -> Array:
        """Return ``yᵀ(L Lᵀ + λI)⁻¹y`` of each target for each value, shape (a, t)."""
        inside, outside = self._parts
        return np.asarray(outside / alphas[:, None] + (1 / (self.values + alphas[:, None])) @ inside)

    def log_determinant(self, alphas: Array) -> Array:
        """Return ``log det(L Lᵀ + λI)`` for each value; restricted to contrasts if there is an intercept."""
        n = self.count - self.fit_intercept
        ratios = self.values / alphas[:, None]
        return np.asarray(n * np.log(alphas) + np.log1p(ratios).sum(axis=1))

    def negative_log_likelihood(self, alphas: Array) -> Array:
        """Return the negative log marginal likelihood per row, averaged over the targets, for each value.

        The target is normal with covariance ``s (L Lᵀ + λI)``, with the optimal scale s for each target. With an
        intercept this is the restricted likelihood; weights change it by a constant, which is omitted.
        """
        n = max(self.count - self.fit_intercept, 1)
        scale = np.maximum(self.quadratic(alphas) / n, _TINY)
        halves = np.log(2 * np.pi * scale).mean(axis=1) + self.log_determinant(alphas) / n + 1
        return np.asarray(halves / 2)


def ridge_problem(fitted: NystromMap, *, fit_intercept: bool = False, count: float | None = None) -> RidgeProblem:
    """Return the ridge regression from the sums of a fitted map. Cost: O(r³) at most; reads no row.

    ``count`` is the number of rows, if class weights are among the weights. Without it, whole weights are repetitions;
    of others only the ratios have a meaning, and each row counts once.
    """
    s, Q = fitted.statistics, fitted.rotation
    count = (s.weight if s.repeats else float(s.count)) if count is None else count
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
    """Return the regularisations that "auto" tries: a grid relative to the largest eigenvalue."""
    largest = float(values[0]) if values.size and values[0] > 0 else 1.0
    return largest * np.geomspace(*_AUTO_RANGE, N_AUTO)


def leave_one_out(
    problem: RidgeProblem,
    fitted: NystromMap,
    rows: RowBlocks,
    engine: Engine,
    alphas: Array,
    unit: Callable[[Array], Array] | None = None,
    kept: Array | None = None,
) -> Array:
    """Return the mean squared leave-one-out error for each value, averaged over targets; the map is kept fixed.

    The error of row i when left out of the fit is ``(y_i − f(x_i)) / (1 − h_i)``, with h the diagonal of the hat
    matrix. Of a row of weight 2, one of two repetitions is left out; if weights are not whole, the whole row. With more
    than 5,000 rows a sample of 5,000 is judged, each by the fit to all others: this determines the mean to about 2 %,
    and differences between regularisations, which share the sample, far better.

    Parameters
    ----------
    rows : RowBlocks
        The rows of the fit, with their targets.
    unit : callable, optional
        From the targets of some rows to the weight of one repetition of each; 1 if not given.
    kept : array (n, m), optional
        Kernel values of all rows with the landmarks, if the fit has kept them.

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
    judged, stands = draw_rows(rows.shape[0], MOST_JUDGED, row_weights(Passes(rows, engine)), np.random.default_rng(0))

    def step(block: Block) -> Sums:
        here = slice(*np.searchsorted(judged, (block.start, block.stop)))
        local = judged[here] - block.start
        C = fitted.evaluate(block.X[local]) if kept is None else kept[judged[here]]
        phi = to_host(C.astype(np.float64, copy=False) @ projection)
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


# Operations per kernel value: for its exponential, beside the p of its product; and for the two products of a step,
# which run at a quarter of the speed of matrix products.
_EXPONENTIAL = 20
_STEP_PRODUCTS = 8
_SLOWER = 4
# Below this many operations (about ten seconds) use the closed form: it gives a certificate and all regularisations.
_FEW_OPERATIONS = 1e12
# Below this many operations (about a minute) use a factor for machines that take many passes with or without it.
_LONG_OPERATIONS = 4e12
# Typical number of steps of conjugate gradients, and of the exact solver.
STEPS = 30
_EXACT_STEPS = 40
# Cost of a trial regularisation as a fraction of a full solve, and the number that "auto" tries.
_SEARCH_SHARE = 0.3
AUTO_ALPHAS = 10
# Cost of an eigenvalue problem of order m, in multiples of m³, at the speed of matrix products.
_ALGEBRA = 40
# Operations of k-means per sample row and landmark: ten iterations on 20 columns.
_CLUSTERING = 400
# Beyond this, the dozen m × m matrices of the closed form take gigabytes.
_MOST_FACTOR_LANDMARKS = 12_000


class Choice(NamedTuple):
    """A solver and the reason for its choice."""

    solver: str
    reason: str


def choose_solver(
    n_rows: int,
    n_features: int,
    n_landmarks: int,
    n_targets: int = 1,
    *,
    n_alphas: int = 1,
    factor_fits: bool = True,
) -> Choice:
    """Return the cheapest of "factor", "cg" and "exact", and the reason.

    The first two solve the same problem. The exact solver does so only if every row is a landmark.

    Parameters
    ----------
    n_rows, n_features, n_landmarks, n_targets : int
        n, p, m and t.
    n_alphas : int
        Regularisations to choose from. The closed form computes all at the cost of one.
    factor_fits : bool
        Whether the closed form fits in ``max_memory`` and in the memory of this machine.

    Examples
    --------
    >>> choose_solver(100_000, 10, 1000).solver, choose_solver(100_000, 10, 20_000).solver
    ('factor', 'cg')
    """
    n, p, m, t = float(n_rows), n_features, float(min(n_landmarks, n_rows)), n_targets
    values = n * m * (p + _EXPONENTIAL)
    factor = factor_operations(n, p, m)
    cg = n_alphas * m**3 + solves(n_alphas) * STEPS * _SLOWER * (values + _STEP_PRODUCTS * n * m * t)
    if m >= n and factor > _FEW_OPERATIONS:
        # The factor that preconditions the exact solver uses at most 1,000 landmarks.
        few = min(1000.0, n)
        exact = n * few * few + _ALGEBRA * few**3 + _EXACT_STEPS * _SLOWER * n * n * (p + _EXPONENTIAL + 8 * t) / 2
        if exact < min(factor, cg):
            return Choice("exact", f"every row is a landmark, and {exact:.2g} operations are fewer than {factor:.2g}")
    if not factor_fits:
        return Choice("cg", "the closed form does not fit into max_memory, or into this machine")
    if m > _MOST_FACTOR_LANDMARKS:
        return Choice("cg", f"the closed form would take more than {100 * m * m / 1e9:.0f} GB for {m:.0f} landmarks")
    if factor > _FEW_OPERATIONS and cg < factor:
        return Choice("cg", f"about {cg:.2g} operations, against {factor:.2g} of the closed form")
    if cg < factor:
        return Choice("factor", f"about {factor:.2g} operations, too few to gain by conjugate gradients")
    return Choice("factor", f"about {factor:.2g} operations, against {cg:.2g} of conjugate gradients")


def solves(n_alphas: int) -> float:
    """Return the cost of choosing a regularisation by conjugate gradients, in full solves."""
    # Each trial regularisation is solved to fewer digits from the previous one; the best is solved again on all rows.
    return 1.0 if n_alphas == 1 else 1 + _SEARCH_SHARE * n_alphas


def factor_operations(n: float, p: int, m: float) -> float:
    """Return the operations of the closed form with m landmarks."""
    return n * m * (p + _EXPONENTIAL) + 2 * n * m * m + _ALGEBRA * m**3


def fit_operations(n_rows: int, n_features: int, n_landmarks: int, n_columns: int = 0) -> float:
    """Return the operations of a whole fit: selecting landmarks, the factor, and the solver.

    The solver computes leave-one-out errors or, if ``n_columns`` is above 0, passes of a loss with that many functions.
    """
    n, m = float(n_rows), float(min(n_landmarks, n_rows))
    selection = _CLUSTERING * min(n, max(64 * m, 10_000)) * m
    sampled = min(n, MOST_JUDGED)
    passes = _SLOWER * 4 * m * n_columns * (15 * n + 40 * sampled) if n_columns else 2 * sampled * m * m
    return factor_operations(n, n_features, m) + selection + passes


def factor_takes_long(n_rows: int, n_landmarks: int) -> bool:
    """Return whether a factor costs more than the passes of a machine that does not need one."""
    n, m = float(n_rows), float(min(n_landmarks, n_rows))
    return 2 * n * m * m + _ALGEBRA * m**3 > _LONG_OPERATIONS or m > _MOST_FACTOR_LANDMARKS
