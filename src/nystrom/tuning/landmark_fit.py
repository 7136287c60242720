"""Fit on many landmarks by conjugate gradients; regularisation and number of steps are chosen on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nystrom.engine.base import Engine
from nystrom.kernels import Kernel
from nystrom.landmarks.base import Landmarks
from nystrom.nystroem.factor import prepare
from nystrom.rows import RowBlocks
from nystrom.rows.draw import take_with_targets
from nystrom.rows.sparse import join_arrays
from nystrom.solvers.landmark_cg import LandmarkProblem, LandmarkSolution, landmark_problem
from nystrom.tuning.sample import assign_parts, count_distinct, gather_keys, lowest_marks, numbers_below
from nystrom.types import Array

# Held-out rows: 5 % of all, at most 5,000 and at least 500, but never more than a fifth.
_HELD_OUT_SHARE = 0.05
_HELD_OUT_MOST = 5000
_HELD_OUT_LEAST = 500
_HELD_OUT_PART = 5
# Above this many rows, keys are not kept in memory: with temporaries they take 90 bytes per row.
_FEW_ROWS = 200_000
# "auto" decreases from this multiple of Σ k(x, x), by this factor, to this minimum, while the score improves.
_AUTO_START = 1e-2
_AUTO_FACTOR = 10**-0.5
_AUTO_LEAST = 1e-12
# Number of regularisations, and of steps, without a better score that ends the search.
_PATIENCE = 2
_STEP_PATIENCE = 5
# Early stopping starts near this multiple of Σ k(x, x).
_EARLY_SHARE = 1e-3
# Tolerance of the search: regularisations can be compared long before convergence.
_SEARCH_TOL = 1e-4


@dataclass(frozen=True)
class LandmarkFit:
    """A solution, its regularisation, and the trials behind the choice.

    ``alphas`` and ``scores`` are in the order tried; a score is the mean squared error on held-out rows.
    """

    solution: LandmarkSolution
    alpha: float
    alphas: Array
    scores: Array | None


@dataclass
class HeldOut:
    """Rows held out of the fit, which score a function by its mean squared error.

    ``diagonal`` is the mean of k(x, x) over them; ``best`` holds the coefficients and the intercept of the step with
    the smallest error so far.
    """

    kernel_values: Array
    target: Array
    weight: Array
    diagonal: float
    history: list[float] = field(default_factory=list)
    best: tuple[Array, Array] | None = None

    @cached_property
    def _unit(self) -> float:
        """The largest target: squared errors in this unit neither overflow nor underflow."""
        return float(np.max(np.abs(self.target), initial=0.0)) or 1.0

    def score(self, coefficients: Array, intercept: Array) -> float:
        """Return the weighted mean squared error, averaged over targets, in units of the largest target."""
        errors = (self.target - self.kernel_values @ coefficients - intercept) / self._unit
        return float(np.average((errors**2).mean(axis=1), weights=self.weight))

    def has_stalled(self, coefficients: Array, intercept: Array) -> bool:
        """Record the score of a step; True if none of the last few steps improved it."""
        self.history.append(self.score(coefficients, intercept))
        if self.history[-1] == min(self.history):
            self.best = coefficients, intercept
        return len(self.history) - 1 - int(np.argmin(self.history)) >= _STEP_PATIENCE

    def in_units_of_target(self, scores: Array) -> Array:
        """Convert scores to mean squared errors of the target; they may overflow to infinity or underflow to 0."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(scores * self._unit * self._unit)


def fit_on_landmarks(
    rows: RowBlocks,
    engine: Engine,
    kernel: Kernel,
    landmarks: Landmarks,
    *,
    alphas: Array | None,
    fit_intercept: bool,
    early_stopping: bool,
    tol: float,
    max_iter: int,
    room: float,
    rng: np.random.Generator,
) -> LandmarkFit:
    """Minimise ``Σ w (y − f(x) − b)² + λ‖f‖²`` over the functions that the landmarks span, by conjugate gradients.

    Parameters
    ----------
    rows, engine, kernel, landmarks
        The rows with their target, and the parts of the problem.
    alphas : array or None
        Regularisations to choose from; None decreases from a large one while the held-out score improves.
    early_stopping : bool
        Whether to stop the iteration when the score on held-out rows has not improved for some steps.
    tol, max_iter, room
        See :class:`LandmarkProblem` and :func:`landmark_problem`.

    Notes
    -----
    To choose among regularisations, and to stop early, 5 % of the distinct rows are held out (500 to 5,000, at most a
    fifth). After the choice, the fit continues on all rows from the best solution. Each regularisation starts from the
    solution of the previous one.
    """

    least = None if alphas is None else float(np.min(alphas))

    def problem_of(fitted: RowBlocks) -> LandmarkProblem:
        return landmark_problem(fitted, engine, kernel, landmarks, fit_intercept=fit_intercept, room=room, alpha=least)

    single = alphas is not None and len(alphas) == 1
    if single and not early_stopping:
        solution, _ = problem_of(rows).solve(float(alphas[0]), tol=tol, max_iter=max_iter)  # type: ignore[index]
        return LandmarkFit(solution, float(alphas[0]), alphas, None)  # type: ignore[index,arg-type]
    training, judge = _hold_out(rows, engine, kernel, landmarks, rng)
    problem = problem_of(training)
    if single:
        chosen, tried, start = float(alphas[0]), alphas, None  # type: ignore[index]
        scores = None
    else:
        tried, scores, start = _search(problem, judge, alphas, max_iter)
        chosen = float(tried[_first_best(scores)])
    if early_stopping:
        smooth = _EARLY_SHARE * problem.target.weight * judge.diagonal
        solution, _ = problem.solve(chosen, watch=judge.has_stalled, smooth=smooth, tol=tol, max_iter=max_iter)
        if judge.best is not None:
            solution = replace(solution, coefficients=judge.best[0], intercept=judge.best[1])
    else:
        del problem  # it may hold the kernel values of all rows, as the next one does
        solution, _ = problem_of(rows).solve(chosen, start=start, tol=tol, max_iter=max_iter)
    judged = None if scores is None else judge.in_units_of_target(scores)
    return LandmarkFit(solution, chosen, np.asarray(tried), judged)


def _search(
    problem: LandmarkProblem, judge: HeldOut, alphas: Array | None, max_iter: int
) -> tuple[Array, Array, Array | None]:
    """Return the regularisations tried, from the largest down with warm starts, their scores, and the best solution."""
    trace = problem.target.weight * (judge.diagonal or 1.0)
    largest, lowest = trace * _AUTO_START, trace * _AUTO_LEAST
    downwards = np.sort(alphas)[::-1] if alphas is not None else None
    tried: list[float] = []
    scores: list[float] = []
    start = best = None
    while True:
        if downwards is not None:
            if len(tried) == len(downwards):
                break
            alpha = float(downwards[len(tried)])
        else:
            alpha = largest * _AUTO_FACTOR ** len(tried)
            stalled = len(scores) - 1 - _first_best(scores) >= _PATIENCE if scores else False
            if stalled or alpha < lowest:
                break
        solution, start = problem.solve(alpha, start=start, tol=_SEARCH_TOL, max_iter=max_iter)
        tried.append(alpha)
        scores.append(judge.score(solution.coefficients, solution.intercept))
        if _first_best(scores) == len(scores) - 1:
            best = start
    return np.asarray(tried), np.asarray(scores), best


def _first_best(scores: Sequence[float] | Array) -> int:
    """Return the number of the best score; of scores that the tolerance of the search cannot tell apart, the first."""
    # The score is quadratic in the error of the coefficients.
    return int(np.argmax(np.asarray(scores) <= np.min(scores) * (1 + _SEARCH_TOL**2)))


def _hold_out(
    rows: RowBlocks, engine: Engine, kernel: Kernel, landmarks: Landmarks, rng: np.random.Generator
) -> tuple[RowBlocks, HeldOut]:
    """Return the rows with weight 0 for the held-out ones, and these: equal rows together, none of weight 0."""
    weights: Array
    if rows.shape[0] <= _FEW_ROWS:
        keys, weights = gather_keys(rows, engine)
        numbers = _held_numbers(keys, weights, rng)
    else:
        numbers = _held_of_many(rows, engine, rng)
        # Without weights, one byte per row.
        weights = _weights(rows, engine) if rows.has_weight else np.ones(rows.shape[0], np.uint8)
    # Use only some of the rows that are repeated many times.
    numbers = numbers if len(numbers) <= _HELD_OUT_MOST else numbers[:: -(-len(numbers) // _HELD_OUT_MOST)]
    block = take_with_targets(rows, engine, numbers)
    judge = HeldOut(
        np.asarray(prepare(kernel, landmarks)(block.X), dtype=np.float64),
        np.asarray(block.y, dtype=np.float64).reshape(len(numbers), -1),
        weights[numbers].astype(np.float64),
        float(np.average(kernel.diag(block.X), weights=weights[numbers])),
    )
    weights[numbers] = 0
    return rows.with_target(None, weights), judge


def _weights(rows: RowBlocks, engine: Engine) -> Array:
    """Return the weight of every row, if there are weights: one pass."""
    pieces = [weight for _, weight in engine.map(rows, lambda block: block.weight, label="weights")]
    return np.asarray(join_arrays(pieces), dtype=np.float64).copy()


def _held_of_many(rows: RowBlocks, engine: Engine, rng: np.random.Generator) -> Array:
    """Return the numbers of the held-out rows, for too many rows to keep their keys: two passes."""
    salt = int(rng.integers(2**63))
    marks = lowest_marks(rows, engine, salt, round(_HELD_OUT_MOST / _HELD_OUT_SHARE))
    return numbers_below(rows, engine, salt, int(marks[_held_size(len(marks)) - 1]))


def _held_numbers(keys: Array, weights: Array, rng: np.random.Generator) -> Array:
    """Return the numbers of the held-out rows: 5 % of the distinct ones, within bounds."""
    n = count_distinct(keys, weights)
    # Every distinct row is its own part; the first parts are held out.
    size = _held_size(n)
    return np.flatnonzero((assign_parts(keys, weights, n, rng) < size) & (weights > 0))


def _held_size(n: int) -> int:
    """Return how many of n distinct rows are held out."""
    if n < 2:
        raise ValueError(
            "to choose alpha, or to stop early, at least 2 distinct rows of positive weight are needed: one is held "
            "out. Give one alpha."
        )
    return min(max(int(_HELD_OUT_SHARE * n), _HELD_OUT_LEAST), _HELD_OUT_MOST, max(n // _HELD_OUT_PART, 1))
