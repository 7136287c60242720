"""The Frobenius error from all pairs among a few thousand rows, drawn where the error is.

``E = K − L Lᵀ`` is positive semidefinite and its diagonal is known for every row after one pass, so that
``|E_ij|² ≤ E_ii E_jj``. Rows drawn in proportion to ``E_ii`` make every term ``E_ij² / (p_i p_j)`` of the sum bounded:
no pair can dominate unseen. All pairs among s drawn rows are s²/2 terms for the price of s rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from nystrom.engine.base import Engine, Sums
from nystrom.engine.passes import Passes
from nystrom.engine.threads import blas_threads
from nystrom.errors.pairs import TILE, PairSums, kernel_with, pair_sums
from nystrom.errors.trace import ErrorEstimate, ratio_of, resolution
from nystrom.nystroem.factor import NystromMap
from nystrom.rows.base import Block, RowBlocks, require_finite
from nystrom.rows.draw import gather
from nystrom.types import Array, Matrix

# All pairs of this many rows are looked at by default; up to this many rows in all, none need be drawn.
DEFAULT_PAIRS = 1_000_000
EXACT_ROWS = 2000
_LEAST_PAIRS = 100
# Least and largest share of the draws that follow what is explained of a row, ‖φ‖², and not the residual.
_EXPLAINED_SHARE = (0.2, 0.5)
# Rows of one side of a streamed exact sum.
_SIDE_ROWS = 4096


def check_n_pairs(n_pairs: object) -> int:
    """Return the number of pairs of rows to look at, or raise."""
    whole = isinstance(n_pairs, (int, np.integer)) and not isinstance(n_pairs, bool)
    if not whole or n_pairs < _LEAST_PAIRS:  # type: ignore[operator]
        raise ValueError(
            f"n_pairs must be a whole number of at least {_LEAST_PAIRS}: fewer pairs of rows say nothing of the error; "
            f"got {n_pairs!r}."
        )
    return int(n_pairs)  # type: ignore[call-overload]


@dataclass(frozen=True)
class SquaredNorms:
    """``‖K − L Lᵀ‖_F²`` and ``‖K‖_F²``, and how sure they are.

    Attributes
    ----------
    error, kernel : float
        The squared norms.
    spread : float
        Standard deviation of the estimate of ``error / kernel``; 0 where both are exact.
    unseen : float
        What one pair of rows as alike as can be would add to ``error / kernel`` had it been drawn.
    kernel_spread : float
        Standard deviation of the estimate of ``kernel``.
    freedom, skewness : float
        Degrees of freedom of the spread, and the skewness of the estimate.
    error_trace, feature_norm : float
        ``tr(K − L Lᵀ)`` and ``‖L Lᵀ‖₂``, where the pass has seen them.
    """

    error: float
    kernel: float
    spread: float = 0.0
    unseen: float = 0.0
    kernel_spread: float = 0.0
    freedom: float = 1.0
    skewness: float = 0.0
    error_trace: float = np.nan
    feature_norm: float = np.nan

    def estimate(self, confidence: float, dtype: np.dtype) -> ErrorEstimate:
        """Return the relative error with its interval.

        The interval is that of Student, its ends moved up by the skewness of the estimate: where few pairs hold much,
        the estimate is low more often than high, and its spread with it. The upper end moves as Johnson (1978) moves
        the mean's, the lower as the limit of a Poisson count. The upper end is at least where one more pair of
        identical rows would bring the estimate.
        """
        ratio = max(ratio_of(self.error, self.kernel), 0.0)
        value = float(np.sqrt(ratio))
        if self.spread == 0.0 and self.unseen == 0.0:
            return ErrorEstimate.exact(value, "fro", dtype)
        quantile = float(stdtrit(self.freedom, 0.5 + confidence / 2))
        skewness, square = float(np.clip(self.skewness, -1, 1)), float(ndtri(0.5 + confidence / 2)) ** 2
        sigma = self.spread / (2 * value) if value > 0 else 0.0
        # Even the exact error carries the rounding of the features.
        rounding = resolution(dtype) / 10
        low = value - sigma * max(quantile - skewness * (square - 1) / 3, 0.0) - rounding
        high = value + sigma * max(quantile + skewness * (2 * square + 1) / 6, 0.0)
        high = max(high, float(np.sqrt(ratio + self.unseen))) + rounding
        return ErrorEstimate(value, max(low, 0.0), high, "fro", confidence).resolved(dtype)


class _Diagonals(NamedTuple):
    """What one pass knows of every row, and of ``Lᵀ L``."""

    left: Array
    kernel: Array
    nearest: Array
    gram: Array


def frobenius_error(
    rows: RowBlocks,
    fitted: NystromMap,
    engine: Engine,
    *,
    rng: np.random.Generator,
    n_pairs: int = DEFAULT_PAIRS,
    confidence: float = 0.95,
    exact: bool = False,
) -> ErrorEstimate:
    """Return the relative Frobenius error: exact for few rows or on request, else from pairs with an interval."""
    return squared_norms(rows, fitted, engine, rng=rng, n_pairs=n_pairs, exact=exact).estimate(confidence, rows.dtype)


def squared_norms(
    rows: RowBlocks,
    fitted: NystromMap,
    engine: Engine,
    *,
    rng: np.random.Generator,
    n_pairs: int = DEFAULT_PAIRS,
    exact: bool = False,
) -> SquaredNorms:
    """Return ``‖K − L Lᵀ‖_F²`` and ``‖K‖_F²``: exact for few rows or on request, else from pairs of rows.

    The diagonal and ``‖L Lᵀ‖`` are exact; what is estimated are sums over pairs i ≠ j of ``E_ij²`` and of the product
    ``E_ij φ_iᵀφ_j``. Rows are put in order by their nearest landmark and their residual, and cut into s / 2 strata of
    equal probability; two rows are drawn from each. The spread is that of a U-statistic with such strata.

    Cost: one pass of O(n m (p + r) + n r²), and O(s² (p + r)) for the pairs, with s² = 2 n_pairs. Exact: O(n² (p + r))
    in n / 4,096 passes.
    """
    n = rows.shape[0]
    if not fitted.kernel.has_coordinates and rows.shape[0] != rows.shape[1]:
        raise ValueError(
            f"the error needs the kernel between all rows, and X of shape {rows.shape} holds new rows against the "
            f"training rows only; give the square kernel matrix of the training rows."
        )
    if exact or n <= EXACT_ROWS:
        return _all_pairs(rows, fitted, engine)
    known = _diagonals(rows, fitted, engine)
    drawn, probability = _draw(known, int((1 + np.sqrt(1 + 8 * n_pairs)) / 2), rng)
    sums = pair_sums(rows, fitted, engine, drawn, 1 / probability, known.kernel[drawn])
    with blas_threads(1):
        return _from_sample(known, sums)


def _diagonals(rows: RowBlocks, fitted: NystromMap, engine: Engine) -> _Diagonals:
    """Return ``E_ii``, ``K_ii`` and the landmark most like each row, and ``‖L Lᵀ‖_F²``: one pass (two on a cluster)."""
    name = rows.name

    def look(block: Block) -> tuple[Array, Array, Array, Array]:
        require_finite(block.X, name, block.start)
        C = fitted.evaluate(block.X)
        phi = fitted.project(C)
        diagonal = np.asarray(fitted.kernel.diag(block.X, start=block.start), dtype=np.float64)
        left = np.maximum(diagonal - np.einsum("ij,ij->i", phi, phi, dtype=np.float64), 0.0)
        return left, diagonal, np.argmax(C, axis=1).astype(np.int32), gram_of(phi)

    def gram_of(phi: Array) -> Array:
        # On a cluster Gram matrices are added up where they are made, in a pass of their own: only their sum travels.
        return np.zeros((0, 0)) if rows.on_cluster else (phi.T @ phi).astype(np.float64)

    def gram_alone(block: Block) -> Sums:
        phi = fitted.features(block.X)
        return Sums((phi.T @ phi).astype(np.float64))

    parts = [part for _, part in engine.map(rows, look, label="diagonal of the error")]
    gram = np.sum([part[3] for part in parts], axis=0)
    if rows.on_cluster:
        gram = engine.fold(rows, gram_alone, label="Gram matrix of the features")[0]
    left, diagonal, nearest = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return _Diagonals(left, diagonal, nearest, gram)


def _explained_share(known: _Diagonals) -> float:
    """Return the share of the draws that follow ‖φ‖².

    They hold down the terms of ``‖K‖``, which matter most where the landmarks explain little: the ratio is then near 1,
    and moves with the explained part.
    """
    return float(np.clip(ratio_of(known.left.sum(), known.kernel.sum()), *_EXPLAINED_SHARE))


def _draw(known: _Diagonals, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return row numbers, two from each stratum and next to each other, and the probability of each row."""
    left, explained = float(known.left.sum()), float((known.kernel - known.left).sum())
    share = _explained_share(known)
    probability = np.full(len(known.left), 1e-12 / len(known.left))
    if left > 0:
        probability += (1 - share) / left * known.left
    if explained > 0:
        probability += share / explained * (known.kernel - known.left)
    probability /= probability.sum()
    order = np.argsort(known.left, kind="stable")
    # Numbers of 16 bits are sorted in linear time.
    nearest = known.nearest.astype(np.min_scalar_type(int(known.nearest.max())))
    order = order[np.argsort(nearest[order], kind="stable")]
    cumulative = np.cumsum(probability[order])
    n_strata = max(count // 2, 2)
    within = np.repeat(np.arange(n_strata), 2) + rng.random(2 * n_strata)
    position = np.searchsorted(cumulative, within / n_strata * cumulative[-1], side="right")
    drawn = order[np.minimum(position, len(order) - 1)]
    return drawn, probability[drawn]


def _from_sample(known: _Diagonals, sums: PairSums) -> SquaredNorms:
    s = len(sums.error)
    error_off, cross_off = sums.totals
    error = float(known.left @ known.left) + error_off
    cross = 2 * float(known.left @ (known.kernel - known.left)) + cross_off
    kernel = float(np.sum(known.gram**2)) + cross + error
    ratio = ratio_of(error, kernel)
    # Delta method: error / kernel moves as (1 − ratio) error − ratio cross, over the kernel's square.
    spread = float(np.sqrt(sums.variance(1 - ratio, -ratio)))
    # The largest term there can be: two rows alike, of which the landmarks explain nothing.
    largest = (float(known.left.sum()) / (1 - _explained_share(known))) ** 2
    return SquaredNorms(
        error,
        kernel,
        ratio_of(spread, kernel),
        ratio_of((1 - ratio) * 2 * largest / s**2, kernel),
        float(np.sqrt(sums.variance(1.0, 1.0))),
        sums.freedom(1 - ratio, -ratio),
        sums.skewness(1 - ratio, -ratio),
        float(known.left.sum()),
        float(np.linalg.eigvalsh(known.gram)[-1]) if known.gram.size else 0.0,
    )


def _all_pairs(rows: RowBlocks, fitted: NystromMap, engine: Engine) -> SquaredNorms:
    """Return both norms exactly, one side of the pairs held at a time."""
    n, name = rows.shape[0], rows.name
    total = Sums(0.0, 0.0)
    passes = Passes(rows, engine)
    for first in range(0, n, _SIDE_ROWS):
        numbers = np.arange(first, min(first + _SIDE_ROWS, n))
        side = gather(passes, numbers)
        phi = fitted.features(side).astype(np.float64)
        between = kernel_with(side.astype(np.float64), numbers, fitted.kernel)

        def step(block: Block, phi: Array = phi, between: Callable[[Matrix], Array] = between) -> Sums:
            error = kernel = 0.0
            for tile in block.split(TILE):
                require_finite(tile.X, name, tile.start)
                K = np.asarray(between(tile.X.astype(np.float64)), dtype=np.float64)
                kernel += float(np.einsum("ij,ij->", K, K))
                K -= fitted.features(tile.X).astype(np.float64) @ phi.T
                error += float(np.einsum("ij,ij->", K, K))
            return Sums(error, kernel)

        total = total.merge(engine.fold(rows, step, label="all pairs of rows"))
    return SquaredNorms(*total)
