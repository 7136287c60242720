"""Grow the landmarks until the score, or the components, change by no more than their noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nystrom.engine.passes import Passes
from nystrom.kernels import Kernel
from nystrom.landmarks.base import Landmarks, Selector
from nystrom.linalg import psd_eigh, whiten
from nystrom.nystroem.factor import landmark_kernel, prepare
from nystrom.rows.base import Block
from nystrom.rows.draw import draw_rows, fetch_rows, row_weights
from nystrom.sizing.tolerance import choose_landmarks, once_sampled
from nystrom.solvers.ridge import auto_alphas
from nystrom.tuning.sample import assign_parts, distinct_rows, row_keys
from nystrom.types import Array, Matrix

# Rows that a trial regression learns from, rows that judge it, bytes of their kernel values, and penalties tried.
_LEARN_ROWS = 10_000
_JUDGE_ROWS = 2000
_VALUES_BYTES = 256 * 2**20
_ALPHAS = 5
# Gains below 2 standard errors are noise; gains below 1 % of the error do not justify twice the work.
_ERRORS = 2.0
_LEAST_GAIN = 0.01
# An error above this fraction of the target's variance means that there are too few landmarks for the target.
_EXPLAINED = 0.5
# Components are stable if this fraction of their variance lies in the span of the previous ones.
_STABLE = 0.995


class Grown(NamedTuple):
    """The landmarks found, whether growth ended by itself, and (size, score) of every trial."""

    landmarks: Landmarks
    settled: bool
    tried: tuple[tuple[int, float], ...]


def grow_by_score(
    passes: Passes,
    selector: Selector,
    kernel: Kernel,
    rng: np.random.Generator,
    *,
    least: int,
    most: int,
    usual: int = 0,
    intercept: bool = True,
) -> Grown:
    """Double the landmarks until held-out squared errors of ridge regression fall by no more than their noise.

    The noise is that of the difference between two sizes on the same 2,000 rows. Scores are mean squared errors, at the
    best regularisation for each size. Small gains can hide in the noise of every step, so a size below the ``usual``
    one is also compared with that, and taken only if it is as good to within 1 %. Rows count by their weights; the
    regression has an intercept only if the machine has one.

    Cost: per size, its landmarks and a fit to 10,000 rows; one pass to fetch these rows.
    """
    sample = _fetch(passes, _LEARN_ROWS + min(_JUDGE_ROWS, max(passes.rows.shape[0] // 4, 1)), rng)
    if sample.y is None:
        raise ValueError("n_landmarks='auto' judges sizes by how well they predict, and the rows hold no target.")
    X, n = sample.X, sample.X.shape[0]
    y = sample.y.reshape(n, -1)
    w = np.ones(n) if sample.weight is None else sample.weight
    # Every distinct row is its own part: this is a random order.
    order = np.argsort(assign_parts(row_keys(X), w, n, rng), kind="stable")
    judged = min(_JUDGE_ROWS, max(n // 4, 1))
    judge, learn = order[:judged], order[judged:]

    def errors(landmarks: Landmarks) -> Array:
        features = _features(kernel, landmarks)
        rows = learn[: max(_VALUES_BYTES // (8 * len(landmarks)), 1000)]
        return _judge(features(X[rows]), y[rows], w[rows], features(X[judge]), y[judge], w[judge], intercept)

    centred = y[judge] - np.average(y[judge], axis=0, weights=w[judge])
    spread = float(np.average(np.square(centred).mean(axis=1), weights=w[judge]))

    def enough(seen: list[Array]) -> bool:
        now = seen[-1]
        # With far too few landmarks, one doubling gains nothing either: compare with the two previous sizes.
        before = seen[-3:-1] if now.mean() > _EXPLAINED * spread else seen[-2:-1]
        blind = len(before) == 1 and now.mean() > _EXPLAINED * spread
        return not blind and all(_no_gain(earlier, now) for earlier in before)

    usual = min(usual, most)
    return _grow(passes, selector, kernel, rng, least, most, errors, enough, lambda e: float(e.mean()), usual)


def grow_by_components(
    passes: Passes, selector: Selector, kernel: Kernel, rng: np.random.Generator, rank: int, *, least: int, most: int
) -> Grown:
    """Double the landmarks until the leading ``rank`` centred components of a sample of rows are stable.

    Components are stable if 99.5 % of their variance lies in the span of those with half the landmarks; the larger size
    is then taken. Scores are these fractions.
    """
    sample = _fetch(passes, _JUDGE_ROWS, rng)
    root = 1.0 if sample.weight is None else np.sqrt(sample.weight)[:, None]

    def components(landmarks: Landmarks) -> Array:
        F = _features(kernel, landmarks)(sample.X)
        U, s, _ = np.linalg.svd(root * (F - np.average(F, axis=0, weights=sample.weight)), full_matrices=False)
        return np.asarray(U[:, :rank] * s[:rank])

    def enough(seen: list[Array]) -> bool:
        return _shared(seen[-2], seen[-1]) >= _STABLE

    return _grow(passes, selector, kernel, rng, least, most, components, enough, None)


def _grow(
    passes: Passes,
    selector: Selector,
    kernel: Kernel,
    rng: np.random.Generator,
    least: int,
    most: int,
    look: Callable[[Landmarks], Array],
    enough: Callable[[list[Array]], bool],
    score: Callable[[Array], float] | None,
    usual: int = 0,
) -> Grown:
    """Double the size until the results of ``look`` are ``enough``; with a score, take the smallest size as good."""
    size, selector = min(least, most), once_sampled(selector)
    chosen = [choose_landmarks(passes, selector, size, kernel, rng)]
    seen = [look(chosen[0])]
    following = min(2 * size, most)
    while size < most and len(chosen[-1]) == size:
        size = following
        chosen.append(choose_landmarks(passes, selector, size, kernel, rng))
        seen.append(look(chosen[-1]))
        following = min(2 * size, most)
        if enough(seen):
            if size >= usual or len(chosen[-1]) < size:
                best = _smallest_as_good([len(one) for one in chosen], seen, usual) if score else len(seen) - 1
                return Grown(chosen[best], True, _history(chosen, seen, score))
            following = usual
    # Without further distinct rows, more landmarks change nothing.
    settled = size >= passes.rows.shape[0] or len(chosen[-1]) < size
    return Grown(chosen[-1], settled, _history(chosen, seen, score))


def _history(
    chosen: list[Landmarks], seen: list[Array], score: Callable[[Array], float] | None
) -> tuple[tuple[int, float], ...]:
    scores = [score(one) for one in seen] if score else [0.0, *map(_shared, seen, seen[1:])]
    return tuple((len(landmarks), value) for landmarks, value in zip(chosen, scores, strict=True))


def _no_gain(before: Array, now: Array, n_errors: float = _ERRORS) -> bool:
    """Return whether errors fell by no more than the noise of the difference, or by a negligible amount."""
    gain = before - now
    noise = float(gain.std()) / np.sqrt(len(gain))
    return float(gain.mean()) <= max(n_errors * noise, _LEAST_GAIN * float(now.mean()))


def _smallest_as_good(sizes: list[int], errors: list[Array], usual: int) -> int:
    """Return the first size on which the last gains nothing; below ``usual``, not even within the noise."""
    last = len(errors) - 1
    noise = [0.0 if size < usual else 1.0 for size in sizes]
    return next(i for i, one in enumerate(errors) if i == last or _no_gain(one, errors[last], noise[i]))


def _shared(before: Array, now: Array) -> float:
    """Return the fraction of the components' variance in the span of the previous ones."""
    Q, _ = np.linalg.qr(before)
    whole = float(np.sum(now**2))
    return float(np.sum((Q.T @ now) ** 2)) / whole if whole > 0 else 1.0


def _features(kernel: Kernel, landmarks: Landmarks) -> Callable[[Matrix], Array]:
    """Return the function from rows to all features that the landmarks span, in float64."""
    kernel = kernel.at(landmarks.indices)
    W = landmark_kernel(kernel, landmarks)
    evaluate = prepare(kernel, landmarks)
    return lambda X: np.asarray(evaluate(X), dtype=np.float64) @ whiten(W, block_dtype=X.dtype).T


def _judge(F: Array, y: Array, w: Array, G: Array, z: Array, v: Array, intercept: bool) -> Array:
    """Return the squared error of each judging row, at the best of a few ridge penalties.

    The ridge is fitted to features F with targets y and weights w; G, z and v are those of the judging rows. Errors are
    multiplied by the weight relative to the mean weight.
    """
    mean, target = np.zeros(F.shape[1]), np.zeros(y.shape[1])
    if intercept:
        mean, target = np.average(F, axis=0, weights=w), np.average(y, axis=0, weights=w)
    F, y = F - mean, y - target
    wF = F * w[:, None]
    values, V = psd_eigh(F.T @ wF)
    cross, G = V.T @ (wF.T @ y), (G - mean) @ V
    alphas = auto_alphas(values)[::_ALPHAS]
    errors = [np.mean((z - target - G @ (cross / (values + a)[:, None])) ** 2, axis=1) for a in alphas]
    return min((e * (v / v.mean()) for e in errors), key=lambda e: float(e.mean()))


def _fetch(passes: Passes, size: int, rng: np.random.Generator) -> Block:
    """Return at most ``size`` rows, drawn in proportion to their weights: distinct rows with adjusted weights."""
    numbers, stands = draw_rows(passes.rows.shape[0], size, row_weights(passes), rng)
    X, y = fetch_rows(passes, numbers)
    return distinct_rows(Block(0, 0, X, y, stands))
