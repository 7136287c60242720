"""Rows drawn two from each stratum, and the noise of a total that they estimate.

Rows that are alike stand next to each other in an order and are cut into strata; the two draws of a stratum then tell
how much is left to chance. An order that goes with the terms of the total leaves little.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nystrom.types import Array


class TwoEach(NamedTuple):
    """Rows drawn two from each stratum; a row that was drawn for certain is in none.

    Attributes
    ----------
    rows : int array (t,)
        In ascending order, none twice.
    weight : array (t,)
        How many rows each of them stands for.
    draws : int array (h, 2)
        The two draws of each stratum, as places in ``rows``.
    each : array (h, 2)
        How many rows each draw stands for; a row that was drawn twice stands for their sum.
    own : array (h,)
        What the pair of a stratum counts beside two draws of different strata.
    noise : array (h,)
        The share of the variance that is left, as a stratum has few rows and none is drawn twice.
    """

    rows: Array
    weight: Array
    draws: Array
    each: Array
    own: Array
    noise: Array


def draw_two_each(order: Array, share: Array | None, size: int, rng: np.random.Generator) -> TwoEach:
    """Return about ``size`` of the rows of ``order``, two from each of its strata.

    Parameters
    ----------
    order : int array (n,)
        The rows; neighbours share a stratum.
    share : array (n,) or None
        Rows are drawn in proportion to it, those that would be drawn more than once for certain. None: evenly.
    size : int
        All rows where there are not more.
    """
    n = len(order)
    if size >= n:
        none = np.zeros((0, 2), dtype=np.intp)
        return TwoEach(np.sort(order), np.ones(n), none, np.zeros((0, 2)), np.zeros(0), np.zeros(0))
    if share is None:
        return _evenly(order, max(size // 2, 1), rng)
    chance = inclusion(share, size)
    sure, others = np.flatnonzero(chance >= 1), order[chance[order] < 1]
    if not len(others):
        return draw_two_each(order, None, n, rng)
    reach = np.cumsum(chance[others])
    count = max(round(float(reach[-1]) / 2), 1)
    width = float(reach[-1]) / count
    marks = (np.arange(count)[:, None] + rng.random((count, 2))) * width
    drawn = others[np.minimum(np.searchsorted(reach, marks, side="right"), len(others) - 1)]
    rows, place = np.unique(np.concatenate([drawn.ravel(), sure]), return_inverse=True)
    each = width / (2 * chance[drawn])
    weight = np.bincount(place, weights=np.concatenate([each.ravel(), np.ones(len(sure))]))
    draws = place[: drawn.size].reshape(count, 2)
    return TwoEach(rows, weight, draws, each, np.full(count, 2.0), np.ones(count))


def _evenly(order: Array, count: int, rng: np.random.Generator) -> TwoEach:
    """Return two rows of each of ``count`` strata of equal size, none twice."""
    ends = np.linspace(0, len(order), count + 1).astype(np.intp)
    first, size = ends[:-1], np.diff(ends)
    one = (rng.random(count) * size).astype(np.intp)
    # One of the others: those from the first draw on are counted one place later.
    two = (rng.random(count) * (size - 1)).astype(np.intp)
    two += two >= one
    drawn = order[np.stack([first + one, first + two], axis=1)]
    rows, place = np.unique(drawn, return_inverse=True)
    draws = place.reshape(count, 2)
    each = np.repeat(size[:, None] / 2, 2, axis=1)
    weight = np.empty(len(rows))
    weight[draws] = each
    return TwoEach(rows, weight, draws, each, 2 * (size - 1) / size, 1 - 2 / size)


def inclusion(share: Array, size: int) -> Array:
    """Return chances in proportion to the shares, none above 1, that add up to ``size``.

    Examples
    --------
    >>> inclusion(np.array([0.7, 0.1, 0.1, 0.1]), 2)
    array([1.        , 0.33333333, 0.33333333, 0.33333333])
    """
    certain = np.zeros(len(share), dtype=bool)
    while True:
        rest = float(share[~certain].sum())
        chance = np.where(certain, 1.0, share * ((size - certain.sum()) / rest) if rest > 0 else 1.0)
        over = (chance >= 1) & ~certain
        if not over.any() or (certain | over).all():
            return np.minimum(chance, 1.0)
        certain |= over


def degrees_of_freedom(squares: Array) -> float:
    """Return the degrees of freedom of a variance that is the sum of one square per stratum.

    One per stratum, fewer where few strata hold most of it. By Satterthwaite's rule: twice the square of a sum of
    squares, over the variance of that sum.
    """
    count, total = len(squares), float(squares.sum())
    share = squares / total if total > 0 else squares
    spread = float(share @ share) - 1 / max(count, 1)
    return float(np.clip(2 / spread, 2, count)) if spread > 0 else float(max(count, 1))
