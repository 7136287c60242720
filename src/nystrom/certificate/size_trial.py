"""The error that landmarks would have on all rows, from a sample of them.

For the search of a size. The kernel between the rows of a part of the sample is held, so that each size on trial costs
O(s m (p + m) + t² m) for s rows and t of the part, whatever the number of all rows. The part's errors are regressed on
what the features alone say of a row: how much of k(x, x) they leave, and how much of the kernel they hold. That
explains nine tenths of the differences between rows, and is known for the whole sample. Rows are drawn evenly, or by
half in proportion to k(x, x) where that varies: the rows that hold most of the kernel are then in the sample.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.special import stdtrit

from nystrom.certificate.estimate import ErrorEstimate, ratio_of
from nystrom.certificate.held_pairs import HeldPairs, Terms
from nystrom.certificate.merging import Merging
from nystrom.certificate.spectral import largest_eigenvalue
from nystrom.certificate.two_phase import Drawn, correct, variance
from nystrom.engine.survey import Survey
from nystrom.factor import bind, landmark_kernel, prepare
from nystrom.kernels import Kernel, Precomputed
from nystrom.kmeans.lloyd import draw_rows
from nystrom.landmarks.base import Landmarks, gather
from nystrom.linalg import inverse_cholesky, whiten, whiten_quickly, whitened
from nystrom.rows.base import Block
from nystrom.rows.finite import require_finite
from nystrom.types import Array

# Rows of the sample, and how many of them are looked at first: shares of all, within limits, and no more numbers than
# this.
_SAMPLE_SHARE, _SAMPLE_ROWS = 0.45, (1000, 6000)
_FIRST_SHARE, _FIRST_ROWS = 0.15, (1000, 2000)
_SAMPLE_NUMBERS = 2**25
# Rows of the parts whose kernels are held: the pairs of the larger one are looked at where they are no more than so
# many times as many as those of rows and landmarks, and at once where they are far fewer.
_PART_ROWS = (400, 1000)
_WORTH = 2.0
_CHEAP = 0.3
# Up to so many landmarks the whole sample is worth it where the interval is wide.
_FEW_LANDMARKS = 400
# Up to so many rows all pairs are looked at, and the error is exact.
_EXACT_ROWS = 1000
# Rows of the sample for the spectral norm, which takes all their pairs.
_SPECTRAL_ROWS = (1000, 2000)
# The rows that are counted for each landmark before some are merged: so many, and so many per landmark.
_COUNTED_ROWS = 1000
_COUNTED_PER_LANDMARK = 8
# Above this error float32 is accurate enough, and its products take half the time.
_FLOAT32_TOLERANCE = 1e-3
# The condition of W up to which it is whitened by Cholesky.
_CHOLESKY_LIMIT = 5e6
# Where float32 is accurate enough, so is W with this share of its trace on the diagonal.
_ADDED = 1e-11
# Of the draws, the share that follows k(x, x) where it varies.
_DIAGONAL_SHARE = 0.5
# Places a golden section apart, modulo 1, are evenly spread however many are taken.
_GOLDEN = 0.6180339887498949


def sample_size(n: int, n_columns: int, norm: str) -> int:
    """Return the rows to draw from n."""
    if n <= _EXACT_ROWS:
        return n
    most = min(n, max(_SAMPLE_NUMBERS // n_columns, _SAMPLE_ROWS[0]))
    if norm == "spectral":
        return min(int(np.clip(np.sqrt(0.2 * n * (n_columns + 200)), *_SPECTRAL_ROWS)), most)
    return min(int(np.clip(_SAMPLE_SHARE * n, *_SAMPLE_ROWS)), most)


class Trial:
    """A sample of the rows, and the kernels between the rows of two parts of it.

    Parameters
    ----------
    survey : Survey
        All rows.
    kernel : Kernel
        With numeric parameters.
    rng : numpy.random.Generator
        Draws the sample.
    norm : {"fro", "trace", "spectral"}
        Of the error.
    least : float
        The least error that matters.
    """

    def __init__(
        self, survey: Survey, kernel: Kernel, rng: np.random.Generator, *, norm: str = "fro", least: float = 0.0
    ) -> None:
        rows = survey.rows
        self.n_rows = rows.shape[0]
        self.kernel, self.norm = kernel, norm
        size = sample_size(*rows.shape, norm)
        numbers, chance = _draw(survey, kernel, size, rng)
        order, self._certain = _spread(chance)
        self.numbers, self.chance = numbers[order], chance[order]
        self.X = gather(survey, self.numbers)
        require_finite(self.X, rows.name, numbers=self.numbers)
        # The spectral norm's start, drawn now so that sizes on trial do not move the stream that selects landmarks.
        self._seed = int(rng.integers(2**32))
        float32 = least >= _FLOAT32_TOLERANCE and self.n_rows > _EXACT_ROWS
        self.dtype = np.dtype(np.float32 if float32 else np.float64)
        self._survey = survey
        whole = norm == "spectral" or self.n_rows <= _EXACT_ROWS
        self.small, self.large = (self._part(len(numbers) if whole else t) for t in _PART_ROWS)

    def chance_of(self, count: int) -> Array:
        """Return the chances that the first rows had if no more had been drawn."""
        chance, certain = self.chance[:count].copy(), self._certain
        chance[certain:] *= (count - certain) / max(len(self.chance) - certain, 1)
        return chance

    def _part(self, size: int) -> HeldPairs:
        """Return the pairs of the first rows: all that are certain, and at least half as many others as asked for."""
        count = min(self._certain + max(size - self._certain, size // 2), len(self.numbers))
        rows, engine = slice(0, count), self._survey.engine
        return HeldPairs(
            self.X[rows], self.numbers[rows], self.chance_of(count), self.n_rows, self.kernel, engine, self.dtype
        )

    def looks(self, n_landmarks: int) -> list[tuple[HeldPairs, int]]:
        """Return what is worth a look for so many landmarks, one after the other: pairs, and rows of the sample."""
        first = int(np.clip(_FIRST_SHARE * self.n_rows, *_FIRST_ROWS))
        share = len(self.large) ** 2 / (self.n_rows * n_landmarks)
        found = [(self.small, first)] if share > _CHEAP else []
        if share <= _WORTH:
            found.append((self.large, first))
        # The rest of the sample costs a good part of a fit, which takes long for many landmarks.
        return [*found, (found[-1][0], len(self.numbers))] if n_landmarks <= _FEW_LANDMARKS else found

    @cached_property
    def diagonal(self) -> Array:
        """k(x, x) of the sample's rows."""
        if isinstance(self.kernel, Precomputed):
            return np.asarray(self.X[np.arange(len(self.numbers)), self.numbers], dtype=np.float64).ravel()
        return np.asarray(self.kernel.diag(self.X), dtype=np.float64)

    def merging(self, landmarks: Landmarks) -> Merging:
        """Return the landmarks ready to be merged to fewer.

        By other rows than those of the sample: merged by its own, landmarks would suit them better than all others.
        """
        count = max(_COUNTED_ROWS, _COUNTED_PER_LANDMARK * len(landmarks))
        numbers = draw_rows(self.n_rows, count, None, np.random.default_rng(self._seed))[0]
        kernel = bind(self.kernel, landmarks)
        C = np.asarray(prepare(kernel, landmarks)(gather(self._survey, numbers)), dtype=np.float64)
        return Merging(landmarks, landmark_kernel(kernel, landmarks), C)

    def look(self, landmarks: Landmarks, confidence: float) -> Look:
        """Return a look at these landmarks."""
        kernel = bind(self.kernel, landmarks)
        T, values = self._whitening(landmark_kernel(kernel, landmarks)), prepare(kernel, landmarks)

        def features(rows: slice) -> Array:
            return whitened(np.asarray(values(self.X[rows]), dtype=np.float64), T).astype(self.dtype)

        return Look(self, features, confidence)

    def error(self, landmarks: Landmarks, confidence: float) -> ErrorEstimate:
        """Return the relative error that these landmarks would have on all rows, by the whole sample."""
        return self.look(landmarks, confidence).by_sample(*self.looks(len(landmarks))[-1])

    def _whitening(self, W: Array) -> Array:
        if self.dtype == np.float32 and self.X.dtype == np.float64:
            # With a little added to its diagonal W explains a little less, which errs on the safe side.
            added = W + _ADDED * float(np.trace(W)) * np.eye(len(W))
            T = inverse_cholesky(added)
            if T is not None:
                return T
        quick = whiten_quickly(W, block_dtype=self.X.dtype, caution=1.0, most=_CHOLESKY_LIMIT)
        return whiten(W, block_dtype=self.X.dtype).T if quick is None else quick.T

    def spectral(self, L: Array, confidence: float) -> ErrorEstimate:
        """Return the sample's own ratio of norms. The diagonal weighs more in a sample, so this errs high."""
        K = self.large.K
        root, E = np.sqrt(1 / self.large.chance), K - L @ L.T
        rng = np.random.default_rng(self._seed)
        failure = (1 - confidence) / 2
        error = largest_eigenvalue(lambda v: root * (E @ (root * v)), len(E), rng, failure)
        kernel = largest_eigenvalue(lambda v: root * (K @ (root * v)), len(E), rng, failure)
        widened = 1 + (2 / np.sqrt(len(E)) if len(E) < self.n_rows else 0.0)
        low, high = ratio_of(error.low, kernel.high) / widened, ratio_of(error.high, kernel.low) * widened
        return ErrorEstimate(ratio_of(error.low, kernel.low), low, high, "spectral", confidence)


class Look:
    """The error of landmarks: by a part of a trial's sample, and then, if that is not enough, by all of it.

    Parameters
    ----------
    trial : Trial
        The sample.
    features : callable
        From a slice of the sample's rows to their features.
    confidence : float
        Of the intervals.
    """

    def __init__(self, trial: Trial, features: Callable[[slice], Array], confidence: float) -> None:
        self._trial, self._features, self._confidence = trial, features, confidence
        self._L = features(slice(0, len(trial.small)))

    def _seen(self, count: int) -> Array:
        """Return the features of the first rows of the sample."""
        known = len(self._L)
        if count > known:
            self._L = np.concatenate([self._L, self._features(slice(known, count))])
        return self._L[:count]

    def by_part(self) -> ErrorEstimate:
        """Return the error by the small part alone; in other norms than Frobenius', by the whole sample."""
        small = self._trial.small
        if self._trial.norm != "fro":
            return self.by_sample(small, len(self._trial.numbers))
        return self._alone(small, small.terms(self._seen(len(small))))

    def by_sample(self, part: HeldPairs, count: int) -> ErrorEstimate:
        """Return the error by the first rows of the sample, and the pairs of a part of it."""
        trial = self._trial
        count = min(max(count, len(part)), len(trial.numbers))
        L = self._seen(count)
        if trial.norm == "spectral":
            return trial.spectral(L, self._confidence)
        chance, diagonal = trial.chance_of(count), trial.diagonal[:count]
        left = diagonal - np.einsum("ij,ij->i", L, L, dtype=np.float64)
        if trial.norm == "trace":
            whole = float((diagonal / chance).sum())
            ratio = ratio_of(max(float((left / chance).sum()), 0.0), whole)
            return self._estimate(ratio, variance((left - ratio * diagonal) / max(whole, 1e-300), chance))
        t = len(part)
        terms = part.terms(L[:t])
        if t == count:
            return self._alone(part, terms)
        numbers = np.column_stack([np.ones(count), left, left**2, _held(L, part.chance)])
        found = correct(terms.influence, Drawn(part.chance, numbers[:t]), Drawn(chance, numbers))
        if terms.ratio + found.change <= 0 or found.variance >= variance(terms.influence, part.chance):
            # A regression that gains nothing, or leads beyond what a ratio can be, is none.
            return self._alone(part, terms)
        return self._estimate(terms.ratio + found.change, found.variance)

    def _alone(self, part: HeldPairs, terms: Terms) -> ErrorEstimate:
        return self._estimate(terms.ratio, variance(terms.influence, part.chance))

    def _estimate(self, ratio: float, noise: float) -> ErrorEstimate:
        norm, confidence = self._trial.norm, self._confidence
        half = float(stdtrit(max(len(self._trial.small) - 1, 1), 0.5 + confidence / 2)) * float(np.sqrt(noise))
        if norm == "trace":
            return ErrorEstimate(ratio, max(ratio - half, 0.0), ratio + half, norm, confidence)
        value = float(np.sqrt(ratio))
        half = half / (2 * value) if value > 0 else 0.0
        return ErrorEstimate(value, max(value - half, 0.0), value + half, norm, confidence)


def _held(L: Array, chance: Array) -> Array:
    """Return, of each row of L, its sum of squares in ``L Lᵀ`` over all other rows, as the first of them tell it."""
    first = L[: len(chance)]
    gram = first.T @ (first / chance[:, None].astype(L.dtype))
    held = np.einsum("ij,ij->i", L @ gram, L, dtype=np.float64)
    held[: len(chance)] -= np.einsum("ij,ij->i", first, first, dtype=np.float64) ** 2 / chance
    return held


def _spread(chance: Array) -> tuple[Array, int]:
    """Return the rows in an order whose every beginning is spread evenly over them, and how many were certain.

    Those that were drawn for certain come first.
    """
    certain, others = np.flatnonzero(chance >= 1), np.flatnonzero(chance < 1)
    order = np.argsort(np.arange(len(others)) * _GOLDEN % 1, kind="stable")
    return np.concatenate([certain, others[order]]), len(certain)


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
