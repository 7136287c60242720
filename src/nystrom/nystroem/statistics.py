"""What one pass over the rows leaves behind: one monoid for the map, the centring, the target and the trace error.

Squares are taken about means, and means are merged as Chan, Golub and LeVeque do, so that neither a shift of the target
nor features far from zero cost digits. A weight is a number of repetitions: every sum here counts a row that often.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike

from nystrom import loops
from nystrom.devices import host, on_device
from nystrom.engine.memory import Room
from nystrom.linalg import congruent
from nystrom.loops.device import cross
from nystrom.rows.base import Block
from nystrom.types import Array


@dataclass(frozen=True)
class Statistics:
    """All that a pass over the rows leaves behind, for rows ``f`` of some feature matrix with k columns.

    Attributes
    ----------
    count : int
        Rows of positive weight.
    weight : float
        ``Σ w``, the rows counted as often as their weights say; the number of rows without weights.
    mean, scatter : arrays (k,) and (k, k)
        ``f̄ = Σ w f / Σ w`` and ``Σ w (f − f̄)(f − f̄)ᵀ``.
    trace : float
        ``Σ w k(x, x)``.
    margin : float
        The least ``(k(x, x) − ‖f‖²) / scale``, with the scale of :func:`margin_of`; infinity if no row was looked at.
    cross : array (k, t)
        ``Σ w (f − f̄)(y − ȳ)ᵀ``; t = 0 without a target.
    target_mean, target_scatter : arrays (t,), (t,)
        ``ȳ`` and ``Σ w (y − ȳ)²``.
    n_checked : int
        Rows of positive weight that ``margin`` has looked at.
    """

    count: int
    weight: float
    mean: Array
    scatter: Array
    trace: float
    margin: float
    cross: Array
    target_mean: Array
    target_scatter: Array
    n_checked: int = 0
    _above: ClassVar[bool] = False

    @property
    def gram(self) -> Array:
        """``Σ w f fᵀ``."""
        gram = self.scatter.copy()
        _add_outer(gram, self.mean, self.weight)
        return gram

    @property
    def spanned(self) -> float:
        """``Σ w ‖f‖²``, the trace of :attr:`gram`."""
        return float(np.trace(self.scatter)) + self.weight * float(self.mean @ self.mean)

    @property
    def total(self) -> Array:
        """``Σ w f``."""
        return self.weight * self.mean

    @property
    def raw_cross(self) -> Array:
        """``Σ w f yᵀ``."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.cross + self.weight * np.outer(self.mean, self.target_mean)

    @property
    def raw_target_squares(self) -> Array:
        """``Σ w y²``."""
        with np.errstate(over="ignore"):
            return self.target_scatter + self.weight * self.target_mean**2

    def merge(self, other: Self) -> Self:
        """Return the statistics of both sets of rows; reuses the memory of ``self``."""
        # Overflow is found in the sums, where it is an error with advice.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._merged(other)

    def _merged(self, other: Self) -> Self:
        weight = self.weight + other.weight
        share = other.weight / weight if weight > 0 else 0.0
        between = self.weight * share
        gap, target_gap = other.mean - self.mean, other.target_mean - self.target_mean
        scatter, cross = self.scatter, self.cross
        _add_outer(scatter, gap, between, other.scatter, above=self._above)
        cross += other.cross
        cross += between * np.outer(gap, target_gap)
        return type(self)(
            self.count + other.count,
            weight,
            self.mean + share * gap,
            scatter,
            self.trace + other.trace,
            min(self.margin, other.margin),
            cross,
            self.target_mean + share * target_gap,
            self.target_scatter + other.target_scatter + between * target_gap**2,
            self.n_checked + other.n_checked,
        )

    def copy(self) -> Statistics:
        """Return statistics that :meth:`merge` may overwrite."""
        return replace(self, scatter=self.scatter.copy(), cross=self.cross.copy())

    def in_basis(self, T: Array) -> Statistics:
        """Return the statistics of the features ``f T``."""
        return replace(self, mean=self.mean @ T, scatter=congruent(self.scatter, T), cross=T.T @ self.cross)

    def moved(self, shift: Array) -> Statistics:
        """Return the statistics of the features ``f + shift``."""
        return replace(self, mean=self.mean + shift)


@dataclass(frozen=True)
class HalfStatistics(Statistics):
    """The same while blocks are added up: of ``scatter`` there is what is on and above the diagonal."""

    _above: ClassVar[bool] = True

    def whole(self) -> Statistics:
        """Return the statistics with all of ``scatter``, which is filled up in place."""
        _mirror(self.scatter)
        return Statistics(**vars(self))


def margin_of(F: Array, diagonal: Array, top: float, tolerance: float) -> float:
    """Return the least ``(k(x, x) − ‖f‖²) / scale`` of the rows: below −tolerance it is no rounding.

    A row of kernel values is off by ``e`` with ``|e| ≤ ε √(k(x, x) top)`` in each entry, or ε top where values are
    given. Whitening divides by at least ``√(10 ε √m top)``, so ``‖f‖²`` is off by ``√ε m^¼ √(k(x, x) top)`` and
    ``ε √m top`` at most. With ``tolerance = √ε m^¼`` both are within ``tolerance · scale``.

    Parameters
    ----------
    F : array (n, k)
        Whitened features.
    diagonal : array (n,)
        ``k(x, x)``.
    top : float
        The largest ``k(z, z)`` of the landmarks.
    tolerance : float
        ``√ε m^¼``.
    """
    if not len(F):
        return np.inf
    squares = host(np.einsum("ij,ij->i", F, F, dtype=np.float64))
    if not np.min(diagonal) >= 0:
        return -np.inf
    # Take the roots separately: the product may leave the range of float64.
    scale = np.sqrt(diagonal) * np.sqrt(np.maximum(diagonal, top)) + tolerance * top
    # All kernel values are zero: the scale is zero and the residual too.
    margins = np.divide(diagonal - squares, scale, out=np.zeros(len(F)), where=scale > 0)
    return float(np.min(margins))


class BlockSums:
    """The sums over one block, tile by tile; means leave them once, at the end.

    Products of a tile are added up in float64. The features of all blocks may be those of the rows minus the same
    vector.

    Parameters
    ----------
    block : Block
    k : int
        Number of features.
    room : Room
        Memory that is free again when the sums are done.
    """

    def __init__(self, block: Block, k: int, room: Room) -> None:
        n = block.X.shape[0]
        # A target of text belongs to a classifier, which encodes it as numbers later; ignore it here.
        has_numbers = block.y is not None and block.y.dtype.kind in "fiub"
        y = np.asarray(block.y, dtype=np.float64).reshape(n, -1) if has_numbers else np.empty((n, 0))
        self._w = w = None if block.weight is None else np.asarray(block.weight, dtype=np.float64)
        heavy = slice(None) if w is None else np.flatnonzero(w > 0)
        own = None if w is None else w[heavy]
        self._count = n if own is None else len(own)
        self._weight = float(n) if own is None else float(own.sum())
        self._target_mean, centred = _centred(y[heavy], own, self._weight)
        # Zero for rows of no weight.
        self._wy = np.zeros_like(y)
        self._wy[heavy] = centred if own is None else centred * own[:, None]
        self._target_scatter = np.einsum("ij,ij->j", self._wy[heavy], centred)
        self._sum, self._gram, self._cross = np.zeros(k), np.zeros((k, k)), np.zeros((k, y.shape[1]))
        self._room = room
        self._trace, self._margin, self._checked = 0.0, np.inf, 0

    def room(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return memory for the features of some rows, the same for each tile."""
        return self._room.array("features", shape, dtype)

    def add(
        self, F: Array, diagonal: Array, first: int, *, dtype: DTypeLike | None = None, margin: float | None = None
    ) -> None:
        """Add the rows from ``first`` on, with features ``F`` and ``k(x, x)``.

        Products are taken in ``dtype``, that of F by default. ``margin`` is that of :func:`margin_of`, if it was taken.
        """
        dtype = np.dtype(dtype or F.dtype)
        wy = self._wy[first : first + len(F)]
        w = None if self._w is None else self._w[first : first + len(F)]
        if w is not None and not (w > 0).all():
            kept = np.flatnonzero(w > 0)
            F, wy, w, diagonal = F[kept], wy[kept], w[kept], diagonal[kept]
        if wy.shape[1]:
            self._cross += cross(F, wy) if on_device(F) else F.T @ wy
        if w is not None:
            self._sum += cross(F, w[:, None])[:, 0] if on_device(F) else w @ F
            F = F * np.sqrt(w).astype(dtype)[:, None]
        totals = self._sum if w is None else None
        loops.add_gram(self._gram, F, dtype, totals, lambda shape, dtype: self._room.array("product", shape, dtype))
        self._trace += float(diagonal.sum() if w is None else w @ diagonal)
        if margin is not None:
            self._margin = min(self._margin, margin)
            self._checked += len(wy)

    def statistics(self) -> HalfStatistics:
        """Return what the tiles have added up to; nothing can be added after that."""
        mean = self._sum / (self._weight or 1.0)
        _add_outer(self._gram, mean, -self._weight, above=True)
        return HalfStatistics(
            self._count,
            self._weight,
            mean,
            self._gram,
            self._trace,
            self._margin,
            self._cross,
            self._target_mean,
            self._target_scatter,
            self._checked,
        )


def _mirror(A: Array) -> None:
    """Copy what is above the diagonal to below it."""
    for rows in loops.panels(len(A)):
        own = A[rows, rows]
        np.copyto(own, own.T.copy(), where=np.tri(len(own), k=-1, dtype=bool))
        A[rows.stop :, rows] = A[rows, rows.stop :].T


def _add_outer(A: Array, x: Array, factor: float, also: Array | None = None, *, above: bool = False) -> None:
    """Add ``factor · x xᵀ`` to A, symmetric to the last bit, and ``also``; ``above`` its diagonal panels only."""
    for rows in loops.panels(len(A)):
        columns = slice(rows.start if above else 0, None)
        added = np.multiply.outer(x[rows], x[columns])
        added *= factor
        if also is not None:
            added += also[rows, columns]
        A[rows, columns] += added


def _centred(y: Array, w: Array | None, weight: float) -> tuple[Array, Array]:
    """Return the mean of the target, and the target minus it: twice, for the rounding of the first mean."""
    mean = np.zeros(y.shape[1])
    if not len(y):
        return mean, y
    for _ in range(2):
        step = (y.sum(axis=0) if w is None else w @ y) / weight
        mean, y = mean + step, y - step
    return mean, y
