"""Find the number of landmarks for a requested error on a sample, and the rank that this error allows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from nystrom.devices import to_host
from nystrom.engine.passes import Passes
from nystrom.errors.measure import measure_error
from nystrom.errors.trace import ErrorEstimate, certify, ratio_of, resolution
from nystrom.kernels import Kernel
from nystrom.landmarks.auto import Auto
from nystrom.landmarks.base import GIVEN, Landmarks, Selector, resolve
from nystrom.nystroem.factor import NystromMap
from nystrom.rows.draw import gather
from nystrom.sizing.growing import Trial, grow
from nystrom.sizing.size_trial import Merging, SizeSample
from nystrom.types import Array

# The first size, and the largest factor to the next one.
_START = 32
_MOST_GROWTH = 3.0
# Assumed decay of the error after one trial: size to the power −0.6.
_FIRST_RATE = 0.6
# Stop within 10 % of a failing size, or of the size that the errors predict.
_CLOSE = 1.1
# Aim slightly below the tolerance: a size that just misses it costs another trial.
_AIM = 0.95
# The best possible errors of the sample are like those of all rows for ranks up to this fraction of its rows.
_TRUSTED_SHARE = 0.3


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
    sample : SizeSample
        The sample that judged them.
    """

    landmarks: Landmarks
    error: ErrorEstimate
    met: bool
    needed: int
    tried: tuple[tuple[int, ErrorEstimate], ...]
    sample: SizeSample

    def error_of(self, fitted: NystromMap, passes: Passes) -> ErrorEstimate:
        """Return the error of a map of all rows in the norm of the search: exact if that costs about as much."""
        norm, rows = self.error.norm, passes.rows
        rng, sample = np.random.default_rng(0), self.sample.whole
        if norm == "trace":
            found = certify(fitted).trace
        elif rows.shape[0] <= len(sample.numbers) and passes.engine.reads_here(rows):
            confidence = self.error.confidence
            found = measure_error(rows, fitted, passes.engine, norm, rng=rng, exact=True, confidence=confidence)
        else:
            L = fitted.features(gather(passes, sample.numbers))
            return self.sample.error_of(to_host(L), norm, self.error.confidence)
        # Computed in another order, the same error would differ by the rounding of kernel values, magnified by M.
        diagonal = ratio_of(fitted.statistics.trace, fitted.statistics.count)
        magnified = float(np.linalg.norm(to_host(fitted.projection)) * np.sqrt(diagonal))
        rounding = resolution(rows.dtype) + float(np.finfo(rows.dtype).eps) * magnified
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

    The error is measured on 1,000 to 2,000 rows whose kernel is held: a trial costs little more than selecting its
    landmarks. Sizes grow by the observed decay until one suffices; its landmarks are then merged
    (:class:`~nystrom.sizing.size_trial.Merging`) as long as fewer suffice.

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
    numeric, given = resolve(kernel, passes), isinstance(selector, GIVEN)
    # "auto" gets "scale", as in a fit of a given size.
    shown = kernel if isinstance(selector, Auto) else numeric
    sample: SizeSample | None = None

    def look(landmarks: Landmarks) -> ErrorEstimate:
        nonlocal sample
        sample = sample or SizeSample(passes, numeric, rng, landmarks, least=tol)
        return sample.error(landmarks, norm, confidence)

    def following(tried: list[Trial[ErrorEstimate]]) -> int | None:
        return None if given or tried[-1].seen.high <= tol else larger_size(_reaches(tried), tol)

    tried, _ = grow(passes, selector, shown, rng, look, following, start=_START, most=most)
    assert sample is not None
    met = tried[-1].seen.high <= tol
    if met and not given:
        merging: Merging | None = None
        while (size := smaller_size(_reaches(tried), tol)) is not None:
            merging = merging or sample.merging(tried[-1].landmarks)
            fewer = merging.to(size)
            tried.append(Trial(fewer, look(fewer)))
    best = min((t for t in tried if t.seen.high <= tol), key=attrgetter("size")) if met else tried[-1]
    needed = best.size if met else min(_needed(sample, tried, tol), passes.rows.shape[0])
    return Sized(best.landmarks, best.seen, met, needed, tuple((t.size, t.seen) for t in tried), sample)


def _reaches(tried: list[Trial[ErrorEstimate]]) -> list[tuple[int, float]]:
    return [(t.size, t.seen.high) for t in tried]


def _needed(sample: SizeSample, tried: list[Trial[ErrorEstimate]], tol: float) -> int:
    """Estimate how many landmarks would meet the tolerance if none of the sizes tried did.

    The eigenvalues of the sample's kernel give the rank at which its best approximation has the error reached, and the
    rank at which it has the tolerance. The last size is multiplied by the ratio of these ranks. If the sample is too
    small for that, the decay of the errors is extrapolated.
    """
    size, error = tried[-1].size, tried[-1].seen
    best = sample.whole.best_errors(error.norm)
    # At an error below the rounding of the sample's kernel, the rank is the number of its dimensions.
    nothing = min(len(best) * float(np.finfo(sample.dtype).eps), tol)
    reached, wanted, exhausted = (max(int(np.argmax(best <= e)), 1) for e in (error.value, _AIM * tol, nothing))
    if wanted > _TRUSTED_SHARE * len(best):
        return extrapolate(_reaches(tried), tol)
    needed = int(np.ceil(size * wanted / reached))
    # With as many landmarks as the kernel has dimensions, the error is zero.
    return max(min(needed, exhausted) if exhausted <= _TRUSTED_SHARE * len(best) else needed, size + 1)


def larger_size(tried: list[tuple[int, float]], tol: float) -> int:
    """Return the next size to try, given sizes whose upper ends of the error all exceed the tolerance."""
    largest = max(tried)[0]
    return int(np.clip(extrapolate(tried, _AIM * tol), np.ceil(_CLOSE * largest), np.ceil(_MOST_GROWTH * largest)))


def smaller_size(tried: list[tuple[int, float]], tol: float) -> int | None:
    """Return the next size to try below the smallest that suffices; None if that would save little.

    If the first size suffices, its half is next. Between a size that fails and one that suffices, interpolates errors
    that decay as a power of the size. The result is at least midway if the last try failed, or if the interpolated size
    is close to the failing one.
    """
    good, reached = min(t for t in tried if t[1] <= tol)
    below = [t for t in tried if t[1] > tol and t[0] < good]
    if reached >= _AIM * tol:
        return None
    if not below:
        return good // 2 or None
    bad, failed = max(below)
    share = float(np.log(failed / (_AIM * tol)) / np.log(failed / max(reached, 1e-300)))
    if tried[-1][0] == bad or share < 0.25:
        share = max(share, 0.5)
    size = round(bad * (good / bad) ** min(share, 0.75))
    return size if bad < size and good > _CLOSE * size else None


def extrapolate(tried: list[tuple[int, float]], tol: float) -> int:
    """Return the size at which errors that decay as a power of the size reach ``tol``."""
    (size, error), rate = max(tried), _FIRST_RATE
    earlier = [t for t in tried if t[0] < size and t[1] > error]
    if earlier:
        before, larger = max(earlier)
        rate = float(np.log(larger / error) / np.log(size / before))
    # Beyond 2^62, any size is too large.
    return int(np.ceil(2.0 ** min(np.log2(size) + max(float(np.log2(error / tol)), 0.0) / rate, 62.0)))


def why_not_met(found: Sized, selector: Selector, tol: float, most: int, limit: str) -> str:
    """Return the warning for a tolerance that was not met: the error reached, the reason, and what to do."""
    reached = f"{len(found.landmarks)} landmarks reach {found.error}, and tol={tol:g} was asked for"
    if isinstance(selector, GIVEN):
        cause = "these are the landmarks that were given"
    elif len(found.landmarks) < most:
        cause = "there are no more distinct rows"
    elif limit == "rows":
        cause = "there are no more rows"
    else:
        cause = f"{limit} allows no more; it would take about {found.needed:,}"
    return f"{reached}: {cause}. Raise tol or the limit, or use a wider kernel (a smaller gamma)."


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
