"""Kernel ridge regression on many landmarks by conjugate gradients: without n m² operations, with one m × m matrix.

The function ``f(x) = k(x, Z) a + b`` that minimises ``Σ w (y − f(x))² + λ aᵀ W a`` solves the normal equations

    (CᵀDC + λW) a = CᵀDy,        C = k(X, Z), W = k(Z, Z), D the weights, C and y centred if there is an intercept.

Each step is one pass, ``CᵀD(C v)``; C is computed block by block, or held if there is room. Small problems hold
whitened features instead, which are accurate for any W. Kernel values may be float32: their rounding is a fixed
perturbation of the features. The sums ``C v`` and ``Cᵀ u`` are always float64: in float32 the iteration stalls early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from nystrom.devices import to_host
from nystrom.engine.base import Engine, Sums
from nystrom.engine.memory import samples_gram
from nystrom.engine.threads import blas_threads
from nystrom.kernels import Kernel
from nystrom.landmarks.base import Landmarks
from nystrom.linalg import cross_product, whiten
from nystrom.loops import normal_product
from nystrom.nystroem.factor import (
    CAUTIONS,
    FeatureMap,
    exceeded,
    landmark_kernel,
    prepare,
    rounding_tolerance,
    spanning_projection,
    value_tolerance,
    warn_or_refuse,
)
from nystrom.nystroem.fit_pass import margin_of
from nystrom.rows.base import Block, RowBlocks, require_finite
from nystrom.rows.sparse import join_arrays
from nystrom.solvers.conjugate import conjugate_gradients
from nystrom.solvers.preconditioner import FalkonPreconditioner, Preconditioner, SamplePreconditioner
from nystrom.types import Array, Matrix, to_dense


@dataclass(frozen=True)
class UnfactoredMap(FeatureMap):
    """The function ``X ↦ k(X, Z)``, for when a :class:`nystrom.nystroem.factor.NystromMap` would cost n m² operations.

    It has no eigenvalues and no certificate; accessing them raises an ``AttributeError`` with advice. Features with
    every direction of the landmarks, and errors, are computed on request: O(m³) once, and O(m²) per row.
    """

    landmarks: Landmarks
    kernel: Kernel

    @cached_property
    def projection(self) -> Array:  # type: ignore[override]
        """M, computed on first access."""
        return spanning_projection(self.kernel, self.landmarks)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"there is no {name!r}: conjugate gradients solve for the coefficients of the landmarks without a factor. "
            f"Fit a ridge with solver='factor', or Nystroem with landmarks=model.landmarks_ to some of the rows."
        )


# With more directions than this, or than this fraction of the landmarks, keep all landmarks.
_MOST_DIRECTIONS = 500
_MOST_SHARE = 0.25


def independent_landmarks(kernel: Kernel, landmarks: Landmarks) -> Array | None:
    """Return the numbers of landmarks whose kernel functions span those of all, up to rounding; None if many.

    A linear kernel has as many directions as columns, and a polynomial or a very wide kernel only a few more: the
    kernel matrix of thousands of landmarks is then singular, and equations in their coefficients lose digits. Pivoted
    Cholesky finds a subset of the landmarks that explains the others up to rounding.

    Cost: O(m r²) time and O(m r) memory for r directions, at most 500.
    """
    m = len(landmarks)
    most = min(_MOST_DIRECTIONS, int(_MOST_SHARE * m))
    Z = landmarks.points.astype(np.float64)
    evaluate = prepare(kernel, Landmarks(Z, landmarks.indices))
    left = np.asarray(kernel.diag(Z), dtype=np.float64).copy()
    level = 10 * float(np.finfo(np.float64).eps) * np.sqrt(m) * float(np.max(left, initial=0.0))
    columns, pivots = np.empty((most, m)), np.empty(most, dtype=np.intp)
    for count in range(most):
        pivot = int(np.argmax(left))
        if not left[pivot] > level:
            return pivots[:count] if count else None
        column = np.asarray(evaluate(Z[[pivot]]), dtype=np.float64).ravel()
        column -= columns[:count, pivot] @ columns[:count]
        columns[count] = column / np.sqrt(left[pivot])
        pivots[count] = pivot
        left -= columns[count] ** 2
        # What is left of the pivot is rounding: do not select it again.
        left[pivot] = 0.0
    return None


def hold_features(
    rows: RowBlocks,
    engine: Engine,
    features: Callable[[Matrix], Array],
    width: int,
    dtype: DTypeLike,
    margin: Callable[[Matrix, Array], float] | None = None,
) -> tuple[RowBlocks, Array | None, float]:
    """Return the features of all rows with their targets, the weights, and the least ``margin`` of all blocks."""
    name = rows.name

    def step(block: Block) -> tuple[Array, _Targets]:
        require_finite(block.X, name, block.start)
        F = features(block.X)
        return F, _Targets([block.y], [block.weight], np.inf if margin is None else margin(block.X, F))

    held, beside = engine.map_rows_and_fold(rows, step, width, dtype, label="kernel values")
    target, weight = join_arrays(beside.targets), join_arrays(beside.weights)
    return held.with_target(target, weight), weight, beside.margin


def hold_whitened(
    rows: RowBlocks, engine: Engine, kernel: Kernel, landmarks: Landmarks, evaluate: Callable[[Matrix], Array]
) -> tuple[Array, RowBlocks, Array | None]:
    """Return the whitening T, the features ``C T`` of all rows, checked against k(x, x), and the weights."""
    W = landmark_kernel(kernel, landmarks)
    top = float(np.max(np.diag(W)))
    for caution in CAUTIONS:
        T = whiten(W, block_dtype=rows.dtype, caution=caution).T
        tolerance = rounding_tolerance(kernel, W, T, rows.dtype)

        def features(X: Matrix, T: Array = T) -> Array:
            return evaluate(X).astype(np.float64, copy=False) @ T

        def margin(X: Matrix, F: Array, tolerance: float = tolerance) -> float:
            return margin_of(F, kernel.diag(X), top, tolerance)

        held, weight, least = hold_features(rows, engine, features, T.shape[1], np.dtype(np.float64), margin)
        over = -least / tolerance
        if over <= 1:
            return T, held, weight
        warn_or_refuse(kernel, over)
    raise exceeded(kernel, over)


@dataclass(frozen=True)
class _Targets:
    """Targets and weights of consecutive rows, block by block, and the least margin of their features."""

    targets: list[Array | None]
    weights: list[Array | None]
    margin: float

    def merge(self, other: _Targets) -> _Targets:
        return _Targets(self.targets + other.targets, self.weights + other.weights, min(self.margin, other.margin))


# Bytes of kernel values per tile: they stay in the cache from the exponential to both products.
_TILE_BYTES = 2 * 2**20
_MIN_TILE_ROWS = 64
# Bytes per tile of held values, which are read once: fewer, longer calls.
_HELD_TILE_BYTES = 64 * 2**20
# Whitened features are used if they take at most this many products (about a second) and bytes.
_WHITENED_PRODUCTS = 2e10
_WHITENED_BYTES = 512 * 2**20
# Sample rows per whitened feature for the Gram matrix, unless the full one takes few products.
_SAMPLE_ROWS = 8
_GRAM_PRODUCTS = 4e9
_PIECE_ROWS = 2048
# Rows that are checked if the kernel is not known to be positive semidefinite.
_CHECKED_ROWS = 1000
# The preconditioner counts at least this fraction of the mean number of rows for a landmark.
_LEAST_SHARE = 0.1


class Target(NamedTuple):
    """The right-hand side ``FᵀD(y − mean)``, and for an intercept ``FᵀD1``, ``Σ w`` and the mean of y."""

    cross: Array
    total: Array
    weight: float
    mean: Array
    sizes: Array


@dataclass(frozen=True)
class LandmarkSolution:
    """The result of the iteration.

    Attributes
    ----------
    coefficients : array (m, t)
        a, with ``f(x) = k(x, Z) a + intercept``.
    intercept : array (t,)
        b; zeros without an intercept.
    residuals : array (steps + 1,)
        Relative residuals of the preconditioned equations at the start and after each step; the last is the true one.
    converged : bool
        Whether the last is at most the tolerance, or the iteration was stopped early.
    """

    coefficients: Array
    intercept: Array
    residuals: Array
    converged: bool


@dataclass(frozen=True)
class LandmarkProblem:
    """The normal equations of some rows and landmarks, which can be solved for any regularisation.

    ``held`` contains the features F as rows, with targets and weights; None if each pass computes C again.
    ``landmarks`` may be a subset of the ``n_landmarks`` given, those with the numbers ``kept``; the coefficients of the
    others are 0.
    """

    rows: RowBlocks
    engine: Engine
    kernel: Kernel
    landmarks: Landmarks
    fit_intercept: bool
    held: RowBlocks | None
    preconditioner: Preconditioner
    target: Target
    n_landmarks: int
    kept: Array | None = None

    @cached_property
    def _evaluate(self) -> Callable[[Matrix], Array]:
        return prepare(self.kernel, self.landmarks)

    @property
    def sizes(self) -> Array:
        """Rows per landmark, as the preconditioner counts them."""
        return np.maximum(self.target.sizes, _LEAST_SHARE * self.target.weight / len(self.landmarks))

    def product(self, V: Array, *, label: str) -> Array:
        """Return ``FᵀDF V``, with F centred if there is an intercept: one pass."""
        if self.held is None:
            product = gram_product(self.rows, self.engine, self._evaluate, V, label=label)
        else:
            product = gram_product(self.held, self.engine, None, V, label=label)
        if self.fit_intercept:
            product -= np.outer(self.target.total, self.target.total @ V) / self.target.weight
        return product

    def solve(
        self,
        alpha: float,
        *,
        start: Array | None = None,
        watch: Callable[[Array, Array], bool] | None = None,
        smooth: float = 0.0,
        tol: float = 1e-8,
        max_iter: int = 200,
    ) -> tuple[LandmarkSolution, Array]:
        """Return the solution for one regularisation, and the start for the next.

        Parameters
        ----------
        alpha : float
            λ.
        start : array, optional
            The second result of an earlier call.
        watch : callable, optional
            Called with coefficients and intercept after each step; True stops the iteration.
        smooth : float
            Least λ of the preconditioner. If it is above ``alpha``, the first step is near the solution for this λ, and
            each further step regularises less.
        tol, max_iter
            Relative residual to reach, and largest number of steps.

        Notes
        -----
        Cost: m³ for the preconditioner; n m kernel values (none if they are held) and 4 n m t operations per step.
        """
        inner = self.preconditioner
        with blas_threads(1):
            inner.regularise(max(alpha, smooth), self.sizes, centred=self.fit_intercept)
            right = inner.scale(inner.whiten(self.target.cross))
            begin = None if start is None else inner.rescale(start)

        def preconditioned(over_rows: Callable[..., Array], ridge: float) -> Callable[[Array, str], Array]:
            """Return the function β ↦ ``over_rows(v) + ridge W v`` for v = P β, in the basis of β."""

            def apply(beta: Array, label: str) -> Array:
                with blas_threads(1):
                    U = inner.unscale(beta)
                    V = inner.unwhiten(U)
                summed = over_rows(V, label=label)
                with blas_threads(1):
                    return inner.scale(inner.whiten(summed) + ridge * U)

            return apply

        def finish(beta: Array) -> tuple[Array, Array]:
            coefficients = self._spread(inner.coefficients(inner.unscale(beta)))
            if not self.fit_intercept:
                return coefficients, np.zeros(len(self.target.mean))
            fitted_mean = self.target.total @ inner.unwhiten(inner.unscale(beta)) / self.target.weight
            return coefficients, self.target.mean - fitted_mean

        found = conjugate_gradients(
            preconditioned(self.product, alpha),
            right,
            # Whitened features need no refinement.
            residual=preconditioned(self._gradient, -alpha) if isinstance(inner, FalkonPreconditioner) else None,
            start=begin,
            watch=None if watch is None else lambda beta: watch(*finish(beta)),
            tol=tol,
            max_iter=max_iter,
        )
        coefficients, intercept = finish(found.coefficients)
        solution = LandmarkSolution(coefficients, intercept, found.residuals, found.converged or found.stopped_early)
        return solution, inner.unscale(found.coefficients)

    def _spread(self, coefficients: Array) -> Array:
        """Return the coefficients for all given landmarks, 0 for unused ones."""
        if self.kept is None:
            return coefficients
        whole = np.zeros((self.n_landmarks, coefficients.shape[1]))
        whole[self.kept] = coefficients
        return whole

    def _gradient(self, coefficients: Array, *, label: str) -> Array:
        """Return ``CᵀD(y − C a − b)`` for the best b (or b = 0), in extended precision: one pass.

        With dependent landmarks a is large and ``C a`` cancels, so the residual has too few digits in float64.
        """
        total, weight = self.target.total.astype(np.longdouble), self.target.weight
        wide = coefficients.astype(np.longdouble)
        shift = np.zeros(len(self.target.mean), np.longdouble)
        if self.fit_intercept:
            shift = self.target.mean - total @ wide / weight
        rows = self.rows if self.held is None else self.held
        features = _feature_tiles(rows, self._evaluate if self.held is None else None, len(wide))

        def step(block: Block) -> Sums:
            w, y = _weight_and_target(block)
            products, sums = np.zeros(wide.shape, np.longdouble), np.zeros(wide.shape[1], np.longdouble)
            for piece, F in features(block):
                own = slice(piece.start - block.start, piece.stop - block.start)
                values = to_host(F).astype(np.longdouble)
                left = w[own, None] * (y[own] - values @ wide - shift)
                products += values.T @ left
                sums += left.sum(axis=0)
            return Sums(products, sums)

        products, sums = self.engine.fold(rows, step, label=label)
        if self.fit_intercept:
            products = products - np.outer(total, sums / weight)
        return np.asarray(products, dtype=np.float64)


def gram_product(
    rows: RowBlocks, engine: Engine, evaluate: Callable[[Matrix], Array] | None, V: Array, *, label: str
) -> Array:
    """Return ``FᵀDF V``: one pass over the rows, or over F itself if it is held."""
    features = _feature_tiles(rows, evaluate, len(V), _TILE_BYTES if evaluate else _HELD_TILE_BYTES)

    def step(block: Block) -> Sums:
        out = np.zeros(V.shape)
        for piece, F in features(block):
            normal_product(F, V, out, piece.weight)
        return Sums(out)

    (product,) = engine.fold(rows, step, label=label)
    return np.asarray(product)


def landmark_problem(
    rows: RowBlocks,
    engine: Engine,
    kernel: Kernel,
    landmarks: Landmarks,
    *,
    fit_intercept: bool = False,
    room: float = 0,
    whitened: bool = True,
    alpha: float | None = None,
) -> LandmarkProblem:
    """Return the normal equations: one pass, and another for the mean of the target if there is an intercept.

    Parameters
    ----------
    rows : RowBlocks
        With targets, and weights if any.
    engine, kernel, landmarks
        How rows are read, k with numeric parameters, and Z.
    fit_intercept : bool
        Whether C and y are centred.
    room : float
        Bytes available for holding features.
    whitened : bool
        Whether small problems hold whitened features instead of kernel values.
    alpha : float, optional
        The smallest λ that will be solved for, if known.
    """
    given = len(landmarks)
    kept = independent_landmarks(kernel, landmarks)
    if kept is not None:
        landmarks = Landmarks(landmarks.points[kept], None if landmarks.indices is None else landmarks.indices[kept])
    n, m = rows.shape[0], len(landmarks)
    evaluate = prepare(kernel, landmarks)
    T = None
    small = whitened and n * m * m <= _WHITENED_PRODUCTS and 8 * n * m <= min(room, _WHITENED_BYTES)
    here = engine.reads_here(rows)
    if small and here:
        T, held, weight = hold_whitened(rows, engine, kernel, landmarks, evaluate)
    elif not here or n * m * rows.dtype.itemsize > room:
        held, weight = None, None
    else:
        held, weight, _ = hold_features(rows, engine, evaluate, m, rows.dtype)
    shift = _target_mean(rows, engine) if fit_intercept else np.zeros(1)
    width = m if T is None else T.shape[1]
    if held is None:
        target = _target(rows, engine, evaluate, width, shift, centred=fit_intercept)
    else:
        target = _target(held, engine, None, width, shift, centred=fit_intercept)
    inner: Preconditioner
    with blas_threads(1):
        if T is None or held is None:
            noise = None if alpha is None or not alpha > 0 else target.weight / alpha
            inner = FalkonPreconditioner(kernel, landmarks, rows.dtype, noise)
            if held is not None and samples_gram(n, m):
                inner.sample(_sample(held, weight, target, centred=fit_intercept))
            _check_some_rows(rows, kernel, evaluate, inner, m)
        else:
            every = 1 if n * width * width <= _GRAM_PRODUCTS else None
            pieces = _sample(held, weight, target, every, centred=fit_intercept)
            gram = np.zeros((width, width))
            for F, share in pieces:
                gram += (F.T * share) @ F
            inner = SamplePreconditioner(T, gram)
    return LandmarkProblem(rows, engine, kernel, landmarks, fit_intercept, held, inner, target, given, kept)


def _check_some_rows(
    rows: RowBlocks, kernel: Kernel, evaluate: Callable[[Matrix], Array], inner: Preconditioner, m: int
) -> None:
    """Raise if the whitened features of some rows exceed their kernel: it is then not positive semidefinite."""
    if kernel.is_psd:
        return
    X = rows.take(np.linspace(0, rows.shape[0] - 1, min(_CHECKED_ROWS, rows.shape[0])).astype(int))
    F = inner.whiten(np.asarray(evaluate(X), dtype=np.float64).T).T
    tolerance = value_tolerance(m, rows.dtype)
    over = -margin_of(F, kernel.diag(X), float(np.max(kernel.diag(X))), tolerance) / tolerance
    if over > 1:
        raise exceeded(kernel, over)


def _weight_and_target(block: Block) -> tuple[Array, Array]:
    n = block.X.shape[0]
    weight = np.ones(n) if block.weight is None else np.asarray(block.weight, dtype=np.float64)
    return weight, np.asarray(block.y, dtype=np.float64).reshape(n, -1)


def _target_mean(rows: RowBlocks, engine: Engine) -> Array:
    """Return the weighted mean of each target: one pass without kernel values."""

    def step(block: Block) -> Sums:
        w, y = _weight_and_target(block)
        return Sums(float(w.sum()), w @ y)

    weight, total = engine.fold(rows, step, label="mean of the target")
    return np.asarray(total / weight)


def _feature_tiles(
    rows: RowBlocks, evaluate: Callable[[Matrix], Array] | None, m: int, tile_bytes: int = _TILE_BYTES
) -> Callable[[Block], Iterator[tuple[Block, Array]]]:
    """Return the function that cuts a block into tiles with their rows of F."""
    tile_rows = max(_MIN_TILE_ROWS, tile_bytes // (m * rows.dtype.itemsize))

    def tiles(block: Block) -> Iterator[tuple[Block, Array]]:
        for piece in block.split(tile_rows):
            yield piece, to_dense(piece.X) if evaluate is None else evaluate(piece.X)

    return tiles


def _target(
    rows: RowBlocks,
    engine: Engine,
    evaluate: Callable[[Matrix], Array] | None,
    width: int,
    shift: Array,
    *,
    centred: bool,
) -> Target:
    """Return the right-hand side, and the number of rows nearest to each landmark: one pass."""
    name = rows.name
    features = _feature_tiles(rows, evaluate, width)

    def step(block: Block) -> Sums:
        require_finite(block.X, name, block.start)
        w, y = _weight_and_target(block)
        right = np.column_stack([w[:, None] * (y - shift), w])
        products, sizes = np.zeros((width, right.shape[1])), np.zeros(width)
        for piece, F in features(block):
            own = slice(piece.start - block.start, piece.stop - block.start)
            products += cross_product(F.astype(np.float64, copy=False), right[own])
            sizes += np.bincount(to_host(F.argmax(axis=1)), weights=w[own], minlength=width)
        return Sums(products, right.sum(axis=0), sizes)

    products, sums, sizes = engine.fold(rows, step, label="target")
    cross, total, weight, mean = products[:, :-1], products[:, -1], float(sums[-1]), np.zeros(len(sums) - 1)
    if centred:
        # The shift was rounded, so a small part of the mean is left: subtract it too.
        rest = sums[:-1] / weight
        cross, mean = cross - np.outer(total, rest), shift + rest
    return Target(cross, total, weight, mean, sizes)


def _sample(
    held: RowBlocks, weight: Array | None, target: Target, every: int | None = None, *, centred: bool
) -> Iterator[tuple[Array, Array]]:
    """Yield evenly spaced rows of the features, centred if requested, with adjusted weights."""
    n, k = held.shape
    numbers = np.arange(0, n, every or max(1, n // (_SAMPLE_ROWS * max(k, 1))))
    w = np.ones(len(numbers)) if weight is None else weight[numbers]
    w = w * (target.weight / (w.sum() or 1.0))
    for start in range(0, len(numbers), _PIECE_ROWS):
        F = to_dense(held.take(numbers[start : start + _PIECE_ROWS]))
        yield F - target.total / target.weight if centred else F, w[start : start + _PIECE_ROWS]
