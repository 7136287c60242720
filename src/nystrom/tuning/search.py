"""The search for kernel, metric, width and number of landmarks: the judge scores candidates, the cheap ones first.

A metric is learned as in a recursive feature machine (Radhakrishnan, Beaglehole, Pandit, Belkin, Science 2024): fit
ridge regression, average the outer products of the gradients of the fitted function, take a power of that matrix as the
metric, and fit again. Rows that no fit has seen decide how often, and whether to do it at all: a metric of p² numbers
fits its own rows too well for leave-one-out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from nystrom.engine.passes import Passes
from nystrom.kernels import Gaussian, Kernel, Laplacian, Linear, Matern, Scaled, Sum
from nystrom.tuning.judge import (
    MOST_LEARNED,
    HeldOutLosses,
    Judge,
    Outcome,
    Reach,
    Sample,
    cut,
    draw_sample,
    is_lower,
)
from nystrom.types import Array, issparse

_LEAST_ROWS = 20
# Rows that are drawn: up to 2,000 of them judge, and 3,000 of the others are learned from.
_SAMPLE_ROWS = 8000
# Tables of more rows than this get fewer landmarks, and trials are made with landmarks too.
_MANY_ROWS = 7000
# Rows that a trial learns from and its landmarks, for other tables and for those of many rows. Exact fits do narrow
# kernels justice, which many landmarks can make use of. With few of them it is worth more to learn from more rows:
# ggplot2's diamonds had 1.16 times the error of boosted trees after exact fits to 800, 1.01 times after these.
_TRIALS = ((1000, 1000), (3000, 300))
# gamma="auto" begins with exact fits to this many rows where there are not many, and ends with at most 1,000 landmarks.
_COARSE_ROWS, _MOST_LANDMARKS = 500, 1000
_STEPS = 3
# The share of the plain metric in a learned one: no direction vanishes, so that what was learned can be unlearned.
_SHRINK = 0.03
# The outer products to the power 1 count a column by its squared slope, to the power 1/2 by its slope: a metric half
# way to the plain one, which errs less where the sample says little.
_POWERS = (0.5, 1.0)
# A kernel whose loss is above that of the best by this factor is out before its width is searched.
_NEAR = 1.06
# Lengths are halved, or doubled, at most this often in search of a kernel's width.
_WIDTHS = 5
# Minimum gain, in standard errors, to switch to another metric and width.
_ERRORS = 1.5
# The metric by itself, at the same width, must gain the first number; a width by itself the second, unless gamma="auto"
# asks for it. Much of what a narrow kernel gains in exact fits to 1,000 rows is lost with few landmarks: on functions
# that depend on all columns alike, widths chosen by 1.5 raised the error of fits to 5,500 rows by up to 5 %.
_METRIC_ERRORS, _WIDTH_ERRORS = 1.0, 3.0
# Above 25 % gain, one standard error suffices.
_LARGE_GAIN = 0.25
# Twice as many landmarks as this (for other tables, and for those of many rows) lower the loss by a share: above the
# first, take 1,000; above the second, 2,000; else the least size (again for both kinds).
_FEW_LANDMARKS = (400, 300)
_GAINS = (0.01, 0.03)
_LEAST_SIZES = (500, 350)
_MORE_SIZES = (1000, 2000)
# Most landmarks taken by themselves where there are many rows, for one target and for several: a fit to 15,000 rows and
# one target then takes about a second, and each pass of a solver takes time in proportion to landmarks and targets.
_MANY_ROWS_LANDMARKS = (700, 1000)
# Rows whose mean is farther from the origin than this many deviations get no linear part: it would lose digits.
_FAR = 10.0
# Landmarks of the trials that a time limit leaves room for, one after the other.
_LARGER = (600, 1200, 2400)
# The share of a time limit that the search may take; of what is left after it, the share that the fit is planned for.
_SEARCH_SHARE, _CAUTION = 0.4, 0.7
# Least landmarks of a fit within a time limit, and the most.
_SMALLEST, MOST_LANDMARKS = 100, 5000
# Below this share of the time, the size is not looked into.
_LOOK = 0.5
_TINY = float(np.finfo(np.float64).tiny)


class Tried(NamedTuple):
    """One candidate of a search: when it was judged, what it is, its mean held-out loss and the standard error."""

    seconds: float
    what: str
    score: float
    error: float


class OutOfTimeError(Exception):
    """The time of a search is spent."""


@dataclass(frozen=True)
class TimeLimit:
    """The time that a fit may take, search included.

    Parameters
    ----------
    seconds : float
        From ``began`` on, a reading of :func:`time.perf_counter`.
    operations : callable
        From a number of landmarks to the operations of the fit that follows the search.
    most_landmarks : int
        The most that the fit may take.
    tell : callable
        Told of each candidate that is better than all before.
    """

    seconds: float
    began: float
    operations: Callable[[int], float]
    most_landmarks: int
    tell: Callable[[str], None]

    @property
    def left(self) -> float:
        return self.began + self.seconds - time.perf_counter()

    def check(self) -> None:
        """Raise where the part of the time that is for the search is spent."""
        if self.left < (1 - _SEARCH_SHARE) * self.seconds:
            raise OutOfTimeError

    def affordable(self) -> int:
        """Return the most landmarks whose fit takes the time that is left, by the speed of a product measured now."""
        allowed = _speed() * self.left * _CAUTION
        found = _SMALLEST
        while found < self.most_landmarks and self.operations(min(5 * found // 4, self.most_landmarks)) < allowed:
            found = min(5 * found // 4, self.most_landmarks)
        return min(found, self.most_landmarks)


def _speed() -> float:
    """Return the operations per second of a matrix product, the best of three: some 30 ms."""
    A = np.full((500, 500), 0.5)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        A @ A
        seconds.append(time.perf_counter() - began)
    return float(2 * len(A) ** 3 / min(seconds))


@dataclass(frozen=True)
class Space:
    """What a search may choose from.

    Parameters
    ----------
    kernels : sequence of Kernel
        With the width ``gamma="scale"``, which may be widened and narrowed, or with a number, which is kept.
    kinds : sequence of {"diagonal", "full"}
        Kinds of metric; none of them keeps the plain metric.
    any_width : bool
        Whether a width is taken though it gains little, as ``gamma="auto"`` asks.
    linear : bool
        Whether a linear part may be added to the kernel.
    classes : bool
        Whether the targets are ±1; the loss is then minus the log of the probability.
    fit_intercept : bool
        Whether the machine has one.
    reach : Reach
        The regularisations that it can take.
    n_landmarks : int or None
        Of the machine; None where the search chooses their number.
    limit : TimeLimit or None
        The time there is.
    """

    kernels: Sequence[Kernel]
    kinds: Sequence[str] = ()
    any_width: bool = False
    linear: bool = False
    classes: bool = False
    fit_intercept: bool = True
    reach: Reach = field(default_factory=Reach)
    n_landmarks: int | None = None
    limit: TimeLimit | None = None


@dataclass(frozen=True)
class Learned:
    """What was learned: kernel and root of the metric, and the held-out losses that decided.

    Attributes
    ----------
    kernel : Kernel
        The best of those tried.
    root : array (p,) or (p, p), or None
        A with M = A Aᵀ; None for the plain metric.
    losses : dict
        Mean held-out loss after each step, the plain metric first, for each kind of metric.
    n_landmarks : int or None
        Enough of them, by how much more of them helped; None where that is not known.
    tried : tuple of Tried
        Every candidate, in order.
    """

    kernel: Kernel
    root: Array | None = None
    losses: dict[str, Array] = field(default_factory=dict)
    n_landmarks: int | None = None
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True, eq=False)
class Candidate:
    """A kernel, a metric for each part that is held out (None: the plain one), and how they fared."""

    kernel: Kernel
    roots: Sequence[Array] | None
    outcome: Outcome

    @property
    def loss(self) -> float:
        return self.outcome.mean


def learn_kernel(passes: Passes, space: Space, rng: np.random.Generator) -> Learned:
    """Return the kernel and the metric with the least loss on rows held out from a sample.

    Notes
    -----
    The first kernel stays as it is where there are fewer than 20 rows. The plain metric stays unless another is better
    on the held-out rows by more than 1.5 standard errors of the difference, 1 of them by itself and not by another
    width. Without another metric, another width is taken for 3 of them, or, with ``any_width``, for 1. All must
    gain in larger fits, too; and in no comparison may more rows get a wrong class.
    Cost: at most one pass over the rows; then a dozen or two of small fits, whatever the number of rows.
    """
    n = passes.rows.shape[0]
    drawing, parting = rng.spawn(2)
    centred = all(isinstance(kernel, (Gaussian, Matern, Laplacian)) for kernel in space.kernels)
    sample = draw_sample(
        passes, drawing, _SAMPLE_ROWS, space.classes, fit_intercept=space.fit_intercept, centred=centred
    )
    if len(sample) < _LEAST_ROWS:
        return Learned(space.kernels[0])
    if space.reach.values is not None:
        sample = replace(sample, temperatures=sample.temperatures[1:2])
    return _Search(space, sample, cut(sample, parting), n).run()


class _Search:
    """The state of a search: the best candidate so far, and all that were tried."""

    def __init__(self, space: Space, sample: Sample, splits: Sequence[tuple[Array, Array]], n_rows: int) -> None:
        self.space, self.sample, self.n_rows = space, sample, n_rows
        self.many = n_rows > _MANY_ROWS
        rows, landmarks = _TRIALS[self.many]
        allowed = space.n_landmarks or (landmarks if space.limit is None else space.limit.affordable())
        if allowed < landmarks:
            rows, landmarks = _TRIALS[True][0], allowed
        self.judge = self.fine = Judge(sample, splits, space.reach, space.fit_intercept, rows, landmarks)
        if space.any_width and not space.kinds:
            if self.many:
                most = min(space.n_landmarks or _MOST_LANDMARKS, _MOST_LANDMARKS)
                self.fine = replace(self.judge, n_landmarks=most)
            elif landmarks >= _COARSE_ROWS:
                self.judge = replace(self.judge, learn_rows=_COARSE_ROWS)
        self.free = space.any_width or space.kernels[0].needs_moments
        self.losses: dict[str, Array] = {}
        self.plain: list[Candidate] = []
        self.tried: list[Tried] = []
        self.began = time.perf_counter()
        self._known: dict[tuple[Kernel, int, int], Candidate] = {}
        self._larger: dict[Candidate, list[HeldOutLosses]] = {}

    def run(self) -> Learned:
        with suppress(OutOfTimeError):
            self._search()
        return self._result()

    def _search(self) -> None:
        """Try what costs least and gains most first: kernels, widths, metrics, kernels in the metric, a linear part."""
        space = self.space
        for kernel in space.kernels:
            self.plain.append(self._try(kernel.resolve(self.sample.moments(None)), None))
            self.first = self.best = min(self.plain, key=_loss)
        wide = self._fit_widths() if self.free and (space.kinds or space.any_width) else self.first
        if space.kinds:
            self._learn_metric(wide)
            if isinstance(wide.kernel, Laplacian) and "full" in space.kinds and len(self.plain) > 1:
                # It takes scales alone.
                self._learn_metric(min((one for one in self.plain if type(one.kernel) is not Laplacian), key=_loss))
            self._change_kernel()
        elif space.any_width:
            self.best = self._settle_width(wide)
        if space.linear:
            self._add_linear_part()
        if space.limit is not None:
            self._search_larger()

    def _search_larger(self) -> None:
        """Go on from the best candidate in fits to more rows with more landmarks, for as long as there is time."""
        for landmarks in _LARGER:
            if landmarks >= min(self.judge.least_learned, self.space.n_landmarks or np.inf):
                return
            self.judge = self.fine = replace(self.judge, learn_rows=MOST_LEARNED, n_landmarks=landmarks)
            best = self.best = self._try(self.best.kernel, self.best.roots, self.best)
            if not isinstance(best.kernel, Sum):
                found = self._fit_width(best, factor=np.sqrt(2)) if self.free else best
                found = self._walk(found) if self.space.kinds else found
                if _is_better(found.outcome, best.outcome, _METRIC_ERRORS):
                    self.best = found
            self._change_kernel()

    def _result(self) -> Learned:
        best, enough = self.best, self._enough_landmarks()
        if best.roots is None and best.kernel == self.first.kernel:
            kernel = self.space.kernels[self.plain.index(self.first)]
            return Learned(kernel, None, self.losses, enough, tuple(self.tried))
        return Learned(best.kernel, _mean_root(best.roots), self.losses, enough, tuple(self.tried))

    def _try(
        self,
        kernel: Kernel,
        roots: Sequence[Array] | None,
        like: Candidate | None = None,
        *,
        search: bool = True,
        judge: Judge | None = None,
    ) -> Candidate:
        """Return a candidate, judged."""
        judge, start = judge or self.judge, None if like is None else like.outcome
        known = (kernel, judge.learn_rows, judge.n_landmarks)
        if roots is None and known in self._known:
            return self._known[known]
        limit = self.space.limit
        if limit is not None and self.tried:
            limit.check()
        found = Candidate(kernel, roots, judge.run(kernel, roots, like=start, search=search))
        if roots is None:
            self._known[known] = found
        what = repr(kernel) if roots is None else f"{kernel!r}, {'diagonal' if roots[0].ndim == 1 else 'full'} metric"
        new = Tried(time.perf_counter() - self.began, what, found.loss, found.outcome.error)
        if limit is not None and all(new.score < one.score for one in self.tried):
            limit.tell(f"search, {new.seconds:.1f} s: held-out loss {new.score:.4g} ± {new.error:.2g} with {what}")
        self.tried.append(new)
        return found

    # Widths

    def _fit_widths(self) -> Candidate:
        """Return the best of the kernels, each at the width that is best for it."""
        first, *others = sorted(self.plain, key=_loss)
        best = self._fit_width(first)
        for other in others:
            if other.loss < _NEAR * first.loss:
                best = min(best, self._fit_width(other, best.loss), key=_loss)
        return best

    def _fit_width(
        self, start: Candidate, rival: float = np.inf, *, factor: float = 2.0, judge: Judge | None = None
    ) -> Candidate:
        """Return the candidate with its lengths multiplied or divided for as long as that lowers the loss.

        Of ties, the wider kernel is taken. It is given up where a step gains less than what is missing to the loss of a
        rival: the next would gain still less.
        """
        for step in (1 / factor, factor):
            best = start
            for _ in range(_WIDTHS):
                tried = self._try(_narrowed(best.kernel, step), best.roots, best, judge=judge)
                if is_lower(best.loss, tried.loss) or (step > 1 and not is_lower(tried.loss, best.loss)):
                    break
                gain, best = best.loss - tried.loss, tried
                if gain < best.loss - rival:
                    break
            if best is not start:
                return best
        return start

    def _settle_width(self, found: Candidate) -> Candidate:
        """Return the width that is best in larger fits; the first one, unless that is worse by a standard error."""
        first, found = (self._try(one.kernel, None, one, judge=self.fine) for one in (self.first, found))
        best = self._fit_width(min(first, found, key=_loss), factor=np.sqrt(2), judge=self.fine)
        return best if _is_better(best.outcome, first.outcome, _METRIC_ERRORS) else first

    # Metrics

    def _learn_metric(self, wide: Candidate) -> None:
        """Take the learned metric, or the width that was found along with it, if it is better than the best so far."""
        walked = self._walk(wide)
        if walked.roots is not None and _gains(walked.outcome, wide.outcome, _METRIC_ERRORS):
            found, needed = self._fit_width(walked) if self.free else walked, _ERRORS
        else:
            found, needed = wide, _METRIC_ERRORS if self.space.any_width else _WIDTH_ERRORS
        if _is_better(found.outcome, self.best.outcome, needed) and self._stands(found, self.best):
            self.best = found

    def _walk(self, start: Candidate) -> Candidate:
        """Return the best metric of some steps. In each, every kind and power is tried; the next begins at the best."""
        laplacian = isinstance(start.kernel, Laplacian)
        kinds = ("diagonal",) if laplacian else tuple(self.space.kinds)
        detail = "full" if "full" in kinds else "diagonal"
        best, losses = start, {kind: [start.loss] for kind in kinds}
        for _ in range(_STEPS):
            products = [fit.outer_product(detail) for fit in best.outcome.fits]
            outer = [in_columns(G, best.roots[i] if best.roots else None) for i, G in enumerate(products)]
            found: list[Candidate] = []
            for kind in kinds:
                roots = ([_root(G, kind, power, self.sample) for G in outer] for power in _POWERS)
                # At the same regularisations: a search takes three times as long.
                tried = min((self._try(start.kernel, each, start, search=False) for each in roots), key=_loss)
                losses[kind].append(tried.loss)
                found.append(tried)
            better = min(found, key=_loss)
            if better.loss >= best.loss:
                break
            best = better
        self.losses = {kind: np.array(values) for kind, values in losses.items()}
        return best

    def _stands(self, one: Candidate, other: Candidate) -> bool:
        """Return whether one is better in larger fits, too: few rows and few landmarks gain most by a metric.

        Exact fits to all rows that are not held out leave nothing to ask.
        """
        if self.judge.least_learned <= max(self.judge.n_landmarks, 2 * _FEW_LANDMARKS[self.many]):
            return True
        return _is_better(self._in_large(one)[-1], self._in_large(other)[-1], _ERRORS)

    def _in_large(self, one: Candidate) -> list[HeldOutLosses]:
        """Return the losses of fits with few landmarks and with twice as many, to all rows that are not held out."""
        if one not in self._larger:
            few = _FEW_LANDMARKS[self.many]
            sizes = (few, 2 * few)
            self._larger[one] = self.judge.with_landmarks(sizes, one.kernel, one.roots, like=one.outcome)
        return self._larger[one]

    def _change_kernel(self) -> None:
        """Try the other kernels in the metric of the best candidate, each at its own width there."""
        roots = self.best.roots
        if roots is None or len(self.space.kernels) == 1:
            return
        for kernel in self.space.kernels:
            mixes = roots[0].ndim == 2 and isinstance(kernel, Laplacian)
            if mixes or type(kernel) is type(self.best.kernel):
                continue
            resolved = kernel.resolve(self.sample.moments(roots[0]))
            found = self._fit_width(self._try(resolved, roots, self.best), self.best.loss)
            if _is_better(found.outcome, self.best.outcome, _METRIC_ERRORS):
                self.best = found

    # What comes last

    def _add_linear_part(self) -> None:
        """Add a linear kernel of the same size to the best one, if that is better."""
        best = self.best
        if issparse(self.sample.X) or self.sample.distance > (_FAR if self.space.fit_intercept else 1.0):
            return
        kernel = Sum(best.kernel, Scaled(1 / max(self.sample.spread, _TINY), Linear()))
        tried = self._try(kernel, best.roots, best)
        if _is_better(tried.outcome, best.outcome, _ERRORS) and self._stands(tried, best):
            self.best = tried

    def _enough_landmarks(self) -> int | None:
        """Return 350 or 500, 1,000 or 2,000: the more, the more twice the landmarks have lowered the held-out losses.

        A gain below its own noise counts as none.
        """
        least, limit = _LEAST_SIZES[self.many], self.space.limit
        if self.space.n_landmarks is not None:
            return None
        if self.n_rows <= least or self.judge.least_learned < 2 * _FEW_LANDMARKS[self.many]:
            return None if limit is None else limit.affordable()
        if limit is not None and limit.left < _LOOK * limit.seconds:
            return min(limit.affordable(), _MORE_SIZES[0])
        once, twice = self._in_large(self.best)
        gain, error = twice.gain_over(once)
        share = gain / max(once.mean, _TINY) if gain > _ERRORS * error else 0.0
        if limit is not None:
            # More landmarks than seem to be needed never hurt.
            enough = (*_MORE_SIZES, MOST_LANDMARKS)[int(np.searchsorted(_GAINS, share))]
            return min(limit.affordable(), enough)
        most = _MANY_ROWS_LANDMARKS[self.sample.y.shape[1] > 1] if self.many else self.n_rows
        return min((least, *_MORE_SIZES)[int(np.searchsorted(_GAINS, share))], most)


def _loss(one: Candidate) -> float:
    return one.loss


def _gains(one: HeldOutLosses, other: HeldOutLosses, n_errors: float) -> bool:
    """Return whether the losses of one are lower than another's by more than this many standard errors."""
    gain, error = one.gain_over(other)
    return gain > (1.0 if gain > _LARGE_GAIN * other.mean else n_errors) * error


def _is_better(one: HeldOutLosses, other: HeldOutLosses, n_errors: float) -> bool:
    """Return whether one gains on another, and gives no more rows a wrong class: probabilities can gain alone."""
    return _gains(one, other, n_errors) and not one.errs_more_than(other)


def _narrowed(kernel: Kernel, factor: float) -> Kernel:
    """Return the kernel with its lengths divided by a factor, those of its parts alike."""
    parts = {name: _narrowed(part, factor) for name, part in kernel._parts().items()}
    if parts or not hasattr(kernel, "gamma"):
        return replace(kernel, **parts) if parts else kernel  # type: ignore[type-var]
    gamma = kernel.gamma * (factor if isinstance(kernel, Laplacian) else factor**2)
    return replace(kernel, gamma=float(gamma))  # type: ignore[type-var]


def in_columns(G: Array, root: Array | None) -> Array:
    """Return outer products of gradients in the columns, of those in the metric: gradients are times its root."""
    if root is None:
        return G
    if root.ndim == 1:
        return np.asarray(G * root**2 if G.ndim == 1 else root[:, None] * G * root)
    return np.asarray(root @ G @ root.T)


def _root(G: Array, kind: str, power: float, sample: Sample) -> Array:
    """Return the root of the metric that outer products G, to a power, ask for; the spread of the rows is kept."""
    if kind == "diagonal":
        M = np.maximum(G if G.ndim == 1 else np.diag(G), 0.0)
        M = (M / max(float(M.max()), _TINY)) ** power
        new = np.sqrt((1 - _SHRINK) * M / max(float(M.mean()), _TINY) + _SHRINK)
    else:
        values, vectors = np.linalg.eigh(G / max(float(np.trace(G)), _TINY))
        values = np.maximum(values, 0.0) ** power
        values = (1 - _SHRINK) * values / max(float(values.mean()), _TINY) + _SHRINK
        new = vectors * np.sqrt(values) @ vectors.T
    # One bandwidth then means the same in every metric.
    return np.asarray(new * np.sqrt(sample.spread / max(float(sample.moments(new).spread), _TINY)))


def _mean_root(roots: Sequence[Array] | None) -> Array | None:
    """Return the root of the mean of the metrics."""
    if roots is None or len(roots) == 1:
        return None if roots is None else roots[0]
    if roots[0].ndim == 1:
        return np.asarray(np.sqrt(np.mean(np.square(roots), axis=0)))
    values, vectors = np.linalg.eigh(np.mean([root @ root.T for root in roots], axis=0))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)
