"""K-means on blocks of rows: seeding on a sample, Lloyd's iterations as folds, reseeding of empty clusters.

Every pass is a fold, so the rows may be in memory, on disk or on a cluster, and the result has the same bits for any
number of threads. Assignment is one matrix product per tile: with rows x and centres c about a common origin, the
nearest centre has the largest ``x·c - ‖c‖²/2``, which is the product of ``[x, 1]`` and ``[c, -‖c‖²/2]``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

import numpy as np
import scipy.sparse as sp

from nystrom import loops
from nystrom.checks import check_count
from nystrom.devices import on_device
from nystrom.engine.base import Engine, TreeMerger
from nystrom.engine.local import merge_two
from nystrom.engine.passes import block_moments
from nystrom.exceptions import FewerLandmarksWarning, warn_caller
from nystrom.kernels.pairwise import squared_norms
from nystrom.loops.device import sum_by_label
from nystrom.rows.base import Block, RowBlocks, ScaledRows, array_rows, default_block_rows
from nystrom.rows.draw import draw_rows
from nystrom.rows.sparse import canonical, minus_columns, native, offset_columns, stack_rows
from nystrom.types import Array, Matrix, SparseMatrix, issparse, to_dense

# Number of scores (rows × centres) per tile: smaller tiles contend for the GIL.
_TILE_SCORES = 2**20


# Ranges of numbers whose squares, and sums of squares, stay within the range of the dtype.
_SIZES = {"float32": (1e-15, 1e15), "float64": (1e-140, 1e140)}

# Largest exponents of two used for scaling; denormal numbers are brought as near to 1 as these allow.
_MOST_BITS = {"float32": 120, "float64": 1000}


def largest_magnitude(X: Matrix) -> float:
    """Return the largest ``|x|``, 0 if the array is empty, NaN if it holds NaN."""
    values = X.data if issparse(X) else X
    # Two reductions are faster than an array of magnitudes.
    return float(max(np.max(values, initial=0.0), -np.min(values, initial=0.0)))


def range_factor(X: Matrix, dtype: np.dtype) -> float:
    """Return 1, or the power of two that scales numbers so that their squares stay within the range of the dtype."""
    largest = largest_magnitude(X)
    low, high = _SIZES[np.dtype(dtype).name]
    if low < largest < high or not 0 < largest < np.inf:
        return 1.0
    return float(2.0 ** min(-np.floor(np.log2(largest)), _MOST_BITS[np.dtype(dtype).name]))


class Nearest:
    """Find the nearest of some centres for each row: the hot path of every iteration.

    Parameters
    ----------
    centers : ndarray or CSR of shape (m, p)
        The centres minus ``shift``.
    shift : ndarray of shape (p,) or None
        Subtracted from the rows first: products of rows far from the origin would lose digits.
    dtype : dtype
        The dtype of the rows.
    sparse : bool
        Whether the rows are sparse; the shift must then have few nonzero entries.
    """

    def __init__(self, centers: Matrix, shift: Array | None, dtype: np.dtype, *, sparse: bool = False) -> None:
        moved = [centers] if shift is None else [centers, shift]
        self.factor = min((range_factor(each, dtype) for each in moved), key=lambda factor: abs(math.log2(factor)))
        self.offset = shift if sparse else None
        shift = None if sparse else shift
        self.shift = None if shift is None else shift.astype(dtype)
        centers = centers * self.factor if self.factor != 1 else centers
        self.n_centers = int(centers.shape[0])
        half = (squared_norms(centers) / 2).astype(dtype)
        self._dense: loops.NearestColumn | None = None
        self._sparse: loops.SparseProduct | None = None
        if self.shift is not None:
            self._dense = loops.NearestColumn(
                np.ascontiguousarray(centers.T, dtype), half, self.shift * self.shift.dtype.type(self.factor)
            )
        else:
            self._sparse, self._half = loops.SparseProduct(centers, dtype), half

    def __call__(self, X: Matrix) -> Array:
        """Return the number of the nearest centre of each row, as int32; ties go to the first."""
        if self.factor != 1:
            X = X * X.dtype.type(self.factor)
        if self._dense is not None:
            return self._dense(to_dense(X))
        assert self._sparse is not None
        assert issparse(X)
        if self.offset is not None:
            X = minus_columns(X, self.offset * self.factor)
        n = X.shape[0]
        labels = np.empty(n, dtype=np.int32)
        tile = min(max(_TILE_SCORES // self.n_centers, 64), max(n, 1))
        for start in range(0, n, tile):
            scores = self._sparse(X[start : start + tile])
            scores -= self._half
            labels[start : start + tile] = loops.first_largest(scores)
        return labels

    def centred(self, X: Matrix) -> Matrix:
        """Return the rows minus the shift, in float64."""
        if self.shift is not None:
            return np.subtract(to_dense(X), self.shift, dtype=np.float64)
        X = X.astype(np.float64)
        return minus_columns(X, self.offset) if issparse(X) and self.offset is not None else X


def assign(X: Matrix, centers: Matrix) -> Array:
    """Return the number of the nearest centre of each row (int32; ties go to the first).

    Time O(n m p); memory for the labels and one tile of scores.

    Examples
    --------
    >>> import numpy as np
    >>> assign(np.array([[0.0], [9.0], [4.0]]), np.array([[1.0], [8.0]]))
    array([0, 1, 0], dtype=int32)
    """
    X = native(X)
    if issparse(X) or issparse(centers):
        centers = canonical(centers, "centers") if issparse(centers) else centers
        return Nearest(centers, None, X.dtype)(canonical(X) if issparse(X) else sp.csr_matrix(X))
    shift = centers.mean(axis=0, dtype=np.float64).astype(X.dtype)
    return Nearest(centers - shift, shift, X.dtype)(X)


@dataclass(frozen=True)
class ClusterSums:
    """Sums and counts of the rows of each cluster. Merges by addition, in float64.

    ``sums`` is an ndarray for dense rows and CSR for CSR rows, so that m clusters of rows with very many columns
    take memory only for nonzero entries. With weights, rows are summed with these, ``weights`` holds the sums of the
    weights, and ``counts`` are the rows whose weight is not 0.
    """

    sums: Matrix
    counts: Array
    weights: Array | None = None

    @property
    def masses(self) -> Array:
        """The sum of the weights of each cluster's rows; their number without weights."""
        return self.counts if self.weights is None else self.weights

    def merge(self, other: ClusterSums) -> ClusterSums:
        counts = self.counts + other.counts
        weights = None if self.weights is None or other.weights is None else self.weights + other.weights
        if issparse(self.sums):
            return ClusterSums(self.sums + other.sums, counts, weights)
        if self.sums.dtype == np.float64:
            np.add(self.sums, to_dense(other.sums), out=self.sums)
            return ClusterSums(self.sums, counts, weights)
        return ClusterSums(np.add(self.sums, to_dense(other.sums), dtype=np.float64), counts, weights)

    def means(self) -> Matrix:
        """Return the means of the clusters that have rows, in order, in float64; CSR if that is smaller."""
        kept = np.flatnonzero(self.counts)
        sums = self.sums if kept.size == self.counts.size else self.sums[kept]
        masses = self.masses[kept].astype(np.float64)
        if not issparse(sums):
            return sums / masses[:, None]
        means = sp.csr_matrix(sp.diags(1.0 / masses) @ sums)
        # CSR takes 12 bytes per entry in float64, dense takes 8.
        return means if 12 * means.nnz < 8 * means.shape[0] * means.shape[1] else means.toarray()


def cluster_sums(labels: Array, X: Matrix, n_clusters: int, weight: Array | None = None) -> ClusterSums:
    """Sum the rows of one block by cluster: step 5 of Algorithm 3, before the division.

    The sum is the product of the one-hot matrix of the labels and the rows: O(np) time (O(nnz) for CSR), and memory
    for the result. Wide float32 blocks are summed in float32, and the sums of blocks in float64.

    Examples
    --------
    >>> import numpy as np
    >>> cluster_sums(np.array([0, 1, 0]), np.array([[1.0], [5.0], [3.0]]), 2).means().ravel()
    array([2., 5.])
    """
    if weight is not None:
        return _weighted_sums(labels, X, n_clusters, np.asarray(weight, dtype=np.float64))
    if not issparse(X):
        sums, counts, _ = loops.sum_by_label(labels, X, n_clusters)
        return ClusterSums(sums, counts)
    counts = np.bincount(labels, minlength=n_clusters)
    # In CSR like X: a product of CSC and CSR would first transpose X.
    order = np.argsort(labels, kind="stable").astype(np.int32)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    one_hot = sp.csr_matrix((np.ones(X.shape[0]), order, ends), shape=(n_clusters, X.shape[0]), copy=False)
    return ClusterSums((one_hot @ X.astype(np.float64, copy=False)).tocsr(), counts)


def _weighted_sums(labels: Array, X: Matrix, n_clusters: int, weight: Array) -> ClusterSums:
    heavy = np.flatnonzero(weight > 0)
    counts = np.bincount(labels[heavy], minlength=n_clusters)
    if on_device(X):
        there = sum_by_label(labels, X, n_clusters, weight)
        return ClusterSums(there, counts, np.bincount(labels, weight, minlength=n_clusters))
    n = X.shape[0]
    hot = sp.csr_matrix((weight[heavy], (labels[heavy], heavy)), shape=(n_clusters, n))
    sums = hot @ X.astype(np.float64, copy=False)
    sums = sums.tocsr() if issparse(sums) else np.asarray(sums)
    return ClusterSums(sums, counts, np.bincount(labels, weight, minlength=n_clusters))


@dataclass(frozen=True)
class Farthest:
    """The rows farthest from their centres: distances, labels and row numbers, in descending order of distance."""

    distances: Array
    labels: Array
    numbers: Array
    limit: int

    def merge(self, other: Farthest) -> Farthest:
        return _farthest(
            np.concatenate([self.distances, other.distances]),
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.numbers, other.numbers]),
            self.limit,
        )


def _farthest(distances: Array, labels: Array, numbers: Array, limit: int) -> Farthest:
    """Keep the ``limit`` largest distances; rows with equal distance and cluster count as the same row."""
    order = np.lexsort((numbers, labels, -distances))
    distances, labels, numbers = distances[order], labels[order], numbers[order]
    first = np.ones(order.size, dtype=bool)
    first[1:] = (np.diff(distances) != 0) | (np.diff(labels) != 0)
    kept = np.flatnonzero(first)[:limit]
    return Farthest(distances[kept], labels[kept], numbers[kept], limit)


@dataclass(frozen=True)
class FindFarthest:
    """Find the farthest rows of a block among the clusters that have more than one row."""

    nearest: Nearest
    centers: Matrix
    spare: Array
    limit: int

    def __call__(self, block: Block) -> Farthest:
        labels = self.nearest(block.X)
        X = self.nearest.centred(block.X)
        squares = squared_norms(X)
        # A mean of equal rows differs from them by rounding, which is not a distance.
        if issparse(X):
            own = self.centers[labels]
            products = X.multiply(own).sum(axis=1) if issparse(own) else _products(X, own)
            distances = squares - 2 * np.asarray(products).ravel() + squared_norms(self.centers)[labels]
            noise = 1e-12 * squares
        else:
            distances = squared_norms(X - self.centers[labels])
            noise = (1e-12 if block.X.dtype == np.float32 else 1e-24) * squares
        heavy = True if block.weight is None else np.asarray(block.weight) > 0
        able = np.flatnonzero((distances > noise) & self.spare[labels] & heavy)
        return _farthest(distances[able], labels[able], block.start + able, self.limit)


def _products(X: SparseMatrix, own: Array) -> Array:
    """Return x·c for each CSR row x and its own dense centre c."""
    lengths = np.diff(X.indptr)
    owner = np.repeat(np.arange(X.shape[0]), lengths)
    return np.bincount(owner, X.data * own[owner, X.indices], minlength=X.shape[0])


Init = Literal["kmeans++", "greedy"]


def seed(
    A: Matrix,
    n_clusters: int,
    init: Init,
    rng: np.random.Generator,
    *,
    most_candidates: int | None = None,
    weight: Array | None = None,
    n_threads: int = 1,
) -> Matrix:
    """Return up to ``n_clusters`` rows of ``A`` drawn by k-means++ (Arthur and Vassilvitskii, 2007), in float64.

    Each row is drawn with probability proportional to its squared distance from the nearest row already drawn;
    "greedy" draws 2 + log m candidates (at most ``most_candidates``) and keeps the one with the smallest resulting sum
    of those distances. ``weight`` counts as repetitions. There are fewer rows if the others differ from those drawn by
    rounding only. Time O(n m p) times the candidates, memory O(n).

    Examples
    --------
    >>> import numpy as np
    >>> seed(np.array([[0.0], [0.0], [7.0]]), 3, "kmeans++", np.random.default_rng(0)).shape
    (2, 1)
    """
    n = A.shape[0]
    n_candidates = 1 if init == "kmeans++" else 2 + int(np.log(n_clusters))
    if most_candidates is not None:
        if most_candidates < 1:
            raise ValueError(f"most_candidates must be at least 1, or None for no bound; got {most_candidates!r}.")
        n_candidates = min(n_candidates, most_candidates)
    first = int(rng.integers(n)) if weight is None else int(rng.choice(n, p=weight / weight.sum()))
    uniform = rng.random((n_clusters - 1, n_candidates))
    drawn = loops.draw_seeds(A, _short_squares(A), first, uniform, n_clusters, weight, n_threads=n_threads)
    return A[drawn].astype(np.float64)


def _short_squares(A: Matrix) -> Array:
    """Return the squared norms of the rows, rounded down slightly, so that equal rows have a distance below 0."""
    slack = 2.0 * (2.0 + np.sqrt(A.shape[1])) * np.finfo(A.dtype).eps
    return np.asarray((squared_norms(A) * (1.0 - slack)).astype(A.dtype))


# Minimum number of rows for seeding; fewer lose the clusters of rare rows: on cpusmall (8,192 rows, 410 landmarks)
# half as many rows made the error of ridge regression six times as large, and half the candidates twice as large.
_SEED_ROWS = 10_000
_SEED_ROWS_PER_CLUSTER = 16
_MAX_REPAIRS = 20
# Blocks with fewer products (rows × centres) are joined, up to the number of bytes below.
_BLOCK_PRODUCTS = 25_000_000
_BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class KMeansResult:
    """The result of :func:`kmeans`.

    Attributes
    ----------
    centers : ndarray or CSR of shape (m, p)
        The means of the clusters, in the dtype of the rows. Never more than requested; fewer if rows repeat.
    labels : ndarray of int32 or None
        The cluster of each row, by its nearest centre; None if not requested.
    counts : ndarray of int
        Number of rows of each cluster, at least 1.
    inertia : float
        Sum of squared distances of all rows to their nearest centre.
    n_iter : int
        Number of Lloyd iterations.
    history : tuple of float
        The inertia at the beginning of each iteration, over the clustered rows.
    """

    centers: Matrix
    labels: Array | None
    counts: Array
    inertia: float
    n_iter: int
    history: tuple[float, ...]


def kmeans(
    rows: RowBlocks,
    n_clusters: int,
    *,
    engine: Engine,
    rng: np.random.Generator,
    n_iter: int = 10,
    n_init: int = 1,
    init: Init = "greedy",
    sample: int | None = None,
    seed_rows: int | None = None,
    most_candidates: int | None = None,
    tol: float = 1e-4,
    want_labels: bool = True,
    announce: bool = True,
    weight: Array | None = None,
) -> KMeansResult:
    """Cluster rows by k-means++ seeding and Lloyd's iterations.

    Parameters
    ----------
    rows : RowBlocks
        Dense or CSR rows; in Algorithm 3 the sketch.
    n_clusters : int
        Number of clusters. With fewer distinct rows there are fewer, and a :class:`FewerLandmarksWarning`.
    engine : Engine
        Runs the passes.
    rng : numpy.random.Generator
        Draws the seeds.
    n_iter : int
        Maximum number of Lloyd iterations; it stops early if the inertia falls by less than ``tol`` of itself.
    n_init : int
        Number of seedings to try; the one with the smallest inertia is kept.
    init : "greedy" or "kmeans++"
        Draw each seed with probability proportional to its squared distance from the earlier ones. "greedy" draws
        2 + log m candidates and keeps the one that lowers the inertia most.
    sample : int, optional
        Cluster this many rows drawn at random, and only assign the others. None clusters all.
    most_candidates : int, optional
        Maximum number of candidates of "greedy"; None for no bound.
    seed_rows : int, optional
        Draw the seeds from this many random rows. By default 16 rows per cluster and at least 10,000, which costs at
        most 0.2 % of inertia on rows with light tails and about 1 % on heavy ones; n draws from all rows.
    tol : float
        See ``n_iter``; 0 iterates until nothing changes.
    want_labels : bool
        Keep the label of each row (4 bytes per row).
    announce : bool
        Whether to warn of fewer clusters than requested.
    weight : array of shape (n,), optional
        Number of repetitions of each row: in the draws of seeds and of the sample, in the means and in the inertia. A
        row of weight 0 only gets a label.

    Notes
    -----
    An iteration costs O(n m p) time, one pass, and memory for tiles of scores and the sums. An empty cluster gets the
    farthest row of a cluster with several rows, and all rows are assigned again.

    Examples
    --------
    >>> import numpy as np
    >>> from nystrom.engine import LocalEngine
    >>> from nystrom.rows import as_blocks
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> found = kmeans(as_blocks(X), 2, engine=LocalEngine(), rng=np.random.default_rng(0))
    >>> np.sort(found.centers, axis=0).ravel(), found.inertia
    (array([ 0.5, 10.5]), 1.0)
    """
    n = rows.shape[0] if weight is None else int(np.count_nonzero(weight))
    _validate(n, n_clusters, n_iter, n_init, init, sample)
    if seed_rows is not None:
        check_count(seed_rows, "seed_rows")
    whole = _in_wide_blocks(rows, n_clusters)
    part, part_weight = whole, weight
    if sample is not None and sample < n:
        numbers, part_weight = draw_rows(rows.shape[0], sample, weight, rng)
        part = array_rows(rows.take(numbers))
    wanted = min(n_clusters, n)
    n_seed_rows = max(seed_rows or max(_SEED_ROWS, _SEED_ROWS_PER_CLUSTER * wanted), wanted)
    shift: Array | None = None
    runs = []
    for attempt in range(n_init):
        numbers, near_weight = draw_rows(part.shape[0], n_seed_rows, part_weight, rng)
        near = part.whole() if len(numbers) == part.shape[0] else part.take(numbers)
        factor = range_factor(near, rows.dtype) if attempt == 0 else 1.0
        if factor != 1:
            found = kmeans(
                ScaledRows(rows, factor),
                n_clusters,
                engine=engine,
                rng=rng,
                n_iter=n_iter,
                n_init=n_init,
                init=init,
                sample=sample,
                seed_rows=seed_rows,
                most_candidates=most_candidates,
                tol=tol,
                want_labels=want_labels,
                announce=announce,
                weight=weight,
            )
            inertia = found.inertia / factor / factor
            return replace(found, centers=found.centers / found.centers.dtype.type(factor), inertia=inertia)
        if attempt == 0:
            shift = _shift_of(near, rows.dtype)
        seeds = seed(
            near if shift is None else _minus(near, shift),
            wanted,
            init,
            rng,
            most_candidates=most_candidates,
            weight=near_weight,
            n_threads=engine.n_jobs,
        )
        runs.append(_lloyd(_Clustering(part.with_target(None, part_weight), engine, shift), seeds, wanted, n_iter, tol))
    best = min(runs, key=attrgetter("inertia"))
    clustering = _Clustering(whole.with_target(None, weight), engine, shift, want_labels, label="assign")
    return _finish(best, clustering, n_clusters, wanted, announce=announce)


def _validate(n: int, n_clusters: int, n_iter: int, n_init: int, init: str, sample: int | None) -> None:
    for name, value, least in (("n_clusters", n_clusters, 1), ("n_iter", n_iter, 0), ("n_init", n_init, 1)):
        check_count(value, name, least=least)
    if n < 1:
        raise ValueError("rows must hold at least one row to cluster; got 0 rows.")
    if init not in ("kmeans++", "greedy"):
        raise ValueError(f"init must be 'kmeans++' or 'greedy'; got {init!r}.")
    if sample is not None and sample < min(n_clusters, n):
        raise ValueError(
            f"sample must be at least the number of clusters, {n_clusters}; got {sample!r}. "
            f"Try 64 rows per cluster, or None to cluster all rows."
        )


def _in_wide_blocks(rows: RowBlocks, n_clusters: int) -> RowBlocks:
    """Return the rows in blocks that take longer to process than to pass between threads."""
    if rows.is_sparse:
        return rows
    n, p = rows.shape
    row_bytes = p * rows.dtype.itemsize
    most = min(_BLOCK_PRODUCTS // max(p * n_clusters, 1), _BLOCK_BYTES // max(row_bytes, 1))
    # A sketch keeps the blocks of its rows, which are too short for its few columns.
    return rows.widened(max(default_block_rows(row_bytes, n), most))


@dataclass(frozen=True)
class _Totals:
    """The result of one pass over a partition."""

    clusters: ClusterSums
    squares: float

    def merge(self, other: _Totals) -> _Totals:
        return _Totals(self.clusters.merge(other.clusters), self.squares + other.squares)

    def inertia(self, centers: Matrix) -> float:
        """Sum of squared distances to ``centers``: Σ‖x‖² - 2 Σ c·s + Σ n‖c‖², all in float64."""
        sums = self.clusters.sums
        products = sums.multiply(centers).sum() if issparse(sums) else np.einsum("ij,ij->", to_dense(centers), sums)
        value = self.squares - 2.0 * products + self.clusters.masses @ squared_norms(centers)
        return max(float(value), 0.0)


@dataclass(frozen=True)
class _Look:
    """Assign the rows of a block and sum them by cluster, about the shift."""

    nearest: Nearest

    def __call__(self, block: Block) -> tuple[Array, _Totals]:
        labels, m = self.nearest(block.X), self.nearest.n_centers
        if block.weight is not None:
            X = self.nearest.centred(block.X)
            squares = float(np.asarray(block.weight, dtype=np.float64) @ squared_norms(X))
            return labels, _Totals(cluster_sums(labels, X, m, block.weight), squares)
        if self.nearest.shift is not None:
            sums, counts, squares = loops.sum_by_label(labels, to_dense(block.X), m, self.nearest.shift)
            return labels, _Totals(ClusterSums(sums, counts), squares)
        X = self.nearest.centred(block.X)
        return labels, _Totals(cluster_sums(labels, X, m), float(np.dot(X.data, X.data)))


def _shift_of(near: Matrix, dtype: np.dtype) -> Array | None:
    """Return the shift of the rows, near their mean; None for sparse rows if a shift would not improve accuracy."""
    if not issparse(near):
        return np.asarray(near.mean(axis=0, dtype=np.float64).astype(dtype))
    moments = block_moments(near)
    shift = offset_columns(moments.mean, moments.spread)
    return None if shift is None else shift.astype(dtype)


def _minus(X: Matrix, shift: Array) -> Matrix:
    return minus_columns(X, shift) if issparse(X) else X - shift


@dataclass(frozen=True)
class _Seen:
    """Centres that all have rows, and the result of a pass with them."""

    centers: Matrix
    totals: _Totals
    labels: Array | None


@dataclass(frozen=True)
class _Clustering:
    """The rows to cluster and how to pass over them."""

    rows: RowBlocks
    engine: Engine
    shift: Array | None
    want_labels: bool = False
    label: str = "k-means"

    def nearest(self, centers: Matrix) -> Nearest:
        return Nearest(centers, self.shift, self.rows.dtype, sparse=self.rows.is_sparse)

    def look(self, centers: Matrix) -> _Seen:
        """Assign every row: one pass."""
        look = _Look(self.nearest(centers))
        if not self.want_labels:
            totals = self.engine.fold(self.rows, lambda block: look(block)[1], label=self.label)
            return _Seen(centers, totals, None)
        merger: TreeMerger[_Totals] = TreeMerger(merge_two)
        labels = np.empty(self.rows.shape[0], dtype=np.int32)
        for start, (found, part) in self.engine.map(self.rows, look, label=self.label):
            merger.push(part)
            labels[start : start + len(found)] = found
        return _Seen(centers, merger.result(), labels)

    def settle(self, centers: Matrix, wanted: int) -> _Seen:
        """Assign every row so that no cluster is empty and there are ``wanted``, if there are enough distinct rows."""
        seen = self.look(centers)
        for attempt in range(_MAX_REPAIRS + 1):
            counts = seen.totals.clusters.counts
            kept = np.flatnonzero(counts)
            if kept.size >= wanted:
                break
            fresh = self._reseeds(seen, wanted - kept.size) if attempt < _MAX_REPAIRS else None
            if fresh is None and kept.size == counts.size:
                break
            old = seen.centers[kept]
            seen = self.look(old if fresh is None else _stack(old, fresh))
            if fresh is None:
                break
        # Rows that are equal up to rounding may all change to another centre; each round leaves fewer.
        while not seen.totals.clusters.counts.all():
            seen = self.look(seen.centers[np.flatnonzero(seen.totals.clusters.counts)])
        return seen

    def _reseeds(self, seen: _Seen, missing: int) -> Matrix | None:
        """Return up to ``missing`` rows far from their centres, never the only row of a cluster: one pass."""
        left = seen.totals.clusters.counts.copy()
        nearest = self.nearest(seen.centers)
        step = FindFarthest(nearest, seen.centers, left > 1, 2 * missing + 8)
        found = self.engine.fold(self.rows, step, label="empty clusters")
        numbers: list[int] = []
        for label, number in zip(found.labels, found.numbers, strict=True):
            if left[label] > 1 and len(numbers) < missing:
                left[label] -= 1
                numbers.append(int(number))
        return nearest.centred(self.rows.take(np.array(numbers))) if numbers else None


def _stack(old: Matrix, fresh: Matrix) -> Matrix:
    if issparse(old):
        return stack_rows([old, fresh])
    # Centres of sparse rows are dense if that is smaller, even though single rows are not.
    return np.vstack([old, to_dense(fresh)])


@dataclass(frozen=True)
class _Run:
    centers: Matrix
    inertia: float
    history: tuple[float, ...]


def _lloyd(clustering: _Clustering, seeds: Matrix, wanted: int, n_iter: int, tol: float) -> _Run:
    """Move every centre to the mean of its rows, up to ``n_iter`` times, until the gain is small."""
    centers, inertia, history = seeds, np.inf, []
    for _ in range(n_iter):
        seen = clustering.settle(centers, wanted)
        wanted = seen.centers.shape[0]
        centers = seen.totals.clusters.means()
        before, inertia = inertia, seen.totals.inertia(centers)
        history.append(seen.totals.inertia(seen.centers))
        if before - inertia <= tol * inertia:
            break
    return _Run(centers, inertia, tuple(history))


def _finish(run: _Run, clustering: _Clustering, n_clusters: int, wanted: int, *, announce: bool) -> KMeansResult:
    """Assign all rows to the centres found."""
    rows, shift = clustering.rows, clustering.shift
    seen = clustering.settle(run.centers, wanted)
    centers = seen.centers if shift is None else _minus(seen.centers, -shift.astype(np.float64))
    if announce and centers.shape[0] < n_clusters:
        warn_caller(
            f"{n_clusters} clusters were asked for, but the {rows.shape[0]} rows of {rows.name} have only "
            f"{centers.shape[0]} distinct values, one for each cluster found. Ask for fewer to silence this.",
            FewerLandmarksWarning,
        )
    return KMeansResult(
        centers=centers.astype(rows.dtype),
        labels=seen.labels,
        counts=seen.totals.clusters.counts,
        inertia=seen.totals.inertia(seen.centers),
        n_iter=len(run.history),
        history=run.history,
    )
