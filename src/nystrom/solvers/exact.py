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
from nystrom.linalg import cholesky, gram
from nystrom.rows.base import Block, RowBlocks
from nystrom.solvers.conjugate import Solution, column_norms, conjugate_gradients, warn_unless_converged
from nystrom.solvers.kernel_product import KernelProduct
from nystrom.types import Array

# The features of all rows are held for the preconditioner up to this many bytes; beyond, each call computes them.
_HELD_BYTES = 512 * 2**20
# Values in float32 move the eigenvalues of K by about ε32 √n k(x, x); a regularisation this many times larger keeps the
# matrix positive definite and each refinement effective.
_FLOAT32_SAFETY = 30.0
# Each refinement gains at most so many digits: what is beyond is rounding of values in float32.
_REFINED_TOL = 1e-5
_REFINED_LEAST_GAIN = 0.5


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
            inner = gram(L)
        else:
            (inner,) = self.engine.fold(self.rows, lambda b: Sums(gram(self._features(b))), label="features")
        inner[np.diag_indices_from(inner)] += self.alpha
        return cholesky(inner), False

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
    start, before = None, np.empty(0)
    cheap = None if product.holds_all else _cheaper(product, alpha)
    if cheap is not None:
        start, before = _refine(weighted, cheap, column, alpha, column * Y, precondition, tol, max_iter)
    if start is not None and before[-1] <= tol:
        # The last residual is the true one: nothing is left to do.
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
        # Its first residual is the last of those before.
        found = replace(found, residuals=np.concatenate([before[:-1], found.residuals]))
    advice = (
        "Raise max_iter, alpha or n_landmarks (a closer factor); rounding allows no residual below about ε‖K‖/alpha."
    )
    warn_unless_converged(found.residuals, found.converged, tol, advice)
    return replace(found, coefficients=column * found.coefficients)


def _cheaper(product: KernelProduct, alpha: float) -> KernelProduct | None:
    """Return the product with values in float32, if they keep ``K + λI`` positive definite."""
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
    """Return an approximate solution and the residuals on the way: conjugate gradients on values in float32, refined.

    Each round solves for the true residual, which values in float64 give, with values in float32. The last residual is
    the true one.
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
