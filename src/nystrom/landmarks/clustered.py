"""Landmarks by k-means: means of clusters or, for columns without means, the rows nearest to the centres."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nystrom import loops
from nystrom.checks import check_count
from nystrom.engine.base import Engine
from nystrom.engine.passes import Passes
from nystrom.kernels import Kernel
from nystrom.kernels.base import near_one
from nystrom.kernels.pairwise import squared_norms
from nystrom.kmeans import ClusterSums, KMeansResult, Nearest, cluster_sums, kmeans
from nystrom.landmarks.base import Landmarks, Selector, evaluator, resolve, smaller_form
from nystrom.linalg import whiten
from nystrom.rows.base import ArrayRows, Block, RowBlocks, array_rows, require_finite
from nystrom.rows.draw import draw_rows, gather, row_weights, sample_rows
from nystrom.rows.sparse import minus_columns, offset_columns, stack_rows
from nystrom.sketch import SignSketch, Sketch, sketch_dimension
from nystrom.types import Array, Matrix, SparseMatrix, issparse, to_dense

# Without means: number of rows that span the features of the sample, and number of directions that k-means uses.
_SPANNING_ROWS = 256
_DIRECTIONS = 64


# Minimum sample size; twice the rows and one more step reduced the error on mnist by 1 %, for a tenth of the fit time.
_SAMPLE_ROWS = 4096
_SAMPLE_ROWS_PER_LANDMARK = 32
# Sample size for many landmarks: clustering takes O(rows · m) time, so fewer rows per landmark keep it below the fit.
_MANY_SAMPLE_ROWS = 2**16
_FEW_ROWS_PER_LANDMARK = 8


def sample_size(m: int) -> int:
    """Return the number of rows to cluster for m landmarks."""
    enough = min(_SAMPLE_ROWS_PER_LANDMARK * m, _MANY_SAMPLE_ROWS)
    return max(_SAMPLE_ROWS, enough, _FEW_ROWS_PER_LANDMARK * m)


def has_means(passes: Passes, kernel: Kernel) -> bool:
    """Return whether means make sense for every column of the rows."""
    return bool(kernel.mean_columns(passes.rows.n_columns).all())


def clusters_in_kernel(passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator, n_iter: int) -> Landmarks:
    """Return, for each of m clusters of some rows, the row nearest to its centre.

    K-means runs on features of the sampled rows: their leading directions in the span of 256 of them. Cost: O(size · m)
    time per step for ``size`` sampled rows, whatever the number of rows, and ``size`` × 256 kernel values.
    """
    numbers, weight = draw_rows(passes.rows.shape[0], max(sample_size(m), m), row_weights(passes), rng)
    X = gather(passes, numbers)
    require_finite(X, passes.rows.name, numbers=numbers)
    features = _features(X, resolve(kernel, passes), rng)
    found = kmeans(array_rows(features), m, engine=passes.engine, rng=rng, n_iter=n_iter, announce=False, weight=weight)
    labels = np.asarray(found.labels)
    distances = np.square(features - np.asarray(found.centers)[labels]).sum(axis=1)
    # Sorted by cluster; within a cluster, the row nearest to the centre comes first.
    order = np.lexsort((distances, labels))
    _, first = np.unique(labels[order], return_index=True)
    chosen = order[first]
    return Landmarks(smaller_form(X[chosen]), numbers[chosen])


def _features(X: Matrix, kernel: Kernel, rng: np.random.Generator) -> Array:
    """Return the leading directions of rows in the span of some of them, float64."""
    n = X.shape[0]
    some = np.sort(rng.choice(n, min(_SPANNING_ROWS, n), replace=False))
    kernel, _ = near_one(kernel, kernel.diag(X), np.dtype(np.float64))
    evaluate = evaluator(kernel, X[some], some)
    values = np.asarray(evaluate(X), dtype=np.float64)
    features = values @ whiten(values[some], block_dtype=X.dtype).T
    _, directions = np.linalg.eigh(features.T @ features)
    return np.ascontiguousarray(features @ directions[:, ::-1][:, :_DIRECTIONS])


class MeansStep:
    """A block's contribution to the means: the sum and the number of its rows per label."""

    def __init__(self, label: Callable[[Matrix], Array], m: int) -> None:
        self.label = label
        self.m = m

    def __call__(self, block: Block) -> ClusterSums:
        return cluster_sums(self.label(block.X), block.X, self.m, block.weight)


def nearest_label(passes: Passes, points: Matrix) -> Nearest:
    """Return the function from rows to the number of the nearest point."""
    rows = passes.rows
    if rows.is_sparse:
        offset = offset_columns(passes.moments.mean, passes.moments.spread)
        if offset is None:
            return Nearest(points, None, rows.dtype)
        offset = offset.astype(rows.dtype)
        moved = minus_columns(points, offset) if issparse(points) else points - offset
        return Nearest(moved, offset, rows.dtype, sparse=True)
    shift = passes.moments.mean
    return Nearest(points - shift, shift, rows.dtype)


def lloyd(passes: Passes, points: Matrix, n_iter: int) -> Matrix:
    """Return the landmarks after ``n_iter`` Lloyd steps, one pass each; a landmark without rows stays where it is.

    Cost: O(nmp) time per step. Landmarks of sparse rows are kept sparse while that is smaller.
    """
    for number in range(n_iter):
        step = MeansStep(nearest_label(passes, points), points.shape[0])
        found = passes.fold(step, label=f"Lloyd step {number + 1} of {n_iter}")
        stay = points[np.flatnonzero(found.counts == 0)]
        moved = found.means().astype(passes.rows.dtype)
        if stay.shape[0]:
            moved = stack_rows([moved, stay])
        points = smaller_form(moved)
    return points


# Number of rows for seeding if the source cannot read rows by number.
_SEED_ROWS = 10_000


class SketchedKMeans(Selector):
    """Randomized Clustered Nyström, the paper's Algorithm 3.

    1. One pass sketches the rows by random signs, p columns to p'.
    2. K-means on the sketch.
    3. A second pass sketches each block again, finds the nearest centre, and sums the rows themselves:
       z_j is the mean of the rows of cluster j.

    Cost: O(np p' + nm p' n_iter) time, n × p' numbers of memory, exactly two passes.

    Parameters
    ----------
    sketch_dim : int
        p', the columns of the sketch; at most p. Not used if ``compression`` is given.
    compression : float or None
        The paper's γ: p' = γp, rounded.
    n_iter, n_init : int
        Lloyd steps, and number of restarts; the best result is kept.
    sample : int or None
        Cluster this many random rows; None for all rows, as in the paper. The means are over all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from nystrom.landmarks import SketchedKMeans, select_landmarks
    >>> X = np.random.default_rng(0).normal(size=(500, 30))
    >>> select_landmarks(X, 8, method=SketchedKMeans(sketch_dim=5), random_state=0).points.shape
    (8, 30)
    """

    needs_points = True

    def __init__(
        self,
        sketch_dim: int = 10,
        compression: float | None = None,
        n_iter: int = 10,
        n_init: int = 1,
        sample: int | None = None,
    ) -> None:
        self.sketch_dim = sketch_dim
        self.compression = compression
        self.n_iter = n_iter
        self.n_init = n_init
        self.sample = sample

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        if not has_means(passes, kernel):
            return clusters_in_kernel(passes, m, kernel, rng, self.n_iter)
        rows = passes.rows
        n, p = rows.shape
        dim = sketch_dimension(p, None if self.compression is not None else self.sketch_dim, self.compression)
        # With p' = p, a sketch could only lose accuracy: half of all 2 × 2 matrices of signs are singular.
        sketch = SignSketch().fit(p, dim, rng) if dim < p else AllColumns(p)
        sketched: RowBlocks
        weight = row_weights(passes)
        if self.sample is None:
            step = _CheckedSketch(sketch, rows.name)
            sketched = passes.map_rows(step, dim, rows.dtype, label="sketch", checks=True)
        else:
            size = max(m, min(check_count(self.sample, "sample"), n))
            sample, weight = sample_rows(passes, size, rng)
            sketched = ArrayRows(sketch(sample))
        found = _cluster(self, sketched, m, passes.engine, rng, weight)
        return Landmarks(cluster_means(passes, sketch, to_dense(found.centers)), None)


def _cluster(
    by: SketchedKMeans | KMeans, rows: RowBlocks, m: int, engine: Engine, rng: np.random.Generator, weight: Array | None
) -> KMeansResult:
    """Run k-means; the selector itself warns, once, of fewer than m centres."""
    return kmeans(rows, m, engine=engine, rng=rng, n_iter=by.n_iter, n_init=by.n_init, announce=False, weight=weight)


def cluster_means(passes: Passes, sketch: Sketch, centers: Array) -> Matrix:
    """Return the means of the rows whose sketch is nearest to each centre: the second pass of Algorithm 3."""
    found = passes.fold(MeansStep(SketchedLabel(sketch, centers), len(centers)), label="means of clusters")
    return smaller_form(found.means().astype(passes.rows.dtype))


def labelled_means(rows: RowBlocks, engine: Engine, found: KMeansResult, weight: Array | None = None) -> Matrix:
    """Return the means of the rows of each cluster from the labels of k-means: one pass."""
    labels, m = found.labels, len(found.counts)
    if labels is None:
        raise ValueError("k-means kept no labels; ask for them with want_labels=True.")

    def step(block: Block) -> ClusterSums:
        piece = slice(block.start, block.stop)
        return cluster_sums(labels[piece], block.X, m, None if weight is None else weight[piece])

    return smaller_form(engine.fold(rows, step, label="means of clusters").means().astype(rows.dtype))


def thin_means(rows: RowBlocks, found: KMeansResult, lost: float, weight: Array | None = None) -> Matrix:
    """Return the means of the sparse rows of each cluster without their smallest entries.

    A mean has many times the entries of a row, most of them nearly zero, and each entry costs time for every row of the
    fit. The smallest entries of each mean are dropped, up to a sum of squares of ``lost``. If the squared distances of
    the rows of a cluster to their mean are smaller, as for copies of one row, it keeps every entry: a fit with all rows
    as landmarks is exact.
    """
    if found.labels is None:
        raise ValueError("k-means kept no labels; ask for them with want_labels=True.")
    masses = np.bincount(found.labels, weight, minlength=len(found.counts)).astype(np.float64)
    X = rows.whole()
    assert issparse(X)
    # Squares that overflow are infinite, so such clusters are not tight.
    with np.errstate(over="ignore", invalid="ignore"):
        thin = loops.heavy_sums(found.labels, X, lost * masses**2, weight)
        squares = squared_norms(X) if weight is None else squared_norms(X) * weight
        scatter = np.bincount(found.labels, squares, minlength=len(masses)) - squared_norms(thin) / masses
        tight = np.flatnonzero(scatter <= lost * masses)
    if tight.size:
        thin = _with_whole(thin, tight, found.labels, X, weight)
    thin.data /= np.repeat(masses, np.diff(thin.indptr))
    return smaller_form(thin.astype(rows.dtype))


def _with_whole(thin: SparseMatrix, whole: Array, labels: Array, X: SparseMatrix, weight: Array | None) -> SparseMatrix:
    """Return the sums of clusters, with all entries for the clusters in ``whole``."""
    members = np.flatnonzero(np.isin(labels, whole))
    renamed = np.searchsorted(whole, labels[members])
    sums = loops.heavy_sums(renamed, X[members], np.zeros(len(whole)), None if weight is None else weight[members])
    order = np.arange(thin.shape[0])
    order[whole] = thin.shape[0] + np.arange(len(whole))
    stacked = stack_rows([thin, sums])
    assert issparse(stacked)
    return stacked[order]


class _CheckedSketch:
    """The sketch of a block, which also checks for NaN and infinity: the sketch of such a row is not finite either."""

    def __init__(self, sketch: Sketch, name: str) -> None:
        self.sketch = sketch
        self.name = name

    def __call__(self, block: Block) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            made = self.sketch(block.X)
            if not np.isfinite(made.sum()):
                require_finite(block.X, self.name, block.start)
        return made


class AllColumns:
    """The sketch that keeps every column, for rows with few columns."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def __call__(self, X: Matrix) -> Array:
        return to_dense(X)


class SketchedLabel:
    """The number of the centre nearest to each row's sketch."""

    def __init__(self, sketch: Sketch, centers: Array) -> None:
        shift = centers.mean(axis=0, dtype=np.float64)
        self.sketch = sketch
        self.nearest = Nearest(centers - shift, shift, centers.dtype)

    def __call__(self, X: Matrix) -> Array:
        return self.nearest(self.sketch(X))


class KMeans(Selector):
    """Clustered Nyström (Zhang, Tsang and Kwok, 2008): landmarks are the k-means centres of the rows themselves.

    Cost: O(nmp) time and one pass per step, ``n_iter`` + about 10 passes. Sparse rows are never made dense, and neither
    are their centres while sparse is smaller.

    Parameters
    ----------
    n_iter, n_init : int
        Lloyd steps, and number of restarts; the best result is kept.
    sample : int or None
        Cluster this many random rows; None for all.
    """

    needs_points = True

    def __init__(self, n_iter: int = 10, n_init: int = 1, sample: int | None = None) -> None:
        self.n_iter = n_iter
        self.n_init = n_init
        self.sample = sample

    @property
    def needs_moments(self) -> bool:
        return True

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        if not has_means(passes, kernel):
            return clusters_in_kernel(passes, m, kernel, rng, self.n_iter)
        # Lloyd steps over all rows need the moments; computing them first also keeps NaN out of the seeds.
        _ = passes.moments
        if self.sample is None and passes.rows.random_access:
            weight = row_weights(passes)
            found = _cluster(self, passes.rows, m, passes.counted, rng, weight)
            return Landmarks(smaller_form(found.centers), None)
        size = _SEED_ROWS if self.sample is None else check_count(self.sample, "sample")
        sample, weight = sample_rows(passes, max(size, m), rng)
        found = _cluster(self, array_rows(sample), m, passes.engine, rng, weight)
        centers = found.centers
        # Rows that are read in order cannot be drawn by number, so seeds come from a sample.
        steps = self.n_iter if self.sample is None else 1
        return Landmarks(lloyd(passes, smaller_form(centers), steps), None)
