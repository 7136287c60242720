"""Pairs of rows, drawn in strata, and their kernel values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nystrom.engine.base import Engine
from nystrom.engine.passes import Passes
from nystrom.engine.threads import blas_threads
from nystrom.kernels import Kernel
from nystrom.nystroem.factor import NystromMap
from nystrom.rows.arrays import array_rows
from nystrom.rows.base import Block, RowBlocks, require_finite
from nystrom.rows.draw import gather
from nystrom.types import Array, Matrix, issparse


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


# Rows of a tile of the pairs' matrix.
TILE = 256


class PairSums(NamedTuple):
    """What pairs of s draws add up to; draws 2h and 2h + 1 share a stratum.

    Attributes
    ----------
    error, cross : arrays (s,)
        Each draw's terms, summed over the draws of other strata.
    partner_error, partner_cross : arrays (s / 2,)
        The terms of each stratum's own pair.
    contrasts : array (3,)
        Over all pairs of strata, the squares and the product of what is left of a 2 × 2 block of terms without its row
        and column means: ``t_ac − t_ad − t_bc + t_bd``, for error², error · cross and cross².
    """

    error: Array
    cross: Array
    partner_error: Array
    partner_cross: Array
    contrasts: Array

    @property
    def totals(self) -> tuple[float, float]:
        """The estimates of the sums over all pairs i ≠ j: of the error's squares, and of the cross terms."""
        s2 = len(self.error) ** 2
        # A stratum's own pair stands for the pairs within it, which are twice as many per pair drawn.
        error = float(self.error.sum() + 4 * self.partner_error.sum()) / s2
        return error, float(self.cross.sum() + 4 * self.partner_cross.sum()) / s2

    def variance(self, a: float, b: float) -> float:
        """Return the variance of the estimate of ``a · error + b · cross``.

        The first-order part of a U-statistic is how the two draws of a stratum differ in their sums over all others.
        These sums carry the noise of the pairs, which is then counted twice; the contrasts measure it, and one half
        goes back. A stratum's own pair spreads by itself: rows that are almost the same stand next to each other in
        the strata's order, so this part is not small for them.
        """
        s = len(self.error)
        first_order = 4 * float(self._differences(a, b).sum())
        noise = 2 * float(np.array([a * a, 2 * a * b, b * b]) @ self.contrasts)
        partner = a * self.partner_error + b * self.partner_cross
        own = 16 * float(np.sum((partner - partner.mean()) ** 2))
        return (max(first_order - noise, first_order / 2) + own) / s**4

    def _differences(self, a: float, b: float) -> Array:
        """Return the squared differences of the sums of the two draws of each stratum.

        Rows of few kinds differ only in the strata where one kind ends and the next begins, and the two draws of such a
        stratum may both be of one kind. Its neighbour then has the other, so half the differences between strata are
        the least that is taken; elsewhere they are about as large as those within, and change nothing.
        """
        sums = a * self.error + b * self.cross
        within, between = (sums[0::2] - sums[1::2]) ** 2, (sums[1:-1:2] - sums[2::2]) ** 2
        return np.asarray(between / 2 if between.sum() > 2 * within.sum() else within)

    def skewness(self, a: float, b: float) -> float:
        """Return the skewness of the estimate of ``a · error + b · cross``.

        Few pairs that hold much make it positive: the estimate is then low more often than high, and its variance with
        it. The third moment of a draw is taken from the four draws of two neighbouring strata. As in the variance, the
        noise of the pairs is in the sums of both draws, and a half of it goes back.
        """
        s = len(self.error)
        sums = a * self.error + b * self.cross
        four = sums[: s // 4 * 4].reshape(-1, 4)
        third = 8 * (8 / 3) * float(np.sum((four - four.mean(axis=1, keepdims=True)) ** 3))
        first_order = 4 * float(self._differences(a, b).sum())
        noise = 2 * float(np.array([a * a, 2 * a * b, b * b]) @ self.contrasts)
        share = 1 - min(noise / first_order, 0.5) if first_order > 0 else 1.0
        partner = a * self.partner_error + b * self.partner_cross
        own = 64 * float(np.sum((partner - partner.mean()) ** 3))
        spread = self.variance(a, b) ** 1.5 * s**6
        return (share * third + own) / spread if spread > 0 else 0.0

    def freedom(self, a: float, b: float) -> float:
        """Return the degrees of freedom of that variance."""
        return degrees_of_freedom(self._differences(a, b))


def pair_sums(
    rows: RowBlocks, fitted: NystromMap, engine: Engine, drawn: Array, inverse: Array, diagonal: Array
) -> PairSums:
    """Return the sums over pairs of draws of the terms times both rows' ``inverse`` probabilities.

    A row with itself counts 0, and each pair is looked at once: a tile has some draws as columns, and these and all
    later ones as rows. Cost: O(s² (p + r) / 2) time, and the rows drawn in memory.

    Parameters
    ----------
    rows, fitted, engine
        All rows, the map to judge, and what runs the tiles.
    drawn, inverse, diagonal : arrays (s,)
        The numbers of the rows drawn, one over the probability of each, and k(x, x).
    """
    numbers, at = np.unique(drawn, return_inverse=True)
    X = gather(Passes(rows, engine), numbers)
    require_finite(X, rows.name, numbers=numbers)
    X, numbers = X[at], drawn
    # In units that leave no value above 1, a power of 2 so that nothing is rounded: float32 can then hold the squares.
    unit = 2.0 ** np.ceil(np.log2(max(float((diagonal * inverse).max()), 1e-300)))
    # With the roots of both rows' weights in each factor, products and squares have the whole weight.
    with blas_threads(1):
        phi = fitted.features(X)
    root = ((inverse / unit) ** 0.5).astype(phi.dtype)
    phi *= root[:, None]
    same_one, same_other = _drawn_again(at)

    def step(block: Block) -> tuple[Array, ...]:
        here, later = slice(block.start, block.stop), slice(block.start, None)
        product = phi[later] @ phi[here].T
        error = kernel_with(block.X, numbers[here], fitted.kernel)(X[later]) * root[here]
        error *= root[later, None]
        error -= product
        inside = (same_one >= block.start) & (same_other >= block.start) & (same_other < block.stop)
        error[same_one[inside] - block.start, same_other[inside] - block.start] = 0.0
        cross = np.multiply(product, error, out=product)
        cross *= 2
        error *= error
        even, odd = (np.arange(first, cross.shape[1], 2) for first in (0, 1))
        own = [T[even, odd].astype(np.float64) for T in (error, cross)]
        for T in (error, cross):
            T[even, odd] = T[odd, even] = 0.0
        e, c = (_contrasts(T) for T in (error, cross))
        squares = [_both_orders(a, b) for a, b in ((e, e), (e, c), (c, c))]
        return *(_sums_of_draws(T, len(root)) for T in (error, cross)), *own, np.array(squares)

    parts = [part for _, part in engine.map(array_rows(X, block_rows=TILE), step, label="pairs of rows")]
    error, cross, contrasts = (np.sum([part[i] for part in parts], axis=0) for i in (0, 1, 4))
    own_error, own_cross = (np.concatenate([part[i] for part in parts]) for i in (2, 3))
    one, two = unit**2, unit**4
    return PairSums(one * error, one * cross, one * own_error, one * own_cross, two * contrasts)


def _drawn_again(at: Array) -> tuple[Array, Array]:
    """Return the places of all ordered pairs of draws of the same row, a draw with itself among them."""
    order = np.argsort(at, kind="stable")
    ones, others = [order], [order]
    # The draws of a row are next to each other in order.
    step = 1
    while len(same := np.flatnonzero(at[order[step:]] == at[order[:-step]])):
        ones += [order[same], order[same + step]]
        others += [order[same + step], order[same]]
        step += 1
    return np.concatenate(ones), np.concatenate(others)


def _sums_of_draws(terms: Array, s: int) -> Array:
    """Return what a tile adds to the sums of all s draws: to those of its columns, and of the rows beyond them."""
    first, count = s - len(terms), terms.shape[1]
    sums = np.zeros(s)
    sums[first : first + count] = terms.sum(axis=0, dtype=np.float64)
    sums[first + count :] = terms[count:].sum(axis=1, dtype=np.float64)
    return sums


def _contrasts(terms: Array) -> Array:
    """Return the interaction contrast a − b − c + d of each 2 × 2 block; 0 for the blocks of a stratum with itself."""
    left = terms[0::2] - terms[1::2]
    # In float64, for their squares.
    left = np.subtract(left[:, 0::2], left[:, 1::2], dtype=np.float64)
    here = np.arange(left.shape[1])
    left[here, here] = 0.0
    return left


def _both_orders(a: Array, b: Array) -> float:
    """Return the sum of products of contrasts over both orders of two strata; a tile's own rows have both already."""
    own = slice(None, a.shape[1])
    return float(2 * np.vdot(a, b) - np.vdot(a[own], b[own]))


def kernel_with(X: Matrix, numbers: Array, kernel: Kernel) -> Callable[[Matrix], Array]:
    """Return the function from rows to their kernel values with the rows X, which have these numbers, in its dtype."""
    if not kernel.has_coordinates:
        return lambda rows: np.array(rows[:, numbers])
    center = None if issparse(X) else X.mean(axis=0, dtype=np.float64)
    return kernel.prepare(X, center=center)
