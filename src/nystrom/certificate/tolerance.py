"""Landmarks enough for an error asked for: how many, found on a sample; and the rank that may then be cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nystrom.certificate.estimate import ErrorEstimate
from nystrom.certificate.size_trial import Trial
from nystrom.engine.survey import Survey
from nystrom.kernels import Kernel
from nystrom.kmeans.lloyd import draw_rows
from nystrom.landmarks.auto import Auto
from nystrom.landmarks.base import Landmarks, Selector, gather
from nystrom.rows.arrays import array_rows
from nystrom.types import Array

# The first size, and by how much the next may be larger.
_START = 32
_MOST_GROWTH = 3.0
# From this size on a size far too large costs more than another one that is too small.
_LARGE = 250
_LARGE_GROWTH = 1.8
# Below this share of the tolerance an error says little about the sizes in between: the rank may be exhausted.
_STEEP = 0.25
# How errors fall with the size where only one was tried: as its power of minus this.
_FIRST_RATE = 0.7
_LEAST_RATE = 0.1
_APART = 1.3
# A size that suffices is taken if it is at most this many times one that does not, or that the errors ask for.
_CLOSE = 1.2
# Aim a little below the tolerance: a size just short of it costs another trial.
_AIM = 0.95
_MOST_TRIALS = 24
# Selectors that read all rows choose from a sample of so many in the search, and so many per landmark.
_POOL_ROWS = 8192
_POOL_ROWS_PER_LANDMARK = 32


class Tried(NamedTuple):
    """A size, its landmarks and their error.

    ``reach`` is its upper end by the whole sample, or about that where ``full`` is false and a part of it was enough.
    """

    size: int
    landmarks: Landmarks
    error: ErrorEstimate
    reach: float
    full: bool


@dataclass(frozen=True)
class Sized:
    """What a search found.

    Attributes
    ----------
    landmarks : Landmarks
        Enough for the tolerance, or as many as the limit allows.
    error : ErrorEstimate
        Theirs.
    met : bool
        Whether the upper end of the error is below the tolerance.
    needed : int
        The number of landmarks; where the tolerance was not met, an estimate of how many it would take.
    tried : tuple of (int, ErrorEstimate)
        Every size on trial, in order.
    """

    landmarks: Landmarks
    error: ErrorEstimate
    met: bool
    needed: int
    tried: tuple[tuple[int, ErrorEstimate], ...]


def find_size(
    survey: Survey,
    selector: Selector,
    kernel: Kernel,
    tol: float,
    rng: np.random.Generator,
    *,
    norm: str = "fro",
    most: int,
    confidence: float = 0.98,
) -> Sized:
    """Return landmarks whose relative error is below ``tol`` at the upper end of its interval.

    It is measured on 1,000 to 2,000 rows whose kernel is held (:class:`~nystrom.certificate.size_trial.Trial`): a size
    on trial costs its landmarks and little else. Sizes grow by the decay seen so far, then close in on the tolerance
    until another trial would save little.

    Parameters
    ----------
    survey, selector, kernel
        The rows, how landmarks are chosen, and the kernel with numeric parameters.
    tol : float
        Of the relative error.
    rng : numpy.random.Generator
        The source of randomness.
    norm : {"fro", "trace", "spectral"}
        Of the error.
    most : int
        The most landmarks.
    confidence : float
        Of the interval; above 95 % because several sizes are tried, and the first that passes is taken.
    """
    trial = Trial(survey, kernel, rng, least=tol)
    tried: list[Tried] = []
    size: int | None = min(_START, most)
    while size is not None and len(tried) < _MOST_TRIALS:
        landmarks = choose_landmarks(survey, selector, size, kernel, rng)
        # Only a size that is too small for sure, as far as the others say, is worth a rough look.
        far = norm == "fro" and (not tried or extrapolate([(t.size, t.reach) for t in tried], tol) > 1.5 * size)
        tried.append(_attempt(trial.rough if far else None, trial, size, landmarks, tol, norm, confidence))
        size = next_size([(t.size, t.reach) for t in tried], tol, most)
    enough = [t for t in tried if t.reach <= tol]
    best = min(enough, key=lambda t: t.size) if enough else max(tried, key=lambda t: t.size)
    if not enough and not best.full:
        best = best._replace(error=trial.error(best.landmarks, norm, confidence))
    needed = best.size if enough else extrapolate([(t.size, t.reach) for t in tried], tol)
    history = tuple((t.size, t.error) for t in tried)
    return Sized(best.landmarks, best.error, bool(enough), min(needed, survey.rows.shape[0]), history)


def _attempt(
    rough: Trial | None, trial: Trial, size: int, landmarks: Landmarks, tol: float, norm: str, confidence: float
) -> Tried:
    """Return the error of these landmarks: by the whole sample unless a part of it shows that it is too large."""
    if rough is not None:
        error = rough.error(landmarks, norm, confidence)
        if error.low > tol:
            # The whole sample's interval would be this much narrower.
            half = (error.high - error.value) * float(np.sqrt(len(rough.K) / len(trial.K)))
            return Tried(size, landmarks, error, error.value + half, False)
    error = trial.error(landmarks, norm, confidence)
    return Tried(size, landmarks, error, error.high, True)


def next_size(tried: list[tuple[int, float]], tol: float, most: int) -> int | None:
    """Return the next size to try, given sizes and upper ends of errors; None where the search is over."""
    passing = [t for t in tried if t[1] <= tol]
    if not passing:
        largest = max(tried)[0]
        if largest >= most:
            return None
        aim = extrapolate(tried, _AIM * tol)
        growth = _MOST_GROWTH if largest < _LARGE else _LARGE_GROWTH
        return min(int(np.clip(aim, np.ceil(1.1 * largest), np.ceil(growth * largest))), most)
    good, reached = min(passing)
    below = [t for t in tried if t[1] > tol and t[0] < good]
    if not below:
        # The smallest size was enough already.
        size = good * max(reached / (_AIM * tol), 1e-9) ** (1 / _decay(passing, (good, reached)))
        return None if good <= max(_CLOSE * size, 1) else max(round(size), good // 2, 1)
    bad, failed = max(below)
    if good <= max(_CLOSE * bad, bad + 1):
        return None
    share = np.log(failed / (_AIM * tol)) / max(np.log(failed / max(reached, 1e-300)), 1e-12)
    if reached < _STEEP * tol or tried[-1][0] == bad:
        share = max(share, 0.5)
    size = bad * (good / bad) ** float(np.clip(share, 0.15, 0.85))
    return None if good <= _CLOSE * size else int(np.clip(round(size), bad + 1, good - 1))


def extrapolate(tried: list[tuple[int, float]], tol: float) -> int:
    """Return the size at which errors that decay as a power of the size reach ``tol``."""
    size, error = max(tried)
    rate = _decay(tried, (size, error))
    return int(np.ceil(min(size * max(error / tol, 1.0) ** (1 / rate), 2.0**62)))


def _decay(tried: list[tuple[int, float]], at: tuple[int, float]) -> float:
    """Return the power of the size as which errors fall near the size ``at``.

    It is taken between that size and the nearest one well apart: between sizes close to each other errors differ by
    chance.
    """
    apart = [t for t in tried if abs(np.log(t[0] / at[0])) >= np.log(_APART) and (t[0] < at[0]) == (t[1] > at[1])]
    if not apart or at[1] <= 0:
        return _FIRST_RATE
    near = min(apart, key=lambda t: abs(np.log(t[0] / at[0])))
    return max(float(np.log(max(near[1], 1e-300) / at[1]) / np.log(at[0] / near[0])), _LEAST_RATE)


def cut_rank(eigenvalues: Array, error: ErrorEstimate, tol: float) -> int:
    """Return the least rank that keeps the error below ``tol``, for the eigenvalues of ``L Lᵀ``.

    What is cut adds at most its own norm to the error, and ``‖L Lᵀ‖ ≤ ‖K‖``.
    """
    if error.norm == "spectral":
        return max(int(np.sum(eigenvalues > (tol - error.high) * eigenvalues[0])), 1)
    power = 2 if error.norm == "fro" else 1
    # The norm of what is cut at rank 0, 1, …
    tails = np.append(np.cumsum((eigenvalues**power)[::-1])[::-1], 0.0) ** (1 / power)
    return max(int(np.argmax(tails <= (tol - error.high) * tails[0])), 1)


def choose_landmarks(
    survey: Survey, selector: Selector, size: int, kernel: Kernel, rng: np.random.Generator
) -> Landmarks:
    """Select landmarks; a selector that reads all rows chooses from a sample where there are many."""
    rows = survey.rows
    pool = max(_POOL_ROWS, _POOL_ROWS_PER_LANDMARK * size)
    if isinstance(selector, Auto) or rows.shape[0] <= 2 * pool:
        return selector.select(survey, size, kernel, rng, announce=False)
    numbers = draw_rows(rows.shape[0], pool, None, rng)[0]
    sample = array_rows(gather(survey, numbers), name=rows.name)
    found = selector.select(Survey(sample, survey.engine), size, kernel, rng, announce=False)
    return Landmarks(found.points, None if found.indices is None else numbers[found.indices])
