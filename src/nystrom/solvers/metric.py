"""A metric learned from the target: the directions along which the fitted function changes, and by how much.

Fit ridge regression, average the outer products of the gradients of the fitted function (a fold of p × p numbers), take
that matrix as the metric, and fit again: a recursive feature machine (Radhakrishnan, Beaglehole, Pandit, Belkin,
Science 2024). Everything happens on a sample of the rows. How often to repeat it, which kernel to take and whether to
do it at all, rows decide that no fit has seen: a metric of p² numbers fits its own rows too well for leave-one-out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from nystrom.engine import Engine, Sums
from nystrom.engine.survey import Survey
from nystrom.exceptions import NotFiniteError
from nystrom.factor import NystromMap, optimal
from nystrom.kernels import Gaussian, Kernel, Matern, to_metric
from nystrom.landmarks import make_selector
from nystrom.rows import Block, RowBlocks, array_rows, require_finite
from nystrom.solvers.bandwidth import sample_rows
from nystrom.solvers.held_out import assign_parts
from nystrom.solvers.path import auto_alphas, leave_one_out, ridge_problem
from nystrom.solvers.sample import distinct_rows, row_keys, take_with_targets
from nystrom.types import Array, Matrix, issparse, to_dense

MetricLike: TypeAlias = str | ArrayLike | None

METRICS = ("diagonal", "full", "auto")
# Rows and landmarks of the fits from which a metric is learned, and the rows whose gradients are averaged.
_ROWS, _LANDMARKS, _GRADIENTS = 4000, 400, 2000
_FEW, _MOST_LANDMARKS = 50, 1500
_LEAST_ROWS = 20
_STEPS = 3
# The share of the plain metric in a learned one: no direction vanishes, so that what was learned can be unlearned.
_SHRINK = 0.05
# Above so many columns "auto" learns scales alone: p² numbers are too many for the sample, and p³ work too much.
_FULL_COLUMNS = 300
# A sample is cut into so many parts; as many of them are held out in turn as hold this number of rows together.
_PARTS, _HELD_ROWS = 4, 1000
_TILE_NUMBERS = 2**22
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Sample:
    """Rows in memory with the targets of a ridge regression and weights."""

    X: Matrix
    y: Array
    weight: Array | None
    keys: Array

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: Array) -> Sample:
        weight = None if self.weight is None else self.weight[rows]
        return Sample(self.X[rows], self.y[rows], weight, self.keys[rows])

    def blocks(self, root: Array | None) -> RowBlocks:
        """Return the rows, in a metric, as a fit takes them."""
        return array_rows(self.X if root is None else to_metric(self.X, root)).with_target(self.y, self.weight)

    def spread(self, root: Array | None) -> float:
        """Return the mean squared distance of the rows to their mean, in a metric."""
        X = self.X if root is None else to_metric(self.X, root)
        w = np.full(len(self), 1 / len(self)) if self.weight is None else self.weight / self.weight.sum()
        mean = np.asarray(w @ X).ravel()
        return max(float(w @ _squares(X) - mean @ mean), 0.0)


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
    """

    kernel: Kernel
    root: Array | None
    losses: dict[str, Array]


def check_learnable(kernel: Kernel) -> None:
    """Raise unless the gradient of functions of the kernel is known here."""
    if not isinstance(kernel, (Gaussian, Matern)):
        raise ValueError(
            f"a metric is learned for the kernels 'gaussian' and 'matern'; {kernel!r} is another. Choose one of those, "
            f"or give metric as an array."
        )


def metric_root(metric: MetricLike, n_columns: int) -> Array:
    """Return A of a metric given as an array: the scales themselves, or the symmetric root of a matrix."""
    M = np.asarray(metric)
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
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    if not np.allclose(M, M.T) or values[0] < -1e-8 * abs(values[-1]) or not values[-1] > 0:
        raise ValueError(
            f"metric as a matrix must be symmetric and positive semidefinite; its least eigenvalue is {values[0]:.3g}."
        )
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)


def learn_metric(
    survey: Survey,
    kernels: Sequence[Kernel],
    kinds: Sequence[str],
    *,
    n_landmarks: int,
    fit_intercept: bool,
    classes: bool,
    rng: np.random.Generator,
) -> LearnedMetric:
    """Return the kernel and the metric with the least loss on rows held out from a sample of 4,000.

    Parameters
    ----------
    survey : Survey
        The rows, with targets of a ridge regression: numbers, or ±1 for each class.
    kernels : sequence of Kernel
        Those to choose from; ``gamma="scale"`` is computed again in each metric, a number is kept.
    kinds : sequence of {"diagonal", "full"}
        Those to choose from; none of them chooses among the kernels alone.
    n_landmarks : int
        Of the machine. The kernel, and in the end plain or learned, are chosen with so many: few landmarks make the
        plain metric and smooth kernels look worse, or better, than they are.
    classes : bool
        Whether the targets are ±1; a score beyond its target is then no error.

    Notes
    -----
    The plain metric and the first kernel stay where there are fewer than 20 rows. The plain metric stays, too, unless
    another is better on the held-out rows by more than the standard error of the difference. The kernel is chosen in
    the plain metric. Cost: at most one pass over the rows; then a small fit for each kernel and four for each kind, and
    two with up to 1,500 landmarks, whatever the number of rows.
    """
    # Each with its own stream: rows on a cluster are drawn even where all of them serve.
    drawing, parting = rng.spawn(2)
    sample = _sample(survey, drawing, classes)
    if len(sample) < _LEAST_ROWS:
        return LearnedMetric(kernels[0], None, {})
    learner = _Learner(sample, survey.engine, fit_intercept, parting, classes)
    m = min(n_landmarks, _MOST_LANDMARKS)
    plain = min(((learner.errors(kernel, None, m), kernel) for kernel in kernels), key=lambda tried: tried[0].mean())
    found = [learner.judge(plain[1], kind) for kind in kinds]
    losses = {tried.kind: tried.means for tried in found}
    best = min(found, key=lambda tried: float(tried.means.min()), default=None)
    if best is None or best.step == 0:
        return LearnedMetric(plain[1], None, losses)
    gain = plain[0] - learner.errors(plain[1], [roots[best.step] for roots in best.roots], m)
    if gain.mean() <= gain.std() / np.sqrt(len(gain)):
        return LearnedMetric(plain[1], None, losses)
    *_, (root, _) = learner.path(learner.sample, None, plain[1], best.kind, best.step)
    return LearnedMetric(plain[1], root, losses)


@dataclass(frozen=True)
class _Candidate:
    """A kind of metric: the metric and the loss of each held-out row after each step."""

    kind: str
    roots: list[list[Array | None]]
    errors: Array

    @property
    def means(self) -> Array:
        return np.asarray(self.errors.mean(axis=1))

    @property
    def step(self) -> int:
        return int(self.means.argmin())


def kinds_of(metric: str, n_columns: int, *, sparse: bool) -> tuple[str, ...]:
    """Return the kinds of metric that a word stands for."""
    if sparse and metric == "full":
        raise ValueError("metric='full' mixes columns, which needs dense rows; sparse rows take metric='diagonal'.")
    if metric == "auto":
        return ("diagonal",) if sparse or not 1 < n_columns <= _FULL_COLUMNS else ("diagonal", "full")
    return (metric,)


def _sample(survey: Survey, rng: np.random.Generator, classes: bool) -> Sample:
    rows = sample_rows(survey, _ROWS, rng)
    # Equal rows are one, in an order of their own, so that a weight is the same as repetitions.
    drawn = distinct_rows(take_with_targets(rows, survey.engine, np.arange(rows.shape[0])))
    y = np.asarray(drawn.y).reshape(drawn.X.shape[0], -1)
    stacked, weight, keys = drawn.X.astype(np.float64), drawn.weight, row_keys(drawn.X)
    try:
        require_finite(stacked, survey.rows.name)
    except NotFiniteError:
        survey.require_finite()  # report the first bad row of all, not of the sample
        raise
    if not np.isfinite(y).all():
        raise ValueError("Input y contains NaN or infinity: drop such rows before the fit.")
    if not issparse(stacked):
        stacked -= stacked.mean(axis=0)  # distances do not change, and gain digits
    if not classes:
        y = y - np.average(y, axis=0, weights=weight)
        deviation = np.sqrt(np.average(y**2, axis=0, weights=weight))
        y = y / np.where(deviation > 0, deviation, 1.0).mean()
    return Sample(stacked, y, weight, keys)


class _Learner:
    """Fits on a sample and on parts of it."""

    def __init__(
        self, sample: Sample, engine: Engine, fit_intercept: bool, rng: np.random.Generator, classes: bool
    ) -> None:
        self.sample, self.engine, self.fit_intercept, self.classes = sample, engine, fit_intercept, classes
        n = len(sample)
        parts = assign_parts(sample.keys, sample.weight, _PARTS, rng)
        count = min(_PARTS, -(-_HELD_ROWS * _PARTS // n))
        self.splits = [np.flatnonzero(parts == part) for part in range(count)]
        self.splits = [held for held in self.splits if 0 < len(held) < n]
        self.seed = int(rng.integers(2**32))

    def judge(self, kernel: Kernel, kind: str) -> _Candidate:
        """Return the loss of each held-out row in the plain metric and after each step."""
        roots, parts = [], []
        for train, test in self._pairs():
            path = list(self.path(train, test, kernel, kind, _STEPS))
            roots.append([root for root, _ in path])
            parts.append(np.array([errors for _, errors in path]))
        return _Candidate(kind, roots, np.concatenate(parts, axis=1))

    def errors(self, kernel: Kernel, roots: Sequence[Array | None] | None, n_landmarks: int) -> Array:
        """Return the loss of each held-out row in a metric for each split, or the plain one, with many landmarks."""
        parts = []
        for i, (train, test) in enumerate(self._pairs()):
            root = None if roots is None else roots[i]
            parts.append(self.loss(test, root, *self.fit(train, kernel, root, n_landmarks)))
        return np.concatenate(parts)

    def loss(
        self, test: Sample, root: Array | None, fitted: NystromMap, coefficients: Array, intercept: Array
    ) -> Array:
        """Return the squared error of each row; of classes, only what the score falls short of ±1."""
        weight = 1.0 if test.weight is None else test.weight / max(float(test.weight.mean()), _TINY)
        X = test.X if root is None else to_metric(test.X, root)
        scores = fitted.evaluate(X) @ coefficients + intercept
        errors = np.maximum(1 - test.y * scores, 0.0) if self.classes else scores - test.y
        return np.asarray(weight * np.square(errors).sum(axis=1))

    def _pairs(self) -> Iterator[tuple[Sample, Sample]]:
        """Yield rows to fit and rows held out."""
        for held in self.splits:
            kept = np.setdiff1d(np.arange(len(self.sample)), held)
            yield self.sample.take(kept), self.sample.take(held)

    def path(
        self, train: Sample, test: Sample | None, kernel: Kernel, kind: str, steps: int
    ) -> Iterator[tuple[Array | None, Array | None]]:
        """Yield the root of each metric, the plain one (None) first, and the losses of ``test`` there."""
        root: Array | None = None
        for step in range(steps + 1):
            last = step == steps
            if last and test is None:
                yield root, None
                return
            fitted, coefficients, intercept = self.fit(train, kernel, root)
            yield root, None if test is None else self.loss(test, root, fitted, coefficients, intercept)
            if not last:
                rows = _some(train, _GRADIENTS).blocks(root)
                root = _next_root(mean_outer_product(fitted, coefficients, rows, self.engine, kind), root, train)

    def fit(
        self, sample: Sample, kernel: Kernel, root: Array | None, n_landmarks: int | None = None
    ) -> tuple[NystromMap, Array, Array]:
        """Return the map of the sample in a metric, and the ridge regression with the least leave-one-out error."""
        rows = sample.blocks(root)
        here = Survey(rows, self.engine)
        kernel = kernel.resolve(here.moments)
        rng = np.random.default_rng(self.seed)
        few = min(_LANDMARKS, max(len(sample) // 4, _FEW))
        m = min(few if n_landmarks is None else n_landmarks, len(sample))
        landmarks = make_selector("auto").select(here, m, kernel, rng, announce=False)
        fitted = optimal(here, kernel, landmarks, None)
        problem = ridge_problem(fitted, fit_intercept=self.fit_intercept)
        alphas = auto_alphas(problem.values)[::3]
        alpha = float(alphas[np.argmin(leave_one_out(problem, fitted, rows, self.engine, alphas))])
        weights, intercept = problem.solve(alpha)
        return fitted, fitted.projection @ weights, intercept


def _some(sample: Sample, count: int) -> Sample:
    """Return at most ``count`` rows, evenly spread."""
    return sample if len(sample) <= count else sample.take(np.linspace(0, len(sample) - 1, count).astype(np.intp))


def _next_root(G: Array, root: Array | None, sample: Sample) -> Array:
    """Return the root of the metric that the outer products G, taken in the last metric, ask for.

    Gradients in the columns are those in the last metric times its root. The result keeps the spread of the rows, so
    that one bandwidth means the same in every metric.
    """
    if G.ndim == 1:
        M = G if root is None else root**2 * G
        scales = M / max(float(M.mean()), _TINY)
        new = np.sqrt((1 - _SHRINK) * scales + _SHRINK)
    else:
        M = G if root is None else root @ G @ root.T
        M = M / max(float(np.trace(M)) / len(M), _TINY)
        values, vectors = np.linalg.eigh((1 - _SHRINK) * (M + M.T) / 2 + _SHRINK * np.eye(len(M)))
        new = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    return np.asarray(new * np.sqrt(sample.spread(None) / max(sample.spread(new), _TINY)))


def mean_outer_product(fitted: NystromMap, coefficients: Array, rows: RowBlocks, engine: Engine, kind: str) -> Array:
    """Return the mean of ``∇f ∇fᵀ`` over the rows, all targets together, for ``f = k(·, Z) coefficients``: one pass.

    With ``k = h(‖x − z‖²)`` the gradient is ``2 Σ_j a_j h'(‖x − z_j‖²)(x − z_j)``. For kind "diagonal" only the
    diagonal is taken, in O(p) memory. Cost: O(n m p t).
    """
    Z, slope = fitted.landmarks.points, _slope(fitted.kernel)
    A = np.asarray(coefficients, dtype=np.float64)
    p = Z.shape[1]
    tile = max(_TILE_NUMBERS // max(p, len(A)), 16)

    def step(block: Block) -> Sums:
        total: Array = np.zeros(p if kind == "diagonal" else (p, p))
        for piece in block.split(tile):
            X = piece.X.astype(np.float64)
            S = 2 * slope(_squared_distances(X, Z))
            X = to_dense(X)
            w = None if piece.weight is None else np.sqrt(np.asarray(piece.weight, dtype=np.float64))[:, None]
            for a in A.T:
                pull = S * a
                gradient = X * pull.sum(axis=1)[:, None] - np.asarray(pull @ Z)
                gradient = gradient if w is None else w * gradient
                total += np.einsum("ij,ij->j", gradient, gradient) if kind == "diagonal" else gradient.T @ gradient
        return Sums(total, float(block.X.shape[0] if block.weight is None else np.sum(block.weight)))

    total, weight = engine.fold(rows, step, label="gradients")
    return np.asarray(total / max(weight, _TINY))


def _squared_distances(X: Matrix, Z: Matrix) -> Array:
    products = X @ Z.T
    products = np.asarray(to_dense(products))
    return np.maximum(_squares(X)[:, None] + _squares(Z) - 2 * products, 0.0)


def _squares(X: Matrix) -> Array:
    return np.asarray((X.multiply(X) if issparse(X) else np.square(X)).sum(axis=1)).ravel()


@dataclass(frozen=True)
class _Slope:
    """The derivative of a kernel in the squared distance."""

    nu: float | None
    gamma: float

    def __call__(self, squares: Array) -> Array:
        g = self.gamma
        if self.nu is None:
            return np.asarray(-g * np.exp(-g * squares))
        t = np.sqrt(2 * self.nu * g * squares)
        decay = np.exp(-t)
        if self.nu == 0.5:
            # The kink at a landmark has no slope: such a pair counts for nothing.
            return np.where(t > 1e-7, -g / 2 * decay / np.maximum(t, 1e-7), 0.0)
        return np.asarray(-1.5 * g * decay if self.nu == 1.5 else -5 / 6 * g * (1 + t) * decay)


def _slope(kernel: Kernel) -> _Slope:
    if isinstance(kernel, Gaussian):
        return _Slope(None, float(kernel.gamma))  # type: ignore[arg-type]
    assert isinstance(kernel, Matern)
    return _Slope(kernel.nu, float(kernel.gamma))  # type: ignore[arg-type]


def plain_kernels(kernel: Kernel, *, several: bool) -> tuple[Kernel, ...]:
    """Return the kernel, or the Gaussian and the rougher Matérn one of its bandwidth to choose from."""
    return (Gaussian(kernel.gamma), Matern(0.5, kernel.gamma)) if several else (kernel,)  # type: ignore[attr-defined]
