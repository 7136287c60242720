"""Kernels and metrics on trial: small ridge regressions on a sample of the rows, judged by rows held out from it.

They are exact where they have as many landmarks as rows: with few landmarks a rough kernel looks worse than it is in a
machine with many. Cholesky factors for a few regularisations take less time than one eigendecomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from nystrom.engine import Engine, Sums
from nystrom.engine.passes import Moments, Passes, block_moments
from nystrom.engine.threads import blas_threads
from nystrom.exceptions import NotFiniteError
from nystrom.kernels import Gaussian, Kernel, Laplacian, Matern, to_metric
from nystrom.nystroem.factor import NystromMap
from nystrom.rows import Block, RowBlocks, require_finite
from nystrom.rows.draw import take_with_targets
from nystrom.tuning.bandwidth import sample_rows
from nystrom.tuning.cost import assign_parts
from nystrom.tuning.sample import distinct_rows
from nystrom.types import Array, Matrix, SparseMatrix, issparse, to_dense

_TILE_NUMBERS = 2**20
_TINY = float(np.finfo(np.float64).tiny)


def mean_outer_product(fitted: NystromMap, coefficients: Array, rows: RowBlocks, engine: Engine, kind: str) -> Array:
    """Return the mean of ``∇f ∇fᵀ`` over the rows, all targets together, for ``f = k(·, Z) coefficients``: one pass.

    For kind "diagonal" only the diagonal is taken, in O(p) memory. Cost: O(n m p t).
    """
    Z = fitted.landmarks.points

    def step(block: Block) -> Sums:
        weight = None if block.weight is None else np.asarray(block.weight, dtype=np.float64)
        total = sum_outer_products(fitted.kernel, Z, coefficients, block.X, weight, kind)
        return Sums(total, float(block.X.shape[0] if weight is None else weight.sum()))

    total, weight = engine.fold(rows, step, label="gradients")
    return np.asarray(total / max(weight, _TINY))


def sum_outer_products(
    kernel: Kernel, Z: Matrix, coefficients: Array, X: Matrix, weight: Array | None, kind: str
) -> Array:
    """Return ``Σ w ∇f ∇fᵀ`` over some rows, (p, p), or its diagonal, (p,).

    With ``k = h(‖x − z‖²)`` the gradient is ``2 Σ_j a_j h'(‖x − z_j‖²)(x − z_j)``. The Laplacian kernel's is
    ``−γ Σ_j a_j k(x, z_j) sign(x − z_j)``, whose diagonal alone is a metric.
    """
    A = np.asarray(coefficients, dtype=np.float64)
    p = Z.shape[1]
    if kind == "diagonal" and issparse(X) and issparse(Z):
        # In a column without entries every gradient is 0.
        used = np.union1d(X.indices, Z.indices)
        if 2 * len(used) < p:
            whole = np.zeros(p)
            whole[used] = sum_outer_products(kernel, _among(used, Z), A, _among(used, X), weight, kind)
            return whole
    total: Array = np.zeros(p if kind == "diagonal" else (p, p))
    tile = max(_TILE_NUMBERS // max(p, len(A)), 16)
    for start in range(0, X.shape[0], tile):
        part = X[start : start + tile].astype(np.float64)
        w = None if weight is None else np.sqrt(weight[start : start + tile])[:, None]
        if isinstance(kernel, Laplacian):
            total += _sum_of_signs(kernel, Z, A, part, w)
            continue
        S = 2 * _slope(kernel)(_squared_distances(part, Z))
        dense = to_dense(part)
        for a in A.T:
            pull = S * a
            gradient = dense * pull.sum(axis=1)[:, None] - np.asarray(pull @ Z)
            gradient = gradient if w is None else w * gradient
            total += np.einsum("ij,ij->j", gradient, gradient) if kind == "diagonal" else gradient.T @ gradient
    return total


def _among(used: Array, X: SparseMatrix) -> SparseMatrix:
    """Return the columns ``used`` of CSR rows that have entries in no other."""
    return sp.csr_matrix((X.data, np.searchsorted(used, X.indices), X.indptr), shape=(X.shape[0], len(used)))


def _sum_of_signs(kernel: Laplacian, Z: Matrix, A: Array, X: Matrix, w: Array | None) -> Array:
    """Return the diagonal for the Laplacian kernel: where a row and a landmark agree in a column, no slope counts."""
    K = np.asarray(kernel(X, Z), dtype=np.float64) * float(kernel.gamma)  # type: ignore[arg-type]
    K = K if w is None else w * K
    rows, landmarks = to_dense(X), to_dense(Z)
    total = np.empty(Z.shape[1])
    for j in range(len(total)):
        total[j] = np.square((K * np.sign(rows[:, j, None] - landmarks[:, j])) @ A).sum()
    return total


def _squared_distances(X: Matrix, Z: Matrix) -> Array:
    products = X @ Z.T
    products = np.asarray(to_dense(products))
    return np.maximum(_squares(X)[:, None] + _squares(Z) - 2 * products, 0.0)


def _squares(X: Matrix) -> Array:
    return np.asarray((X.multiply(X) if issparse(X) else np.square(X)).sum(axis=1)).ravel()


@dataclass(frozen=True)
class _Slope:
    """The derivative of a kernel in the squared distance."""

    nu: float | None
    gamma: float

    def __call__(self, squares: Array) -> Array:
        g = self.gamma
        if self.nu is None:
            return np.asarray(-g * np.exp(-g * squares))
        t = np.sqrt(2 * self.nu * g * squares)
        decay = np.exp(-t)
        if self.nu == 0.5:
            # The kink at a landmark has no slope: such a pair counts for nothing.
            return np.where(t > 1e-7, -g / 2 * decay / np.maximum(t, 1e-7), 0.0)
        return np.asarray(-1.5 * g * decay if self.nu == 1.5 else -5 / 6 * g * (1 + t) * decay)


def _slope(kernel: Kernel) -> _Slope:
    if isinstance(kernel, Gaussian):
        return _Slope(None, float(kernel.gamma))  # type: ignore[arg-type]
    assert isinstance(kernel, Matern)
    return _Slope(kernel.nu, float(kernel.gamma))  # type: ignore[arg-type]


# Rows that are drawn.
SAMPLE_ROWS = 4000
# A sample is cut into so many parts; as many of them are held out in turn as hold this number of rows together.
_PARTS, _HELD_ROWS = 4, 1000
# Rows whose gradients are averaged.
_GRADIENT_ROWS = 600
# Regularisations: the variance of noise over that of the function. The largest leaves nothing but the mean.
_ALPHAS = 10.0 ** np.arange(-5.0, 5.0)
_FIRST_ALPHA = 3
# Scores times one of these are log-odds; the best of them for each trial.
_TEMPERATURES = (1.0, 1.7, 3.0, 5.0, 8.5, 14.0)
# Keeps the factor of W positive definite; far below any regularisation.
_JITTER = 1e-10


@dataclass(frozen=True)
class Sample:
    """Distinct rows in memory, in an order that only their contents decide, with targets and weights.

    The targets are those of a ridge regression: numbers of about unit deviation, or ±1 for each class. A row that was
    there twice is there once, with the weight of both.
    """

    X: Matrix
    y: Array
    weight: Array
    classes: bool

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: Array) -> Sample:
        return Sample(self.X[rows], self.y[rows], self.weight[rows], self.classes)

    def moments(self, root: Array | None) -> Moments:
        """Return the moments of the rows in a metric."""
        return block_moments(self.X if root is None else to_metric(self.X, root), self.weight)

    @cached_property
    def spread(self) -> float:
        return float(self.moments(None).spread)


def draw_sample(passes: Passes, rng: np.random.Generator, *, classes: bool) -> Sample:
    """Return at most 4,000 of the rows, drawn at random: at most one pass.

    Where all rows are taken, the result does not depend on their order, and weights are repetitions.
    """
    rows = sample_rows(passes, SAMPLE_ROWS, rng)
    drawn = distinct_rows(take_with_targets(rows, passes.engine, np.arange(rows.shape[0])))
    y = np.asarray(drawn.y, dtype=np.float64).reshape(drawn.X.shape[0], -1)
    stacked, weight = drawn.X.astype(np.float64), np.ones(len(y)) if drawn.weight is None else drawn.weight
    try:
        require_finite(stacked, passes.rows.name)
    except NotFiniteError:
        passes.require_finite()  # report the first bad row of all, not of the sample
        raise
    if not np.isfinite(y).all():
        raise ValueError("Input y contains NaN or infinity: drop such rows before the fit.")
    return _centred(Sample(stacked, y, weight, classes))


def _centred(sample: Sample) -> Sample:
    X, y, w = sample.X, sample.y, sample.weight
    if not issparse(X):
        X = X - np.average(X, axis=0, weights=w)  # distances do not change, and gain digits
    if not sample.classes:
        y = y - np.average(y, axis=0, weights=w)
        deviation = np.sqrt(np.average(np.square(y), axis=0, weights=w))
        y = y / np.where(deviation > 0, deviation, 1.0).mean()
    return Sample(X, y, w, sample.classes)


@dataclass(frozen=True)
class Fitted:
    """A function ``k(·, Z) A`` and some of the rows that it was fitted to, all in its metric."""

    kernel: Kernel
    Z: Matrix
    coefficients: Array
    X: Matrix
    weight: Array

    def outer_product(self, kind: str) -> Array:
        """Return the mean outer product of its gradients at those rows."""
        total = sum_outer_products(self.kernel, self.Z, self.coefficients, self.X, self.weight, kind)
        return np.asarray(total / self.weight.sum())


@dataclass(frozen=True)
class HeldOutLosses:
    """The loss of each held-out row, whether its class is wrong (of numbers, none is), and its weight."""

    losses: Array
    wrong: Array
    weight: Array

    @classmethod
    def join(cls, parts: Sequence[HeldOutLosses]) -> HeldOutLosses:
        """Return those of several parts, one after the other."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("losses", "wrong", "weight")))

    @property
    def total(self) -> float:
        return float(self.losses @ self.weight)

    @property
    def mean(self) -> float:
        return float(np.average(self.losses, weights=self.weight))

    def gain_over(self, other: HeldOutLosses) -> tuple[float, float]:
        """Return by how much the losses are less than another's on the same rows, and the standard error of that."""
        gain = other.losses - self.losses
        mean = float(np.average(gain, weights=self.weight))
        squares = float(np.average(np.square(gain - mean), weights=self.weight))
        return mean, float(np.sqrt(squares / max(self.weight.sum(), 1.0)))

    def errs_more_than(self, other: HeldOutLosses) -> bool:
        """Return whether more of the same rows get a wrong class than another gives one."""
        return bool(self.weight @ self.wrong > other.weight @ other.wrong)


@dataclass(frozen=True)
class Outcome(HeldOutLosses):
    """Held-out losses; the fitted function and its regularisation for each part."""

    fits: list[Fitted]
    regularisations: list[int]

    def outer_products(self, kind: str) -> list[Array]:
        """Return the mean outer products of the gradients of each fit, in its metric."""
        return [fit.outer_product(kind) for fit in self.fits]


class Trials:
    """Fits on parts of a sample, each judged by the rows it has not seen.

    They learn from at most ``learn_rows`` rows, of which ``n_landmarks`` are the landmarks: the time of a fit grows
    with the square of that, or, where all are landmarks, with the cube.
    """

    def __init__(
        self, sample: Sample, rng: np.random.Generator, *, learn_rows: int, n_landmarks: int, fit_intercept: bool
    ) -> None:
        self.sample, self.fit_intercept = sample, fit_intercept
        self.learn_rows, self.n_landmarks = learn_rows, n_landmarks
        n = len(sample)
        strata = sample.y.argmax(axis=1) + (sample.y[:, 0] > 0) if sample.classes else None
        # The rows are distinct, and their contents decide their order.
        parts = assign_parts(np.arange(n, dtype=np.uint64), None, _PARTS, rng, strata=strata)
        # A sample that lacks a few rows, for some were there twice, is held out no more often than a whole one.
        count = min(_PARTS, int(np.ceil(_HELD_ROWS * _PARTS / n - 0.1)))
        held = [parts == part for part in range(count)]
        # Fits take the first of the rows to learn from, and the order of contents goes along a direction: shuffle it.
        self.splits = [(rng.permutation(np.flatnonzero(~h)), np.flatnonzero(h)) for h in held if 0 < h.sum() < n]

    @property
    def least_learned(self) -> int:
        """The least number of rows that are not held out."""
        return min(len(learn) for learn, _ in self.splits)

    def run(
        self, kernel: Kernel, roots: list[Array] | None, *, like: Outcome | None = None, search: bool = True
    ) -> Outcome:
        """Return the outcome of a kernel in a metric for each part, or the plain one.

        The search for regularisations begins at those of ``like``; without a search they are taken as they are.
        """
        found = []
        for i, (learn, held) in enumerate(self.splits):
            parts = self.sample.take(learn[: self.learn_rows]), self.sample.take(held)
            X, new = (part.X if roots is None else to_metric(part.X, roots[i]) for part in parts)
            Z = X[: self.n_landmarks]
            system = self._system(kernel, X, Z, parts[0])
            values = np.asarray(kernel(new, Z), dtype=np.float64)
            start = _FIRST_ALPHA if like is None else like.regularisations[i]
            solved = self._solve(system, values, parts[0].y, parts[1], start, search)
            some = slice(0, _GRADIENT_ROWS)
            fit = Fitted(kernel, Z, solved.coefficients, X[some], parts[0].weight[some])
            found.append((solved.judged, fit, solved.regularisation))
        judged, fits, regularisations = zip(*found, strict=True)
        all_parts = HeldOutLosses.join(judged)
        return Outcome(all_parts.losses, all_parts.wrong, all_parts.weight, list(fits), list(regularisations))

    def _system(self, kernel: Kernel, X: Matrix, Z: Matrix, part: Sample) -> _System:
        W = np.asarray(kernel(Z, Z), dtype=np.float64)
        if len(W) == X.shape[0]:
            return _exact_system(W, part.weight)
        C = np.asarray(kernel(X, Z), dtype=np.float64)
        with blas_threads(1):
            return _NormalEquations.of(C, W, part, self.fit_intercept).system(len(W))

    def losses_with(
        self, sizes: Sequence[int], kernel: Kernel, roots: list[Array] | None, *, like: Outcome
    ) -> list[HeldOutLosses]:
        """Return the held-out losses of fits to all rows of the sample with some landmarks, for each number of them.

        The search for regularisations begins at those of ``like``.
        """
        found: list[list[HeldOutLosses]] = [[] for _ in sizes]
        for i, (learn, held) in enumerate(self.splits):
            parts = self.sample.take(learn), self.sample.take(held)
            X, new = (part.X if roots is None else to_metric(part.X, roots[i]) for part in parts)
            Z = X[: max(sizes)]
            values = np.asarray(kernel(new, Z), dtype=np.float64)
            with blas_threads(1):
                normal = _NormalEquations.of(
                    np.asarray(kernel(X, Z), dtype=np.float64), np.asarray(kernel(Z, Z)), parts[0], self.fit_intercept
                )
            for judged, m in zip(found, sizes, strict=True):
                start = like.regularisations[i]
                judged.append(self._solve(normal.system(m), values[:, :m], parts[0].y, parts[1], start).judged)
        return [HeldOutLosses.join(judged) for judged in found]

    def _solve(
        self, system: _System, values: Array, y: Array, held: Sample, start: int, search: bool = True
    ) -> _Solved:
        """Return the fit at the regularisation with the least loss on the held-out rows."""

        @cache
        def at(i: int) -> _Solved:
            with blas_threads(1):
                coefficients, intercept = system(float(_ALPHAS[i]), y, self.fit_intercept)
                judged = _judge(values @ coefficients + intercept, held)
            return _Solved(judged, coefficients, i)

        best, last = start, len(_ALPHAS) - 1
        while search:
            step = min((best, max(best - 1, 0), min(best + 1, last)), key=lambda i: at(i).judged.total)
            if step == best:
                break
            best = step
        return at(best)


@dataclass(frozen=True)
class _Solved:
    """A fit at one of the regularisations, and how it fared."""

    judged: HeldOutLosses
    coefficients: Array
    regularisation: int


# From a regularisation, targets and whether there is an intercept to coefficients (m, t) and intercepts (t,).
_System = Callable[[float, Array, bool], tuple[Array, Array]]


def _exact_system(K: Array, weight: Array) -> _System:
    """Return the solver of ``(K + α/w) a = y − b``, with ``Σ a = 0`` where there is an intercept."""

    def solve(alpha: float, y: Array, fit_intercept: bool) -> tuple[Array, Array]:
        A = K.copy()
        A.flat[:: len(A) + 1] += alpha / weight
        found = cho_solve(cho_factor(A, overwrite_a=True, check_finite=False), np.column_stack([y, np.ones(len(y))]))
        if not fit_intercept:
            return found[:, :-1], np.zeros(y.shape[1])
        intercept = found[:, :-1].sum(axis=0) / found[:, -1].sum()
        return found[:, :-1] - np.outer(found[:, -1], intercept), intercept

    return solve


@dataclass(frozen=True)
class _NormalEquations:
    """``(Cᵀ D C + α W) a = Cᵀ D (y − b)``, D the weights: for the first of the landmarks, however many.

    C, its moments and ``Cᵀ D y`` are centred where there is an intercept.
    """

    moments: Array
    W: Array
    right: Array
    middle: Array
    target: Array
    n_rows: int

    @classmethod
    def of(cls, C: Array, W: Array, sample: Sample, fit_intercept: bool) -> _NormalEquations:
        weight, y = sample.weight, sample.y
        middle = weight @ C / weight.sum() if fit_intercept else np.zeros(C.shape[1])
        target = weight @ y / weight.sum() if fit_intercept else np.zeros(y.shape[1])
        root = np.sqrt(weight)[:, None]
        B = np.subtract(C, middle)
        B *= root
        return cls(B.T @ B, W, B.T @ (root * (y - target)), middle, target, len(C))

    def system(self, m: int) -> _System:
        def solve(alpha: float, y: Array, fit_intercept: bool) -> tuple[Array, Array]:
            A = self.moments[:m, :m] + alpha * self.W[:m, :m]
            A.flat[:: m + 1] += _JITTER * self.n_rows
            found = cho_solve(cho_factor(A, overwrite_a=True, check_finite=False), self.right[:m])
            return found, self.target - self.middle[:m] @ found

        return solve


def _judge(scores: Array, held: Sample) -> HeldOutLosses:
    """Return the squared error of each row; of classes, the log-loss at the temperature that is best for all."""
    if not held.classes:
        losses = np.asarray(np.square(scores - held.y).mean(axis=1))
        return HeldOutLosses(losses, np.zeros(len(losses), dtype=bool), held.weight)
    losses = min(_log_losses(scores, held.y), key=lambda losses: float(losses @ held.weight))
    two = held.y.shape[1] == 1
    wrong = (scores * held.y)[:, 0] <= 0 if two else scores.argmax(axis=1) != held.y.argmax(axis=1)
    return HeldOutLosses(losses, wrong, held.weight)


def _log_losses(scores: Array, y: Array) -> Iterator[Array]:
    two = y.shape[1] == 1
    code = y.argmax(axis=1)
    for temperature in _TEMPERATURES:
        if two:
            yield np.logaddexp(0.0, -2 * temperature * (scores * y)[:, 0])
        else:
            odds = temperature * (scores - scores.max(axis=1, keepdims=True))
            yield np.log(np.exp(odds).sum(axis=1)) - odds[np.arange(len(y)), code]
