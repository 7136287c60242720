"""What one pass over the rows leaves behind: one monoid for the map, the centring, the target and the trace error."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nystrom.rows.base import Block
from nystrom.types import Array


@dataclass(frozen=True)
class Statistics:
    """All that a pass over the rows leaves behind, for rows ``f`` of some feature matrix with k columns.

    Attributes
    ----------
    count : int
        Rows.
    gram, total : arrays (k, k) and (k,)
        ``Σ f fᵀ`` and ``Σ f``.
    trace : float
        ``Σ k(x, x)``.
    lowest : float
        The least ``k(x, x) − ‖f‖²``; infinity where it was not looked at.
    cross, target_total, target_squares : arrays (k, t), (t,), (t,)
        ``Σ w f yᵀ``, ``Σ w y`` and ``Σ w y²``; t = 0 without a target.
    weight : float
        ``Σ w``; the number of rows without weights.
    weighted_gram, weighted_total : arrays or None
        ``Σ w f fᵀ`` and ``Σ w f``; None without weights, where they equal ``gram`` and ``total``.
    """

    count: int
    gram: Array
    total: Array
    trace: float
    lowest: float
    cross: Array
    target_total: Array
    target_squares: Array
    weight: float
    weighted_gram: Array | None = None
    weighted_total: Array | None = None

    def merge(self, other: Statistics) -> Statistics:
        """Return the statistics of both sets of rows; reuses the memory of ``self``."""
        weighted_gram, weighted_total = self.weighted_gram, self.weighted_total
        if weighted_gram is not None or other.weighted_gram is not None:
            # Rows without weights count once.
            weighted_gram = _given(weighted_gram, self.gram) + _given(other.weighted_gram, other.gram)
            weighted_total = _given(weighted_total, self.total) + _given(other.weighted_total, other.total)
        gram, cross = self.gram, self.cross
        gram += other.gram
        cross += other.cross
        return Statistics(
            self.count + other.count,
            gram,
            self.total + other.total,
            self.trace + other.trace,
            min(self.lowest, other.lowest),
            cross,
            self.target_total + other.target_total,
            self.target_squares + other.target_squares,
            self.weight + other.weight,
            weighted_gram,
            weighted_total,
        )

    def copy(self) -> Statistics:
        """Return statistics that :meth:`merge` may overwrite."""
        return replace(self, gram=self.gram.copy(), cross=self.cross.copy())

    def in_basis(self, T: Array) -> Statistics:
        """Return the statistics of the features ``f T``."""
        return replace(
            self,
            gram=T.T @ self.gram @ T,
            total=self.total @ T,
            cross=T.T @ self.cross,
            weighted_gram=None if self.weighted_gram is None else T.T @ self.weighted_gram @ T,
            weighted_total=None if self.weighted_total is None else self.weighted_total @ T,
        )

    def shifted_back(self, shift: Array) -> Statistics:
        """Return the statistics of the features ``f + shift``."""
        weighted_gram, weighted_total = self.weighted_gram, self.weighted_total
        if weighted_gram is not None and weighted_total is not None:
            weighted_gram = _shifted_gram(weighted_gram, weighted_total, self.weight, shift)
            weighted_total = weighted_total + self.weight * shift
        return replace(
            self,
            gram=_shifted_gram(self.gram, self.total, self.count, shift),
            total=self.total + self.count * shift,
            cross=self.cross + np.outer(shift, self.target_total),
            weighted_gram=weighted_gram,
            weighted_total=weighted_total,
        )


def _shifted_gram(gram: Array, total: Array, weight: float, shift: Array) -> Array:
    """Return ``Σ (f + s)(f + s)ᵀ`` from ``Σ f fᵀ`` and ``Σ f``."""
    across = np.outer(shift, total)
    return gram + across + across.T + weight * np.outer(shift, shift)


def _given(a: Array | None, b: Array) -> Array:
    return b if a is None else a


def block_statistics(F: Array, diagonal: Array, block: Block, *, whitened: bool) -> Statistics:
    """Return the statistics of one block whose features are the rows of ``F``.

    Products are taken in the dtype of ``F``, and added up over the blocks in float64.
    """
    lowest = np.inf
    if whitened:
        squares = np.einsum("ij,ij->i", F, F, dtype=np.float64)
        lowest = float(np.min(diagonal - squares, initial=np.inf))
    n, k = F.shape
    y = np.empty((n, 0)) if block.y is None else np.asarray(block.y, dtype=np.float64).reshape(n, -1)
    weighted_gram = weighted_total = None
    weight = float(n)
    wy = y
    if block.weight is not None:
        w = np.asarray(block.weight, dtype=np.float64)
        wy = y * w[:, None]
        weighted_gram, weighted_total, weight = F.T @ (F * w[:, None]), w @ F, float(w.sum())
    return Statistics(
        n,
        (F.T @ F).astype(np.float64, copy=False),
        (np.ones(n, F.dtype) @ F).astype(np.float64, copy=False),
        float(diagonal.sum()),
        lowest,
        (F.T @ wy if y.shape[1] else np.zeros((k, 0))),
        wy.sum(axis=0),
        np.einsum("ij,ij->j", wy, y),
        weight,
        weighted_gram,
        weighted_total,
    )
