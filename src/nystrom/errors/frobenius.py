"""The Frobenius error: estimated with an interval from pairs of rows drawn in strata, or exact on request."""

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
    """Rows drawn two per stratum; a row that is certain to be drawn belongs to no stratum.

    Attributes
    ----------
    rows : int array (t,)
        In ascending order, without duplicates.
    weight : array (t,)
        Number of rows that each one represents.
    draws : int array (h, 2)
        The two draws of each stratum, as positions in ``rows``.
    each : array (h, 2)
        Number of rows that each draw represents; the weight of a row drawn twice is the sum of both.
    own : array (h,)
        Weight of the within-stratum pair, relative to a pair from two strata.
    noise : array (h,)
        Finite-population factor on the variance of a stratum: 1 if rows can be drawn twice.
    """

    rows: Array
    weight: Array
    draws: Array
    each: Array
    own: Array
    noise: Array


def draw_two_each(order: Array, share: Array | None, size: int, rng: np.random.Generator) -> TwoEach:
    """Draw about ``size`` of the rows of ``order``, two from each stratum.

    Parameters
    ----------
    order : int array (n,)
        The rows; neighbours share a stratum.
    share : array (n,) or None
        Rows are drawn in proportion to it, those with a chance above 1 always. None: all with equal chance.
    size : int
        Rows to draw; all rows if there are no more.
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
    """Draw two different rows from each of ``count`` strata of equal size."""
    ends = np.linspace(0, len(order), count + 1).astype(np.intp)
    first, size = ends[:-1], np.diff(ends)
    one = (rng.random(count) * size).astype(np.intp)
    # Draw from the other rows: skip the place of the first draw.
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
    """Return chances in proportion to ``share``, capped at 1, that sum to ``size``.

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

    One per stratum, fewer if a few strata hold most of the variance. By Satterthwaite's rule: twice the square of a sum
    of squares, divided by the variance of that sum.
    """
    count, total = len(squares), float(squares.sum())
    share = squares / total if total > 0 else squares
    spread = float(share @ share) - 1 / max(count, 1)
    return float(np.clip(2 / spread, 2, count)) if spread > 0 else float(max(count, 1))


# Rows per tile of the matrix of pairs.
TILE = 256


class PairSums(NamedTuple):
    """Sums over pairs of s draws; draws 2h and 2h + 1 share a stratum.

    Attributes
    ----------
    error, cross : arrays (s,)
        Each draw's terms, summed over the draws of other strata.
    partner_error, partner_cross : arrays (s / 2,)
        The terms of the within-stratum pairs.
    contrasts : array (3,)
        Interactions summed over all pairs of strata: error², error · cross and cross² of ``t_ac − t_ad − t_bc + t_bd``,
        which is a 2 × 2 block of terms without its row and column means.
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
        # A within-stratum pair represents twice as many pairs as a pair from two strata.
        error = float(self.error.sum() + 4 * self.partner_error.sum()) / s2
        return error, float(self.cross.sum() + 4 * self.partner_cross.sum()) / s2

    def variance(self, a: float, b: float) -> float:
        """Return the variance of the estimate of ``a · error + b · cross``.

        The first-order part of a U-statistic is the difference between the two draws of a stratum in their sums over
        all other draws. These sums contain the noise of the pairs twice; the contrasts measure it, and half is
        subtracted. The within-stratum pairs have a variance of their own, which is not small if near-duplicates are
        neighbours in the order of the strata.
        """
        s = len(self.error)
        first_order = 4 * float(self._differences(a, b).sum())
        noise = 2 * float(np.array([a * a, 2 * a * b, b * b]) @ self.contrasts)
        partner = a * self.partner_error + b * self.partner_cross
        own = 16 * float(np.sum((partner - partner.mean()) ** 2))
        return (max(first_order - noise, first_order / 2) + own) / s**4

    def _differences(self, a: float, b: float) -> Array:
        """Return the squared difference between the sums of the two draws of each stratum.

        If there are only a few kinds of rows, they differ only in strata where one kind ends and the next begins, and
        both draws of such a stratum may be of one kind. Its neighbour then has the other kind, so half the difference
        between neighbouring strata is the lower limit; elsewhere these are about as large as the differences within a
        stratum.
        """
        sums = a * self.error + b * self.cross
        within, between = (sums[0::2] - sums[1::2]) ** 2, (sums[1:-1:2] - sums[2::2]) ** 2
        return np.asarray(between / 2 if between.sum() > 2 * within.sum() else within)

    def skewness(self, a: float, b: float) -> float:
        """Return the skewness of the estimate of ``a · error + b · cross``.

        A few pairs with much of the error make it positive: the estimate and its variance are then more often low than
        high. The third moment of a draw comes from the four draws of two neighbouring strata. As in the variance, the
        sums of both draws contain the noise of the pairs, and half of it is subtracted.
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

    A row paired with itself counts 0, and each pair is evaluated once: the columns of a tile are some draws, its rows
    are these and all later draws. Cost: O(s² (p + r) / 2) time, and memory for the rows drawn.

    Parameters
    ----------
    rows, fitted, engine
        All rows, the map to judge, and the engine that runs the tiles.
    drawn, inverse, diagonal : arrays (s,)
        The numbers of the rows drawn, their inverse probabilities, and k(x, x).
    """
    numbers, at = np.unique(drawn, return_inverse=True)
    X = gather(Passes(rows, engine), numbers)
    require_finite(X, rows.name, numbers=numbers)
    X, numbers = X[at], drawn
    # Scale values to at most 1, by a power of 2 to avoid rounding, so that float32 can hold the squares.
    unit = 2.0 ** np.ceil(np.log2(max(float((diagonal * inverse).max()), 1e-300)))
    # Each factor carries the square roots of both rows' weights, so products and squares carry the full weight.
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
    """Return the positions of all ordered pairs of draws of the same row, including a draw with itself."""
    order = np.argsort(at, kind="stable")
    ones, others = [order], [order]
    # After sorting, the draws of a row are adjacent.
    step = 1
    while len(same := np.flatnonzero(at[order[step:]] == at[order[:-step]])):
        ones += [order[same], order[same + step]]
        others += [order[same + step], order[same]]
        step += 1
    return np.concatenate(ones), np.concatenate(others)


def _sums_of_draws(terms: Array, s: int) -> Array:
    """Return a tile's contribution to the sums of all s draws: its columns, and the rows beyond them."""
    first, count = s - len(terms), terms.shape[1]
    sums = np.zeros(s)
    sums[first : first + count] = terms.sum(axis=0, dtype=np.float64)
    sums[first + count :] = terms[count:].sum(axis=1, dtype=np.float64)
    return sums


def _contrasts(terms: Array) -> Array:
    """Return the interaction contrast a − b − c + d of each 2 × 2 block; 0 for a stratum paired with itself."""
    left = terms[0::2] - terms[1::2]
    # In float64, because they are squared.
    left = np.subtract(left[:, 0::2], left[:, 1::2], dtype=np.float64)
    here = np.arange(left.shape[1])
    left[here, here] = 0.0
    return left


def _both_orders(a: Array, b: Array) -> float:
    """Return the sum of products of contrasts over both orders of two strata; a tile's own rows include both."""
    own = slice(None, a.shape[1])
    return float(2 * np.vdot(a, b) - np.vdot(a[own], b[own]))


def kernel_with(X: Matrix, numbers: Array, kernel: Kernel) -> Callable[[Matrix], Array]:
    """Return the function from rows to their kernel values with the rows X, which have these numbers."""
    if not kernel.has_coordinates:
        return lambda rows: np.array(rows[:, numbers])
    center = None if issparse(X) else X.mean(axis=0, dtype=np.float64)
    return kernel.prepare(X, center=center)


# Pairs evaluated by default, the number of rows up to which all pairs are, and the least number of pairs.
DEFAULT_PAIRS = 1_000_000
EXACT_ROWS = 2000
_LEAST_PAIRS = 100
# Least and largest fraction of draws in proportion to the explained part ‖φ‖² instead of the residual.
_EXPLAINED_SHARE = (0.2, 0.5)
# Rows held at a time in an exact sum over all pairs.
_SIDE_ROWS = 4096


def check_n_pairs(n_pairs: object) -> int:
    """Return the number of pairs of rows to evaluate, or raise."""
    whole = isinstance(n_pairs, (int, np.integer)) and not isinstance(n_pairs, bool)
    if not whole or n_pairs < _LEAST_PAIRS:  # type: ignore[operator]
        raise ValueError(
            f"n_pairs must be a whole number of at least {_LEAST_PAIRS}: fewer pairs of rows say nothing of the error; "
            f"got {n_pairs!r}."
        )
    return int(n_pairs)  # type: ignore[call-overload]


@dataclass(frozen=True)
class SquaredNorms:
    """``‖K − L Lᵀ‖_F²`` and ``‖K‖_F²``, with their uncertainty.

    Attributes
    ----------
    error, kernel : float
        The squared norms.
    spread : float
        Standard deviation of the estimate of ``error / kernel``; 0 if both are exact.
    unseen : float
        Increase of ``error / kernel`` if one pair of identical, unexplained rows had been drawn.
    kernel_spread : float
        Standard deviation of the estimate of ``kernel``.
    freedom, skewness : float
        Degrees of freedom of the spread, and the skewness of the estimate.
    error_trace, feature_norm : float
        ``tr(K − L Lᵀ)`` and ``‖L Lᵀ‖₂``, if the pass has computed them.
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

        Student's interval with both ends moved up by the skewness of the estimate: if a few pairs hold much of the
        error, the estimate and its spread are more often low than high. The upper end moves as in Johnson (1978) for
        the mean, the lower end as the limit of a Poisson count. The upper end is at least the estimate with one more
        pair of identical rows.
        """
        ratio = max(ratio_of(self.error, self.kernel), 0.0)
        value = float(np.sqrt(ratio))
        if self.spread == 0.0 and self.unseen == 0.0:
            return ErrorEstimate.exact(value, "fro", dtype)
        quantile = float(stdtrit(self.freedom, 0.5 + confidence / 2))
        skewness, square = float(np.clip(self.skewness, -1, 1)), float(ndtri(0.5 + confidence / 2)) ** 2
        sigma = self.spread / (2 * value) if value > 0 else 0.0
        # Even an exact error contains the rounding of the features.
        rounding = resolution(dtype) / 10
        low = value - sigma * max(quantile - skewness * (square - 1) / 3, 0.0) - rounding
        high = value + sigma * max(quantile + skewness * (2 * square + 1) / 6, 0.0)
        high = max(high, float(np.sqrt(ratio + self.unseen))) + rounding
        return ErrorEstimate(value, max(low, 0.0), high, "fro", confidence).resolved(dtype)


class _Diagonals(NamedTuple):
    """Values that one pass finds for every row, and ``Lᵀ L``."""

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

    The diagonal and ``‖L Lᵀ‖`` are exact; the estimated part are sums over pairs i ≠ j of ``E_ij²`` and of the product
    ``E_ij φ_iᵀφ_j``. Rows are sorted by nearest landmark and residual and cut into s / 2 strata of equal probability;
    two rows are drawn from each. The spread is that of a U-statistic with such strata.

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
    """Return ``E_ii``, ``K_ii`` and each row's nearest landmark, and ``‖L Lᵀ‖_F²``: one pass (two on a cluster)."""
    name, here = rows.name, engine.reads_here(rows)

    def look(block: Block) -> tuple[Array, Array, Array, Array]:
        require_finite(block.X, name, block.start)
        C = fitted.evaluate(block.X)
        phi = fitted.project(C)
        diagonal = np.asarray(fitted.kernel.diag(block.X, start=block.start), dtype=np.float64)
        left = np.maximum(diagonal - to_host(np.einsum("ij,ij->i", phi, phi, dtype=np.float64)), 0.0)
        return left, diagonal, to_host(np.argmax(C, axis=1)).astype(np.int32), gram_of(phi)

    def gram_of(phi: Array) -> Array:
        # A cluster sums Gram matrices where they are computed, in a separate pass: only the sum is transferred.
        return cross_product(phi, phi).astype(np.float64) if here else np.zeros((0, 0))

    def gram_alone(block: Block) -> Sums:
        phi = fitted.features(block.X)
        return Sums((phi.T @ phi).astype(np.float64))

    parts = [part for _, part in engine.map(rows, look, label="diagonal of the error")]
    gram = np.sum([part[3] for part in parts], axis=0)
    if not here:
        gram = engine.fold(rows, gram_alone, label="Gram matrix of the features")[0]
    left, diagonal, nearest = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return _Diagonals(left, diagonal, nearest, gram)


def _explained_share(known: _Diagonals) -> float:
    """Return the fraction of draws in proportion to ‖φ‖².

    They reduce the variance of ``‖K‖``, which matters most if the landmarks explain little: the ratio is then near 1
    and varies with the explained part.
    """
    return float(np.clip(ratio_of(known.left.sum(), known.kernel.sum()), *_EXPLAINED_SHARE))


def _draw(known: _Diagonals, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return row numbers, the two of each stratum adjacent, and the probability of each row."""
    left, explained = float(known.left.sum()), float((known.kernel - known.left).sum())
    share = _explained_share(known)
    probability = np.full(len(known.left), 1e-12 / len(known.left))
    if left > 0:
        probability += (1 - share) / left * known.left
    if explained > 0:
        probability += share / explained * (known.kernel - known.left)
    probability /= probability.sum()
    order = np.argsort(known.left, kind="stable")
    # 16-bit numbers are sorted in linear time.
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
    # Delta method: error / kernel varies as (1 − ratio) error − ratio cross, divided by the kernel's square.
    spread = float(np.sqrt(sums.variance(1 - ratio, -ratio)))
    # The largest possible term: two identical rows that the landmarks do not explain at all.
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
    """Return both norms exactly, holding one side of the pairs at a time."""
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
