"""The exact kernel ridge answer: conjugate gradients, preconditioned by the low-rank factor.

``(K + λI) α = y`` is solved without forming K: each step needs one product ``K v``, made tile by tile and used by
symmetry for both of its halves. The factor's ``L Lᵀ + λI``, inverted by Equation 5 of the paper, takes care of the
large eigenvalues that slow plain conjugate gradients down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.linalg

from nystrom.engine import Engine, Sums
from nystrom.factor import NystromMap
from nystrom.kernels import Kernel, Precomputed
from nystrom.rows.base import Block, RowBlocks, WrappedRows
from nystrom.solvers.conjugate import Solution, conjugate_gradients, warn_unless_converged
from nystrom.types import Array, Matrix

# Rows of a tile: its 512 × 512 values are 2 MiB in float64 and stay in the cache from the exponential to the product.
TILE_ROWS = 512
# The features of all rows are held for the preconditioner up to this many bytes, and computed anew beyond.
_HELD_BYTES = 512 * 2**20


class TiledRows(WrappedRows):
    """Rows cut into small blocks of float64, for products with the kernel of all pairs of them."""

    has_target = False

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
    """``V ↦ K V`` for the kernel matrix of the rows, which is never formed.

    Cost of one call: n²/2 values of the kernel, and O(n t) memory beyond a tile for each thread.
    """

    tiles: TiledRows
    kernel: Kernel
    engine: Engine

    def __call__(self, V: Array, *, label: str = "kernel product") -> Array:
        step = self._given(V) if isinstance(self.kernel, Precomputed) else self._symmetric(V)
        (product,) = self.engine.fold(self.tiles, step, label=label)
        return np.asarray(product)

    def _symmetric(self, V: Array) -> Callable[[Block], Sums]:
        tiles, kernel = self.tiles, self.kernel

        def step(block: Block) -> Sums:
            out = np.zeros_like(V)
            evaluate = kernel.prepare(block.X)
            own = slice(block.start, block.stop)
            for index in range(block.index, tiles.n_blocks):
                other = block if index == block.index else tiles.block(index)
                K = evaluate(other.X)
                out[other.start : other.stop] += K @ V[own]
                if index != block.index:
                    out[own] += K.T @ V[other.start : other.stop]
            return Sums(out)

        return step

    def _given(self, V: Array) -> Callable[[Block], Sums]:
        def step(block: Block) -> Sums:
            out = np.zeros_like(V)
            out[block.start : block.stop] = block.X @ V
            return Sums(out)

        return step

    def predict(self, X: Matrix, coefficients: Array) -> Array:
        """Return ``k(X, rows) @ coefficients`` for one block of new rows."""
        X = X.astype(np.float64, copy=False)
        if isinstance(self.kernel, Precomputed):
            return np.asarray(X @ coefficients)
        out = np.zeros((X.shape[0], coefficients.shape[1]))
        for block in self.tiles.iterate():
            out += self.kernel(X, block.X) @ coefficients[block.start : block.stop]
        return out


@dataclass(frozen=True)
class FactorPreconditioner:
    """``V ↦ (D L Lᵀ D + λI)⁻¹ V`` with the features L of the rows and ``D`` the roots of their weights.

    Cost of one call: O(n r t) if the features fit in 512 MiB; else they are computed in each call.
    """

    fitted: NystromMap
    rows: RowBlocks
    engine: Engine
    alpha: float
    roots: Array

    def _features(self, block: Block) -> Array:
        phi = self.fitted.features(block.X).astype(np.float64, copy=False)
        return np.asarray(phi * self.roots[block.start : block.stop, None])

    @cached_property
    def _held(self) -> Array | None:
        n, r = self.rows.shape[0], self.fitted.n_components
        room = getattr(self.engine, "room", None)
        if 8 * n * r > (_HELD_BYTES if room is None else min(_HELD_BYTES, room // 2)):
            return None
        held = self.engine.map_rows(self.rows, self._features, r, np.float64, label="features")
        return np.asarray(held.take(np.arange(n)))

    @cached_property
    def _inverse(self) -> tuple[Array, bool]:
        # The Gram matrix of the same features that each call multiplies with: an inverse of anything else would
        # leave an error of rounding / λ.
        L = self._held
        if L is not None:
            gram = L.T @ L
        else:
            (gram,) = self.engine.fold(self.rows, lambda b: Sums(_gram(self._features(b))), label="features")
        gram[np.diag_indices_from(gram)] += self.alpha
        factor, lower = scipy.linalg.cho_factor(gram)
        return factor, bool(lower)

    def __call__(self, V: Array) -> Array:
        L = self._held
        if L is not None:
            return np.asarray((V - L @ scipy.linalg.cho_solve(self._inverse, L.T @ V)) / self.alpha)
        (inner,) = self.engine.fold(
            self.rows, lambda b: Sums(self._features(b).T @ V[b.start : b.stop]), label="precondition"
        )
        inner = scipy.linalg.cho_solve(self._inverse, inner)
        outer = self.engine.map(self.rows, lambda b: self._features(b) @ inner, label="precondition")
        return np.asarray((V - np.concatenate([piece for _, piece in outer])) / self.alpha)


def _gram(F: Array) -> Array:
    return F.T @ F


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

    Solved as ``(D K D + λI) β = D y``, ``α = D β``, which has an answer also where a weight is 0.

    Parameters
    ----------
    product : KernelProduct
        K.
    Y : array (n, t)
        Targets.
    alpha : float
        λ.
    fitted : NystromMap or None
        The factor for the preconditioner; None is plain conjugate gradients.
    rows : RowBlocks
        The rows of the fit, in blocks of their own size.
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
    found = conjugate_gradients(weighted, column * Y, precondition=precondition, tol=tol, max_iter=max_iter)
    advice = (
        "Raise max_iter, alpha or n_landmarks (a closer factor); rounding allows no residual below about ε‖K‖/alpha."
    )
    warn_unless_converged(found.residuals, found.converged, tol, advice)
    return replace(found, coefficients=column * found.coefficients)
