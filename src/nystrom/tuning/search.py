"""Search for kernel, metric, width and number of landmarks: candidates are scored on held-out rows, cheap ones first.

A metric is learned as in a recursive feature machine (Radhakrishnan, Beaglehole, Pandit, Belkin, Science 2024): fit
ridge regression, average the outer products of the gradients of the fitted function, use a power of that matrix as the
metric, and fit again. Held-out rows decide how often, and whether to do it at all: a metric of p² numbers fits its own
rows too well for leave-one-out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter as clock
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
# Rows drawn: up to 2,000 of them judge, and 3,000 of the others are learned from.
_SAMPLE_ROWS = 8000
# Tables with more rows than this get fewer landmarks, and trials use landmarks too.
_MANY_ROWS = 7000
# (rows, landmarks) of a trial, for tables of few rows and of many. With few rows, fits are exact: narrow kernels, which
# need many landmarks, are then judged fairly. 1,000 rows instead of 700 take twice as long, for the same errors. With
# many rows, more rows per trial help more than exact fits: ggplot2's diamonds had 1.16 times the error of boosted trees
# after exact fits to 800 rows, and 1.01 times after these.
_TRIALS = ((700, 700), (3000, 300))
# gamma="auto" starts with exact fits to 500 rows, unless there are many, and ends with at most 1,000 landmarks.
_COARSE_ROWS, _MOST_LANDMARKS = 500, 1000
_STEPS = 3
# Fraction of the plain metric in a learned one: no direction vanishes, so later steps can correct earlier ones.
_SHRINK = 0.03
# Powers of the outer products of gradients: 1 weights a column by its squared slope, 1/2 by its slope. The second is
# half way to the plain metric, and safer if the sample says little.
_POWERS = (0.5, 1.0)
# A kernel whose loss exceeds the best by this factor is dropped before its width is searched.
_NEAR = 1.06
# Largest number of times that lengths are halved or doubled in the search for a width.
_WIDTHS = 5
# Minimum gain, in standard errors, to switch to another metric and width.
_ERRORS = 1.5
# Minimum gain, in standard errors, of a metric at the same width; and of another width without a metric, unless it was
# requested by gamma="auto". Much of a narrow kernel's gain in exact fits to 1,000 rows is lost with few landmarks: on
# functions of all columns equally, widths chosen with 1.5 raised the error of fits to 5,500 rows by up to 5 %.
_METRIC_ERRORS, _WIDTH_ERRORS = 1.0, 3.0
# Above 25 % gain, one standard error suffices.
_LARGE_GAIN = 0.25
# Fits with this many landmarks are compared with fits with twice as many (for tables of few rows, and of many). If the
# loss falls by more than 1 %, use 1,000 landmarks, else the least size (again a pair). Within a time limit, use more if
# it falls by more than 3 %.
_FEW_LANDMARKS = (400, 300)
_GAINS = (0.01, 0.03)
_LEAST_SIZES = (500, 350)
_MORE_SIZES = (1000, 2000)
# Largest automatic number of landmarks; and for many rows with one target, where a fit to 15,000 rows then takes about
# a second.
_MOST_SIZES = (1000, 700)
# Rows whose mean is more than this many deviations from the origin get no linear part: it would lose digits.
_FAR = 10.0
# Landmarks of the larger trials, one after the other, if the time limit allows.
_LARGER = (600, 1200, 2400)
# Fraction of a time limit for the search; and fraction of the remaining time that the final fit should take.
_SEARCH_SHARE, _CAUTION = 0.55, 0.8
# Least and largest number of landmarks of a fit within a time limit.
_SMALLEST, MOST_LANDMARKS = 100, 5000
# If less than this fraction of the time is left, the number of landmarks is not searched.
_LOOK = 0.5
_TINY = float(np.finfo(np.float64).tiny)


class Tried(NamedTuple):
    """One candidate of a search: when it was judged, its description, its mean held-out loss and standard error."""

    seconds: float
    what: str
    score: float
    error: float


class OutOfTimeError(Exception):
    """Raised when the time of a search is used up."""


@dataclass(frozen=True)
class TimeLimit:
    """The time limit of a fit, search included.

    Parameters
    ----------
    seconds : float
        Time since ``began``, a reading of :data:`clock`.
    operations : callable
        From a number of landmarks to the operations of the final fit.
    most_landmarks : int
        Largest number of landmarks of the fit.
    tell : callable
        Called with each candidate that is better than all before.
    """

    seconds: float
    operations: Callable[[int], float]
    most_landmarks: int
    tell: Callable[[str], None]
    began: float = field(default_factory=lambda: clock())

    @property
    def left(self) -> float:
        return self.began + self.seconds - clock()

    def check(self) -> None:
        """Raise if the search has used up its part of the time."""
        if self.left < (1 - _SEARCH_SHARE) * self.seconds:
            raise OutOfTimeError

    def affordable(self) -> int:
        """Return the most landmarks whose fit ends in the remaining time, at the speed measured now."""
        allowed = _speed() * self.left * _CAUTION
        found = _SMALLEST
        while found < self.most_landmarks and self.operations(min(5 * found // 4, self.most_landmarks)) < allowed:
            found = min(5 * found // 4, self.most_landmarks)
        return min(found, self.most_landmarks)


def _speed() -> float:
    """Return the operations per second of a matrix product, the best of three: about 30 ms."""
    A = np.full((500, 500), 0.5)
    seconds = []
    for _ in range(3):
        began = clock()
        A @ A
        seconds.append(clock() - began)
    return float(2 * len(A) ** 3 / min(seconds))


@dataclass(frozen=True)
class Space:
    """The candidates of a search.

    Parameters
    ----------
    kernels : sequence of Kernel
        With ``gamma="scale"``, which may be widened and narrowed, or with a number, which is kept.
    kinds : sequence of {"diagonal", "full"}
        Kinds of metric; empty keeps the plain metric.
    any_width : bool
        Whether to accept a width with a small gain, as ``gamma="auto"`` requests.
    linear : bool
        Whether a linear part may be added to the kernel.
    classes : bool
        Whether the targets are ±1; the loss is then the log-loss.
    fit_intercept : bool
        Whether the machine has an intercept.
    reach : Reach
        The regularisations that the machine can use.
    n_landmarks : int or None
        Of the machine; None if the search chooses it.
    limit : TimeLimit or None
        The time limit.
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
    """The result: kernel and root of the metric, with the held-out losses that decided.

    Attributes
    ----------
    kernel : Kernel
        The best of those tried.
    root : array (p,) or (p, p), or None
        A with M = A Aᵀ; None for the plain metric.
    losses : dict
        Mean held-out loss after each step, the plain metric first, for each kind of metric.
    n_landmarks : int or None
        Estimated from the gain of doubling the landmarks; None if unknown.
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
    """A kernel, a metric for each held-out part (None: the plain one), and their losses."""

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
    With fewer than 20 rows the first kernel is kept. A learned metric is used only if it beats the plain one on the
    held-out rows by more than 1.5 standard errors of the difference, and by more than 1 at the same width. Without a
    learned metric, another width needs a gain of 3 standard errors, or 1 with ``any_width``. Every change must also
    gain in larger fits, and must not lower held-out accuracy. Cost: at most one pass over the rows; then one or two
    dozen small fits, for any number of rows.
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
    """The state of a search: the best candidate so far, and all candidates tried."""

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
                self.judge = replace(self.judge, splits=splits[: -(-len(splits) // 3)], learn_rows=_COARSE_ROWS)
        self.free = space.any_width or space.kernels[0].needs_moments
        self.losses: dict[str, Array] = {}
        self.plain: list[Candidate] = []
        self.tried: list[Tried] = []
        self.began = clock()
        self._known: dict[tuple[Kernel, Judge], Candidate] = {}
        self._larger: dict[Candidate, list[HeldOutLosses]] = {}

    def run(self) -> Learned:
        with suppress(OutOfTimeError):
            self._search()
        return self._result()

    def _search(self) -> None:
        """Try the cheapest and most useful changes first: kernel, width, metric, kernel in the metric, linear part."""
        space = self.space
        for kernel in space.kernels:
            self.plain.append(self._try(kernel.resolve(self.sample.moments(None)), None))
            self.first = self.best = min(self.plain, key=_loss)
        wide = self._fit_widths() if self.free and (space.kinds or space.any_width) else self.first
        if space.kinds:
            self._learn_metric(wide)
            if isinstance(wide.kernel, Laplacian) and "full" in space.kinds and len(self.plain) > 1:
                # The Laplacian kernel allows diagonal metrics only.
                self._learn_metric(min((one for one in self.plain if type(one.kernel) is not Laplacian), key=_loss))
            self._change_kernel()
        elif space.any_width:
            self.judge = self.fine
            self.best = self._settle_width(wide)
        if space.linear:
            self._add_linear_part()
        if space.limit is not None:
            self._search_larger()

    def _search_larger(self) -> None:
        """Continue from the best candidate with fits to more rows and landmarks, while there is time."""
        for landmarks in _LARGER:
            if landmarks >= min(self.judge.least_learned, self.space.n_landmarks or np.inf):
                return
            self.judge = replace(self.judge, learn_rows=MOST_LEARNED, n_landmarks=landmarks)
            best = self.best = self._try(self.best.kernel, self.best.roots, self.best)
            if not isinstance(best.kernel, Sum):
                found = self._fit_width(best, factor=np.sqrt(2)) if self.free else best
                found = self._walk(found)[0] if self.space.kinds else found
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
        self, kernel: Kernel, roots: Sequence[Array] | None, like: Candidate | None = None, *, search: bool = True
    ) -> Candidate:
        """Return a judged candidate."""
        judge, start = self.judge, None if like is None else like.outcome
        known = (kernel, judge)
        if roots is None and known in self._known:
            return self._known[known]
        limit = self.space.limit
        if limit is not None and self.tried:
            limit.check()
        found = Candidate(kernel, roots, judge.run(kernel, roots, like=start, search=search))
        if roots is None:
            self._known[known] = found
        what = repr(kernel) if roots is None else f"{kernel!r}, {'diagonal' if roots[0].ndim == 1 else 'full'} metric"
        new = Tried(clock() - self.began, what, found.loss, found.outcome.error)
        if limit is not None and all(new.score < one.score for one in self.tried):
            limit.tell(f"search, {new.seconds:.1f} s: held-out loss {new.score:.4g} ± {new.error:.2g} with {what}")
        self.tried.append(new)
        return found

    # Widths

    def _fit_widths(self) -> Candidate:
        """Return the best of the kernels, each at its best width."""
        first, *others = sorted(self.plain, key=_loss)
        best = self._fit_width(first)
        for other in others:
            if other.loss < _NEAR * first.loss:
                best = min(best, self._fit_width(other, best.loss), key=_loss)
        return best

    def _fit_width(self, start: Candidate, rival: float = np.inf, *, factor: float = 2.0) -> Candidate:
        """Multiply or divide the lengths of a candidate as long as that lowers the loss, and return the best.

        On a tie, take the wider kernel. Give up if a step gains less than the distance to the loss of a rival: the next
        step would gain even less.
        """
        for step in (1 / factor, factor):
            best = start
            for _ in range(_WIDTHS):
                tried = self._try(_narrowed(best.kernel, step), best.roots, best)
                if is_lower(best.loss, tried.loss) or (step > 1 and not is_lower(tried.loss, best.loss)):
                    break
                gain, best = best.loss - tried.loss, tried
                if gain < best.loss - rival:
                    break
            if best is not start:
                return best
        return start

    def _settle_width(self, found: Candidate) -> Candidate:
        """Return the width that is best in larger fits; the first one, unless it is worse by a standard error."""
        first, found = (self._try(one.kernel, None, one) for one in (self.first, found))
        best = self._fit_width(min(first, found, key=_loss), factor=np.sqrt(2))
        return best if _is_better(best.outcome, first.outcome, _METRIC_ERRORS) else first

    # Metrics

    def _learn_metric(self, wide: Candidate) -> None:
        """Take the learned metric, or the width found with it, if it is better than the best so far."""
        walked, self.losses = min((self._walk(one) for one in self._starts(wide)), key=lambda walk: walk[0].loss)
        if walked.roots is not None and _gains(walked.outcome, wide.outcome, _METRIC_ERRORS):
            found, needed = self._fit_width(walked) if self.free else walked, _ERRORS
        else:
            found, needed = wide, _METRIC_ERRORS if self.space.any_width else _WIDTH_ERRORS
        if _is_better(found.outcome, self.best.outcome, needed) and self._wins_in_large(found, self.best):
            self.best = found

    def _starts(self, wide: Candidate) -> list[Candidate]:
        """Return the candidates from which a metric is learned: ``wide``, and its first width if that is narrower.

        A wide kernel sees little but straight lines, and the slope of a wave is zero on average.
        """
        first = next(one for one in self.plain if type(one.kernel) is type(wide.kernel))
        narrower = first.kernel.gamma > wide.kernel.gamma  # type: ignore[attr-defined]
        return [wide, first] if narrower and first.loss < (1 + _LARGE_GAIN) * wide.loss else [wide]

    def _walk(self, start: Candidate) -> tuple[Candidate, dict[str, Array]]:
        """Return the best metric of some steps, and the losses of every step for each kind.

        Each step tries every kind and power; the next starts from the best.
        """
        laplacian = isinstance(start.kernel, Laplacian)
        kinds = ("diagonal",) if laplacian else tuple(self.space.kinds)
        detail = "full" if "full" in kinds else "diagonal"
        best, units = self._in_deviations(start)
        losses = {kind: [start.loss] for kind in kinds}
        for _ in range(_STEPS):
            products = [fit.outer_product(detail) for fit in best.outcome.fits]
            outer = [
                in_columns(G, _scaled(best.roots[i], 1 / units) if best.roots else None) for i, G in enumerate(products)
            ]
            found: list[Candidate] = []
            for kind in kinds:
                roots = ([_root(G, kind, power, units, self.sample) for G in outer] for power in _POWERS)
                # Keep the regularisations, unless nothing was learned: searching them takes three times as long.
                search = best.outcome.flat
                tried = min((self._try(best.kernel, each, best, search=search) for each in roots), key=_loss)
                losses[kind].append(tried.loss)
                found.append(tried)
            better = min(found, key=_loss)
            if better.loss >= best.loss:
                break
            best = better
        return best, {kind: np.array(values) for kind, values in losses.items()}

    def _in_deviations(self, start: Candidate) -> tuple[Candidate, Array]:
        """Return the better of the start and of columns divided by their deviations, and the units of its columns.

        A column in a large unit has small differences: the plain metric ignores it, and so do gradients.
        """
        X, weight = self.sample.X, self.sample.weight
        plain = np.ones(X.shape[1])
        if start.roots is not None or issparse(X):
            return start, plain
        squares = np.average(np.square(X - np.average(X, axis=0, weights=weight)), axis=0, weights=weight)
        units = np.divide(1.0, np.sqrt(squares), out=plain.copy(), where=squares > 0)
        units = _with_spread(units, self.sample)
        kernel = next(one.kernel for one in self.plain if type(one.kernel) is type(start.kernel))
        found = self._try(kernel, [units] * len(start.outcome.fits), start)
        return (found, units) if found.loss < start.loss else (start, plain)

    def _wins_in_large(self, one: Candidate, other: Candidate) -> bool:
        """Return whether ``one`` is also better in larger fits: small fits with few landmarks gain most by a metric.

        True if the trials already were exact fits to all rows that are not held out.
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
        """Try the other kernels in the metric of the best candidate, each at its own best width."""
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

    # Final steps

    def _add_linear_part(self) -> None:
        """Add a linear kernel of the same size to the best kernel, if that is better."""
        best = self.best
        if issparse(self.sample.X) or self.sample.distance > (_FAR if self.space.fit_intercept else 1.0):
            return
        kernel = Sum(best.kernel, Scaled(1 / max(self.sample.spread, _TINY), Linear()))
        tried = self._try(kernel, best.roots, best)
        if _is_better(tried.outcome, best.outcome, _ERRORS) and self._wins_in_large(tried, best):
            self.best = tried

    def _enough_landmarks(self) -> int | None:
        """Return 350 or 500, or up to 1,000 if doubling the landmarks lowers the loss; more within a time limit.

        A gain below its own noise counts as zero.
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
            # More landmarks than necessary do no harm.
            enough = (*_MORE_SIZES, MOST_LANDMARKS)[int(np.searchsorted(_GAINS, share))]
            return min(limit.affordable(), enough)
        most = _MOST_SIZES[self.many and self.sample.y.shape[1] == 1]
        return least if share <= _GAINS[0] else min(most, self.n_rows)


def _loss(one: Candidate) -> float:
    return one.loss


def _gains(one: HeldOutLosses, other: HeldOutLosses, n_errors: float) -> bool:
    """Return whether the loss of ``one`` is lower by more than ``n_errors`` standard errors, and than a tie."""
    gain, error = one.gain_over(other)
    return is_lower(one.mean, other.mean) and gain > (1.0 if gain > _LARGE_GAIN * other.mean else n_errors) * error


def _is_better(one: HeldOutLosses, other: HeldOutLosses, n_errors: float) -> bool:
    """Return whether ``one`` gains without lowering accuracy: probabilities can improve while classes get worse."""
    return _gains(one, other, n_errors) and not one.errs_more_than(other)


def _narrowed(kernel: Kernel, factor: float) -> Kernel:
    """Return the kernel, and each of its parts, with lengths divided by a factor."""
    parts = {name: _narrowed(part, factor) for name, part in kernel._parts().items()}
    if parts or not hasattr(kernel, "gamma"):
        return replace(kernel, **parts) if parts else kernel  # type: ignore[type-var]
    gamma = kernel.gamma * (factor if isinstance(kernel, Laplacian) else factor**2)
    return replace(kernel, gamma=float(gamma))  # type: ignore[type-var]


def in_columns(G: Array, root: Array | None) -> Array:
    """Convert outer products of gradients from the metric to the original columns, by the metric's root."""
    if root is None:
        return G
    if root.ndim == 1:
        return np.asarray(G * root**2 if G.ndim == 1 else root[:, None] * G * root)
    return np.asarray(root @ G @ root.T)


def _scaled(root: Array, scales: Array) -> Array:
    """Return the root of a metric for columns multiplied by scales first."""
    return np.asarray(root * scales if root.ndim == 1 else root * scales[:, None])


def _root(G: Array, kind: str, power: float, units: Array, sample: Sample) -> Array:
    """Return the root of the metric given by a power of the outer products G in columns of these units.

    It is scaled to keep the spread of the rows.
    """
    if kind == "diagonal":
        M = np.maximum(G if G.ndim == 1 else np.diag(G), 0.0)
        M = (M / max(float(M.max()), _TINY)) ** power
        new = np.sqrt((1 - _SHRINK) * M / max(float(M.mean()), _TINY) + _SHRINK)
    else:
        values, vectors = np.linalg.eigh(G / max(float(np.trace(G)), _TINY))
        values = np.maximum(values, 0.0) ** power
        values = (1 - _SHRINK) * values / max(float(values.mean()), _TINY) + _SHRINK
        new = vectors * np.sqrt(values) @ vectors.T
    return _with_spread(_scaled(new, units), sample)


def _with_spread(root: Array, sample: Sample) -> Array:
    """Return the root scaled to keep the spread of the rows: a bandwidth then has the same meaning in every metric."""
    return np.asarray(root * np.sqrt(sample.spread / max(float(sample.moments(root).spread), _TINY)))


def _mean_root(roots: Sequence[Array] | None) -> Array | None:
    """Return the root of the mean of the metrics."""
    if roots is None or len(roots) == 1:
        return None if roots is None else roots[0]
    if roots[0].ndim == 1:
        return np.asarray(np.sqrt(np.mean(np.square(roots), axis=0)))
    values, vectors = np.linalg.eigh(np.mean([root @ root.T for root in roots], axis=0))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)
