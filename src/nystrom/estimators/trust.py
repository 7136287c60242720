"""Left-out rows of a fit, and the intervals, sets and probabilities that they calibrate.

A fit keeps a sample of at most 2,000 rows, without a further pass. Intervals, sets and probabilities are computed on
first use, or when the model is saved; a few numbers per row then replace the sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from nystrom.conformal import (
    ClassLink,
    conformal_quantile,
    expected_calibration_error,
    fit_link,
    fit_scale,
    leave_out,
)
from nystrom.devices import fetch, to_host
from nystrom.engine import Engine
from nystrom.exceptions import ApproximationWarning, warn_caller
from nystrom.landmarks.base import Landmarks
from nystrom.linalg import psd_eigh
from nystrom.nystroem.factor import FeatureMap, NystromMap, spanning_projection
from nystrom.rows import Block, RowBlocks, array_rows
from nystrom.rows.draw import WatchedRows, are_whole, effective_count, take_with_targets, watched
from nystrom.rows.reading import require_unmasked
from nystrom.solvers.losses import Logistic, Loss, Multinomial
from nystrom.types import Array, Matrix, TargetLike

# Largest number of left-out rows: a coverage of 90 % is then accurate to 0.7 % (one standard deviation).
SAMPLE_ROWS = 2000
# Wide rows are limited to this many bytes in the model; but at least this many rows are kept.
_SAMPLE_BYTES = 32 * 2**20
_LEAST_ROWS = 500
# Up to this many rows, intervals use the jackknife+. With more, leaving out one row changes a prediction by less than
# 1 % of the interval's width.
JACKKNIFE_ROWS = 250
# Largest number of landmarks for estimating leverages if the fit has no factor.
_FEW_LANDMARKS = 1000
# Rows whose intervals are computed at a time.
TILE_ROWS = 512
# A coverage with its half-width in normal deviations, and the shortfall in coverage above which a band is too narrow.
_BAND = (0.9, 1.6449)
_BAND_SHORT = 0.05
_EPS = float(np.finfo(np.float64).eps)
_UNKNOWN = (
    "{what} needs rows that were left out of the fit, and this model holds none: it was fitted by partial_fit or "
    "merge, or saved by version 0.1. Fit it again, in one call of fit."
)


@dataclass(frozen=True)
class Sample:
    """Some rows of a fit, and the objective that the fit minimised.

    Attributes
    ----------
    X : matrix (s, p)
    target : array (s, t) or (s,)
        In the form that the loss takes.
    codes : array (s,) or None
        The class numbers.
    weight, once, times : arrays (s,)
        The weight of each row in the objective, the weight that is left out, and the number of rows it counts as.
    groups : array (s,)
        The number of each row's group, from 0.
    diagonal : array (s,) or None
        k(x, x), if it cannot be computed from the rows.
    complete : bool
        Whether these are all rows of the fit, except those of weight 0.
    n_rows : int
        Number of rows of the fit, except those of weight 0; estimated unless the sample is complete.
    loss : Loss or None
        None is half the squared error.
    penalty : float
        Multiplied by half the squared norm of the function.
    tuned : bool
        Whether the penalty was chosen on the rows.
    """

    X: Matrix
    target: Array
    codes: Array | None
    weight: Array
    once: Array
    times: Array
    groups: Array
    diagonal: Array | None
    complete: bool
    n_rows: int
    loss: Loss | None
    penalty: float
    fit_intercept: bool
    weighted_classes: bool
    tuned: bool

    @property
    def counts(self) -> tuple[Array, float]:
        """The weight of each row among the scores, and the effective number of rows."""
        times, n_groups = self.times, int(self.groups.max()) + 1
        # A penalty chosen on the same rows suits them better than new rows: count one row less.
        count = effective_count(times)
        if n_groups == len(self.groups):
            return times, count / (1 + self.tuned)
        return times / np.bincount(self.groups, times)[self.groups], 1 / (1 / n_groups + self.tuned / count)


@dataclass(frozen=True)
class Draw:
    """The rows of a fit that are kept: their numbers and groups, and the rows to fit to, which record them."""

    rows: RowBlocks
    numbers: Array
    groups: Array
    grouped: bool
    coordinates: bool

    @classmethod
    def of(cls, rows: RowBlocks, groups: TargetLike, *, coordinates: bool) -> Draw:
        """Draw random rows, or whole groups of them; without ``coordinates`` a row contains its kernel values."""
        n, p = rows.shape
        row_bytes = 1 if rows.is_sparse else p * rows.dtype.itemsize
        most = int(np.clip(_SAMPLE_BYTES // row_bytes, _LEAST_ROWS, SAMPLE_ROWS))
        rng = np.random.default_rng(0)
        codes = None if groups is None else _check_groups(groups, n)
        if n <= most:
            numbers = np.arange(n)
        elif codes is None:
            numbers = np.sort(rng.choice(n, most, replace=False, shuffle=False))
        else:
            sizes = np.bincount(codes)
            order = rng.permutation(len(sizes))
            drawn = order[: max(int(np.searchsorted(np.cumsum(sizes[order]), most)), 1)]
            numbers = np.flatnonzero(np.isin(codes, drawn))
        own = np.arange(len(numbers)) if codes is None else np.unique(codes[numbers], return_inverse=True)[1].ravel()
        return cls(watched(rows, numbers), numbers, own, codes is not None, coordinates)

    def take(
        self,
        engine: Engine,
        y: Array | None,
        weight: Array | None,
        *,
        penalty: float,
        fit_intercept: bool,
        tuned: bool,
        whole: bool = False,
        loss: Loss | None = None,
        codes: Array | None = None,
        class_weights: Array | None = None,
    ) -> Held:
        """Return the sample after the fit; takes a pass only on a cluster.

        ``y`` and ``weight`` are None if the rows contain them.
        ``whole`` says that weights are not repetitions, such as those from the noise of each row.
        """
        numbers, rows, here = self.numbers, self.rows, engine.reads_here(self.rows)
        found = rows.kept() if isinstance(rows, WatchedRows) else None
        if found is None and rows.in_memory and y is not None and (weight is not None or not rows.has_weight):
            found = Block(0, 0, rows.take(numbers))
        if found is None:
            found = take_with_targets(rows if here else rows.with_target(y, weight), engine, numbers)
        found = replace(found, X=to_host(found.X))
        # Those of a cluster are lazy, and were taken with the rows.
        y = found.y if y is None or not here else np.asarray(y[numbers])
        weight = found.weight if weight is None or not here else np.asarray(weight[numbers])
        weight = np.ones(len(numbers)) if weight is None else np.asarray(weight, dtype=np.float64)
        kinds = None if codes is None else codes[numbers].astype(np.intp)
        unit = np.ones(len(numbers)) if class_weights is None or kinds is None else class_weights[kinds]
        own = np.flatnonzero(weight > 0)
        once = whole or self.grouped or not are_whole((weight / unit)[own])
        diagonal = None if self.coordinates else np.asarray(found.X[np.arange(len(numbers)), numbers]).ravel()[own]
        assert y is not None
        return Held(
            Sample(
                found.X[own],
                np.asarray(y)[own],
                None if kinds is None else kinds[own],
                weight[own],
                (weight if once else np.minimum(unit, weight))[own],
                (np.ones_like(weight) if whole else weight / unit)[own],
                np.unique(self.groups[own], return_inverse=True)[1].ravel(),
                diagonal,
                len(numbers) == rows.shape[0],
                round(rows.shape[0] * len(own) / len(numbers)),
                loss,
                float(penalty),
                fit_intercept,
                class_weights is not None,
                tuned,
            )
        )


def _check_groups(groups: Any, n: int) -> Array:
    require_unmasked(groups, "groups")
    found = np.asarray(groups)
    if found.shape != (n,):
        raise ValueError(f"groups must have one entry for each of the {n} rows of X; got the shape {found.shape}.")
    codes = np.unique(found, return_inverse=True)[1].ravel()
    if codes.max() == 0:
        raise ValueError("groups must name at least 2 groups: one is left out at a time.")
    return codes


class Held:
    """The sample of a fit, or the scores computed from it."""

    def __init__(self, sample: Sample | None = None, result: ErrorScores | ClassScores | None = None) -> None:
        self.sample, self.result = sample, result


@dataclass(frozen=True)
class ErrorScores:
    """Errors of left-out rows divided by the local size of errors, and the function for that size.

    Attributes
    ----------
    scores : array (s, t)
    weight : array (s,)
        Weight of each score.
    count : float
        Effective number of rows.
    novelty, penalty : array (s,), float
        See :meth:`nystrom.estimators.targets.TargetMachine.unlike`.
    near : array (m,)
        The number of rows of the fit that are nearest to each landmark.
    scale_coef, scale_intercept : arrays (m, t), (t,)
        The logarithm of the local size is ``k(x, Z) @ scale_coef + scale_intercept``.
    groups : array (s,)
        The number of each row's group.
    shift_coef, shift_intercept : arrays (t, m, groups), (t, groups), or None
        Change of a prediction when a group is left out, for fits to few rows.
    """

    scores: Array
    weight: Array
    count: float
    novelty: Array
    penalty: float
    near: Array
    scale_coef: Array
    scale_intercept: Array
    groups: Array
    shift_coef: Array | None = None
    shift_intercept: Array | None = None

    def __post_init__(self) -> None:
        _require_numbers(self)
        (s, t), (m, _) = self.scores.shape, self.scale_coef.shape
        fits = (
            self.weight.shape == self.groups.shape == (s,) and self.scale_coef.shape == (m, t) and len(self.near) == m
        )
        fits &= self.scale_intercept.shape == (t,) and bool((self.groups >= 0).all())
        if self.shift_coef is not None and self.shift_intercept is not None:
            n_groups = int(self.groups.max()) + 1
            fits &= self.shift_coef.shape == (t, m, n_groups) and self.shift_intercept.shape == (t, n_groups)
        if not (fits and s):
            raise ValueError("the errors of left-out rows have inconsistent shapes")

    def interval(self, predicted: Array, C: Array, coverage: float) -> Array:
        """Return lower and upper ends, shape (n, t, 2), of predictions (n, t) from their kernel values (n, m)."""
        scale = np.exp(C @ self.scale_coef + self.scale_intercept)
        out = np.empty((*predicted.shape, 2))
        for k in range(predicted.shape[1]):
            middle, size = predicted[:, k], scale[:, k]
            if self.shift_coef is None or self.shift_intercept is None:
                half = conformal_quantile(self.scores[:, k], self.weight, coverage, self.count) * size
                out[:, k] = np.column_stack([middle - half, middle + half])
                continue
            others = middle[:, None] + (C @ self.shift_coef[k] + self.shift_intercept[k])[:, self.groups]
            halves = size[:, None] * self.scores[:, k]
            out[:, k, 0] = -conformal_quantile(halves - others, self.weight, coverage, self.count)
            out[:, k, 1] = conformal_quantile(halves + others, self.weight, coverage, self.count)
        return out


@dataclass(frozen=True)
class ClassScores:
    """One minus the probability of the class of each left-out row, and the link from scores to probabilities.

    Attributes
    ----------
    scores, weight, count, novelty, penalty, near
        As in :class:`ErrorScores`.
    link : ClassLink
        From scores to probabilities.
    calibration_error : float
        The expected calibration error of the probabilities of left-out rows.
    """

    scores: Array
    weight: Array
    count: float
    novelty: Array
    penalty: float
    near: Array
    link: ClassLink
    calibration_error: float

    def __post_init__(self) -> None:
        _require_numbers(self)
        if self.scores.shape != self.weight.shape or not self.scores.size:
            raise ValueError("the scores of left-out rows have inconsistent shapes")

    def probabilities(self, scores: Array) -> Array:
        """Return the probability of each class, (n, c), from scores (n, t)."""
        return self.link(by_class(scores))

    def least_probability(self, coverage: float) -> float:
        """Return the probability above which a class is in a set."""
        return 1 - float(conformal_quantile(self.scores, self.weight, coverage, self.count))


def _require_numbers(scores: Any) -> None:
    for each in fields(scores):
        value = getattr(scores, each.name)
        if (
            value is not None
            and not isinstance(value, ClassLink)
            and not (np.asarray(value).dtype.kind in "fiu" and np.isfinite(value).all())
        ):
            raise ValueError(f"{each.name} of left-out rows must be finite numbers")


def by_class(scores: Array) -> Array:
    """Return scores of all classes, also for two classes."""
    return np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores


def has_left_out(machine: Any) -> bool:
    """Return whether a machine has left-out rows, which intervals, sets of classes and ``unlike`` need."""
    return getattr(machine, "_held", None) is not None


def calibrate(machine: Any, what: str) -> Any:
    """Return the scores of the left-out rows of a machine, computed on first use.

    Cost: O(s m (p + r) + r³) for a sample of s rows.
    """
    held: Held | None = getattr(machine, "_held", None)
    if held is None:
        raise ValueError(_UNKNOWN.format(what=what))
    if held.result is None:
        assert held.sample is not None
        held.result = _scores_of(machine, held.sample)
        held.sample = None
    return held.result


def _scores_of(machine: Any, sample: Sample) -> ErrorScores | ClassScores:
    s, rows = sample.X.shape[0], array_rows(sample.X)
    ask = machine.predict if sample.codes is None else machine.decision_function
    found = np.asarray(fetch(ask(rows)), dtype=np.float64).reshape(s, -1)
    basis = _Basis.of(machine, sample)
    y = np.asarray(sample.target, dtype=np.float64).reshape(s, -1)
    if sample.loss is None:
        gradient, curvature = found - y, np.ones((s, 1))
    else:
        _, gradient = sample.loss.evaluate(np.asarray(sample.target).reshape(s, -1), found)
        curvature = sample.loss.second(np.asarray(sample.target).reshape(s, -1), found)
    hessians = np.stack([basis.hessian(sample, curvature[:, k]) for k in range(curvature.shape[1])])
    jackknife = sample.codes is None and sample.complete and s <= JACKKNIFE_ROWS and not basis.beyond.any()
    left = leave_out(
        basis.phi, gradient, curvature, sample.once, hessians, sample.groups, basis.beyond, with_steps=jackknife
    )
    weight, count = sample.counts
    fitted = machine.map_
    phi = basis.phi[:, : basis.projection.shape[1]]
    seen = phi if basis.projection is fitted.projection else basis.C @ fitted.projection
    # Estimated from the sample of rows.
    near = np.bincount(basis.C.argmax(axis=1), minlength=basis.C.shape[1]) * (sample.n_rows / len(basis.C))
    novelty = _Novelty(fitted, near, sample.penalty)(basis.C, seen, basis.diagonal, left_out=True)
    common: dict[str, Any] = {"weight": weight, "count": count, "novelty": novelty, "penalty": sample.penalty}
    common["near"] = near
    if sample.codes is not None:
        return _class_scores(found + left.change, sample, sample.codes, common)
    errors = y - found - left.change
    if hasattr(machine, "amplitude_"):
        unknown = np.maximum(basis.diagonal - np.square(basis.phi).sum(axis=1), 0.0) * (not basis.beyond.any())
        variance = machine.alpha_ * (1 + left.leverage) + machine.amplitude_ * unknown[:, None]
        _warn_if_narrow(errors / (np.sqrt(variance) * machine._y_deviation), weight)
    scale = fit_scale(phi, errors, weight, sample.groups)
    shifts: dict[str, Any] = {}
    if left.steps is not None:
        r = basis.projection.shape[1]
        constants = left.steps[:, r] if sample.fit_intercept else np.zeros((len(left.steps), left.steps.shape[2]))
        shifts = {
            "shift_coef": np.stack([basis.projection @ steps[:r] for steps in left.steps]).astype(np.float32),
            "shift_intercept": constants,
        }
    return ErrorScores(
        scores=np.abs(errors) / scale.at_rows,
        scale_coef=basis.projection @ scale.weights,
        scale_intercept=scale.intercept,
        groups=sample.groups,
        **common,
        **shifts,
    )


def _warn_if_narrow(errors: Array, weight: Array) -> None:
    """Warn if a Gaussian process is overconfident, judged by errors of left-out rows in units of its deviations."""
    inside = float(np.average((np.abs(errors) <= _BAND[1]).mean(axis=1), weights=weight))
    if inside < _BAND[0] - _BAND_SHORT:
        warn_caller(
            f"the band of this process is too narrow: {inside:.0%} of the targets of left-out rows are in its "
            f"{_BAND[0]:.0%} band. Use predict_interval, give alpha a larger value, or use another kernel.",
            ApproximationWarning,
        )


def _class_scores(scores: Array, sample: Sample, codes: Array, common: dict[str, Any]) -> ClassScores:
    scores, weight = by_class(scores), common["weight"]
    if isinstance(sample.loss, Logistic):
        link = ClassLink(0.5, None, np.zeros(2))
    elif isinstance(sample.loss, Multinomial):
        link = ClassLink(1.0, None, np.zeros(scores.shape[1]))
    else:
        link = fit_link(scores, codes, weight, offsets=sample.weighted_classes)
    found = link(scores)
    error = expected_calibration_error(found, codes, weight)
    return ClassScores(scores=1 - found[np.arange(len(codes)), codes], link=link, calibration_error=error, **common)


@dataclass(frozen=True)
class _Basis:
    """Features of a sample, moments of the features of all rows, and further terms of the leverages.

    ``projection`` (m, r) turns kernel values C with the landmarks of ``machine.map_`` into features. With an intercept,
    phi has a last column of ones.
    """

    C: Array
    phi: Array
    projection: Array
    moments: Array | None
    beyond: Array
    diagonal: Array

    @classmethod
    def of(cls, machine: Any, sample: Sample) -> _Basis:
        fitted: FeatureMap = machine.map_
        C = np.asarray(to_host(fitted.evaluate(sample.X)), dtype=np.float64)
        separate = getattr(machine, "solver_", "factor") == "exact" or hasattr(machine, "mean_map_")
        moments = None
        if isinstance(fitted, NystromMap):
            projection = fitted.projection
            moments = _moments(
                np.diag(fitted.eigenvalues), fitted.rotation.T @ fitted.statistics.mean, fitted.statistics.weight
            )
        elif sample.complete:
            projection = fitted.projection
        else:
            m = len(fitted.landmarks)
            few = np.linspace(0, m - 1, min(_FEW_LANDMARKS, m)).astype(int)
            inner = spanning_projection(fitted.kernel, Landmarks(fitted.landmarks.points[few], None))
            projection = np.zeros((m, inner.shape[1]))
            projection[few] = inner
            # Landmarks that are left out may explain part of each row.
            separate = separate or len(few) < m
        phi = C @ projection
        diagonal = fitted.kernel.diag(sample.X) if sample.diagonal is None else sample.diagonal
        diagonal, beyond = np.asarray(diagonal, dtype=np.float64), np.zeros(len(phi))
        if separate:
            beyond = np.maximum(diagonal - np.square(phi).sum(axis=1), 0.0) / sample.penalty
        if sample.fit_intercept:
            phi = np.column_stack([phi, np.ones(len(phi))])
        return cls(C, phi, projection, moments, beyond, diagonal)

    def hessian(self, sample: Sample, curvature: Array) -> Array:
        """Return the Hessian of the objective for one score."""
        q, r = self.phi.shape[1], self.projection.shape[1]
        if self.moments is None or (sample.complete and sample.loss is not None):
            times = sample.n_rows / len(self.phi)
            H = (self.phi * (times * sample.weight * curvature)[:, None]).T @ self.phi
        else:
            H = self.moments[:q, :q] * float(np.average(curvature, weights=sample.weight))
        return np.asarray(H + sample.penalty * np.diag(np.arange(q) < r))


def _moments(gram: Array, mean: Array, weight: float) -> Array:
    """Return the second moments of features with an added constant column."""
    return np.block([[gram, weight * mean[:, None]], [weight * mean[None], np.array([[weight]])]])


class _Novelty:
    """The variance of f, relative to k(x, x): 1 at rows unlike any in the fit.

    Each landmark counts for the rows of the fit that are nearest to it, ``near`` of them, so that a few numbers besides
    the landmarks determine the variance, and a model from a file has that of the fit.
    """

    def __init__(self, fitted: FeatureMap, near: Array, penalty: float) -> None:
        self.fitted, self.near, self.penalty = fitted, near, penalty
        if isinstance(fitted, NystromMap):
            F = np.asarray(to_host(fitted.evaluate(fitted.landmarks.points)), dtype=np.float64) @ fitted.projection
            values, Q = psd_eigh((F * near[:, None]).T @ F)
            self._whiten = Q / np.sqrt(np.maximum(values, 0.0) + penalty)
            self._landmarks = F @ self._whiten

    def __call__(self, C: Array, phi: Array, diagonal: Array, *, left_out: bool = False) -> Array:
        """Return it at rows with kernel values C and features phi; ``left_out`` of the fit, if they are rows of it."""
        near, fitted = self.near, self.fitted
        unknown = np.maximum(diagonal - np.square(phi).sum(axis=1), 0.0)
        if left_out:
            nearest = C.argmax(axis=1)
            # A landmark is the mean of c rows. Without one of them, it is c / (c − 1) times as far from that row;
            # without its only row, there is no landmark. If this is ignored, too many new rows are reported: 4 %
            # instead of 1 % in six columns.
            own, count = fitted.projection[nearest], near[nearest]
            farther = np.divide(count, count - 1, out=np.ones_like(count), where=count > 1)
            lost = np.square((phi * own).sum(axis=1)) / np.maximum(np.square(own).sum(axis=1), np.finfo(float).tiny)
            unknown = np.minimum(unknown * farther**2, unknown + lost)
        if isinstance(fitted, NystromMap):
            turned = phi @ self._whiten
            seen = np.square(turned).sum(axis=1)
            if left_out:
                own = self._landmarks[nearest]
                once, leverage = np.minimum(near[nearest], 1.0), np.square(own).sum(axis=1)
                seen += once * np.square((turned * own).sum(axis=1)) / np.maximum(1 - once * leverage, _EPS)
            unknown = unknown + self.penalty * seen
        return np.asarray(np.divide(unknown, diagonal, out=np.zeros_like(unknown), where=diagonal > 0))


def is_unlike(fitted: FeatureMap, known: ErrorScores | ClassScores, rate: float) -> Callable[[Block], Array]:
    """Return the function from blocks to whether rows are unlike all but a fraction of the left-out rows."""
    most = float(conformal_quantile(known.novelty, known.weight, 1 - rate, known.count))
    novelty = _Novelty(fitted, known.near, known.penalty)

    def function(block: Block) -> Array:
        diagonal = np.asarray(to_host(fitted.kernel.diag(block.X, start=block.start)), dtype=np.float64)
        C = np.asarray(to_host(fitted.evaluate(block.X)), dtype=np.float64)
        return novelty(C, C @ fitted.projection, diagonal) > most

    return function
