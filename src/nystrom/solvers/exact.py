"""Exact kernel ridge regression: direct for a few thousand rows, else preconditioned conjugate gradients.

``(K + λI) α = y`` is solved without forming K: each step needs one product ``K v``, computed tile by tile, each tile
serving both triangles by symmetry. The factor's ``L Lᵀ + λI``, inverted by Equation 5 of the paper, removes the large
eigenvalues that slow down plain conjugate gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike

from nystrom.devices import Place, on_device, put
from nystrom.engine import Engine, Sums
from nystrom.exceptions import ConvergenceWarning, warn_caller
from nystrom.kernels import Kernel
from nystrom.linalg import cholesky, cross_product, gram, shifted_cholesky, small_product
from nystrom.nystroem.factor import NystromMap
from nystrom.rows.base import Block, RowBlocks, WrappedRows
from nystrom.solvers.conjugate import Solution, column_norms, conjugate_gradients, warn_unless_converged
from nystrom.types import Array, Matrix, to_dense

# Rows per tile: 512 × 512 float64 values are 2 MiB and stay in the cache from the exponential to the product.
TILE_ROWS = 512
# On this many rows float32 values are compared with float64; and the largest difference that counts as rounding.
_COMPARED_ROWS = 64
_FLOAT32_ROUNDING = 1e-5


def tile_rows_on(place: Place | None) -> int:
    """Return the rows per tile: fewer on a device if six copies of a tile would not fit in half of its memory."""
    memory = None if place is None else place.memory
    return TILE_ROWS if memory is None else min(TILE_ROWS, math.isqrt(memory // (2 * 6 * 8)))


class TiledRows(WrappedRows):
    """Rows in small float64 blocks, for products with the kernel of all pairs of rows."""

    has_target = False
    has_weight = False
    home = None
    place = None

    def __init__(self, rows: RowBlocks, block_rows: int = TILE_ROWS) -> None:
        if not rows.random_access:
            raise ValueError(
                "solver='exact' reads rows in pairs of blocks, and this source can only be read from its beginning. "
                "Convert it to .npy first, or use solver='factor'."
            )
        super().__init__(rows)
        self.dtype = np.dtype(np.float64)
        self.block_rows = block_rows

    def block(self, index: int) -> Block:
        start = index * self.block_rows
        stop = min(start + self.block_rows, self.shape[0])
        return Block(index, start, self.take(np.arange(start, stop)))

    def take(self, indices: Array) -> Matrix:
        return self.rows.take(indices).astype(np.float64, copy=False)


@dataclass(frozen=True)
class KernelProduct:
    """``V ↦ K V`` for the kernel matrix of the rows.

    Cost of one call: n²/2 kernel values, or reading them if they are held, and O(n t) memory in addition to one tile
    per thread.

    Parameters
    ----------
    tiles, kernel, engine
        The rows, k, and the engine that runs the passes.
    dtype : dtype
        Dtype of the kernel values; sums are float64.
    room : float
        Bytes in which tiles are kept between calls, as many as fit.
    shards : RowBlocks or None
        The same rows on a cluster, which then computes the products of each chunk with all rows.
    place : Place or None
        The device that computes the values.
    """

    tiles: TiledRows
    kernel: Kernel
    engine: Engine
    dtype: DTypeLike = np.float64
    room: float = 0.0
    shards: RowBlocks | None = None
    place: Place | None = None
    _held: dict[int, list[Array]] = field(default_factory=dict, repr=False)

    def __call__(self, V: Array, *, label: str = "kernel product") -> Array:
        if self.shards is not None:
            (product,) = self.engine.fold(self.shards, self._by_chunks(V), label=label)
        else:
            step = self._given(V) if not self.kernel.has_coordinates else self._symmetric(V)
            (product,) = self.engine.fold(self.tiles, step, label=label)
        return np.asarray(product)

    def matrix(self) -> Array:
        """Return K: n² values in float64."""
        X = self.tiles.take(np.arange(self.tiles.shape[0]))
        return self._prepare(X)(X) if self.kernel.has_coordinates else to_dense(X).copy()

    @property
    def holds_all(self) -> bool:
        """Whether every tile fits in ``room``."""
        return self._n_held == self.tiles.n_blocks and self.shards is None

    def in_float32(self) -> KernelProduct | None:
        """Return the product with float32 values, at half the cost; None if their differences exceed rounding."""
        if not self.kernel.has_coordinates or self.kernel.of_objects or self.shards is not None:
            return None
        few = self.tiles.take(np.arange(min(_COMPARED_ROWS, self.tiles.shape[0])))
        with np.errstate(over="ignore", invalid="ignore"):
            exact, single = self.kernel(few, few), self._prepare(few)(few.astype(np.float32))
        near = np.abs(single - exact) <= _FLOAT32_ROUNDING * np.max(np.abs(exact))
        return replace(self, dtype=np.dtype(np.float32), _held={}) if near.all() else None

    @cached_property
    def _n_held(self) -> int:
        """Number of leading block rows whose tiles fit in ``room``; the first has the most tiles."""
        count, size = self.tiles.n_blocks, self.tiles.block_rows**2 * np.dtype(self.dtype).itemsize
        taken = np.cumsum([size * (count - index) for index in range(count)])
        # On a device, tiles may take a quarter of its memory.
        room = self.room if self.place is None or self.place.memory is None else self.place.memory / 4
        return int(np.searchsorted(taken, min(room, self.room), side="right"))

    @cached_property
    def _center(self) -> Array | None:
        if self.tiles.is_sparse:
            return None
        return np.asarray(self.tiles.block(0).X.mean(axis=0))

    def _prepare(self, X: Matrix) -> Callable[[Matrix], Array]:
        return self.kernel.prepare(X, center=self._center)

    def _values(self, block: Block) -> Iterator[tuple[slice, Array]]:
        """Yield the tiles of K on and right of the diagonal in the rows of this block, with their columns."""
        tiles, dtype = self.tiles, self.dtype
        spans = [
            slice(i * tiles.block_rows, min((i + 1) * tiles.block_rows, tiles.shape[0]))
            for i in range(block.index, tiles.n_blocks)
        ]
        if block.index in self._held:
            yield from zip(spans, self._held[block.index], strict=True)
            return
        evaluate, made = self._prepare(block.X), []
        for index, span in enumerate(spans, start=block.index):
            X = block.X if index == block.index else tiles.block(index).X
            X = X.astype(dtype, copy=False)
            made.append(evaluate(X if self.place is None else put(X, self.place)))
            yield span, made[-1]
            if block.index >= self._n_held:
                made.clear()
        if made:
            self._held[block.index] = made

    def _symmetric(self, V: Array) -> Callable[[Block], Sums]:
        tile_rows = self.tiles.block_rows

        def step(block: Block) -> Sums:
            out = np.zeros_like(V)
            own = slice(block.start, block.stop)
            # Reuse one buffer for all tiles: it stays in the cache and needs no further allocation.
            room = np.empty((tile_rows, tile_rows))
            for span, values in self._values(block):
                K = values
                if on_device(K):
                    out[span] += small_product(K, V[own])
                    if span.start != block.start:
                        out[own] += cross_product(K, V[span])
                    continue
                if values.dtype != np.float64:
                    K = room[: values.shape[0], : values.shape[1]]
                    np.copyto(K, values)
                out[span] += K @ V[own]
                if span.start != block.start:
                    out[own] += K.T @ V[span]
            return Sums(out)

        return step

    def _given(self, V: Array) -> Callable[[Block], Sums]:
        def step(block: Block) -> Sums:
            out = np.zeros_like(V)
            out[block.start : block.stop] = block.X @ V
            return Sums(out)

        return step

    def _by_chunks(self, V: Array) -> Callable[[Block], Sums]:
        tiles, kernel = self.tiles, self.kernel

        def step(block: Block) -> Sums:
            out = np.zeros_like(V)
            out[block.start : block.stop] = product_with_rows(kernel, block.X, tiles, V)
            return Sums(out)

        return step

    def predict(self, X: Matrix, coefficients: Array) -> Array:
        """Return ``k(X, rows) @ coefficients`` for one block of new rows."""
        return product_with_rows(self.kernel, X, self.tiles, coefficients)


def product_with_rows(kernel: Kernel, X: Matrix, tiles: TiledRows, coefficients: Array) -> Array:
    """Return ``k(X, rows) @ coefficients``."""
    X = X.astype(np.float64, copy=False)
    if not kernel.has_coordinates:
        return small_product(to_dense(X), coefficients)
    out = np.zeros((X.shape[0], coefficients.shape[1]))
    for block in tiles.iterate():
        out += small_product(kernel(X, block.X), coefficients[block.start : block.stop])
    return out


# Features of all rows are held for the preconditioner up to this many bytes; beyond, each call computes them.
_HELD_BYTES = 512 * 2**20
# Float32 values change the eigenvalues of K by about ε32 √n k(x, x); a penalty this many times larger keeps the matrix
# positive definite and each refinement effective.
_FLOAT32_SAFETY = 30.0
# Up to this many rows, Cholesky's method takes no more operations than the steps of a hard problem.
_DIRECT_ROWS = 4096
# Matrices in memory: K, its weighted copy, and the factor.
_MATRICES = 3
# Residual that each refinement can gain (5 digits: the rounding of float32 values), and the least gain to continue.
_REFINED_TOL = 1e-5
_REFINED_LEAST_GAIN = 0.5


@dataclass(frozen=True)
class FactorPreconditioner:
    """``V ↦ (D L Lᵀ D + λI)⁻¹ V`` with the features L of the rows and ``D`` the square roots of their weights.

    Cost of one call: O(n r t) if the features fit in 512 MiB; else they are computed in each call.
    """

    fitted: NystromMap
    rows: RowBlocks
    engine: Engine
    alpha: float
    roots: Array

    def _features(self, block: Block) -> Array:
        phi = self.fitted.features(block.X).astype(np.float64, copy=False)
        return phi * self.roots[block.start : block.stop, None]

    @cached_property
    def _held(self) -> Array | None:
        n, r = self.rows.shape[0], self.fitted.n_components
        room = self.engine.room
        if 8 * n * r > (_HELD_BYTES if room is None else min(_HELD_BYTES, room // 2)):
            return None
        held = self.engine.map_rows(self.rows, self._features, r, np.float64, label="features")
        return np.asarray(held.take(np.arange(n)))

    @cached_property
    def _inverse(self) -> tuple[Array, bool]:
        # Take the Gram matrix of the same rounded features that each call multiplies with; with others, the error would
        # be rounding / λ.
        L = self._held
        if L is not None:
            inner = gram(L)
        else:
            (inner,) = self.engine.fold(self.rows, lambda b: Sums(gram(self._features(b))), label="features")
        inner[np.diag_indices_from(inner)] += self.alpha
        return shifted_cholesky(inner), False

    def __call__(self, V: Array) -> Array:
        L = self._held
        if L is not None:
            return np.asarray((V - L @ scipy.linalg.cho_solve(self._inverse, L.T @ V)) / self.alpha)
        (inner,) = self.engine.fold(
            self.rows, lambda b: Sums(cross_product(self._features(b), V[b.start : b.stop])), label="precondition"
        )
        inner = scipy.linalg.cho_solve(self._inverse, inner)
        outer = self.engine.map(self.rows, lambda b: small_product(self._features(b), inner), label="precondition")
        return np.asarray((V - np.concatenate([piece for _, piece in outer])) / self.alpha)


def solve_exactly(
    product: KernelProduct,
    Y: Array,
    alpha: float,
    *,
    fitted: NystromMap | None,
    rows: RowBlocks,
    weight: Array | None = None,
    tol: float = 1e-8,
    max_iter: int = 200,
) -> Solution:
    """Solve ``(K + λ D⁻²) α = y`` with ``D²`` the weights: exact kernel ridge regression.

    Solved as ``(D K D + λI) β = D y``, ``α = D β``, which is defined even if a weight is 0.

    Parameters
    ----------
    product : KernelProduct
        K.
    Y : array (n, t)
        Targets.
    alpha : float
        λ.
    fitted : NystromMap or None
        The factor for the preconditioner; None for plain conjugate gradients.
    rows : RowBlocks
        The rows of the fit, in their own blocks.
    weight : array (n,), optional
        Weights of the rows.

    Notes
    -----
    Cost of a step: n²/2 values of the kernel. Memory: O(n r) up to 512 MiB, O(n t) beyond.
    """
    roots = np.ones(len(Y)) if weight is None else np.sqrt(weight)
    column = roots[:, None]

    def weighted(V: Array, label: str) -> Array:
        return np.asarray(column * product(column * V, label=label) + alpha * V)

    precondition = None
    if fitted is not None:
        precondition = FactorPreconditioner(fitted, rows, product.engine, alpha, roots)
    start, before = None, np.empty(0)
    direct = len(Y) <= _DIRECT_ROWS and _MATRICES * 8 * len(Y) ** 2 <= product.room and product.holds_all
    cheap = None if product.holds_all else _cheaper(product, alpha)
    if cheap is not None:
        start, before = _refine(weighted, cheap, column, alpha, column * Y, precondition, tol, max_iter)
    if direct:
        found = _directly(product, column, alpha, column * Y, tol)
    elif start is not None and before[-1] <= tol:
        # The last residual was computed in float64, so no further step is needed.
        found = Solution(start, before, True)
    else:
        found = conjugate_gradients(
            weighted,
            column * Y,
            start=start,
            precondition=precondition,
            tol=tol,
            max_iter=max(max_iter - len(before[:-1]), 0),
        )
        # Its first residual equals the last of the previous ones.
        found = replace(found, residuals=np.concatenate([before[:-1], found.residuals]))
    if direct and not found.converged:
        warn_caller(
            f"the rounding of K exceeds alpha={alpha:.3g}: the equations are solved to a relative residual of "
            f"{found.residuals[-1]:.2g}, above tol={tol:.2g}. Raise alpha, or use solver='factor'.",
            ConvergenceWarning,
        )
    elif not direct:
        advice = (
            "Raise max_iter, alpha or n_landmarks (a closer factor); rounding allows no residual below about "
            "ε‖K‖/alpha."
        )
        warn_unless_converged(found.residuals, found.converged, tol, advice)
    return replace(found, coefficients=column * found.coefficients)


def _directly(product: KernelProduct, column: Array, alpha: float, Y: Array, tol: float) -> Solution:
    """Return the solution by Cholesky's method, refined once.

    If the rounding of K exceeds λ, use the eigenvectors instead, without those below that rounding: their coefficients
    would dominate the predictions.
    """
    K = column * product.matrix() * column.T
    A = K.copy()
    A[np.diag_indices_from(A)] += alpha
    norm = column_norms(Y)

    def solved(X: Array) -> Solution:
        left = float(np.max(np.linalg.norm((Y - A @ X) / norm, axis=0)))
        return Solution(X, np.array([1.0, left]), left <= tol)

    try:
        factor = (cholesky(A), False)
        X = scipy.linalg.cho_solve(factor, Y, check_finite=False)
        found = solved(X + scipy.linalg.cho_solve(factor, Y - A @ X, check_finite=False))
        if found.converged:
            return found
    except np.linalg.LinAlgError:
        pass
    values, V = np.linalg.eigh(K)
    kept = values > len(K) * float(np.finfo(np.float64).eps) * values[-1]
    return solved(V[:, kept] @ ((V[:, kept].T @ Y) / (values[kept] + alpha)[:, None]))


def _cheaper(product: KernelProduct, alpha: float) -> KernelProduct | None:
    """Return the product with float32 values, if they keep ``K + λI`` positive definite."""
    n = product.tiles.shape[0]
    top = float(np.max(product.kernel.diag(product.tiles.block(0).X)))
    if alpha < _FLOAT32_SAFETY * float(np.finfo(np.float32).eps) * np.sqrt(n) * top:
        return None
    return product.in_float32()


def _refine(
    accurate: Callable[[Array, str], Array],
    cheap: KernelProduct,
    column: Array,
    alpha: float,
    Y: Array,
    precondition: Callable[[Array], Array] | None,
    tol: float,
    max_iter: int,
) -> tuple[Array, Array]:
    """Return an approximate solution and its residuals: conjugate gradients on float32 values with refinement.

    Each round computes the true residual from float64 values, and solves for it with float32 values. The last residual
    is the true one.
    """

    def weighted(V: Array, label: str) -> Array:
        return np.asarray(column * cheap(column * V, label=label) + alpha * V)

    norm = column_norms(Y)
    X, R = np.zeros_like(Y), Y
    residual, history = 1.0, [1.0]
    while residual > tol and len(history) <= max_iter:
        inner = conjugate_gradients(
            weighted,
            R,
            precondition=precondition,
            tol=max(_REFINED_TOL, 0.3 * tol / residual),
            max_iter=max_iter - len(history) + 1,
        )
        X = X + inner.coefficients
        R = Y - accurate(X, "true residual")
        history += [residual * step for step in inner.residuals[1:]]
        left = float(np.max(np.linalg.norm(R / norm, axis=0)))
        history[-1] = left
        if not left <= _REFINED_LEAST_GAIN * residual:
            break
        residual = left
    return X, np.asarray(history)
