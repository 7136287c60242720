"""A metric learned from the target: the directions along which the fitted function changes, and by how much.

Fit ridge regression, average the outer products of the gradients of the fitted function, take a power of that matrix as
the metric, and fit again: a recursive feature machine (Radhakrishnan, Beaglehole, Pandit, Belkin, Science 2024).
Everything happens on a sample of the rows. Rows that no fit has seen decide how often to repeat it, which kernel and
which width to take, how many landmarks are enough and whether to do it at all: a metric of p² numbers fits its own rows
too well for leave-one-out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from nystrom.engine.passes import Passes
from nystrom.kernels import Gaussian, Kernel, Laplacian, Matern
from nystrom.tuning.crossvalidation import HeldOutLosses, Outcome, Sample, Trials, draw_sample
from nystrom.types import Array

MetricLike: TypeAlias = str | ArrayLike | None

METRICS = ("diagonal", "full", "auto")
_LEAST_ROWS = 20
# Tables of more rows than this get fewer landmarks, and trials are made with landmarks too.
_MANY_ROWS = 7000
# Most rows that a trial learns from, and its landmarks, for other tables and for those of many rows. Exact fits do
# narrow kernels justice, which many landmarks can make use of. With few of them it is worth more to learn from more
# rows: ggplot2's diamonds had 1.16 times the error of boosted trees after exact fits to 800, 1.01 times after these
# (one split).
_LEARN_ROWS = (1000, 3000)
_TRIAL_LANDMARKS = (1000, 300)
_STEPS = 3
# The share of the plain metric in a learned one: no direction vanishes, so that what was learned can be unlearned.
_SHRINK = 0.03
# The outer products to the power 1 count a column by its squared slope, to the power 1/2 by its slope: a metric half
# way to the plain one, which errs less where the sample says little.
_POWERS = (0.5, 1.0)
# Above so many columns "auto" learns scales alone: p² numbers are too many for the sample, and p³ work too much.
_FULL_COLUMNS = 300
# Above so many columns "auto" leaves out the Laplacian kernel, which no matrix product computes.
_LAPLACIAN_COLUMNS = 150
# A kernel whose loss is above that of the best by this factor is out before its width is searched.
_NEAR = 1.06
# Lengths are halved, or doubled, at most so often in search of a kernel's width.
_WIDTHS = 3
# A choice stays with what it had unless the gain on held-out rows is above so many standard errors of it.
_ERRORS = 1.5
# The metric by itself, at the same width, must gain so many of them, and a width by itself so many. Much of what a
# narrow kernel gains in exact fits to 1,000 rows is lost with few landmarks: on functions that depend on all columns
# alike, widths chosen by 1.5 raised the error of fits to 5,500 rows by up to 5 %.
_METRIC_ERRORS = 1.0
_WIDTH_ERRORS = 3.0
# One of them is enough for a gain above this share of the loss: of 60 rows, few gains are above 1.5 errors, and chance
# makes none so large.
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
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class LearnedMetric:
    """What was learned: kernel and root of the metric, and the held-out losses that decided.

    Attributes
    ----------
    kernel : Kernel
        The one of those tried that is best.
    root : array (p,) or (p, p), or None
        A with M = A Aᵀ; None where the plain metric is as good.
    losses : dict
        Mean held-out loss after each step, the plain metric first, for each kind of metric.
    n_landmarks : int or None
        Enough of them, by how much more of them helped; None where that is not known.
    """

    kernel: Kernel
    root: Array | None
    losses: dict[str, Array]
    n_landmarks: int | None = None


def check_learnable(kernel: Kernel, metric: str) -> None:
    """Raise unless the gradient of functions of the kernel is known here."""
    if isinstance(kernel, Laplacian) and metric == "full":
        raise ValueError(
            "the Laplacian kernel sums over columns, which metric='full' would mix: take metric='diagonal'."
        )
    if not isinstance(kernel, (Gaussian, Matern, Laplacian)):
        raise ValueError(
            f"a metric is learned for the kernels 'gaussian', 'matern' and 'laplacian'; {kernel!r} is another. Choose "
            f"one of those, or give metric as an array."
        )


def metric_root(metric: MetricLike, n_columns: int) -> Array:
    """Return A of a metric given as an array: the scales themselves, or the symmetric root of a matrix."""
    try:
        M = np.asarray(metric)
    except ValueError:  # rows of different lengths
        M = np.asarray(None)
    if M.dtype.kind not in "iuf" or M.shape not in ((n_columns,), (n_columns, n_columns)) or not np.isfinite(M).all():
        raise ValueError(
            f"metric must be one of {METRICS}, None, {n_columns} scales, or a {n_columns} × {n_columns} matrix, all "
            f"finite; got {metric!r}."
        )
    M = M.astype(np.float64)
    if M.ndim == 1:
        if (M < 0).any() or not M.any():
            raise ValueError(
                f"metric as scales needs numbers that are not negative, and some positive; got {metric!r}."
            )
        return M
    uneven = np.abs(M - M.T)
    if uneven.max() > 1e-8 * np.abs(M).max():
        i, j = np.unravel_index(uneven.argmax(), M.shape)
        raise ValueError(
            f"metric as a matrix must be symmetric; metric[{i}, {j}] is {M[i, j]:.6g} and metric[{j}, {i}] is "
            f"{M[j, i]:.6g}."
        )
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    if not values[-1] > 0:
        raise ValueError("metric as a matrix must have a positive eigenvalue: with none, all rows are alike.")
    if values[0] < -1e-8 * values[-1]:
        raise ValueError(f"metric as a matrix must be positive semidefinite; its least eigenvalue is {values[0]:.3g}.")
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)


def kinds_of(metric: str, n_columns: int, *, sparse: bool) -> tuple[str, ...]:
    """Return the kinds of metric that a word stands for."""
    if sparse and metric == "full":
        raise ValueError("metric='full' mixes columns, which needs dense rows; sparse rows take metric='diagonal'.")
    if metric == "auto":
        return ("diagonal",) if sparse or not 1 < n_columns <= _FULL_COLUMNS else ("diagonal", "full")
    return (metric,)


def plain_kernels(kernel: Kernel, n_columns: int, *, several: bool, sparse: bool) -> tuple[Kernel, ...]:
    """Return the kernel, or the Gaussian, the rougher Matérn and the Laplacian one of its bandwidth to choose from."""
    gamma = kernel.gamma if several else None  # type: ignore[attr-defined]
    if not several:
        return (kernel,)
    found = (Gaussian(gamma), Matern(0.5, gamma))
    # A number is a width in another distance there.
    laplacian = isinstance(gamma, str) and n_columns <= _LAPLACIAN_COLUMNS and not sparse
    return (*found, Laplacian(gamma)) if laplacian else found


def learn_metric(
    passes: Passes,
    kernels: Sequence[Kernel],
    kinds: Sequence[str],
    *,
    fit_intercept: bool,
    classes: bool,
    rng: np.random.Generator,
) -> LearnedMetric:
    """Return the kernel and the metric with the least loss on rows held out from a sample of 4,000.

    Parameters
    ----------
    passes : Passes
        The rows, with targets of a ridge regression: numbers, or ±1 for each class.
    kernels : sequence of Kernel
        Those to choose from; the width ``gamma="scale"`` is tried narrower and wider, a number is kept.
    kinds : sequence of {"diagonal", "full"}
        Those to choose from; none of them chooses among the kernels alone, at their own widths.
    classes : bool
        Whether the targets are ±1; the loss is then minus the log of the probability.

    Notes
    -----
    The plain metric and the first kernel stay where there are fewer than 20 rows. The plain metric stays, too, unless
    another is better on the held-out rows by more than 1.5 standard errors of the difference, 1 of them by itself and
    not by another width. Without another metric, another width is taken for 3 of them. Both must gain 1.5 of them, too,
    in fits to all rows of the sample that are not held out; and in no comparison may more rows get a wrong class.
    Cost: at most one pass over the rows; then a dozen or two of small fits, whatever the number of rows: exact ones to
    1,000 rows, or, where there are more than 7,000, to 3,000 rows with 300 landmarks; at the end with 800, or 600.
    """
    drawing, parting = rng.spawn(2)
    sample = draw_sample(passes, drawing, classes=classes)
    if len(sample) < _LEAST_ROWS:
        return LearnedMetric(kernels[0], None, {})
    n_rows = passes.rows.shape[0]
    many = n_rows > _MANY_ROWS
    trials = Trials(
        sample,
        parting,
        learn_rows=_LEARN_ROWS[many],
        n_landmarks=_TRIAL_LANDMARKS[many],
        fit_intercept=fit_intercept,
    )
    plain = [_tried(trials, kernel.resolve(sample.moments(None))) for kernel in kernels]
    first = best = min(plain, key=lambda tried: tried.loss)
    losses: dict[str, Array] = {}
    larger = _larger_fits(trials, _FEW_LANDMARKS[many])
    if kinds:
        free = kernels[0].needs_moments
        wide = _fit_widths(trials, plain) if free else first
        walked, losses = _walk(trials, wide, kinds)
        if walked.roots is not None and _gains(walked.outcome, wide.outcome, _METRIC_ERRORS):
            found, needed = _fit_width(trials, walked) if free else walked, _ERRORS
        else:
            found, needed = wide, _WIDTH_ERRORS
        if _is_better(found.outcome, first.outcome, needed) and _stands(trials, found, first, many, larger):
            best = found
    enough = _enough_landmarks(trials, best, n_rows, larger)
    if best is first:
        return LearnedMetric(kernels[plain.index(first)], None, losses, enough)
    return LearnedMetric(best.kernel, _mean_root(best.roots), losses, enough)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A kernel, a metric for each part that is held out (None: the plain one), and how they fared."""

    kernel: Kernel
    roots: list[Array] | None
    outcome: Outcome

    @property
    def loss(self) -> float:
        return self.outcome.mean


def _gains(one: HeldOutLosses, other: HeldOutLosses, n_errors: float) -> bool:
    """Return whether the losses of one are less than another's by more than so many standard errors of that."""
    gain, error = one.gain_over(other)
    return gain > (1.0 if gain > _LARGE_GAIN * other.mean else n_errors) * error


# From a candidate to the losses of fits with few landmarks and with twice as many, to all rows that are not held out.
_Larger: TypeAlias = Callable[[_Candidate], list[HeldOutLosses]]


def _larger_fits(trials: Trials, few: int) -> _Larger:
    @cache
    def larger(one: _Candidate) -> list[HeldOutLosses]:
        return trials.losses_with((few, 2 * few), one.kernel, one.roots, like=one.outcome)

    return larger


def _is_better(one: HeldOutLosses, other: HeldOutLosses, n_errors: float) -> bool:
    """Return whether one gains on another, and gives no more rows a wrong class: probabilities can gain alone."""
    return _gains(one, other, n_errors) and not one.errs_more_than(other)


def _stands(trials: Trials, one: _Candidate, other: _Candidate, many: bool, larger: _Larger) -> bool:
    """Return whether one is better than another in larger fits, too: few rows and few landmarks gain most by a metric.

    Exact fits to all rows that are not held out leave nothing to ask.
    """
    if trials.least_learned <= max(trials.n_landmarks, 2 * _FEW_LANDMARKS[many]):
        return True
    return _is_better(larger(one)[-1], larger(other)[-1], _ERRORS)


def _tried(trials: Trials, kernel: Kernel) -> _Candidate:
    return _Candidate(kernel, None, trials.run(kernel, None))


def _in_metric(trials: Trials, start: _Candidate, roots: list[Array]) -> _Candidate:
    """Return the kernel of a candidate in a metric, at the same regularisations: a search takes three times as long."""
    return _Candidate(start.kernel, roots, trials.run(start.kernel, roots, like=start.outcome, search=False))


def _fit_widths(trials: Trials, plain: Sequence[_Candidate]) -> _Candidate:
    """Return the best of the kernels, each at the width that is best for it."""
    first, *others = sorted(plain, key=lambda tried: tried.loss)
    best = _fit_width(trials, first)
    for other in others:
        if other.loss < _NEAR * first.loss:
            best = min(best, _fit_width(trials, other, best.loss), key=lambda tried: tried.loss)
    return best


def _fit_width(trials: Trials, start: _Candidate, rival: float = np.inf) -> _Candidate:
    """Return the candidate with its lengths doubled or halved for as long as that lowers the loss.

    It is given up where a step gains less than what is missing to the loss of a rival: the next would gain still less.
    """
    for factor in (0.5, 2.0):
        best = start
        for _ in range(_WIDTHS):
            kernel = _narrowed(best.kernel, factor)
            tried = replace(best, kernel=kernel, outcome=trials.run(kernel, best.roots, like=best.outcome))
            if tried.loss >= best.loss:
                break
            gain, best = best.loss - tried.loss, tried
            if gain < best.loss - rival:
                break
        if best is not start:
            return best
    return start


def _narrowed(kernel: Kernel, factor: float) -> Kernel:
    """Return the kernel with its lengths divided by a factor."""
    gamma = float(kernel.gamma) * (factor if isinstance(kernel, Laplacian) else factor**2)  # type: ignore[attr-defined]
    return replace(kernel, gamma=gamma)  # type: ignore[type-var]


def _walk(trials: Trials, start: _Candidate, kinds: Sequence[str]) -> tuple[_Candidate, dict[str, Array]]:
    """Return the best metric of some steps, and the losses after each, from the plain metric on, for each kind.

    In each step every kind and power is tried; the best of them is where the next step begins.
    """
    kinds = ("diagonal",) if isinstance(start.kernel, Laplacian) else tuple(kinds)
    detail = "full" if "full" in kinds else "diagonal"
    best = start
    losses = {kind: [start.loss] for kind in kinds}
    for _ in range(_STEPS):
        products = best.outcome.outer_products(detail)
        outer = [in_columns(G, best.roots[i] if best.roots else None) for i, G in enumerate(products)]
        found: list[_Candidate] = []
        for kind in kinds:
            metrics = [[_root(G, kind, power, trials.sample) for G in outer] for power in _POWERS]
            tried = min((_in_metric(trials, start, roots) for roots in metrics), key=lambda one: one.loss)
            losses[kind].append(tried.loss)
            found.append(tried)
        better = min(found, key=lambda one: one.loss)
        if better.loss >= best.loss:
            break
        best = better
    return best, {kind: np.array(values) for kind, values in losses.items()}


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


def _mean_root(roots: list[Array] | None) -> Array | None:
    """Return the root of the mean of the metrics."""
    if roots is None or len(roots) == 1:
        return None if roots is None else roots[0]
    if roots[0].ndim == 1:
        return np.asarray(np.sqrt(np.mean(np.square(roots), axis=0)))
    values, vectors = np.linalg.eigh(np.mean([root @ root.T for root in roots], axis=0))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)


def _enough_landmarks(trials: Trials, best: _Candidate, n_rows: int, larger: _Larger) -> int | None:
    """Return 350 or 500, 1,000 or 2,000: the more, the more twice the landmarks have lowered the held-out losses.

    A gain below its own noise counts as none.
    """
    many = n_rows > _MANY_ROWS
    least = _LEAST_SIZES[many]
    if n_rows <= least or trials.least_learned < 2 * _FEW_LANDMARKS[many]:
        return None
    once, twice = larger(best)
    gain, error = twice.gain_over(once)
    share = gain / max(once.mean, _TINY) if gain > _ERRORS * error else 0.0
    most = _MANY_ROWS_LANDMARKS[trials.sample.y.shape[1] > 1] if many else n_rows
    return min((least, *_MORE_SIZES)[int(np.searchsorted(_GAINS, share))], most)
