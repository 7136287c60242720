"""The default: what the measurements say is best for the rows at hand (the table is in docs/landmarks.md)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from nystrom import loops
from nystrom.checks import check_count
from nystrom.engine.base import Engine
from nystrom.engine.passes import Passes, block_moments
from nystrom.kernels import Kernel
from nystrom.kernels.pairwise import squared_norms
from nystrom.kmeans import KMeansResult, kmeans, largest_magnitude
from nystrom.landmarks.base import Landmarks, Selector, evaluator, kernel_diagonal, resolve
from nystrom.landmarks.clustered import clusters_in_kernel, has_means, labelled_means, sample_size, thin_means
from nystrom.landmarks.pivoted import RPCholesky
from nystrom.landmarks.sampled import Uniform
from nystrom.linalg import whiten
from nystrom.rows.base import Block, RowBlocks, TakenRows, array_rows, require_finite
from nystrom.rows.draw import draw_rows, gather, row_weights
from nystrom.sketch import PCASketch, Sketch
from nystrom.types import Array, Matrix, issparse, to_dense

_SKETCH_DIM = 20
_SKETCH_ROWS = 500
# Up to this many columns a sketch saves little time, and where no few directions hold the variance it costs accuracy.
_FEW_COLUMNS = 64
# With so few rows per cluster, two more Lloyd steps changed the error by 0.25 % at most on four sets of 2,000 rows.
_FEW_ROWS_PER_CLUSTER = 16
# With fewer, seeds are outliers more often, and so are clusters of one or two rows.
_SEED_ROWS = 2048
_SEED_ROWS_PER_LANDMARK = 16
# More made no difference on mnist and cpusmall, at up to twice the time.
_MOST_CANDIDATES = 4
# K-means needs no more digits than float32 has, unless some row is this many times farther out than most.
_FAR_OUT = 30
# Within clusters, squared distances of less than this share of the scatter are near the rounding of float32.
_RESOLVED = 2.0**-12
# Sums of numbers below this stay within the range of float64.
_SUMMABLE = 1e290
# Squares of numbers in this range, and sums of them, stay within that of float32.
_FLOAT32_SIZES = (1e-15, 1e15)
# A cluster with less than this share of an even one's rows is spent on outliers; so many such clusters, and the
# choice is made again by what the kernel sees.
_TINY = 1 / 16
_TINY_CLUSTERS = 0.05
# The same where the kernel is too narrow to feel the rows of clusters; some clusters of ordinary rows have little, too.
_UNLIKE_CLUSTERS = 0.25
# Rows of tiny clusters are outliers if their squared distance from the middle is so many times the usual one.
_FAR_SHARE = 8.0
_TRIAL_ROWS = 1000
# The (Gaussian) kernel of a mean of sparse rows with itself, once its lightest entries are left out, is 1 minus this.
# On text it left a seventh of the entries and changed the error by 0.2 %.
_LOST = 0.004
# The trial takes m² rows and m³ operations: beyond so many landmarks it would take longer than the fit.
_TRIAL_LANDMARKS = 4096
# How much the kernel feels a row is estimated from its values with so many others.
_LIKENESS_ROWS = 128


def sketch_columns(n_features: int) -> int:
    """Return the columns that k-means sees of rows with so many."""
    return n_features if n_features <= _FEW_COLUMNS else _SKETCH_DIM


class _Sample(NamedTuple):
    """Rows drawn, what k-means sees of them, and what each counts."""

    rows: RowBlocks
    sketched: RowBlocks
    weight: Array | None


class Auto(Selector):
    """Cluster a sampled-PCA sketch of a sample of rows, and take the means of the sampled rows themselves.

    1. Draw 32 rows per landmark, at least 4,096 where there are so many, and 8 for each of very many landmarks. They
       are read by number; a source that can only be read from its beginning takes a pass.
    2. With more than 64 columns, sketch them by the 20 leading principal directions of 500 of them.
    3. K-means on the sketch of the sample; the landmarks are the means of the clusters' rows.
    4. If many clusters hold next to no rows, k-means has spent them on outliers, which a bounded kernel hardly feels.
       Then, with at most 4,096 landmarks, cluster once more with each row weighted by its mean kernel value with the
       others, and keep whichever of the two leaves the smaller part of the diagonal unexplained on 1,000 rows.

    A precomputed kernel has no coordinates, and goes to :class:`RPCholesky`. Where the kernel has columns without means
    (codes of categories), k-means runs on features of the sample in the kernel's own space, and the landmarks are the
    rows nearest to its centres. Of objects rows are drawn at random, so that a fit evaluates no more than n × m pairs.

    Cost: O(m² p') time per Lloyd step, whatever the number of rows; no pass over them by itself.

    Parameters
    ----------
    n_iter : int
        Lloyd steps; half as many where there are at most 16 rows per landmark.

    Examples
    --------
    >>> import numpy as np
    >>> from nystrom import select_landmarks
    >>> X = np.random.default_rng(0).normal(size=(1000, 100))
    >>> select_landmarks(X, 10, random_state=0).points.shape
    (10, 100)
    """

    def __init__(self, n_iter: int = 4) -> None:
        self.n_iter = n_iter

    def held_bytes(self, rows: RowBlocks, n_landmarks: int) -> int:
        size = min(sample_size(n_landmarks), rows.shape[0])
        return 2 * size * (rows.block_bytes // rows.block_rows + 8 * sketch_columns(rows.shape[1]))

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        if not kernel.has_coordinates:
            return RPCholesky()._select(passes, m, kernel, rng)
        check_count(self.n_iter, "n_iter", least=0)
        if kernel.of_objects:
            return Uniform()._select(passes, m, kernel, rng)
        if not has_means(passes, kernel):
            return clusters_in_kernel(passes, m, kernel, rng, self.n_iter)
        with passes.moments_meanwhile() if kernel.needs_moments else nullcontext():
            return self._cluster(passes, m, kernel, rng)

    def _cluster(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        sample, sketched, weight = self._sketched_sample(passes, sample_size(m), rng)
        found = cluster_sample(sketched, m, passes.engine, rng, self._steps(sample.shape[0], m), weight)
        points = _means(sample, passes.engine, found, kernel, weight)
        suspect = m <= _TRIAL_LANDMARKS and (spent_on_outliers(found.counts) or _unlike(points, found.counts, kernel))
        if suspect and (not sample.is_sparse or _far_out(sample, found)):
            inside = Passes(sample.with_target(None, weight), passes.engine)
            points = _better_for_kernel(points, inside, sketched, kernel, rng, self._steps(sample.shape[0], m))
        return Landmarks(points, None)

    def _sketched_sample(self, passes: Passes, size: int, rng: np.random.Generator) -> _Sample:
        """Return rows drawn, and their sketch."""
        sample, numbers, weight = _sample(passes, size, rng)
        if sample.shape[1] <= _FEW_COLUMNS:
            rows = sample.whole()
            require_finite(rows, sample.name, numbers=numbers)
            sketched = array_rows(to_dense(rows), name=sample.name)
            return _Sample(sample if sample.is_sparse else sketched, sketched, weight)
        sketch = fit_sketch(sample, numbers, rng)

        def step(block: Block) -> Array:
            require_finite(block.X, sample.name, numbers=numbers[block.start : block.stop])
            return sketch(block.X)

        sketched = passes.engine.map_rows(sample, step, sketch.dim, sample.dtype, label="sketch of the sample")
        return _Sample(sample, sketched, weight)

    def _steps(self, n_rows: int, m: int) -> int:
        """Return the Lloyd steps to make: half of them where clusters have few rows, and seeds are soon settled."""
        return self.n_iter if n_rows > _FEW_ROWS_PER_CLUSTER * m else -(-self.n_iter // 2)


class AutoAgain(Auto):
    """The same for several sizes, one after the other: they share a sample and its sketch while it has rows enough.

    For the rows of one fit. Parameters as for :class:`Auto`.
    """

    _drawn: _Sample | None = None

    def _sketched_sample(self, passes: Passes, size: int, rng: np.random.Generator) -> _Sample:
        enough = min(size, passes.rows.shape[0])
        if self._drawn is None or self._drawn.rows.shape[0] < enough:
            self._drawn = super()._sketched_sample(passes, size, rng)
        return self._drawn


def _means(sample: RowBlocks, engine: Engine, found: KMeansResult, kernel: Kernel, weight: Array | None) -> Matrix:
    """Return the means of the clusters; of sparse rows, without entries that the kernel does not feel."""
    if not sample.is_sparse:
        return labelled_means(sample, engine, found, weight)
    width = block_moments(sample.whole(), weight).spread
    gamma = getattr(kernel, "gamma", None)
    if isinstance(gamma, (int, float)) and gamma > 0:
        width = min(width, 1 / gamma)
    return thin_means(sample, found, _LOST * width, weight)


def cluster_sample(
    sketched: RowBlocks, m: int, engine: Engine, rng: np.random.Generator, n_iter: int, weight: Array | None = None
) -> KMeansResult:
    """Run k-means on the sketch of the sample, and keep the labels."""
    tried = _in_float32(sketched)
    options: dict[str, Any] = {
        "engine": engine,
        "rng": rng,
        "n_iter": n_iter,
        "seed_rows": max(_SEED_ROWS, _SEED_ROWS_PER_LANDMARK * m),
        "most_candidates": _MOST_CANDIDATES,
        "announce": False,
        "weight": weight,
    }
    found = kmeans(tried, m, **options)
    # Are distances within clusters large beside the rounding of products of rows in float32?
    if tried.dtype == np.float64 or found.inertia > _RESOLVED * block_moments(tried.whole(), weight).scatter:
        return found
    # Clusters so small beside their distances that float32 cannot tell their rows apart.
    return kmeans(array_rows(_centred(sketched)), m, **options)


def _sample(passes: Passes, size: int, rng: np.random.Generator) -> tuple[RowBlocks, Array, Array | None]:
    """Return rows drawn without replacement, their numbers and what they count; dense ones are gathered when read."""
    rows = passes.rows
    numbers, weight = draw_rows(rows.shape[0], size, row_weights(passes), rng)
    if rows.in_memory and len(numbers) == rows.shape[0]:
        return array_rows(rows.whole(), name=rows.name), numbers, weight
    if rows.in_memory and not rows.is_sparse:
        return TakenRows(rows, numbers), numbers, weight
    return array_rows(gather(passes, numbers), name=rows.name), numbers, weight


def fit_sketch(sample: RowBlocks, numbers: Array, rng: np.random.Generator) -> Sketch:
    """Return a sketch of 20 principal directions."""
    size, p = sample.shape
    # A second power iteration gained 0.1 % of the error, and took as long as a tenth of the pass.
    recipe = PCASketch(max_rows=_SKETCH_ROWS, n_power=1)
    # The sample is in the order of the source, which may be sorted: take rows from all over it.
    some = np.arange(0, size, max(1, size // recipe.max_rows))
    spread = sample.take(some)
    require_finite(spread, sample.name, numbers=numbers[some])
    return recipe.fit(p, _SKETCH_DIM, rng, sample=spread)


def _in_float32(sketched: RowBlocks) -> RowBlocks:
    """Return the rows shifted and scaled to fit float32, which halves the time; unchanged if a row is far out."""
    if sketched.dtype == np.float32 and _fits_float32(sketched):
        return sketched
    centred = _centred(sketched)
    if _FAR_OUT * np.sqrt(np.median(squared_norms(centred))) < 1:
        return array_rows(centred)
    return array_rows(centred.astype(np.float32))


def _fits_float32(sketched: RowBlocks) -> bool:
    """Whether squares of float32 rows stay within its range."""
    largest = largest_magnitude(sketched.whole())
    return largest == 0 or _FLOAT32_SIZES[0] < largest < _FLOAT32_SIZES[1]


def _centred(sketched: RowBlocks) -> Array:
    """Return the rows in float64, about their mean, the largest number among them 1."""
    rows = np.asarray(sketched.whole(), dtype=np.float64)
    # Scaled before the mean is taken, whose sum may leave the range.
    largest = largest_magnitude(rows)
    if not largest < _SUMMABLE:
        rows = rows / largest
    rows = rows - rows.mean(axis=0)
    farthest = largest_magnitude(rows)
    if farthest > 0:
        rows /= farthest
    return rows


def spent_on_outliers(counts: Array, most: float = _TINY_CLUSTERS) -> bool:
    """Whether many clusters hold next to no rows although an even share would be many."""
    even = counts.sum() / len(counts)
    return bool(np.mean(counts <= _TINY * even) > most)


def _unlike(points: Matrix, counts: Array, kernel: Kernel) -> bool:
    """Whether many clusters hold next to nothing of the kernel between all rows, seen as copies of their means.

    Only for a kernel of a given width: "scale" is as wide as the rows spread.
    """
    if kernel.needs_moments or len(counts) != points.shape[0]:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        held = counts * (np.abs(np.asarray(kernel(points, points), dtype=np.float64)) @ counts)
    return bool(np.isfinite(held).all() and held.any() and spent_on_outliers(held, _UNLIKE_CLUSTERS))


def _far_out(sample: RowBlocks, found: KMeansResult) -> bool:
    """Whether the sparse rows of tiny clusters lie far from the mean of all.

    In very many columns clusters can be tiny for nothing: the directions of the sketch fit the rows they came from. And
    the trial of sparse rows takes as long as the fit.
    """
    counts, labels = found.counts, np.asarray(found.labels)
    X = sample.whole()
    assert issparse(X)
    mean = loops.column_sums(X)[0] / len(labels)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = squared_norms(X) - 2 * (X @ mean) + mean @ mean
    tiny = (counts <= _TINY * counts.sum() / len(counts))[labels]
    # Squares beyond the range are far out, too.
    return bool(tiny.any() and not np.median(squares[tiny]) <= _FAR_SHARE * np.median(squares))


def _better_for_kernel(
    points: Matrix, inside: Passes, sketched: RowBlocks, kernel: Kernel, rng: np.random.Generator, n_iter: int
) -> Matrix:
    """Return k-means' landmarks, or those with rows weighted by the kernel, whichever explain more of the sample."""
    kernel = resolve(kernel, inside)
    weight = row_weights(inside)
    masses = np.ones(inside.rows.shape[0]) if weight is None else weight
    felt = masses * _likeness(inside, kernel, masses)
    found = cluster_sample(sketched, points.shape[0], inside.engine, rng, n_iter, felt)
    others = _means(inside.rows, inside.engine, found, kernel, felt)
    if others.shape[0] < points.shape[0]:
        return points
    some = _spread(len(masses), _TRIAL_ROWS)
    trial = inside.rows.take(some)
    better = _unexplained(kernel, trial, masses[some], others) < _unexplained(kernel, trial, masses[some], points)
    return others if better else points


def _likeness(inside: Passes, kernel: Kernel, masses: Array) -> Array:
    """Return the mean of |k(x, y)| over the rows y, estimated from some of them: hardly anything for outliers."""
    n = len(masses)
    some = _spread(n, _LIKENESS_ROWS)
    points, counts = inside.rows.take(some), masses[some]
    evaluate = evaluator(kernel, points, some)

    def step(block: Block) -> Array:
        return np.abs(np.asarray(evaluate(block.X), dtype=np.float64)) @ counts

    sums = np.concatenate([part for _, part in inside.map(step, label="likeness of rows")])
    own = np.abs(kernel_diagonal(inside, kernel))
    # A row is itself one of all rows, and not a share of those looked at.
    sums[some] -= counts * own[some]
    return np.maximum(sums, 0.0) / counts.sum() + own * masses / masses.sum()


def _spread(n: int, count: int) -> Array:
    """Return the numbers of about ``count`` of n rows, evenly spread."""
    return np.arange(0, n, max(1, n // count))


def _unexplained(kernel: Kernel, X: Matrix, masses: Array, points: Matrix) -> float:
    """Return the sum over rows x of k(x, x) − ‖φ(x)‖² with these landmarks, each counted as its mass says."""
    T = whiten(np.asarray(kernel(points, points), dtype=np.float64), block_dtype=X.dtype).T
    features = np.asarray(kernel(X, points), dtype=np.float64) @ T
    return float(masses @ (kernel.diag(X) - np.einsum("ij,ij->i", features, features)))
