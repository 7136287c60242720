"""Find the number of landmarks for a requested error on a sample, and the rank that this error allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nystrom.devices import to_host
from nystrom.engine.passes import Passes
from nystrom.errors.measure import measure_error
from nystrom.errors.trace import ErrorEstimate, certify, resolution
from nystrom.kernels import Kernel
from nystrom.landmarks.auto import Auto, AutoAgain
from nystrom.landmarks.base import GIVEN, Landmarks, Selector, resolve
from nystrom.nystroem.factor import NystromMap
from nystrom.rows.base import array_rows
from nystrom.rows.draw import draw_rows, gather
from nystrom.sizing.size_trial import Merging, Trial
from nystrom.types import Array

# The first size, the largest factor to the next one, and a slightly larger factor if that reaches the tolerance.
_START = 32
_MOST_GROWTH = 3.0
_LAST_GROWTH = 4.0
# From this size on, growth is slower: a size far too large costs more than one more trial.
_LARGE = 250
_LARGE_GROWTH = 1.8
# Below this fraction of the tolerance, an error says little about sizes in between: the rank may be exhausted.
_STEEP = 0.25
# Below this fraction of the tolerance, errors fall faster than a power of the size: try smaller sizes.
_FAR = 0.8
# An interval is narrow if its half-width is at most this fraction of the error.
_NARROW = 0.08
# Assumed decay of the error after one trial (size to the power −0.6), the least decay, and the least ratio of two sizes
# from which a decay is computed.
_FIRST_RATE = 0.6
_LEAST_RATE = 0.1
_APART = 1.3
# Stop within 10 % of a failing size, or of the size that the errors predict.
_CLOSE = 1.1
# Stop within 15 % if the error is already near the tolerance.
_CLOSE_ALREADY = 1.15
# Aim slightly below the tolerance: a size that just misses it costs another trial.
_AIM = 0.95
# From sizes below 64, aim farther below: merging landmarks afterwards costs less than another selection.
_SMALL = 64
_AIM_BEYOND = 0.84
_MOST_TRIALS = 24
_MOST_MERGES = 12
# Best errors on the sample are representative for ranks up to this fraction of its rows.
_TRUSTED_SHARE = 0.3
# A relative error below this is rounding of a float32 kernel.
_NOTHING = 1e-5
# The number of landmarks needed grows as this power of the best rank.
_FALLS_BEHIND = 1.15
# The error of a map is exact for up to 2 times the rows of the sample: that costs as much as a few trials.
_EXACT_SHARE = 2
# Most landmarks to merge: merging holds m² numbers.
_MOST_MERGED = 4096
# Selectors that read all rows use a sample of 8,192 rows in the search, and at least 32 rows per landmark.
_POOL_ROWS = 8192
_POOL_ROWS_PER_LANDMARK = 32


class Tried(NamedTuple):
    """A size, its landmarks and their error.

    ``reach`` is the upper end of the error; extrapolated to the whole sample if ``full`` is false and a part sufficed.
    """

    size: int
    landmarks: Landmarks
    error: ErrorEstimate
    reach: float
    full: bool


@dataclass(frozen=True)
class Sized:
    """The result of a search.

    Attributes
    ----------
    landmarks : Landmarks
        Enough for the tolerance, or as many as the limit allows.
    error : ErrorEstimate
        Error of these landmarks.
    met : bool
        Whether the upper end of the error is below the tolerance.
    needed : int
        The number of landmarks; if the tolerance was not met, an estimate of how many would meet it.
    tried : tuple of (int, ErrorEstimate)
        Every size tried, in order.
    trial : Trial
        The sample that judged them.
    """

    landmarks: Landmarks
    error: ErrorEstimate
    met: bool
    needed: int
    tried: tuple[tuple[int, ErrorEstimate], ...]
    trial: Trial

    def error_of(self, fitted: NystromMap, passes: Passes) -> ErrorEstimate:
        """Return the error of a map of all rows in the norm of the search: exact if that costs about as much."""
        norm, rows = self.error.norm, passes.rows
        rng, sample = np.random.default_rng(0), self.trial.whole
        if norm == "trace":
            found = certify(fitted).trace
        elif rows.shape[0] <= _EXACT_SHARE * len(sample.numbers) and passes.engine.reads_here(rows):
            confidence = self.error.confidence
            found = measure_error(rows, fitted, passes.engine, norm, rng=rng, exact=True, confidence=confidence)
        else:
            L = fitted.features(gather(passes, sample.numbers))
            return self.trial.error_of(to_host(L), norm, self.error.confidence)
        # The same sums in another order differ by rounding.
        rounding = resolution(rows.dtype)
        return replace(found, low=max(found.low - rounding, 0.0), high=found.high + rounding)


def find_size(
    passes: Passes,
    selector: Selector,
    kernel: Kernel,
    tol: float,
    rng: np.random.Generator,
    *,
    norm: str = "fro",
    most: int,
    confidence: float = 0.98,
) -> Sized:
    """Find landmarks whose relative error is below ``tol`` at the upper end of its interval.

    The error is measured on 1,000 to 2,000 rows whose kernel is held (:class:`~nystrom.sizing.size_trial.Trial`): a
    trial costs little more than selecting its landmarks. Sizes grow by the observed decay until one suffices; its
    landmarks are then merged (:class:`~nystrom.sizing.size_trial.Merging`) as long as fewer suffice.

    Parameters
    ----------
    passes, selector, kernel
        The rows, how landmarks are chosen, and the kernel.
    tol : float
        Largest relative error.
    rng : numpy.random.Generator
        Source of randomness.
    norm : {"fro", "trace", "spectral"}
        Norm of the error.
    most : int
        Largest number of landmarks.
    confidence : float
        Of the interval; above 95 % because several sizes are tried and the first that passes is taken.
    """
    numeric = resolve(kernel, passes)
    # "auto" gets "scale", as in a fit of a given size.
    shown = kernel if isinstance(selector, Auto) else numeric
    selector = once_sampled(selector)
    given = isinstance(selector, GIVEN)
    first = choose_landmarks(passes, selector, min(_START, most), shown, rng)
    judge = _Judge(Trial(passes, numeric, rng, first, least=tol), tol, norm, confidence)
    tried = _grow(judge, first, lambda size: choose_landmarks(passes, selector, size, shown, rng), most, once=given)
    if tried[-1].reach <= tol and tried[-1].size <= _MOST_MERGED and not given:
        tried += _shrink(judge, tried)
    enough = [t for t in tried if t.reach <= tol]
    best = min(enough, key=lambda t: t.size) if enough else max(tried, key=lambda t: t.size)
    if not enough and not best.full:
        best = best._replace(error=judge.trial.error(best.landmarks, norm, confidence))
    needed = best.size if enough else _needed(judge, tried)
    history = tuple((t.size, t.error) for t in tried)
    needed = min(needed, passes.rows.shape[0])
    return Sized(best.landmarks, best.error, bool(enough), needed, history, judge.trial)


@dataclass(frozen=True)
class _Judge:
    """Compares the error of landmarks with the tolerance."""

    trial: Trial
    tol: float
    norm: str
    confidence: float

    def __call__(self, landmarks: Landmarks, *, look: bool = True) -> Tried:
        """Return the error of these landmarks on the whole sample.

        With ``look``, use a part of the sample first, which suffices if the error is clearly above or below ``tol``.
        For few landmarks, whose fit takes less time than the pairs of the whole sample, a narrow interval suffices.
        """
        return self._look(landmarks, look)

    def _look(self, landmarks: Landmarks, look: bool) -> Tried:
        trial, m = self.trial, len(landmarks)
        worth_it = trial.worth_it(m)
        if self.norm == "fro" and (look or not worth_it):
            error = trial.error(landmarks, self.norm, self.confidence, rough=True)
            aside = not error.low <= self.tol < error.high
            if not worth_it and (not look or aside or error.high - error.value <= _NARROW * error.value):
                return Tried(m, landmarks, error, error.high, True)
            if aside:
                # The interval of the whole sample would be narrower by this factor.
                half = (error.high - error.value) * float(np.sqrt(len(trial.rough.numbers) / len(trial.whole.numbers)))
                return Tried(m, landmarks, error, error.value + half, False)
        error = trial.error(landmarks, self.norm, self.confidence)
        return Tried(m, landmarks, error, error.high, True)


def _reaches(tried: list[Tried]) -> list[tuple[int, float]]:
    return [(t.size, t.reach) for t in tried]


def _needed(judge: _Judge, tried: list[Tried]) -> int:
    """Estimate how many landmarks would meet the tolerance if none of the sizes tried did.

    Scales the last size by the ratio of the ranks at which the sample's best approximation has the tolerance and the
    error reached: its eigenvalues show where errors fall faster than a power of the size. If the sample is too small
    for that, extrapolates the decay of the errors.
    """
    largest = max(tried, key=lambda t: t.size)
    best = judge.trial.whole.best_errors(judge.norm)
    errors = (largest.error.value, _AIM * judge.tol, min(_NOTHING, judge.tol))
    reached, wanted, exhausted = (max(int(np.argmax(best <= error)), 1) for error in errors)
    if wanted > _TRUSTED_SHARE * len(best):
        return extrapolate(_reaches(tried), judge.tol)
    needed = largest.size * (wanted / reached) ** _FALLS_BEHIND
    # With as many landmarks as the kernel has dimensions, the error is zero.
    needed = min(needed, exhausted) if exhausted <= _TRUSTED_SHARE * len(best) else needed
    return max(int(np.ceil(needed)), largest.size + 1)


def _grow(judge: _Judge, first: Landmarks, choose: Callable[[int], Landmarks], most: int, *, once: bool) -> list[Tried]:
    """Return the sizes tried, growing to the first that suffices; only one if the landmarks were given."""
    tried: list[Tried] = []
    size = min(_START, most)
    while True:
        before = tried[-1].size if tried else 0
        tried.append(judge(choose(size) if tried else first))
        # Fewer landmarks than requested, and no more than before: there are no other distinct rows.
        over = once or size >= most or before >= tried[-1].size < size or len(tried) == _MOST_TRIALS
        if over or tried[-1].reach <= judge.tol:
            return tried
        size = larger_size(_reaches(tried), judge.tol, most)


def _shrink(judge: _Judge, tried: list[Tried]) -> list[Tried]:
    """Return smaller sizes tried below the last one, which suffices; they merge its landmarks."""
    merging: Merging | None = None
    found: list[Tried] = []
    while (size := smaller_size(_reaches([*tried, *found]), judge.tol)) is not None and len(found) < _MOST_MERGES:
        merging = merging or judge.trial.merging(tried[-1].landmarks)
        landmarks = merging.to(size)
        # A doubtful size is rejected: a closer look is not worth its time for a cheap fit.
        found.append(judge(landmarks, look=len(tried) == 1 and judge.trial.worth_it(size)))
    return found


def larger_size(tried: list[tuple[int, float]], tol: float, most: int) -> int:
    """Return the next size to try, given sizes whose upper ends of the error all exceed the tolerance."""
    largest = max(tried)[0]
    aim = extrapolate(tried, (_AIM_BEYOND if largest < _SMALL else _AIM) * tol)
    growth = _LAST_GROWTH if aim <= _LAST_GROWTH * largest else _MOST_GROWTH
    growth = _LARGE_GROWTH if largest >= _LARGE else growth
    return min(int(np.clip(aim, np.ceil(1.1 * largest), np.ceil(growth * largest))), most)


def smaller_size(tried: list[tuple[int, float]], tol: float) -> int | None:
    """Return the next size to try below the smallest that suffices; None if that would save little."""
    passing = [t for t in tried if t[1] <= tol]
    good, reached = min(passing)
    if reached >= _AIM * tol:
        return None
    close = _CLOSE_ALREADY if reached >= _FAR * tol else _CLOSE
    below = [t for t in tried if t[1] > tol and t[0] < good]
    if not below:
        # The first size sufficed. The decay is known from the second size on.
        size = good * max(reached / (_AIM * tol), 1e-9) ** (1 / _decay(passing, (good, reached)))
        least = good // (2 if len(passing) == 1 else 8)
        return None if good <= max(close * size, 1) else max(round(size), least, 1)
    bad, failed = max(below)
    if good <= max(close * bad, bad + 1):
        return None
    share = np.log(failed / (_AIM * tol)) / max(np.log(failed / max(reached, 1e-300)), 1e-12)
    if reached < _STEEP * tol or tried[-1][0] == bad:
        share = max(share, 0.5)
    if reached < _FAR * tol:
        share = min(share, 0.5)
    size = bad * (good / bad) ** float(np.clip(share, 0.15, 0.85))
    return None if good <= close * size else int(np.clip(round(size), bad + 1, good - 1))


def extrapolate(tried: list[tuple[int, float]], tol: float) -> int:
    """Return the size at which errors that decay as a power of the size reach ``tol``."""
    size, error = max(tried)
    rate = _decay(tried, (size, error))
    return int(np.ceil(min(size * max(error / tol, 1.0) ** (1 / rate), 2.0**62)))


def _decay(tried: list[tuple[int, float]], at: tuple[int, float]) -> float:
    """Return the exponent of the decay of errors near the size ``at``.

    Estimated between that size and the nearest one that differs by a factor of 1.3 or more: errors of similar sizes
    differ by chance.
    """
    apart = [t for t in tried if abs(np.log(t[0] / at[0])) >= np.log(_APART) and (t[0] < at[0]) == (t[1] > at[1])]
    if not apart or at[1] <= 0:
        return _FIRST_RATE
    near = min(apart, key=lambda t: abs(np.log(t[0] / at[0])))
    return max(float(np.log(max(near[1], 1e-300) / at[1]) / np.log(at[0] / near[0])), _LEAST_RATE)


def why_not_met(found: Sized, selector: Selector, tol: float, most: int, limit: str) -> str:
    """Return the warning for a tolerance that was not met: the error reached, the reason, and what to do."""
    reached = f"{len(found.landmarks)} landmarks reach {found.error}, and tol={tol:g} was asked for"
    if isinstance(selector, GIVEN):
        cause = "these are the landmarks that were given"
    elif len(found.landmarks) < most:
        cause = "the rows have no more that differ enough"
    elif limit == "rows":
        cause = "there are no more rows"
    else:
        cause = f"{limit} allows no more; it would take about {found.needed:,}"
    return f"{reached}: {cause}. Raise tol, allow more, or take a wider kernel (a smaller gamma)."


def cut_rank(eigenvalues: Array, error: ErrorEstimate, tol: float) -> int:
    """Return the smallest rank that keeps the error below ``tol``, for the eigenvalues of ``L Lᵀ``.

    The part that is cut adds at most its own norm to the error, and ``‖L Lᵀ‖ ≤ ‖K‖``.
    """
    if error.norm == "spectral":
        return max(int(np.sum(eigenvalues > (tol - error.high) * eigenvalues[0])), 1)
    power = 2 if error.norm == "fro" else 1
    # Divide by the largest, whose square may overflow or underflow.
    eigenvalues = eigenvalues / max(float(np.max(eigenvalues, initial=0.0)), np.finfo(np.float64).tiny)
    # The norm of the part that is cut at rank 0, 1, …
    tails = np.append(np.cumsum((eigenvalues**power)[::-1])[::-1], 0.0) ** (1 / power)
    return max(int(np.argmax(tails <= (tol - error.high) * tails[0])), 1)


def once_sampled(selector: Selector) -> Selector:
    """Return a selector that chooses every size from the same rows; "auto" draws its sample once."""
    return AutoAgain(selector.n_iter) if type(selector) is Auto else selector


def choose_landmarks(
    passes: Passes, selector: Selector, size: int, kernel: Kernel, rng: np.random.Generator
) -> Landmarks:
    """Select landmarks; selectors that read all rows choose from a sample if there are many."""
    rows = passes.rows
    pool = max(_POOL_ROWS, _POOL_ROWS_PER_LANDMARK * size)
    if isinstance(selector, Auto) or rows.shape[0] <= 2 * pool:
        return selector.select(passes, size, kernel, rng, announce=False)
    numbers = draw_rows(rows.shape[0], pool, None, rng)[0]
    sample = array_rows(gather(passes, numbers), name=rows.name)
    found = selector.select(Passes(sample, passes.engine), size, kernel, rng, announce=False)
    return Landmarks(found.points, None if found.indices is None else numbers[found.indices])
