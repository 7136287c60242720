"""One loop for every search for a size, and its judges by score and by components; ``tolerance`` judges by error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from nystrom.engine.passes import Passes
from nystrom.kernels import Kernel
from nystrom.landmarks.auto import Auto, AutoAgain
from nystrom.landmarks.base import GIVEN, Landmarks, Selector
from nystrom.landmarks.clustered import sample_size
from nystrom.linalg import psd_eigh, whiten
from nystrom.nystroem.factor import landmark_kernel, prepare
from nystrom.rows.base import Block, array_rows
from nystrom.rows.draw import draw_rows, fetch_rows, gather, row_weights
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
_TOO_LARGE = 0.5
# Components are stable if this fraction of their variance lies in the span of the previous ones.
_STABLE = 0.995

Look = TypeVar("Look")


class Trial(NamedTuple, Generic[Look]):
    """Landmarks that were tried, and what the judge saw with them."""

    landmarks: Landmarks
    seen: Look

    @property
    def size(self) -> int:
        return len(self.landmarks)


class Grown(NamedTuple):
    """The landmarks found, whether growth ended by itself, and (size, score) of every trial."""

    landmarks: Landmarks
    settled: bool
    tried: tuple[tuple[int, float], ...]


def grow(
    passes: Passes,
    selector: Selector,
    kernel: Kernel,
    rng: np.random.Generator,
    look: Callable[[Landmarks], Look],
    following: Callable[[list[Trial[Look]]], int | None],
    *,
    start: int,
    most: int,
) -> tuple[list[Trial[Look]], bool]:
    """Select and judge landmarks until no further size is wanted, or there are no more landmarks.

    Parameters
    ----------
    passes, selector, kernel, rng
        The rows, and how landmarks are chosen.
    look : callable
        Judges landmarks.
    following : callable
        Returns the next size after some trials; None if the last one is enough.
    start, most : int
        The first and the largest size.

    Returns
    -------
    list of Trial, bool
        The trials, and whether more landmarks would change nothing: the last ones are enough or span all rows.
    """
    # "auto" draws its sample once, for all sizes.
    selector = AutoAgain(selector.n_iter) if type(selector) is Auto else selector
    tried: list[Trial[Look]] = []
    size = min(start, most)
    while True:
        before = tried[-1].size if tried else 0
        landmarks = _choose(passes, selector, size, kernel, rng)
        tried.append(Trial(landmarks, look(landmarks)))
        wanted = following(tried)
        # If there are fewer landmarks than asked for, and no more than before, there are no other distinct rows.
        exhausted = before >= len(landmarks) < size or size >= passes.rows.shape[0] or isinstance(selector, GIVEN)
        if wanted is None or exhausted or size >= most:
            return tried, wanted is None or exhausted
        size = min(wanted, most)


def _choose(passes: Passes, selector: Selector, size: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
    """Select landmarks; selectors that read all rows choose from a sample if there are many."""
    rows, pool = passes.rows, sample_size(size)
    if isinstance(selector, (Auto, *GIVEN)) or rows.shape[0] <= 2 * pool:
        return selector.select(passes, size, kernel, rng, announce=False)
    numbers = draw_rows(rows.shape[0], pool, None, rng)[0]
    sample = array_rows(gather(passes, numbers), name=rows.name)
    found = selector.select(Passes(sample, passes.engine), size, kernel, rng, announce=False)
    return Landmarks(found.points, None if found.indices is None else numbers[found.indices])


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
    # n parts give each distinct row a part of its own, so the order of the parts is a random order of the rows.
    order = np.argsort(assign_parts(row_keys(X), w, n, rng), kind="stable")
    judged = min(_JUDGE_ROWS, max(n // 4, 1))
    judge, learn = order[:judged], order[judged:]
    usual = min(usual, most)

    def errors(landmarks: Landmarks) -> Array:
        features = _features(kernel, landmarks)
        rows = learn[: max(_VALUES_BYTES // (8 * len(landmarks)), 1000)]
        return _judge(features(X[rows]), y[rows], w[rows], features(X[judge]), y[judge], w[judge], intercept)

    centred = y[judge] - np.average(y[judge], axis=0, weights=w[judge])
    spread = float(np.average(np.square(centred).mean(axis=1), weights=w[judge]))

    def following(tried: list[Trial[Array]]) -> int | None:
        size, now = tried[-1].size, tried[-1].seen
        # With far too few landmarks, a single doubling may gain nothing: compare with the two previous sizes.
        compared = 2 if now.mean() > _TOO_LARGE * spread else 1
        before = tried[-1 - compared : -1]
        if len(before) < compared or not all(_no_gain(earlier.seen, now) for earlier in before):
            return 2 * size
        return usual if size < usual else None

    tried, settled = grow(passes, selector, kernel, rng, errors, following, start=least, most=most)
    best = tried[-1]
    if settled:
        # The first size on which the last one gains at most 1 %, or at most one standard error from the usual size on.
        best = next(t for t in tried if t is best or _no_gain(t.seen, best.seen, float(t.size >= usual)))
    return Grown(best.landmarks, settled, tuple((t.size, float(t.seen.mean())) for t in tried))


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

    shared = [0.0]

    def following(tried: list[Trial[Array]]) -> int | None:
        if len(tried) > 1:
            shared.append(_shared(tried[-2].seen, tried[-1].seen))
        return None if shared[-1] >= _STABLE else 2 * tried[-1].size

    tried, settled = grow(passes, selector, kernel, rng, components, following, start=least, most=most)
    scores = zip((t.size for t in tried), shared, strict=True)
    return Grown(tried[-1].landmarks, settled, tuple(scores))


def _no_gain(before: Array, now: Array, n_errors: float = _ERRORS) -> bool:
    """Return whether errors fell by no more than the noise of the difference, or by a negligible amount."""
    gain = before - now
    noise = float(gain.std()) / np.sqrt(len(gain))
    return float(gain.mean()) <= max(n_errors * noise, _LEAST_GAIN * float(now.mean()))


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
