"""The default selector, "auto": means of clusters of a sample. docs/performance.md compares its error with others."""

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

# Columns of the sketch, and rows from which its directions are computed; docs/design.md compares it with random signs.
_SKETCH_DIM = 20
_SKETCH_ROWS = 500
# Number of columns up to which rows are not sketched: it saves little time and can cost accuracy.
_FEW_COLUMNS = 64
# Up to this many rows per cluster, Lloyd steps are halved; the error rose by at most 0.25 % on four sets of 2,000 rows.
_FEW_ROWS_PER_CLUSTER = 16
# Minimum number of rows for seeding; with fewer, seeds are more often outliers with clusters of one or two rows.
_SEED_ROWS = 2048
_SEED_ROWS_PER_LANDMARK = 16
# Maximum number of seeding candidates; more made no difference on mnist and cpusmall, at up to twice the time.
_MOST_CANDIDATES = 4
# K-means uses float32 unless some row is this many times farther from the mean than most.
_FAR_OUT = 30
# If squared distances within clusters are below this share of the scatter, the rounding of float32 matters.
_RESOLVED = 2.0**-12
# Sums of numbers up to this one stay within the range of float64.
_SUMMABLE = 1e290
# Range of numbers whose squares, and sums of squares, stay within the range of float32.
_FLOAT32_SIZES = (1e-15, 1e15)
# A cluster is tiny below this share of the average number of rows. Above this share of tiny clusters, the landmarks
# are chosen again with rows weighted by the kernel.
_TINY = 1 / 16
_TINY_CLUSTERS = 0.05
# The same if more than this share of the clusters have little kernel mass; ordinary rows form a few such clusters too.
_UNLIKE_CLUSTERS = 0.25
# Rows of tiny clusters are outliers if their squared distance from the mean is this many times the median one.
_FAR_SHARE = 8.0
_TRIAL_ROWS = 1000
# The smallest entries of a mean of sparse rows are dropped up to this sum of squares, as a share of 1 / gamma. On text
# this keeps a seventh of the entries and changes the error by 0.2 %.
_LOST = 0.004
# Maximum number of landmarks for the trial, which takes m² rows and m³ operations; above it the fit is faster.
_TRIAL_LANDMARKS = 4096
# Number of rows from which the mean kernel value of a row is estimated.
_SIMILARITY_ROWS = 128


def sketch_columns(n_features: int) -> int:
    """Return the number of columns that k-means uses."""
    return n_features if n_features <= _FEW_COLUMNS else _SKETCH_DIM


class _Sample(NamedTuple):
    """The sampled rows, their sketch for k-means, and their weights."""

    rows: RowBlocks
    sketched: RowBlocks
    weight: Array | None


class Auto(Selector):
    """Cluster a sampled-PCA sketch of a sample of rows, and take the means of the sampled rows themselves.

    1. Draw 32 rows per landmark and at least 4,096 (8 per landmark if there are very many landmarks). They are read by
       number; a source that can only be read from its beginning takes a pass.
    2. With more than 64 columns, sketch them by the 20 leading principal directions of 500 of them.
    3. K-means on the sketch of the sample; the landmarks are the means of the clusters' rows.
    4. If many clusters hold very few rows, k-means has spent them on outliers, where a bounded kernel is nearly zero.
       Then, with at most 4,096 landmarks, cluster again with each row weighted by its mean kernel value with the
       others, and keep the result with the smaller unexplained part of the diagonal on 1,000 rows.

    A precomputed kernel has no coordinates and uses :class:`RPCholesky`. If the kernel has columns without means
    (category codes), k-means runs on features of the sample in the kernel's feature space, and the landmarks are the
    rows nearest to its centres. Objects are drawn at random, so that a fit evaluates at most n × m pairs.

    Cost: O(m² p') time per Lloyd step, whatever the number of rows; no pass of its own.

    Parameters
    ----------
    n_iter : int
        Number of Lloyd steps; halved with at most 16 rows per landmark.

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
        """Return a sample of rows and their sketch."""
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
        """Return the number of Lloyd steps: half if clusters have few rows, which converge quickly."""
        return self.n_iter if n_rows > _FEW_ROWS_PER_CLUSTER * m else -(-self.n_iter // 2)


class AutoAgain(Auto):
    """:class:`Auto` for several sizes in turn, which share a sample and its sketch while it has enough rows.

    For the rows of one fit. Parameters as for :class:`Auto`.
    """

    _drawn: _Sample | None = None

    def _sketched_sample(self, passes: Passes, size: int, rng: np.random.Generator) -> _Sample:
        enough = min(size, passes.rows.shape[0])
        if self._drawn is None or self._drawn.rows.shape[0] < enough:
            self._drawn = super()._sketched_sample(passes, size, rng)
        return self._drawn


def _means(sample: RowBlocks, engine: Engine, found: KMeansResult, kernel: Kernel, weight: Array | None) -> Matrix:
    """Return the means of the clusters; means of sparse rows without entries that hardly change the kernel."""
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
    """Run k-means on the sketch of the sample and keep the labels."""
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
    # Check that distances within clusters are large compared to the rounding of float32 products.
    if tried.dtype == np.float64 or found.inertia > _RESOLVED * block_moments(tried.whole(), weight).scatter:
        return found
    # Clusters are so small, compared with the distances between them, that float32 cannot distinguish their rows.
    return kmeans(array_rows(_centred(sketched)), m, **options)


def _sample(passes: Passes, size: int, rng: np.random.Generator) -> tuple[RowBlocks, Array, Array | None]:
    """Return rows drawn without replacement, their numbers and weights; dense rows are gathered when read."""
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
    # A second power iteration improved the error by 0.1 % and took a tenth of the time of the pass.
    recipe = PCASketch(max_rows=_SKETCH_ROWS, n_power=1)
    # The sample has the order of the source, which may be sorted: take evenly spaced rows.
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
    """Return the rows in float64, centred and scaled to a largest magnitude of 1."""
    rows = np.asarray(sketched.whole(), dtype=np.float64)
    # Scale before taking the mean, whose sum may overflow.
    largest = largest_magnitude(rows)
    if not largest < _SUMMABLE:
        rows = rows / largest
    rows = rows - rows.mean(axis=0)
    farthest = largest_magnitude(rows)
    if farthest > 0:
        rows /= farthest
    return rows


def spent_on_outliers(counts: Array, most: float = _TINY_CLUSTERS) -> bool:
    """Whether many clusters hold very few rows although the average is large."""
    even = counts.sum() / len(counts)
    return bool(np.mean(counts <= _TINY * even) > most)


def _unlike(points: Matrix, counts: Array, kernel: Kernel) -> bool:
    """Whether many clusters have little kernel mass, with rows replaced by the means of their clusters.

    Only for a kernel of given width: "scale" adapts to the spread of the rows.
    """
    if kernel.needs_moments or len(counts) != points.shape[0]:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        held = counts * (np.abs(np.asarray(kernel(points, points), dtype=np.float64)) @ counts)
    return bool(np.isfinite(held).all() and held.any() and spent_on_outliers(held, _UNLIKE_CLUSTERS))


def _far_out(sample: RowBlocks, found: KMeansResult) -> bool:
    """Whether the sparse rows of tiny clusters lie far from the overall mean.

    With very many columns, clusters can be tiny without outliers, because the sketch fits the rows that it was computed
    from. The trial takes as long as the fit if rows are sparse, so it is made only for outliers.
    """
    counts, labels = found.counts, np.asarray(found.labels)
    X = sample.whole()
    assert issparse(X)
    mean = loops.column_sums(X)[0] / len(labels)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = squared_norms(X) - 2 * (X @ mean) + mean @ mean
    tiny = (counts <= _TINY * counts.sum() / len(counts))[labels]
    # Squares that overflow count as far out.
    return bool(tiny.any() and not np.median(squares[tiny]) <= _FAR_SHARE * np.median(squares))


def _better_for_kernel(
    points: Matrix, inside: Passes, sketched: RowBlocks, kernel: Kernel, rng: np.random.Generator, n_iter: int
) -> Matrix:
    """Return the landmarks of k-means, or of k-means weighted by the kernel, whichever explain more of the sample."""
    kernel = resolve(kernel, inside)
    weight = row_weights(inside)
    masses = np.ones(inside.rows.shape[0]) if weight is None else weight
    similar = masses * _mean_similarity(inside, kernel, masses)
    found = cluster_sample(sketched, points.shape[0], inside.engine, rng, n_iter, similar)
    others = _means(inside.rows, inside.engine, found, kernel, similar)
    if others.shape[0] < points.shape[0]:
        return points
    some = _spread(len(masses), _TRIAL_ROWS)
    trial = inside.rows.take(some)
    better = _unexplained(kernel, trial, masses[some], others) < _unexplained(kernel, trial, masses[some], points)
    return others if better else points


def _mean_similarity(inside: Passes, kernel: Kernel, masses: Array) -> Array:
    """Return the mean of |k(x, y)| over the rows y, estimated from some of them: near 0 for outliers."""
    n = len(masses)
    some = _spread(n, _SIMILARITY_ROWS)
    points, counts = inside.rows.take(some), masses[some]
    evaluate = evaluator(kernel, points, some)

    def step(block: Block) -> Array:
        return np.abs(np.asarray(evaluate(block.X), dtype=np.float64)) @ counts

    sums = np.concatenate([part for _, part in inside.map(step, label="similarity of rows")])
    own = np.abs(kernel_diagonal(inside, kernel))
    # The rows used represent all others, but each of them has itself as a neighbour only once: count it separately.
    sums[some] -= counts * own[some]
    return np.maximum(sums, 0.0) / counts.sum() + own * masses / masses.sum()


def _spread(n: int, count: int) -> Array:
    """Return about ``count`` evenly spaced numbers of n rows."""
    return np.arange(0, n, max(1, n // count))


def _unexplained(kernel: Kernel, X: Matrix, masses: Array, points: Matrix) -> float:
    """Return the weighted sum over rows x of k(x, x) − ‖φ(x)‖² with these landmarks."""
    T = whiten(np.asarray(kernel(points, points), dtype=np.float64), block_dtype=X.dtype).T
    features = np.asarray(kernel(X, points), dtype=np.float64) @ T
    return float(masses @ (kernel.diag(X) - np.einsum("ij,ij->i", features, features)))
