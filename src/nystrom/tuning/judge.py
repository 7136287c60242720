"""Score kernels, metrics, widths and sizes: small ridge regressions on a sample, judged on held-out rows.

All candidates use the same nested samples, the same held-out rows and the regularisations that the machine can use. A
fit is exact if every row is a landmark. Cholesky factors for a few regularisations take less time than one
eigendecomposition: a fit to 1,000 rows takes about 50 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import dsyrk

from nystrom.engine.passes import Moments, Passes, block_moments
from nystrom.exceptions import NotFiniteError
from nystrom.kernels import Kernel, to_metric
from nystrom.rows import require_finite
from nystrom.rows.draw import draw_rows, effective_count, row_weights, take_with_targets
from nystrom.tuning.gradients import sum_outer_products
from nystrom.tuning.sample import assign_parts, distinct_rows
from nystrom.types import Array, Matrix, issparse

# A sample is cut into 4 parts. Parts are held out until they contain 1,000 rows in total, from several random cuts if
# there are few rows, at most 6 parts in all. No held-out part has more than 2,000 rows.
_PARTS, _HELD_ROWS, _MOST_SPLITS, _HELD_MOST = 4, 1000, 6, 2000
MOST_LEARNED = 3000
# Rows over which gradients are averaged.
_GRADIENT_ROWS = 600
# Regularisations to try if the machine searches its own, relative to Σ k(x, x). The largest leaves only the mean.
_SHARES = 10.0 ** np.arange(-8.0, 2.0)
_FIRST = 3
# Factors from scores to log-odds; the best is chosen for each trial. If the regularisation is given, the second is
# always used: strongly regularised scores stay small.
_TEMPERATURES = (1.0, 1.7, 3.0, 5.0, 8.5, 14.0)
# Added to the diagonal of the normal equations; far below any regularisation.
_JITTER = 1e-10
# Ties: mean losses that differ by less than the first fraction, or by less than the second of the target's variance.
_TIE, _NOTHING = 1e-3, 1e-9
_TINY = float(np.finfo(np.float64).tiny)


def is_lower(one: float, other: float) -> bool:
    """Return whether a mean loss is lower than another, and not tied."""
    return one < other * (1 - _TIE) - _NOTHING


@dataclass(frozen=True)
class Reach:
    """The regularisations that a machine can use, as α of a ridge regression on all rows.

    ``values`` are those to choose from; None allows any number within the bounds.
    """

    values: Array | None = None
    least: float = 0.0
    most: float = np.inf

    def on(self, share: float, trace: float) -> Array:
        """Return ascending values for a fraction of the rows, whose Σ k(x, x) is ``trace``.

        Eigenvalues grow with the number of rows, so the same smoothing needs a smaller α on fewer rows.
        """
        if self.values is not None:
            return np.sort(self.values) * share
        low, high = self.least * share, self.most * share
        return np.unique(np.clip(trace * _SHARES, low, high))


@dataclass(frozen=True)
class Sample:
    """Distinct rows in memory with targets and weights, in an order that depends on their values alone.

    The targets are those of a ridge regression: numbers with about unit deviation, or ±1 per class. A repeated row
    appears once, with the sum of its weights. ``total`` is the weight of all rows, drawn or not; ``distance`` is the
    distance of their mean from the origin, in deviations.
    """

    X: Matrix
    y: Array
    weight: Array
    classes: bool
    total: float
    distance: float = 0.0
    temperatures: Sequence[float] = _TEMPERATURES

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: Array) -> Sample:
        return replace(self, X=self.X[rows], y=self.y[rows], weight=self.weight[rows])

    def moments(self, root: Array | None) -> Moments:
        """Return the moments of the rows in a metric."""
        return block_moments(self.X if root is None else to_metric(self.X, root), self.weight)

    @cached_property
    def spread(self) -> float:
        return float(self.moments(None).spread)


def draw_sample(
    passes: Passes, rng: np.random.Generator, size: int, classes: bool, *, fit_intercept: bool, centred: bool
) -> Sample:
    """Draw at most ``size`` of the rows: at most one pass.

    If all rows are taken, the result does not depend on their order, and weights are repetitions. ``centred`` is for
    kernels of distance, which gain digits from it.
    """
    n = passes.rows.shape[0]
    numbers, adjusted = draw_rows(n, size, row_weights(passes) if n > size else None, rng)
    block = take_with_targets(passes.rows, passes.counted if n > size else passes.engine, numbers)
    drawn = distinct_rows(block if adjusted is None else replace(block, weight=adjusted))
    y = np.asarray(drawn.y, dtype=np.float64).reshape(drawn.X.shape[0], -1)
    X, weight = drawn.X.astype(np.float64), np.ones(len(y)) if drawn.weight is None else drawn.weight
    try:
        require_finite(X, passes.rows.name)
    except NotFiniteError:
        passes.require_finite()  # report the first bad row of all, not of the sample
        raise
    if not np.isfinite(y).all():
        raise ValueError("Input y contains NaN or infinity: drop such rows before the fit.")
    distance = 0.0
    if centred and not issparse(X):
        mean = np.average(X, axis=0, weights=weight)
        X = X - mean
        distance = float(np.linalg.norm(mean)) / max(float(np.sqrt(np.square(X).sum(axis=1).mean())), _TINY)
    if not classes:
        y = _in_deviations(y, weight, fit_intercept)
    total = float(weight.sum()) * (n / len(numbers) if adjusted is None else 1.0)
    return Sample(X, y, weight, classes, total, distance)


def _in_deviations(y: Array, weight: Array, fit_intercept: bool) -> Array:
    """Return targets in units of their deviation; centred, unless the machine has to learn the mean."""
    mean = np.average(y, axis=0, weights=weight)
    unit = float(np.sqrt(np.average(np.square(y - mean), axis=0, weights=weight)).mean())
    return (y - mean if fit_intercept else y) / (unit or 1.0)


@dataclass(frozen=True)
class HeldOutLosses:
    """The loss of each held-out row, whether its class is wrong (never for numbers), and its weight.

    ``times`` is how often each row was held out.
    """

    losses: Array
    wrong: Array
    weight: Array
    times: float = 1.0

    @classmethod
    def join(cls, parts: Sequence[HeldOutLosses], times: float = 1.0) -> HeldOutLosses:
        """Concatenate the losses of several parts."""
        losses, wrong, weight = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("losses", "wrong", "weight")
        )
        return cls(losses, wrong, weight, times)

    @property
    def mean(self) -> float:
        return float(np.average(self.losses, weights=self.weight))

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self._noise(self.losses - self.mean)

    def gain_over(self, other: HeldOutLosses) -> tuple[float, float]:
        """Return the mean gain over other losses on the same rows, and its standard error."""
        gain = other.losses - self.losses
        mean = float(np.average(gain, weights=self.weight))
        return mean, self._noise(gain - mean)

    def _noise(self, deviations: Array) -> float:
        squares = float(np.average(np.square(deviations), weights=self.weight))
        return float(np.sqrt(squares / max(effective_count(self.weight) / self.times, 1.0)))

    def errs_more_than(self, other: HeldOutLosses) -> bool:
        """Return whether more of the same rows get a wrong class than with ``other``."""
        return bool(self.weight @ self.wrong > other.weight @ other.wrong)


@dataclass(frozen=True)
class Fitted:
    """A function ``k(·, Z) A`` and some of the rows it was fitted to, all in its metric."""

    kernel: Kernel
    Z: Matrix
    coefficients: Array
    X: Matrix
    weight: Array

    def outer_product(self, kind: str) -> Array:
        """Return the mean outer product of its gradients at those rows."""
        total = sum_outer_products(self.kernel, self.Z, self.coefficients, self.X, self.weight, kind)
        return np.asarray(total / self.weight.sum())


@dataclass(frozen=True)
class Outcome(HeldOutLosses):
    """Held-out losses; for each part the fitted function and the index of its regularisation.

    ``flat`` tells whether some part took the largest regularisation, which leaves little but the mean.
    """

    fits: Sequence[Fitted] = ()
    regularisations: Sequence[int] = ()
    flat: bool = False


@dataclass(frozen=True, eq=False)
class Judge:
    """Fits on parts of a sample, each judged on the rows it has not seen.

    Fits use at most ``learn_rows`` rows, of which ``n_landmarks`` are landmarks: the time of a fit grows with the
    square of that number, or with its cube if all rows are landmarks. Every size uses the first of the same rows.

    Parameters
    ----------
    sample : Sample
        The rows.
    splits : sequence of pairs of arrays
        Numbers of the rows to learn from, shuffled, and of those held out; by :func:`cut`.
    reach : Reach
        Regularisations to choose from.
    """

    sample: Sample
    splits: Sequence[tuple[Array, Array]]
    reach: Reach
    fit_intercept: bool
    learn_rows: int
    n_landmarks: int

    @property
    def least_learned(self) -> int:
        """The smallest number of rows outside a held-out part."""
        return min(len(learn) for learn, _ in self.splits)

    @cached_property
    def _times(self) -> float:
        return max(sum(len(held) for _, held in self.splits) / len(self.sample), 1.0)

    def run(
        self, kernel: Kernel, roots: Sequence[Array] | None, *, like: Outcome | None = None, search: bool = True
    ) -> Outcome:
        """Return the outcome of a kernel in a metric for each part (None: the plain metric).

        The search for regularisations starts from those of ``like``; without a search these are used.
        """
        found, flat = [], False
        for i in range(len(self.splits)):
            learn, held, X, new = self._rows(i, self.learn_rows, roots)
            Z = X[: self.n_landmarks]
            # A candidate that was judged on fewer parts has fewer regularisations.
            start = _FIRST if like is None else like.regularisations[i % len(like.regularisations)]
            alphas = self._alphas(kernel, X, learn)
            system = _system(kernel, X, Z, learn, self.fit_intercept)
            values = np.asarray(kernel(new, Z), dtype=np.float64)
            solved = _solve(system, values, held, alphas, start, search)
            flat |= solved.number == len(alphas) - 1
            some = slice(0, _GRADIENT_ROWS)
            found.append((solved, Fitted(kernel, Z, solved.coefficients, X[some], learn.weight[some])))
        judged = HeldOutLosses.join([solved.judged for solved, _ in found])
        fits, numbers = [fit for _, fit in found], [solved.number for solved, _ in found]
        return Outcome(judged.losses, judged.wrong, judged.weight, self._times, fits, numbers, flat)

    def with_landmarks(
        self, sizes: Sequence[int], kernel: Kernel, roots: Sequence[Array] | None, *, like: Outcome
    ) -> list[HeldOutLosses]:
        """Return the held-out losses of fits to up to 3,000 rows, for each number of landmarks."""
        found: list[list[HeldOutLosses]] = [[] for _ in sizes]
        for i in range(len(self.splits)):
            learn, held, X, new = self._rows(i, MOST_LEARNED, roots)
            Z, alphas = X[: max(sizes)], self._alphas(kernel, X, learn)
            values = np.asarray(kernel(new, Z), dtype=np.float64)
            normal = _NormalEquations.of(kernel, X, Z, learn, self.fit_intercept)
            for judged, m in zip(found, sizes, strict=True):
                solved = _solve(normal.system(m), values[:, :m], held, alphas, like.regularisations[i])
                judged.append(solved.judged)
        return [HeldOutLosses.join(judged, self._times) for judged in found]

    def _rows(self, split: int, most: int, roots: Sequence[Array] | None) -> tuple[Sample, Sample, Matrix, Matrix]:
        """Return the part to learn from and the held-out part, and the rows of both in the metric."""
        learn, held = (self.sample.take(rows) for rows in (self.splits[split][0][:most], self.splits[split][1]))
        X, new = (part.X if roots is None else to_metric(part.X, roots[split]) for part in (learn, held))
        return learn, held, X, new

    def _alphas(self, kernel: Kernel, X: Matrix, learn: Sample) -> Array:
        trace = float(learn.weight @ np.asarray(kernel.diag(X), dtype=np.float64))
        return self.reach.on(float(learn.weight.sum()) / self.sample.total, trace)


def cut(sample: Sample, rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Return numbers of rows to learn from and of held-out rows, for each held-out part."""
    n = len(sample)
    strata = None
    if sample.classes:
        strata = sample.y[:, 0] > 0 if sample.y.shape[1] == 1 else sample.y.argmax(axis=1)
    # A few repeated rows make n slightly smaller; subtracting 0.1 keeps them from adding a held-out part.
    count = min(_MOST_SPLITS, int(np.ceil(_HELD_ROWS * _PARTS / n - 0.1)))
    splits: list[tuple[Array, Array]] = []
    while len(splits) < count:
        # The rows are distinct and sorted by their values.
        parts = assign_parts(np.arange(n, dtype=np.uint64), None, _PARTS, rng, strata=strata)
        for part in range(min(_PARTS, count - len(splits))):
            held = parts == part
            # Sorted rows follow a direction: shuffle them.
            learn, judging = (rng.permutation(np.flatnonzero(part)) for part in (~held, held))
            splits.append((learn, judging[:_HELD_MOST]))
    return [(learn, held) for learn, held in splits if len(learn) and len(held)]


@dataclass(frozen=True)
class _Solved:
    """A fit for one of the regularisations, and its losses."""

    judged: HeldOutLosses
    coefficients: Array
    number: int


# From a regularisation to coefficients (m, t) and intercepts (t,).
_System = Callable[[float], tuple[Array, Array]]


def _solve(system: _System, values: Array, held: Sample, alphas: Array, start: int, search: bool = True) -> _Solved:
    """Return the fit for the regularisation with the least held-out loss; on a tie, the largest."""

    @cache
    def at(i: int) -> _Solved:
        coefficients, intercept = system(float(alphas[i]))
        return _Solved(_judge(values @ coefficients + intercept, held), coefficients, i)

    last = len(alphas) - 1
    best = min(start, last)
    while search:
        step = min((best, min(best + 1, last), max(best - 1, 0)), key=lambda i: at(i).judged.mean)
        if step == best:
            break
        best = step
    while search and best < last and not is_lower(at(best).judged.mean, at(best + 1).judged.mean):
        best += 1
    return at(best)


def _system(kernel: Kernel, X: Matrix, Z: Matrix, part: Sample, fit_intercept: bool) -> _System:
    if Z.shape[0] == X.shape[0]:
        # Transposed, it has LAPACK's order.
        return _exact_system(np.asarray(kernel(X, X), dtype=np.float64).T, part, fit_intercept)
    return _NormalEquations.of(kernel, X, Z, part, fit_intercept).system(Z.shape[0])


def _exact_system(K: Array, part: Sample, fit_intercept: bool) -> _System:
    """Return the solver of ``(K + α/w) a = y − b``, with ``Σ a = 0`` if there is an intercept."""
    y = part.y

    def solve(alpha: float) -> tuple[Array, Array]:
        found = _cholesky_solve(K, alpha / part.weight, np.column_stack([y, np.ones(len(y))]))
        if not fit_intercept:
            return found[:, :-1], np.zeros(y.shape[1])
        intercept = found[:, :-1].sum(axis=0) / found[:, -1].sum()
        return found[:, :-1] - np.outer(found[:, -1], intercept), intercept

    return solve


def _cholesky_solve(A: Array, added: Array | float, right: Array) -> Array:
    """Solve with ``added`` on the diagonal of A, and with more if rounding makes the matrix indefinite."""
    step = np.finfo(np.float64).eps * len(A) * float(np.max(np.diag(A), initial=0.0))
    for more in (0.0, step, 1e3 * step, 1e6 * step):
        B = A.copy(order="F")
        np.einsum("ii->i", B)[...] += added + more
        try:
            factor = cho_factor(B, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue
        return np.asarray(cho_solve(factor, right, check_finite=False))
    return np.zeros_like(right)


@dataclass(frozen=True)
class _NormalEquations:
    """``(Cᵀ D C + α W) a = Cᵀ D (y − b)``, D the weights: for any number of leading landmarks.

    C, its moments and ``Cᵀ D y`` are centred if there is an intercept.
    """

    moments: Array
    W: Array
    right: Array
    middle: Array
    target: Array
    weight: float

    @classmethod
    def of(cls, kernel: Kernel, X: Matrix, Z: Matrix, part: Sample, fit_intercept: bool) -> _NormalEquations:
        weight, y = part.weight, part.y
        C, W = (np.asarray(kernel(rows, Z), dtype=np.float64) for rows in (X, Z))
        middle = weight @ C / weight.sum() if fit_intercept else np.zeros(C.shape[1])
        target = weight @ y / weight.sum() if fit_intercept else np.zeros(y.shape[1])
        C -= middle
        root = np.sqrt(weight)[:, None]
        if np.ptp(weight) or weight[0] != 1:
            C *= root
        # A Cholesky factor needs only the upper triangle.
        return cls(dsyrk(1.0, C.T), W.T, C.T @ (root * (y - target)), middle, target, float(weight.sum()))

    def system(self, m: int) -> _System:
        def solve(alpha: float) -> tuple[Array, Array]:
            A = self.moments[:m, :m] + alpha * self.W[:m, :m]
            found = _cholesky_solve(A, _JITTER * self.weight, self.right[:m])
            return found, self.target - self.middle[:m] @ found

        return solve


def _judge(scores: Array, held: Sample) -> HeldOutLosses:
    """Return the squared error of each row; for classes, the log-loss at the best common temperature."""
    if not held.classes:
        losses = np.asarray(np.square(scores - held.y).mean(axis=1))
        return HeldOutLosses(losses, np.zeros(len(losses), dtype=bool), held.weight)
    losses = min(_log_losses(scores, held), key=lambda losses: float(losses @ held.weight))
    two = held.y.shape[1] == 1
    wrong = (scores * held.y)[:, 0] <= 0 if two else scores.argmax(axis=1) != held.y.argmax(axis=1)
    return HeldOutLosses(losses, wrong, held.weight)


def _log_losses(scores: Array, held: Sample) -> Iterator[Array]:
    y = held.y
    two = y.shape[1] == 1
    code = y.argmax(axis=1)
    for temperature in held.temperatures:
        if two:
            yield np.logaddexp(0.0, -2 * temperature * (scores * y)[:, 0])
        else:
            odds = temperature * (scores - scores.max(axis=1, keepdims=True))
            yield np.log(np.exp(odds).sum(axis=1)) - odds[np.arange(len(y)), code]
