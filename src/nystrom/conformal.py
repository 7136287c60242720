"""Intervals, sets and probabilities from rows left out of a fit, without refitting.

A machine minimises ``Σ ω_i ℓ(y_i, f(x_i)) + ½ p ‖f‖²``. One Newton step from its solution leaves rows out: exactly for
a squared loss, and as the usual approximation for other losses. The scores of left-out rows are distributed like those
of new rows, as conformal prediction requires.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import softmax

from nystrom.rows.draw import are_whole, effective_count
from nystrom.types import Array

_EPS = float(np.finfo(np.float64).eps)
# Largest number of features, and the penalties tried, in the fit of the local scale of errors.
_SCALE_FEATURES = 100
_SCALE_PENALTIES = 10.0 ** np.arange(-5.0, 1.0)
# Minimum gain, in standard errors. With 1, and features for a fifth of the groups, coverage of 40 groups fell to 86 %.
_SCALE_GAIN = 2.0
# Errors are clipped from below at this fraction of their median before taking logarithms.
_SCALE_FLOOR = 0.05
# Scores at which log-odds become infinite; the best is chosen.
_REACHES = (1.01, 1.03, 1.1, 1.3, 2.0)
# Largest number of bins of the calibration error, and least rows per bin: the noise of each bin adds to the error.
_BINS = 15
_BIN_ROWS = 100


@dataclass(frozen=True)
class LeftOut:
    """The effect of leaving out each group of rows from a fit of t functions on q features.

    Attributes
    ----------
    change : array (s, t)
        ``f₋(x_i) − f(x_i)``, with the whole group of row i left out.
    steps : array (t, q, groups) or None
        The change of the weights for each group, if requested.
    leverage : array (s, t)
        ``φᵀ H⁻¹ φ`` with the row left out of H.
    """

    change: Array
    steps: Array | None
    leverage: Array


def leave_out(
    phi: Array,
    gradient: Array,
    curvature: Array,
    once: Array,
    hessians: Array,
    groups: Array,
    beyond: Array,
    *,
    with_steps: bool = False,
) -> LeftOut:
    """Return one Newton step for each group of rows left out. Cost: O(q³ + s q²) per Hessian.

    Parameters
    ----------
    phi : array (s, q)
        Features of the rows.
    gradient, curvature : arrays (s, t), (s, t) or (s, 1)
        Derivatives of the loss with respect to the scores of each row.
    once : array (s,)
        Weight of one repetition of each row.
    hessians : array (t, q, q) or (1, q, q)
        Hessians of the whole objective.
    groups : array (s,)
        The number of each row's group, from 0.
    beyond : array (s,)
        Leverage of a left-out row due to features other than these; zeros if there are none.
    with_steps : bool
        Whether to return the change of the weights as well.
    """
    n_groups, alone = int(groups.max()) + 1, int(groups.max()) + 1 == len(groups)
    (s, q), t = phi.shape, gradient.shape[1]
    change, leverage = np.empty((s, t)), np.empty((s, t))
    steps = np.empty((t, q, n_groups)) if with_steps else None
    bend = np.broadcast_to(curvature * once[:, None], (s, t))
    pull = gradient * once[:, None]
    U = np.empty((0, 0))
    for k in range(t):
        if k < len(hessians):
            L = np.linalg.cholesky(hessians[k] + _EPS * np.trace(hessians[k]) * np.eye(q))
            U = solve_triangular(L, phi.T, lower=True)
            h = np.einsum("qi,qi->i", U, U)
        # Only rounding brings this to 0; the row then determines its own score.
        left = h / np.maximum(1 - bend[:, k] * h, _EPS) + beyond
        leverage[:, k] = left
        if alone:
            change[:, k] = pull[:, k] * left
            if steps is not None:
                pulls = pull[:, k] * (1 + bend[:, k] * left)
                steps[k][:, groups] = solve_triangular(L, U * pulls, lower=True, trans="T")
            continue
        for numbers, own in _of_equal_size(groups):
            V = U.T[own]
            inner = V @ V.transpose(0, 2, 1)
            matrix = np.eye(own.shape[1]) * (1 + 8 * _EPS) - bend[own, k][:, :, None] * inner
            pulls = np.linalg.solve(matrix, pull[own, k][:, :, None])
            change[own, k] = (inner @ pulls)[:, :, 0] + beyond[own] * pull[own, k]
            if steps is not None:
                sums = (V.transpose(0, 2, 1) @ pulls)[:, :, 0]
                steps[k][:, numbers] = solve_triangular(L, sums.T, lower=True, trans="T")
    return LeftOut(change, steps, leverage)


def _of_equal_size(groups: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the numbers of the groups of one size, and their rows: an array (groups, size)."""
    order, sizes = np.argsort(groups, kind="stable"), np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes):
        numbers = np.flatnonzero(sizes == size)
        yield numbers, order[starts[numbers, None] + np.arange(size)]


@dataclass(frozen=True)
class LocalScale:
    """The size of errors near x, ``exp(φ(x) @ weights + intercept)``, and its value at each row when left out."""

    weights: Array
    intercept: Array
    at_rows: Array


def fit_scale(phi: Array, errors: Array, weight: Array, groups: Array) -> LocalScale:
    """Fit the local size of errors by ridge regression on their logarithms. Cost: O(s q²), q at most 100.

    Parameters
    ----------
    phi : array (s, r)
        Features of the rows; those with the largest mean square are used.
    errors : array (s, t)
        Errors of left-out rows.
    weight, groups : arrays (s,)
        How often each row counts, and the number of its group.

    Notes
    -----
    The penalty minimises the squared error with groups left out. A constant is used unless that gains more than two
    standard errors.
    """
    (s, r), t = phi.shape, errors.shape[1]
    n_groups, share = int(groups.max()) + 1, weight / weight.sum()
    sizes = np.abs(errors)
    floors = [_SCALE_FLOOR * conformal_quantile(column, weight, 0.5, np.inf) for column in sizes.T]
    level = np.log(np.maximum(sizes, np.maximum(floors, np.finfo(float).tiny)))
    centre = share @ level
    constant = LocalScale(np.zeros((r, t)), centre, np.exp(np.broadcast_to(centre, (s, t))))
    most = min(_SCALE_FEATURES, n_groups // 10)
    kept = np.sort(np.argsort(-np.square(phi).mean(axis=0), kind="stable")[:most])
    design = phi[:, kept] - share @ phi[:, kept]
    spread = float(np.sqrt(share @ np.square(design).sum(axis=1)))
    if not spread > 0:
        return constant
    design, above = design / spread, level - centre
    moments, right = (design * share[:, None]).T @ design, (design * share[:, None]).T @ above
    # Of a number of repetitions one is left out, else the whole row.
    once, fits = (np.minimum(weight, 1.0) if are_whole(weight) else weight) / weight.sum(), []
    eigenvalues, Q = np.linalg.eigh(moments)
    turned, right = design @ Q, Q.T @ right
    for penalty in _SCALE_PENALTIES:
        shrunk = 1 / (np.maximum(eigenvalues, 0.0) + penalty)
        found = shrunk[:, None] * right
        residual = _residual_left_out(above - turned @ found, turned, shrunk, once, groups)
        fits.append((float((share @ np.square(residual)).sum()), Q @ found, residual))
    _, found, residual = min(fits, key=lambda fit: fit[0])
    gain = np.square(above) - np.square(residual)
    noise = np.sqrt(share @ np.square(gain - share @ gain) / n_groups)
    better = share @ gain > _SCALE_GAIN * noise
    weights = np.zeros((r, t))
    weights[kept] = np.where(better, found / spread, 0.0)
    rows = np.where(better, level - residual, centre)
    return LocalScale(weights, centre - (share @ phi) @ weights, np.exp(rows))


def _residual_left_out(residual: Array, design: Array, shrunk: Array, once: Array, groups: Array) -> Array:
    """Return the residuals of ridge regression with each group left out, for the inverse Hessian ``diag(shrunk)``."""
    if int(groups.max()) + 1 == len(groups):
        return np.asarray(residual / np.maximum(1 - once * (np.square(design) @ shrunk), _EPS)[:, None])
    out = np.empty_like(residual)
    for _, own in _of_equal_size(groups):
        V = design[own]
        matrix = np.eye(own.shape[1]) * (1 + 8 * _EPS) - (V * shrunk) @ V.transpose(0, 2, 1) * once[own][:, None]
        out[own] = np.linalg.solve(matrix, residual[own])
    return out


def conformal_quantile(values: Array, weight: Array, coverage: float, count: float) -> Array:
    """Return the quantile of scores, along the last axis, that a new score stays below with probability ``coverage``.

    Parameters
    ----------
    values : array (..., s)
        Scores of left-out rows.
    weight : array (s,)
        How often each counts.
    coverage : float
        Between 0 and 1.
    count : float
        Effective number of rows. The new row adds one, so too few rows give infinity.
    """
    if np.ptp(weight) == 0:
        place = int(np.ceil(coverage * (1 + 1 / count) * len(weight) - 1e-9)) - 1
        if place >= len(weight):
            return np.full(values.shape[:-1], np.inf)
        return np.asarray(np.partition(values, place, axis=-1)[..., place])
    order = np.argsort(values, axis=-1, kind="stable")
    reached = np.cumsum(weight[order], axis=-1) / weight.sum()
    # Rounding of the sums must not move the quantile by one row.
    place = (reached < coverage * (1 + 1 / count) - 1e-12).sum(axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    padded = np.concatenate([ordered, np.full((*values.shape[:-1], 1), np.inf)], axis=-1)
    return np.asarray(np.take_along_axis(padded, place[..., None], axis=-1)[..., 0])


@dataclass(frozen=True)
class ClassLink:
    """The link from scores to probabilities, ``softmax(slope · g(s) + offsets)``.

    A squared loss on targets ±1 and a squared hinge are minimal at ``s = 2 p − 1``. So ``g(s) = atanh(s / reach)``
    converts s to log-odds; beyond ±1 it continues with its slope at 0. Without a ``reach`` g is the identity, for
    scores that are log-odds already. Without offsets, the order of the scores is kept.
    """

    slope: float
    reach: float | None
    offsets: Array

    def __call__(self, scores: Array) -> Array:
        return np.asarray(softmax(self.slope * _bent(scores, self.reach) + self.offsets, axis=1))


def _bent(scores: Array, reach: float | None) -> Array:
    if reach is None:
        return scores
    inside = np.clip(scores, -1.0, 1.0)
    return np.asarray(np.arctanh(inside / reach) + (scores - inside) / reach)


def fit_link(scores: Array, codes: Array, weight: Array, *, offsets: bool) -> ClassLink:
    """Return the link with the least log-loss on left-out rows, from their scores (s, c) and class numbers.

    As in Platt's method, one extra row counts equally for every class: classes without an error would otherwise get
    probabilities of 0 and 1. ``offsets`` says whether the classes were weighted, which shifts their scores.
    """
    rows, c = np.arange(len(codes)), scores.shape[1]
    alike = 1 / (1 + effective_count(weight))
    # Classes first: sums over few classes are fast only across rows.
    marks = np.full((c, len(codes)), alike / c)
    marks[codes, rows] += 1 - alike
    marks *= weight

    def fit(reach: float) -> tuple[float, ClassLink]:
        bent = np.ascontiguousarray(_bent(scores, reach).T)

        def objective(x: Array) -> tuple[float, Array]:
            slope, shift = np.exp(x[0]), x[1:, None] if offsets else np.zeros((c, 1))
            logs = slope * bent + shift
            logs -= logs.max(axis=0)
            odds = np.exp(logs)
            total = odds.sum(axis=0)
            value = float(weight @ np.log(total) - np.vdot(marks, logs))
            off = odds * (weight / total) - marks
            return value, np.append(slope * np.vdot(off, bent), off.sum(axis=1) if offsets else [])

        exact = {"ftol": 0.0, "gtol": 1e-9 * float(weight.sum())}
        found = minimize(objective, np.zeros(1 + c * offsets), jac=True, method="L-BFGS-B", options=exact)
        shift = found.x[1:] if offsets else np.zeros(c)
        return float(found.fun), ClassLink(float(np.exp(found.x[0])), reach, shift)

    return min((fit(reach) for reach in _REACHES), key=lambda pair: pair[0])[1]


def expected_calibration_error(probabilities: Array, codes: Array, weight: Array | None = None) -> float:
    """Return the mean difference between confidence and accuracy, over bins of rows of similar confidence.

    The confidence of a row is the probability of its most probable class. There are 15 bins of equal size, fewer for
    less than 1,500 rows.
    """
    n = len(codes)
    weight = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == codes
    parts = np.array_split(np.argsort(sure, kind="stable"), np.clip(n // _BIN_ROWS, 1, _BINS))
    gaps = [abs(weight[part] @ (sure[part] - right[part])) for part in parts]
    return float(sum(gaps) / weight.sum())
