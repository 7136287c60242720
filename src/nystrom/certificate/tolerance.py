"""Landmarks enough for an error asked for: how many, found on a sample; and the rank that may then be cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nystrom.certificate.estimate import ErrorEstimate
from nystrom.certificate.trial import Trial
from nystrom.engine.survey import Survey
from nystrom.kernels import Kernel
from nystrom.kmeans.lloyd import draw_rows
from nystrom.landmarks.auto import Auto
from nystrom.landmarks.base import Landmarks, Selector, gather
from nystrom.rows.arrays import array_rows
from nystrom.types import Array

# The first size. Two more follow it at most fourfold each before the decay of the error is trusted.
_START = 32
_MOST_GROWTH = 2.5
# Sizes are searched until the one that suffices is at most this many times one that does not,
_CLOSE = 1.2
# or at most this many times the one that would be tried next.
_NOT_WORTH = 1.12
# Aim a little below the tolerance: a size just short of it costs another trial.
_AIM = 0.97
_MOST_TRIALS = 24
# Selectors that read all rows choose from a sample of so many in the search, and so many per landmark.
_POOL_ROWS = 8192
_POOL_ROWS_PER_LANDMARK = 32


class Tried(NamedTuple):
    """A size, its landmarks and their error."""

    size: int
    landmarks: Landmarks
    error: ErrorEstimate


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

    It is measured on 1,000 to 2,000 rows whose kernel is held (:class:`~nystrom.certificate.trial.Trial`): a size
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

    def attempt(size: int) -> Tried:
        landmarks = choose_landmarks(survey, selector, size, kernel, rng)
        return Tried(size, landmarks, trial.error(landmarks, norm, confidence))

    tried = [attempt(min(_START, most))]
    while len(tried) < _MOST_TRIALS:
        size = next_size([(t.size, t.error.high) for t in tried], tol, most)
        if size is None:
            break
        tried.append(attempt(size))
    enough = [t for t in tried if t.error.high <= tol]
    best = min(enough, key=lambda t: t.size) if enough else max(tried, key=lambda t: t.size)
    needed = best.size if enough else extrapolate([(t.size, t.error.high) for t in tried], tol)
    history = tuple((t.size, t.error) for t in tried)
    return Sized(best.landmarks, best.error, bool(enough), min(needed, survey.rows.shape[0]), history)


def next_size(tried: list[tuple[int, float]], tol: float, most: int) -> int | None:
    """Return the next size to try, given sizes and upper ends of errors; None where the search is over."""
    failing = [t for t in tried if t[1] > tol]
    passing = [t for t in tried if t[1] <= tol]
    if not passing:
        largest = max(failing)
        if largest[0] >= most:
            return None
        aim = extrapolate(failing, _AIM * tol)
        return min(int(np.clip(aim, np.ceil(1.1 * largest[0]), np.ceil(_MOST_GROWTH * largest[0]))), most)
    good = min(passing)
    below = [t for t in failing if t[0] < good[0]]
    bad = max(below) if below else (max(good[0] // 4, 1), np.inf)
    if good[0] <= max(_CLOSE * bad[0], bad[0] + 1):
        return None
    if np.isinf(bad[1]):
        # The first size was enough already.
        return max(good[0] // 2, 1)
    share = np.log(bad[1] / (_AIM * tol)) / max(np.log(bad[1] / max(good[1], 1e-300)), 1e-12)
    size = round(bad[0] * (good[0] / bad[0]) ** float(np.clip(share, 0.15, 0.85)))
    size = int(np.clip(size, bad[0] + 1, good[0] - 1))
    return None if good[0] <= _NOT_WORTH * size else size


def extrapolate(tried: list[tuple[int, float]], tol: float) -> int:
    """Return the size at which errors that decay as a power of the size reach ``tol``, by the two largest sizes."""
    points = sorted(tried)[-2:]
    size, error = points[-1]
    rate = 1.0
    if len(points) == 2 and points[0][1] > error > 0 and size > points[0][0]:
        rate = max(float(np.log(points[0][1] / error) / np.log(size / points[0][0])), 0.1)
    return int(np.ceil(min(size * max(error / tol, 1.0) ** (1 / rate), 2.0**62)))


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
