"""Convex losses on the features of a map: limited-memory quasi-Newton steps, each one pass over the rows.

The problem is ``min Σ_k C Σ_i w_i ℓ(y_i, s_i) + ½‖W‖²`` with scores ``s = φ(x)ᵀW + b`` and b unpenalised. The features
use the basis in which their (weighted, with an intercept: centred) Gram matrix is diagonal, Λ. At scores 0 the Hessian
is then nearly ``1 + C κ Λ`` (κ the loss's curvature), which is the metric of the steps. On the features of mnist with
C = 100, twelve such steps reach the loss of a hundred without it.

Features are never formed: with A = M W, the scores are ``k(x, Z) A``, and the gradient is ``Mᵀ Σ k(Z, x) ∂ℓ``. The
kernel values may be float32; their products are float64, because M can be large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nystrom.engine import Engine, Sums
from nystrom.engine.threads import blas_threads
from nystrom.exceptions import ConvergenceWarning, warn_caller
from nystrom.kernels import Kernel
from nystrom.kernels.base import kernel_dtype
from nystrom.landmarks.base import Landmarks
from nystrom.linalg import add_thin_cross, thin_product
from nystrom.nystroem.factor import NystromMap, prepare
from nystrom.rows import Block, RowBlocks, array_rows
from nystrom.solvers.landmark_cg import landmark_problem
from nystrom.solvers.losses import EigenBasis, LandmarkBasis, Loss, LossBasis
from nystrom.solvers.ridge import ridge_problem
from nystrom.types import Array, Matrix, to_dense

# Kernel values of all rows are held up to this many bytes without max_memory; beyond, and if max_memory has no room
# for them, every pass evaluates the kernel again.
_HELD_BYTES = 2**30
# Bytes of float64 kernel values per tile, so that both products find it in the cache; and least rows per tile.
_TILE_BYTES = 2 * 2**20
_MIN_TILE_ROWS = 64
# Number of pairs (step, change of the gradient) that approximate the Hessian.
_MEMORY = 10
# Least decrease of an accepted step, as a fraction of the decrease that the slope predicts; and shortest step.
_DECREASE = 1e-4
_SHORTEST = 1e-10
# Safety factor on the estimated remaining gain: with large C and most rows far from the boundary the estimate was 4 to
# 20 times too low, on digits and random rows, C = 100 to 1e6.
_CAUTION = 10
_EPS = float(np.finfo(np.float64).eps)
# Numbers below this one may have no finite reciprocal.
_LEAST = 4 * float(np.finfo(np.float64).tiny)
_TINY = float(np.finfo(np.float64).tiny)
_ROUNDING = 8 * _EPS


@dataclass(frozen=True)
class Problem:
    """A loss on the features of the rows.

    Attributes
    ----------
    rows : RowBlocks
        Kernel values with the landmarks, or rows from which ``evaluate`` computes them; with targets and weights.
    evaluate : callable
        From rows to kernel values.
    held : bool
        Whether ``rows`` holds the kernel values.
    engine : Engine
        How a pass runs.
    loss : Loss
        ℓ.
    basis, offset : LossBasis, array (r,)
        Features are ``k(x, Z) M − offset``, with M of the basis.
    weight : float
        Sum of the weights.
    share : float
        Sum of the weights, divided by the sum for the rows that the basis was computed from.
    n_columns : int
        t, the number of scores per row.
    fit_intercept : bool
        Whether there is an intercept b.
    """

    rows: RowBlocks
    evaluate: Callable[[Matrix], Array]
    held: bool
    engine: Engine
    loss: Loss
    basis: LossBasis
    offset: Array
    weight: float
    n_columns: int
    fit_intercept: bool
    share: float = 1.0

    @property
    def n_unknowns(self) -> int:
        return self.basis.n_unknowns + self.fit_intercept

    def split(self, x: Array) -> tuple[Array, Array]:
        """Return W and b of the unknowns (r + 1, t), or (r, t) without an intercept."""
        r = self.basis.n_unknowns
        return x[:r], x[r] if self.fit_intercept else np.zeros(x.shape[1])

    def coefficients(self, x: Array) -> tuple[Array, Array]:
        """Return A (m, t) and c (t,) with scores ``k(x, Z) A + c``."""
        W, b = self.split(x)
        return self.basis.coefficients(W), b - self.offset @ W

    def with_weight(self, y: Array, weight: Array) -> Problem:
        """Return the same problem for other weights of the rows."""
        total = float(weight.sum())
        share = self.share * total / self.weight
        return replace(self, rows=self.rows.with_target(y, weight), weight=total, share=share)

    def for_rows(self, numbers: Array, X: Matrix, y: Array, weight: Array) -> Problem:
        """Return the same problem for the rows ``X`` of these numbers, with their kernel values held in one array."""
        here = self.held and self.engine.reads_here(self.rows) and self.rows.place is None
        values = self.rows.take(numbers) if here else self.evaluate(X)
        return replace(self, rows=array_rows(values), held=True).with_weight(y, weight)

    def for_part(self, y: Array, weight: Array) -> Problem:
        """Return the same problem for the rows of positive weight alone, copied; they must be in one array."""
        kept = np.flatnonzero(weight)
        return replace(self, rows=array_rows(self.rows.take(kept))).with_weight(y[kept], weight[kept])

    def loss_and_gradient(self, x: Array) -> tuple[Array, Array]:
        """Return ``Σ w ℓ``, of shape (1,) or (t,), and its gradient in the unknowns: one pass."""
        A, c = self.coefficients(x)
        evaluate = None if self.held else self.evaluate
        values, products, sums = self.engine.fold(self.rows, _loss_step(self.loss, A, c, evaluate), label="loss")
        gradient = self.basis.pull(products) - np.outer(self.offset, sums)
        return values, np.vstack([gradient, sums]) if self.fit_intercept else gradient

    def total_loss(self, x: Array) -> float:
        """Return ``Σ w ℓ`` of all columns together: one pass."""
        return float(self.loss_and_gradient(x)[0].sum())


def _loss_step(loss: Loss, A: Array, c: Array, evaluate: Callable[[Matrix], Array] | None) -> Callable[[Block], Sums]:
    m, t = A.shape
    tile_rows = max(_TILE_BYTES // (8 * m), _MIN_TILE_ROWS)

    def step(block: Block) -> Sums:
        K = block.X if evaluate is None else evaluate(block.X)
        values, products, sums = np.zeros(1 if loss.coupled else t), np.zeros((m, t)), np.zeros(t)
        # Do not warn of overflow here: it is detected in the sum of the losses and raised with advice.
        with np.errstate(over="ignore", invalid="ignore"):
            add_pieces(Block(block.index, block.start, K, block.y, block.weight), values, products, sums)
        return Sums(values, products, sums)

    def add_pieces(block: Block, values: Array, products: Array, sums: Array) -> None:
        for piece in block.split(tile_rows):
            tile = to_dense(piece.X).astype(np.float64, copy=False)
            y = np.asarray(piece.y).reshape(len(tile), -1)
            value, gradient = loss.evaluate(y, thin_product(tile, A) + c)
            if piece.weight is not None:
                # A row of weight 0 is ignored, whatever its values.
                w = np.asarray(piece.weight, dtype=np.float64)[:, None]
                value, gradient = value * w, gradient * w
            values += value.sum(axis=0)
            add_thin_cross(products, tile, gradient)
            sums += gradient.sum(axis=0)

    return step


def make_problem(
    rows: RowBlocks,
    y: Array,
    weight: Array | None,
    *,
    fitted: NystromMap,
    engine: Engine,
    loss: Loss,
    n_columns: int,
    fit_intercept: bool,
    kept: Array | None = None,
) -> Problem:
    """Return the problem for the rows of a fitted map, with kernel values held if there is room: at most one pass.

    Parameters
    ----------
    rows : RowBlocks
        The rows that the map was fitted to, with any target and the same weights.
    y, weight : arrays
        Target and weight of each row, in the form that the loss takes.
    kept : array (n, m), optional
        Kernel values of the rows, if the fit has kept them.
    """
    shape = ridge_problem(fitted, fit_intercept=fit_intercept)
    vectors = np.eye(len(shape.values)) if shape.vectors is None else shape.vectors
    n, m = rows.shape[0], len(fitted.landmarks)
    dtype = kernel_dtype(fitted.kernel, fitted.landmarks.points, rows.dtype)
    held = kept is not None or n * m * dtype.itemsize <= _room(engine)
    evaluate = fitted.evaluate
    if kept is not None:
        rows = array_rows(kept)
    elif held:
        rows = engine.map_rows(rows, lambda block: evaluate(block.X), m, dtype, label="kernel values")
    return Problem(
        rows.with_target(y, weight),
        evaluate,
        held,
        engine,
        loss,
        EigenBasis(fitted.projection @ vectors, shape.values),
        shape.feature_mean @ vectors,
        shape.weight,
        n_columns,
        fit_intercept,
    )


def make_landmark_problem(
    rows: RowBlocks,
    y: Array,
    weight: Array | None,
    *,
    kernel: Kernel,
    landmarks: Landmarks,
    engine: Engine,
    loss: Loss,
    n_columns: int,
    fit_intercept: bool,
) -> Problem:
    """Return the problem for more landmarks than a map can have, in the basis of the conjugate gradients.

    Cost: two passes at most; m³ operations for each C, and one m × m matrix.
    """
    n = rows.shape[0]
    targeted = rows.with_target(np.zeros(n), weight)
    ridge = landmark_problem(
        targeted, engine, kernel, landmarks, fit_intercept=False, room=_room(engine), whitened=False
    )
    inner, target = ridge.preconditioner, ridge.target
    offset = np.zeros(len(target.total))
    if fit_intercept:
        with blas_threads(1):
            offset = inner.whiten(target.total[:, None]).ravel() / target.weight
    held = ridge.held
    return Problem(
        (rows if held is None else held).with_target(y, weight),
        prepare(kernel, ridge.landmarks),
        held is not None,
        engine,
        loss,
        LandmarkBasis(inner, ridge.sizes, centred=fit_intercept, kept=ridge.kept, n_landmarks=ridge.n_landmarks),
        offset,
        target.weight,
        n_columns,
        fit_intercept,
    )


def _room(engine: Engine) -> float:
    room = engine.room
    return float(_HELD_BYTES if room is None else room)


@dataclass(frozen=True)
class Solution:
    """The result of :func:`minimise`: the unknowns, the objective and the number of passes."""

    x: Array
    objective: float
    n_iter: int


class _Objective:
    """``C Σ w ℓ + ½‖W‖²`` in unknowns scaled by the metric of the steps, with inner products in that metric.

    For a loss that is not coupled, each column has its own objective and inner products, of shape (t,); a coupled loss
    has one for all columns, of shape (1,).
    """

    def __init__(self, problem: Problem, C: float) -> None:
        self.problem, self.C = problem, C
        bend = C * problem.loss.curvature(problem.n_columns)
        self._metric = problem.basis.metric(bend * problem.share)
        self._intercept_root = np.sqrt(bend * problem.weight)

    def unknowns(self, u: Array) -> Array:
        """Return the unknowns of the problem."""
        W, b = self.problem.split(u)
        return self._joined(self._metric.spread(W), b / self._intercept_root)

    def scaled(self, x: Array) -> Array:
        """Return the scaled unknowns, in which steps are taken."""
        W, b = self.problem.split(x)
        return self._joined(self._metric.gather(W), b * self._intercept_root)

    def _joined(self, W: Array, b: Array) -> Array:
        return np.vstack([W, b]) if self.problem.fit_intercept else W

    def __call__(self, u: Array) -> tuple[Array, Array]:
        x = self.unknowns(u)
        loss, gradient = self.problem.loss_and_gradient(x)
        W, _ = self.problem.split(x)
        inside, along = self.problem.split(self.C * gradient)
        value = self.C * loss + self.dot(W, W) / 2
        return value, self._joined(self._metric.pull(inside + W), along / self._intercept_root)

    def dot(self, a: Array, b: Array) -> Array:
        columns = np.einsum("ij,ij->j", a, b)
        return columns.sum(keepdims=True) if self.problem.loss.coupled else columns


class _Memory:
    """The last steps and gradient changes of each column, and the direction that they give."""

    def __init__(self, objective: _Objective) -> None:
        self.dot = objective.dot
        self.pairs: list[tuple[Array, Array, Array]] = []
        self.scale = np.ones(1)

    def add(self, step: Array, change: Array, moved: Array) -> None:
        """Add a step; columns that did not move, or whose slope did not change, are skipped."""
        along, squares = self.dot(step, change), self.dot(change, change)
        sound = moved & (along > np.maximum(_EPS * squares, _LEAST))
        inverse = np.where(sound, 1 / np.where(sound, along, 1.0), 0.0)
        self.scale = np.where(sound, along / np.where(sound, squares, 1.0), self.scale)
        self.pairs = [*self.pairs[1 - _MEMORY :], (step, change, inverse)]

    def direction(self, gradient: Array) -> Array:
        """Return minus the approximate inverse Hessian times the gradient."""
        q = gradient.copy()
        parts = []
        for step, change, inverse in reversed(self.pairs):
            part = inverse * self.dot(step, q)
            q -= part * change
            parts.append(part)
        q *= self.scale
        for (step, change, inverse), part in zip(self.pairs, reversed(parts), strict=True):
            q += (part - inverse * self.dot(change, q)) * step
        return -q


class _Search:
    """The state of the line search of each column: its point, direction and trial step length."""

    def __init__(self, objective: _Objective, u: Array) -> None:
        self.objective = objective
        self.memory = _Memory(objective)
        self.u = u
        self.value, self.gradient = objective(u)
        self.direction = -self.gradient
        self.length = np.ones_like(self.value)

    def unfinished(self, tol: float) -> Array:
        """Return which columns can gain more than the fraction ``tol``, and can still move."""
        if not np.isfinite(self.value).all():
            raise ValueError(
                "the loss is not finite: y, sample_weight or the kernel of the rows is too large. Scale the rows (for "
                "example with sklearn.preprocessing.StandardScaler), or divide y by a constant."
            )
        dot = self.objective.dot
        gain = _CAUTION * np.maximum(dot(self.gradient, self.gradient), -dot(self.gradient, self.direction)) / 2
        return np.asarray((gain > tol * self.value) & (self.length > _SHORTEST))

    def advance(self, active: Array) -> None:
        """Try a step of the active columns: accept it if the decrease suffices, else try a shorter step."""
        dot, direction = self.objective.dot, self.direction
        length = np.where(active, self.length, 0.0)
        tried = self.u + length * direction
        value, gradient = self.objective(tried)
        slope = dot(self.gradient, direction)
        rise = value - self.value - length * slope
        # Near the optimum the values agree up to rounding, and only the slope decides.
        taken = active & (rise <= (_DECREASE - 1) * length * slope + _ROUNDING * np.abs(self.value))
        self.memory.add(np.where(taken, tried - self.u, 0.0), np.where(taken, gradient - self.gradient, 0.0), taken)
        # The minimum of the parabola through both values and the slope.
        lowest = -slope * length**2 / np.maximum(2 * rise, _TINY)
        shorter = np.clip(lowest, 0.1 * self.length, 0.5 * self.length)
        self.u = np.where(taken, tried, self.u)
        self.value = np.where(taken, value, self.value)
        self.gradient = np.where(taken, gradient, self.gradient)
        self.direction = np.where(taken, self.memory.direction(self.gradient), direction)
        self.length = np.where(taken, 1.0, np.where(active, shorter, self.length))


def minimise(
    problem: Problem, C: float, *, tol: float, max_iter: int, start: Array | None = None, announce: bool = True
) -> Solution:
    """Minimise ``C Σ w ℓ + ½‖W‖²`` by limited-memory BFGS; uncoupled columns take separate steps.

    The gain that remains is estimated by half the product of gradient and next step. Stops when ten times that is at
    most ``tol`` times the objective. Cost: a pass of O(n m t) per step, in addition to the kernel values.

    Parameters
    ----------
    problem : Problem
    C : float
        Weight of the loss.
    tol, max_iter : float, int
        Fraction of the objective left to gain, and largest number of passes.
    start : array, optional
        Initial unknowns, such as the solution for another C.
    announce : bool
        Whether to warn if ``max_iter`` was reached.
    """
    objective = _Objective(problem, C)
    u = np.zeros((problem.n_unknowns, problem.n_columns)) if start is None else objective.scaled(start)
    with np.errstate(over="ignore", invalid="ignore"):
        search = _Search(objective, u)
    passes = 1
    # Overflow makes the objective infinite, which is raised with advice.
    with np.errstate(over="ignore", invalid="ignore"):
        while (active := search.unfinished(tol)).any() and passes < max_iter:
            search.advance(active)
            passes += 1
    if announce and active.any():
        warn_caller(
            f"the solver stopped after max_iter={max_iter} passes before it reached tol={tol:g}; raise max_iter or "
            f"tol, or lower C.",
            ConvergenceWarning,
        )
    return Solution(objective.unknowns(search.u), float(search.value.sum()), passes)
