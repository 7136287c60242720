"""Estimate the error that landmarks have on all rows, from a sample whose kernel is held.

For the search for a size: the sample and its kernel are computed once, and each trial costs O(s m (p + m) + s² m) for
any number of rows. Rows differ most in the density around them: a pool of rows is sorted by similarity to a few
landmarks, and the sample is drawn in strata along that order. Rows are drawn with equal chances; if k(x, x) varies,
half of the draws are in proportion to k(x, x), so that rows with most of the kernel are in the sample.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import stdtrit

from nystrom.engine.base import Engine
from nystrom.engine.passes import Passes
from nystrom.errors.frobenius import TILE, TwoEach, degrees_of_freedom, draw_two_each, inclusion, kernel_with
from nystrom.errors.measure import largest_eigenvalue
from nystrom.errors.trace import ErrorEstimate, ratio_of
from nystrom.kernels import Kernel
from nystrom.kernels.base import near_one
from nystrom.landmarks.base import Landmarks, kernel_diagonal, smaller_form
from nystrom.linalg import inverse_cholesky, whiten, whitened
from nystrom.nystroem.factor import landmark_kernel, prepare
from nystrom.rows.base import Block, array_rows, require_finite
from nystrom.rows.draw import draw_rows, gather
from nystrom.types import Array, Matrix


class Merging:
    """Landmarks that can be merged to any smaller number.

    Parameters
    ----------
    landmarks : Landmarks
        Z. Points that are means of rows merge to their mean; of landmarks that are rows, the one with most rows stays.
    W : array (m, m)
        The kernel between them.
    C : array (s, m)
        The kernel of some rows with the landmarks, from which the rows nearest to each are counted.
    """

    def __init__(self, landmarks: Landmarks, W: Array, C: Array) -> None:
        self._landmarks = landmarks
        self._own = np.diag(W).astype(np.float64)
        nearest = np.argmax(2 * C - self._own, axis=1)
        self._masses = np.bincount(nearest, minlength=len(W)) + 1.0
        self._costs = np.maximum(self._own[:, None] + self._own - 2 * W, 0.0)
        self._costs *= self._masses[:, None] * self._masses / (self._masses[:, None] + self._masses)
        np.fill_diagonal(self._costs, np.inf)
        self._sizes = self._masses.copy()
        self._pairs: list[tuple[int, int]] = []
        self._nearest = self._costs.argmin(axis=1)
        self._least = self._costs.min(axis=1)

    def to(self, size: int) -> Landmarks:
        """Return this many landmarks. Results are nested: fewer landmarks are merged from more."""
        m = len(self._masses)
        while len(self._pairs) < m - size:
            self._pairs.append(self._merge_nearest())
        label = np.arange(m)
        for stays, goes in self._pairs[: m - size]:
            label[label == goes] = stays
        label = np.unique(label, return_inverse=True)[1]
        points, indices = self._landmarks.points, self._landmarks.indices
        if indices is not None:
            heaviest = np.lexsort((-self._masses, label))
            stay = np.sort(heaviest[np.unique(label[heaviest], return_index=True)[1]])
            return Landmarks(points[stay], indices[stay])
        share = self._masses / np.bincount(label, weights=self._masses)[label]
        means = sp.csr_matrix((share, (label, np.arange(m))), shape=(size, m)) @ points
        return Landmarks(smaller_form(means.astype(points.dtype)), None)

    def _merge_nearest(self) -> tuple[int, int]:
        """Merge the two groups with the least cost; return the number that stays and the number that is removed."""
        costs, sizes, least, nearest = self._costs, self._sizes, self._least, self._nearest
        a = int(least.argmin())
        b = int(nearest[a])
        # Lance and Williams' update for Ward's rule; removed groups keep an infinite cost.
        row = (sizes + sizes[a]) * costs[a] + (sizes + sizes[b]) * costs[b] - sizes * costs[a, b]
        row /= sizes + (sizes[a] + sizes[b])
        sizes[a] += sizes[b]
        costs[a] = costs[:, a] = row
        costs[b] = costs[:, b] = np.inf
        least[b] = np.inf
        # Only these had a merged group as their nearest: the merged group is no nearer to others than its parts were.
        stale = np.flatnonzero(((nearest == a) | (nearest == b)) & np.isfinite(least))
        stale = np.append(stale, a)
        nearest[stale] = costs[stale].argmin(axis=1)
        least[stale] = costs[stale, nearest[stale]]
        return a, b


# Largest number of rows in the pool, and of dense values in them.
_POOL_ROWS = 16384
_POOL_NUMBERS = 2**23
# Rows of the sample: fewer if a fit is so cheap that the pairs would take longer. Trying a third first saved no time.
_TRIAL_ROWS = (1000, 2000)
# Rows counted per landmark before merging: at least 1,000 in total, and 8 per landmark.
_COUNTED_ROWS = 1000
_COUNTED_PER_LANDMARK = 8
# Range of k(x, x) for which float32 can sum many squares.
_SQUARABLE = (1e-6, 1e6)
# Above this error float32 is accurate enough, and its products take half the time.
_FLOAT32_TOLERANCE = 1e-3
# Fraction of the trace of W added to its diagonal if float32 is accurate enough.
_ADDED = 1e-11
# Fraction of the draws in proportion to k(x, x), if that varies.
_DIAGONAL_SHARE = 0.5


def trial_size(n: int, n_columns: int) -> int:
    """Return the number of sample rows for n rows: with 200 landmarks, their pairs cost a fifth of a fit."""
    return int(np.clip(np.sqrt(0.2 * n * (n_columns + 200)), *_TRIAL_ROWS))


class SizeSample:
    """The sample of the rows that judges landmarks.

    Parameters
    ----------
    passes : Passes
        All rows.
    kernel : Kernel
        With numeric parameters.
    rng : numpy.random.Generator
        Draws the samples.
    first : Landmarks
        A few landmarks, by which the rows are sorted.
    least : float
        The smallest error of interest.

    Attributes
    ----------
    whole : HeldSample
        The sample and its kernel.
    """

    def __init__(
        self, passes: Passes, kernel: Kernel, rng: np.random.Generator, first: Landmarks, *, least: float = 0.0
    ) -> None:
        rows = passes.rows
        self.n_rows = rows.shape[0]
        self._passes = passes
        size = trial_size(*rows.shape)
        pool = _draw_pool(passes, kernel, pool_size(rows.shape, size, sparse=rows.is_sparse), rng)
        sampled = size < len(pool.numbers)
        self.kernel, diagonal = near_one(kernel, pool.diagonal, rows.dtype, _SQUARABLE)
        # The factor from features of the kernel to those of the scaled kernel that is held.
        top = float(pool.diagonal.max())
        self._unit = float(np.sqrt(diagonal.max() / top)) if top > 0 else 1.0
        order = np.argsort(self._closeness(pool, first), kind="stable") if sampled else np.arange(len(pool.numbers))
        within = _SQUARABLE[0] < float(diagonal.max()) < _SQUARABLE[1]
        low = least >= _FLOAT32_TOLERANCE and sampled and within
        self.dtype: np.dtype[np.floating] = np.dtype(np.float32 if low else np.float64)
        share = None if pool.share is None else pool.share / pool.chance
        drawn = draw_two_each(order, share, size, rng)
        self.whole = HeldSample(pool, drawn, self.kernel, self.n_rows, self.dtype, passes.engine)
        # Drawn now, so that trials do not change the random stream that selects landmarks.
        self._seed = int(rng.integers(2**32))

    def _closeness(self, pool: _Pool, first: Landmarks) -> Array:
        """Return the similarity of each row of the pool to a few landmarks: the sum of squared kernel values."""
        C = prepare(self.kernel.at(first.indices), first)(pool.X)
        return np.einsum("ij,ij->i", C, C, dtype=np.float64)

    def error(self, landmarks: Landmarks, norm: str, confidence: float) -> ErrorEstimate:
        """Estimate the relative error of these landmarks on all rows, with every direction that they span."""
        W, C = self._kernels(landmarks, self.whole.X)
        return self._error(whitened(C, self._whitening(W, self.whole.X.dtype)), norm, confidence)

    def error_of(self, L: Array, norm: str, confidence: float) -> ErrorEstimate:
        """Estimate the relative error of features on all rows, given those of the sample's rows."""
        return self._error(L * self._unit, norm, confidence)

    def _error(self, L: Array, norm: str, confidence: float) -> ErrorEstimate:
        sample, L = self.whole, L.astype(self.dtype)
        if norm == "spectral":
            return sample.spectral(L, confidence, np.random.default_rng(self._seed))
        return sample.trace(L, confidence) if norm == "trace" else sample.frobenius(L, confidence)

    def merging(self, landmarks: Landmarks) -> Merging:
        """Return the landmarks, ready to be merged.

        Uses rows outside the sample: landmarks merged by the sample itself would fit it better than other rows.
        """
        count = max(_COUNTED_ROWS, _COUNTED_PER_LANDMARK * len(landmarks))
        numbers = draw_rows(self.n_rows, count, None, np.random.default_rng(self._seed))[0]
        return Merging(landmarks, *self._kernels(landmarks, gather(self._passes, numbers)))

    def _kernels(self, landmarks: Landmarks, X: Matrix) -> tuple[Array, Array]:
        """Return the kernel between the landmarks, and that of rows with them."""
        kernel = self.kernel.at(landmarks.indices)
        C = np.asarray(prepare(kernel, landmarks)(X), dtype=np.float64)
        return landmark_kernel(kernel, landmarks), C

    def _whitening(self, W: Array, dtype: np.dtype) -> Array:
        if self.dtype == np.float32 and dtype == np.float64:
            # Adding to the diagonal of W explains slightly less, which is conservative.
            added = W + _ADDED * float(np.trace(W)) * np.eye(len(W))
            T = inverse_cholesky(added)
            if T is not None:
                return T
        return whiten(W, block_dtype=dtype).T


class _Pool(NamedTuple):
    """Rows to draw from.

    Attributes
    ----------
    numbers, X : array (s,), matrix (s, p)
        Their numbers, and the rows.
    chance : array (s,)
        Probability that each was drawn into the pool.
    diagonal : array (s,)
        k(x, x).
    share : array (s,) or None
        Weights for drawing; None: all rows equally.
    """

    numbers: Array
    X: Matrix
    chance: Array
    diagonal: Array
    share: Array | None


class _Sums(NamedTuple):
    """Sums of the terms of pairs of sample rows.

    Attributes
    ----------
    off : array (t,)
        Each row with the others, weighted by the number of rows that the other represents.
    on : array (t,)
        Each row with itself.
    own : array (h,)
        The two draws of each stratum.
    """

    off: Array
    on: Array
    own: Array


class HeldSample:
    """Rows of a pool, drawn in strata, and the kernel between them.

    Parameters
    ----------
    pool, drawn
        The rows to draw from, and which were drawn.
    kernel : Kernel
        With numeric parameters.
    n_rows : int
        Number of all rows.
    dtype : dtype
        Of the kernel that is held.
    engine : Engine
        Computes the kernel.
    """

    def __init__(
        self, pool: _Pool, drawn: TwoEach, kernel: Kernel, n_rows: int, dtype: np.dtype, engine: Engine
    ) -> None:
        self.numbers, self.X = pool.numbers[drawn.rows], pool.X[drawn.rows]
        self._drawn, self._kernel, self._n_rows, self._engine, self.dtype = drawn, kernel, n_rows, engine, dtype
        self._chance = pool.chance[drawn.rows]
        # Number of rows, among all, that each sample row represents.
        self.weight = drawn.weight / self._chance
        self._each = drawn.each / self._chance[drawn.draws]
        pooled = len(pool.numbers)
        # Pairs enter the pool slightly less often than the product of their probabilities.
        self._together = pooled / (pooled - 1) * (n_rows - 1) / n_rows if 1 < pooled < n_rows else 1.0

    @cached_property
    def K(self) -> Array:
        """The kernel between the rows of the sample; each pair is evaluated once."""
        size = len(self.numbers)
        K = np.empty((size, size), dtype=self.dtype)

        def step(block: Block) -> None:
            rows, later = slice(block.start, block.stop), slice(block.start, None)
            K[rows, later] = kernel_with(self.X[later], self.numbers[later], self._kernel)(block.X)
            K[later, rows] = K[rows, later].T

        for _ in self._engine.map(array_rows(self.X, block_rows=TILE), step, label="kernel of a sample"):
            pass
        return K

    def frobenius(self, L: Array, confidence: float) -> ErrorEstimate:
        """Return the relative error in the Frobenius norm, for the features L of the sample's rows."""
        ratio, half = self._ratio(self._squares(L), self._kernel_squares, confidence)
        value = float(np.sqrt(ratio))
        half = half / (2 * value) if value > 0 else 0.0
        return ErrorEstimate(value, max(value - half, 0.0), value + half, "fro", confidence)

    def trace(self, L: Array, confidence: float) -> ErrorEstimate:
        """Return the relative error in the trace norm."""
        none, own = np.zeros(len(L)), np.zeros(len(self._each))
        diagonal = np.diag(self.K).astype(np.float64)
        left = diagonal - np.einsum("ij,ij->i", L, L, dtype=np.float64)
        ratio, half = self._ratio(_Sums(none, left, own), _Sums(none, diagonal, own), confidence)
        return ErrorEstimate(ratio, max(ratio - half, 0.0), ratio + half, "trace", confidence)

    def spectral(self, L: Array, confidence: float, rng: np.random.Generator) -> ErrorEstimate:
        """Return the ratio of norms on the sample. The diagonal weighs more in a sample, so this is too high."""
        root, E = np.sqrt(self.weight), self.K - L @ L.T
        failure = (1 - confidence) / 2
        error = largest_eigenvalue(lambda v: root * (E @ (root * v)), len(E), rng, failure)
        kernel = largest_eigenvalue(lambda v: root * (self.K @ (root * v)), len(E), rng, failure)
        widened = 1 + (2 / np.sqrt(len(E)) if len(E) < self._n_rows else 0.0)
        low, high = ratio_of(error.low, kernel.high) / widened, ratio_of(error.high, kernel.low) * widened
        return ErrorEstimate(ratio_of(error.low, kernel.low), low, high, "spectral", confidence)

    def best_errors(self, norm: str) -> Array:
        """Estimate the least relative errors on all rows for ranks 0, 1, …, from the sample's eigenvalues.

        Corrects for rows being paired with themselves more often in a sample than among all rows. The eigenvectors fit
        the sample better than all rows: errors are too low for ranks that are not small compared with the sample.
        """
        weight = np.sqrt(self.weight)
        values, vectors = np.linalg.eigh(weight[:, None] * self.K.astype(np.float64) * weight)
        values, vectors = np.maximum(values, 0.0), vectors**2
        tails = values if norm == "spectral" else np.cumsum(values**2 if norm == "fro" else values)
        if norm == "fro":
            own = np.cumsum(vectors * values, axis=1) ** 2
            tails = np.maximum(tails - (1 - 1 / np.maximum(self.weight, 1.0)) @ own, 0.0)
        tails = np.append(tails[::-1], 0.0) / max(float(tails[-1]), np.finfo(np.float64).tiny)
        return np.sqrt(tails) if norm == "fro" else tails

    @cached_property
    def _kernel_squares(self) -> _Sums:
        return self._squares(np.zeros((len(self.numbers), 0), dtype=self.dtype))

    def _squares(self, L: Array) -> _Sums:
        """Return the sums of the squares of ``K − L Lᵀ``."""
        s, weight = len(L), self.weight.astype(self.dtype)
        off, on = np.zeros(s), np.empty(s)
        # The matrix is symmetric: evaluate the upper triangle, in tiles that stay in the cache.
        other, room = np.ascontiguousarray(L.T), np.empty(min(TILE, s) * s, dtype=self.dtype)
        for first in range(0, s, TILE):
            rows, later = slice(first, min(first + TILE, s)), slice(first, None)
            count = rows.stop - first
            E = np.matmul(L[rows], other[:, later], out=room[: count * (s - first)].reshape(count, -1))
            np.subtract(self.K[rows, later], E, out=E)
            np.square(E, out=E)
            on[rows] = E.diagonal()
            off[rows] += E @ weight[later]
            off[rows.stop :] += weight[rows] @ E[:, count:]
        one, two = self._drawn.draws.T
        own = (self.K[one, two] - np.einsum("ij,ij->i", L[one], L[two])).astype(np.float64) ** 2
        # A row that was drawn twice forms no pair.
        return _Sums(off - on * weight, on, np.where(one == two, 0.0, own))

    def _ratio(self, error: _Sums, kernel: _Sums, confidence: float) -> tuple[float, float]:
        """Return the ratio of two sums over all rows, and half the width of its interval.

        Each row, and each pair of rows, is weighted by its inverse probability; two rows of a stratum are drawn
        together half as often as independent rows. The variance is that of a U-statistic, whose terms are the sums of a
        row over all others.
        """
        weight, draws = self.weight, self._drawn.draws
        pair = self._each[:, 0] * self._each[:, 1]
        more = 2 * (self._drawn.own - 1) * pair
        top, bottom = (
            float(weight @ (self._together * sums.off + sums.on) + more @ sums.own) for sums in (error, kernel)
        )
        ratio = ratio_of(max(top, 0.0), bottom)
        off, on, own = (a - ratio * b for a, b in zip(error, kernel, strict=True))
        influence = 2 * self._together * off + on
        # Exclude the other draw of the stratum: the within-stratum pair is counted separately.
        moves = (influence[draws] - 2 * own[:, None] * self._each[:, ::-1]) * self._each
        alone = 2 * self._drawn.own * pair * own
        mean = float(alone.sum()) / max(len(alone), 1)
        squares = self._drawn.noise * ((moves[:, 0] - moves[:, 1]) ** 2 + (alone - mean) ** 2)
        spread = float(np.sqrt(squares.sum() + self._pool_noise(influence)))
        # Without strata, the sample is the whole pool.
        freedom = degrees_of_freedom(squares) if len(squares) else max(len(weight) - 1, 1)
        return ratio, float(stdtrit(freedom, 0.5 + confidence / 2)) * ratio_of(spread, bottom)

    def _pool_noise(self, influence: Array) -> float:
        """Return the variance due to the pool, which is itself a sample of all rows."""
        stands = self._drawn.weight
        moves = influence / self._chance
        mean = float(stands @ moves) / float(stands.sum())
        return float(stands @ ((1 - self._chance) * (moves - mean) ** 2))


def pool_size(shape: tuple[int, int], size: int, *, sparse: bool) -> int:
    """Return how many rows to draw into the pool for a sample of ``size``."""
    most = _POOL_ROWS if sparse else min(_POOL_ROWS, _POOL_NUMBERS // max(shape[1], 1))
    return min(max(most, size), shape[0])


def _draw_pool(passes: Passes, kernel: Kernel, size: int, rng: np.random.Generator) -> _Pool:
    """Draw the pool; if k(x, x) varies, with weights in proportion to it."""
    rows = passes.rows
    n = rows.shape[0]
    numbers, chance, share = draw_rows(n, size, None, rng)[0], np.full(min(size, n), min(size / n, 1.0)), None
    X = gather(passes, numbers)
    require_finite(X, rows.name, numbers=numbers)
    diagonal = np.ones(0) if not kernel.has_coordinates else kernel.diag(X)
    if not len(diagonal) or np.ptp(diagonal) > 0:
        every = np.maximum(kernel_diagonal(passes, kernel), 0.0)
        largest = float(every.max())
        diagonal = every[numbers]
        if 0 < largest < np.inf:
            # Divide by the largest, so that the sum cannot overflow.
            share = every / largest
            share = _DIAGONAL_SHARE * share / share.sum() + (1 - _DIAGONAL_SHARE) / n
    if share is not None and size < n:
        chances = inclusion(share, size)
        # Systematic sampling in random order: one draw per unit of the sum of the chances.
        order = rng.permutation(n)
        reach = np.cumsum(chances[order])
        marks = np.arange(size) + rng.random()
        drawn = order[np.minimum(np.searchsorted(reach, marks * (reach[-1] / size), side="right"), n - 1)]
        numbers = np.unique(drawn)
        chance, X, diagonal = chances[numbers], gather(passes, numbers), every[numbers]
    return _Pool(numbers, X, chance, diagonal, None if share is None else share[numbers])
