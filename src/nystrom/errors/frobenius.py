"""The Frobenius error from the kernel values of pairs of rows, drawn in strata, with an interval; exact on request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from nystrom.devices import to_host
from nystrom.engine.base import Engine, Sums
from nystrom.engine.passes import Passes
from nystrom.errors.trace import ErrorEstimate, ratio_of, resolution
from nystrom.kernels import Kernel
from nystrom.linalg import cross_product
from nystrom.nystroem.factor import NystromMap
from nystrom.rows.base import Block, RowBlocks, array_rows, require_finite
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
    return _from_sample(known, sums)


def _diagonals(rows: RowBlocks, fitted: NystromMap, engine: Engine) -> _Diagonals:
    """Return ``E_ii``, ``K_ii`` and the landmark most like each row, and ``‖L Lᵀ‖_F²``: one pass (two on a cluster)."""
    name = rows.name

    def look(block: Block) -> tuple[Array, Array, Array, Array]:
        require_finite(block.X, name, block.start)
        C = fitted.evaluate(block.X)
        phi = fitted.project(C)
        diagonal = np.asarray(fitted.kernel.diag(block.X, start=block.start), dtype=np.float64)
        left = np.maximum(diagonal - to_host(np.einsum("ij,ij->i", phi, phi, dtype=np.float64)), 0.0)
        return left, diagonal, to_host(np.argmax(C, axis=1)).astype(np.int32), gram_of(phi)

    def gram_of(phi: Array) -> Array:
        # On a cluster Gram matrices are added up where they are made, in a pass of their own: only their sum travels.
        return np.zeros((0, 0)) if rows.on_cluster else cross_product(phi, phi).astype(np.float64)

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
                K = between(tile.X.astype(np.float64)).astype(np.float64, copy=False)
                kernel += float(np.einsum("ij,ij->", K, K))
                K -= fitted.features(tile.X).astype(np.float64) @ phi.T
                error += float(np.einsum("ij,ij->", K, K))
            return Sums(error, kernel)

        total = total.merge(engine.fold(rows, step, label="all pairs of rows"))
    return SquaredNorms(*total)
