"""The error that landmarks would have on all rows, from a sample of them whose kernel is held.

For the search of a size: the sample and its kernel are made once, and each size on trial costs O(s m (p + m) + s² m)
whatever the number of rows. Rows are drawn evenly, or by half in proportion to k(x, x) where that varies: the rows that
hold most of the kernel are then in the sample.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from nystrom.certificate.estimate import ErrorEstimate, ratio_of
from nystrom.certificate.merging import Merging
from nystrom.certificate.pairs import TILE, kernel_with
from nystrom.certificate.spectral import largest_eigenvalue
from nystrom.engine.survey import Survey
from nystrom.factor import bind, landmark_kernel, prepare
from nystrom.kernels import Kernel, Precomputed
from nystrom.kmeans.lloyd import draw_rows
from nystrom.landmarks.base import Landmarks, gather
from nystrom.linalg import inverse_cholesky, whiten, whiten_quickly, whitened
from nystrom.rows.arrays import array_rows
from nystrom.rows.base import Block
from nystrom.rows.finite import require_finite
from nystrom.types import Array, Matrix

# Rows of the sample: few where a fit is so cheap that pairs of many would take longer.
_TRIAL_ROWS = (1000, 2000)
# The pairs of the whole sample take little time up to so many times as many as the pairs of rows and landmarks.
_WORTH = 1.0
# The rows that are counted for each landmark before some are merged: so many, and so many per landmark.
_COUNTED_ROWS = 1000
_COUNTED_PER_LANDMARK = 8
# Every so many of them are enough to see that a size is far from the tolerance.
_ROUGH_STEP = 3
# Above this error float32 is accurate enough, and its products take half the time.
_FLOAT32_TOLERANCE = 1e-3
# The condition of W up to which it is whitened by Cholesky.
_CHOLESKY_LIMIT = 5e6
# Where float32 is accurate enough, so is W with this share of its trace on the diagonal.
_ADDED = 1e-11
# Of the draws, the share that follows k(x, x) where it varies.
_DIAGONAL_SHARE = 0.5


def trial_size(n: int, n_columns: int) -> int:
    """Return the rows of the sample for n rows: with 200 landmarks their pairs then cost a fifth of a fit."""
    return int(np.clip(np.sqrt(0.2 * n * (n_columns + 200)), *_TRIAL_ROWS))


class _Sums(NamedTuple):
    """Of a matrix of the sample: row sums of squares off the diagonal, weighted by columns, and what is on it."""

    off: Array
    on: Array


class Trial:
    """A sample of the rows, and the kernel between its rows.

    Parameters
    ----------
    survey : Survey
        All rows.
    kernel : Kernel
        With numeric parameters.
    rng : numpy.random.Generator
        Draws the sample.
    least : float
        The least error that matters.
    """

    def __init__(self, survey: Survey, kernel: Kernel, rng: np.random.Generator, *, least: float = 0.0) -> None:
        rows = survey.rows
        self.n_rows = rows.shape[0]
        self.kernel = kernel
        self.numbers, self.chance = _draw(survey, kernel, trial_size(*rows.shape), rng)
        self.X = gather(survey, self.numbers)
        require_finite(self.X, rows.name, numbers=self.numbers)
        # The spectral norm's start, drawn now so that sizes on trial do not move the stream that selects landmarks.
        self._seed = int(rng.integers(2**32))
        sampled = len(self.numbers) < self.n_rows
        self.dtype = np.dtype(np.float32 if least >= _FLOAT32_TOLERANCE and sampled else np.float64)
        self._survey = survey

    @cached_property
    def K(self) -> Array:
        """The kernel between the rows of the sample; each pair is looked at once."""
        size = len(self.numbers)
        K = np.empty((size, size), dtype=self.dtype)

        def step(block: Block) -> None:
            rows, later = slice(block.start, block.stop), slice(block.start, None)
            K[rows, later] = kernel_with(self.X[later], self.numbers[later], self.kernel)(block.X)
            K[later, rows] = K[rows, later].T

        for _ in self._survey.engine.map(array_rows(self.X, block_rows=TILE), step, label="kernel of a sample"):
            pass
        return K

    def worth_it(self, n_landmarks: int) -> bool:
        """Whether a look at the whole sample takes little time beside a fit with so many landmarks."""
        return len(self.numbers) ** 2 <= _WORTH * self.n_rows * n_landmarks

    @cached_property
    def rough(self) -> Trial | None:
        """A third of the sample, for sizes far from the tolerance; None where some rows stand only for themselves."""
        if self.chance.max() >= 1:
            return None
        part = object.__new__(Trial)
        part.n_rows, part.kernel, part.dtype = self.n_rows, self.kernel, self.dtype
        part._seed, part._survey = self._seed, self._survey
        some = slice(None, None, _ROUGH_STEP)
        part.numbers, part.X = self.numbers[some], self.X[some]
        part.chance = self.chance[some] * (len(part.numbers) / len(self.numbers))
        return part

    def features(self, landmarks: Landmarks) -> Array:
        """Return the features of the sample's rows, in every direction that the landmarks span."""
        W, C = self._kernels(landmarks, self.X)
        return whitened(C, self._whitening(W)).astype(self.dtype)

    def merging(self, landmarks: Landmarks) -> Merging:
        """Return the landmarks ready to be merged to fewer.

        By other rows than those of the sample: merged by its own, landmarks would suit them better than all others.
        """
        count = max(_COUNTED_ROWS, _COUNTED_PER_LANDMARK * len(landmarks))
        numbers = draw_rows(self.n_rows, count, None, np.random.default_rng(self._seed))[0]
        return Merging(landmarks, *self._kernels(landmarks, gather(self._survey, numbers)))

    def _kernels(self, landmarks: Landmarks, X: Matrix) -> tuple[Array, Array]:
        """Return the kernel between the landmarks, and that of rows with them."""
        kernel = bind(self.kernel, landmarks)
        C = np.asarray(prepare(kernel, landmarks)(X), dtype=np.float64)
        return landmark_kernel(kernel, landmarks), C

    def _whitening(self, W: Array) -> Array:
        if self.dtype == np.float32 and self.X.dtype == np.float64:
            # With a little added to its diagonal W explains a little less, which errs on the safe side.
            added = W + _ADDED * float(np.trace(W)) * np.eye(len(W))
            T = inverse_cholesky(added)
            if T is not None:
                return T
        quick = whiten_quickly(W, block_dtype=self.X.dtype, caution=1.0, most=_CHOLESKY_LIMIT)
        return whiten(W, block_dtype=self.X.dtype).T if quick is None else quick.T

    def error(self, landmarks: Landmarks, norm: str, confidence: float) -> ErrorEstimate:
        """Return the relative error that these landmarks would have on all rows."""
        L = self.features(landmarks)
        if norm == "spectral":
            return self._spectral(self.K - L @ L.T, confidence)
        diagonal = np.diag(self.K).astype(np.float64)
        if norm == "trace":
            none, left = np.zeros(len(L)), diagonal - np.einsum("ij,ij->i", L, L, dtype=np.float64)
            return self._ratio(_Sums(none, left), _Sums(none, diagonal), norm, confidence)
        return self._ratio(self._squares(L), self._kernel_squares, norm, confidence)

    @cached_property
    def _kernel_squares(self) -> _Sums:
        return self._squares(np.zeros((len(self.numbers), 0), dtype=self.dtype))

    def _squares(self, L: Array) -> _Sums:
        """Return what the squares of ``K − L Lᵀ`` add up to, each divided by its column's chance."""
        s, weight = len(L), (1 / self.chance).astype(self.dtype)
        off, on = np.zeros(s), np.empty(s)
        # In tiles, which stay in the cache, on and above the diagonal: the matrix is symmetric.
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
        return _Sums(off - on * weight, on)

    def _ratio(self, error: _Sums, kernel: _Sums, norm: str, confidence: float) -> ErrorEstimate:
        """Return the ratio of sums over all rows: each row, and each pair of rows, over the chance that it was drawn.

        The interval is the jackknife's on the rows of the sample, for a U-statistic.
        """
        s, n = len(self.numbers), self.n_rows
        # Two rows are drawn together a little less often than by the product of their chances.
        pairs = s / max(s - 1, 1) * (n - 1) / n
        weight = 1 / self.chance
        top, bottom = (float(weight @ (pairs * sums.off + sums.on)) for sums in (error, kernel))
        ratio = ratio_of(max(top, 0.0), bottom)
        influence = 2 * pairs * (error.off - ratio * kernel.off) + error.on - ratio * kernel.on
        influence *= weight
        # A row that was drawn for certain adds no noise.
        noisy = 1 - self.chance
        mean = ratio_of(float(noisy @ influence), float(noisy.sum()))
        spread = float(np.sqrt(noisy @ (influence - mean) ** 2))
        half = float(stdtrit(max(s - 1, 1), 0.5 + confidence / 2)) * ratio_of(spread, bottom)
        if norm == "trace":
            return ErrorEstimate(ratio, max(ratio - half, 0.0), ratio + half, norm, confidence)
        value = float(np.sqrt(ratio))
        half = half / (2 * value) if value > 0 else 0.0
        return ErrorEstimate(value, max(value - half, 0.0), value + half, norm, confidence)

    def _spectral(self, E: Array, confidence: float) -> ErrorEstimate:
        """Return the sample's own ratio of norms. The diagonal weighs more in a sample, so this errs high."""
        root = np.sqrt(1 / self.chance)
        rng = np.random.default_rng(self._seed)
        failure = (1 - confidence) / 2
        error = largest_eigenvalue(lambda v: root * (E @ (root * v)), len(E), rng, failure)
        kernel = largest_eigenvalue(lambda v: root * (self.K @ (root * v)), len(E), rng, failure)
        widened = 1 + (2 / np.sqrt(len(E)) if len(E) < self.n_rows else 0.0)
        low, high = ratio_of(error.low, kernel.high) / widened, ratio_of(error.high, kernel.low) * widened
        return ErrorEstimate(ratio_of(error.low, kernel.low), low, high, "spectral", confidence)


def _draw(survey: Survey, kernel: Kernel, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the numbers of the rows drawn, in order and none twice, and the chance that each had."""
    n = survey.rows.shape[0]
    numbers = draw_rows(n, size, None, rng)[0]
    if size >= n:
        return numbers, np.ones(n)
    even = np.full(size, size / n)
    if not isinstance(kernel, Precomputed) and np.ptp(kernel.diag(gather(survey, numbers))) == 0:
        return numbers, even
    diagonal = _diagonal(survey, kernel)
    total = float(diagonal.sum())
    if not np.isfinite(total) or total <= 0:
        return numbers, even
    share = _DIAGONAL_SHARE * diagonal / total + (1 - _DIAGONAL_SHARE) / n
    chance = inclusion(share, size)
    # Systematic sampling in random order: one draw per unit of the sum of the chances.
    order = rng.permutation(n)
    reach = np.cumsum(chance[order])
    marks = np.arange(size) + rng.random()
    drawn = order[np.minimum(np.searchsorted(reach, marks * (reach[-1] / size), side="right"), n - 1)]
    numbers = np.unique(drawn)
    return numbers, chance[numbers]


def _diagonal(survey: Survey, kernel: Kernel) -> Array:
    """Return k(x, x) of every row, none below 0: one pass."""

    def step(block: Block) -> Array:
        return np.maximum(np.asarray(kernel.diag(block.X, start=block.start), dtype=np.float64), 0.0)

    return np.concatenate([part for _, part in survey.map(step, label="diagonal of the kernel")])


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
