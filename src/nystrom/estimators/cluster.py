"""Clustering in the kernel's feature space: kernel k-means and the normalised cut."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Unpack

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import check_count, check_tolerance
from nystrom.engine import Sums
from nystrom.estimators.base import KernelMachine
from nystrom.estimators.parameters import CommonParameters, SharedParameters
from nystrom.exceptions import AccuracyWarning
from nystrom.generator import make_generator
from nystrom.kernels import GammaLike, KernelLike, Precomputed
from nystrom.kmeans.lloyd import KMeansResult, assign, kmeans
from nystrom.linalg import column_signs, psd_eigh
from nystrom.memory import Footprint, cluster_footprint, fit_footprint
from nystrom.rows import Block, RowBlocks
from nystrom.rows.mapped import MappedRows
from nystrom.types import Array, Emitted, OutPath, RowsLike, TargetLike
from nystrom.warn import warn_caller

# Features of all rows are held up to this many bytes; beyond, every pass of k-means computes them again.
_HELD_BYTES = 2**30
# A degree below this share of k(x, x) is rounding or truncation: with a kernel that is nowhere negative it is at least
# k(x, x) itself.
_LEAST_DEGREE = 1e-3


class ClusterParameters(SharedParameters, total=False):
    """Parameters of :class:`ClusterMachine` with the same defaults in both clusterings."""

    max_iter: int
    tol: float


class ClusterMachine(ClusterMixin, KernelMachine, ABC):
    """What both clusterings share: an embedding of the rows, k-means in it, and the nearest centre for new rows.

    Parameters
    ----------
    n_clusters : int, default=8
        Clusters to find.
    n_init : int, default=3
        Seedings of k-means that are tried.
    max_iter : int, default=300
        Most iterations of each.
    tol : float, default=1e-4
        Least relative fall of the inertia.
    n_components : int or None, default=100
        The most directions in which rows are compared; at most as many as there are landmarks. None keeps all.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 3,
        max_iter: int = 300,
        tol: float = 1e-4,
        kernel: KernelLike = "gaussian",
        gamma: GammaLike = "scale",
        n_components: int | None = 100,
        **shared: Unpack[CommonParameters],
    ) -> None:
        super().__init__(kernel=kernel, gamma=gamma, n_components=n_components, **shared)
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol

    @property
    def _yielding_rank(self) -> int | None:
        # The rank is a means to the clusters: fewer landmarks do not contradict it.
        return self.n_components

    @abstractmethod
    def _embed(self, block: Block) -> Array:
        """Return where the rows of a block lie in the space in which they are clustered."""

    def _footprint(self, rows: RowBlocks, m: int, selection_bytes: int, selection_thread_bytes: int) -> Footprint:
        n_clusters = check_count(self.n_clusters, "n_clusters")
        later = cluster_footprint(rows, m, min(self.n_components or m, m), n_clusters)
        return super()._footprint(rows, m, selection_bytes, selection_thread_bytes).joined(later)

    def _cluster(self, rows: RowBlocks, n_columns: int) -> None:
        n_clusters = check_count(self.n_clusters, "n_clusters")
        work = cluster_footprint(rows, self.landmarks_.shape[0], n_columns, n_clusters)
        engine = self._engine(rows, work)
        if n_clusters > rows.shape[0]:
            raise ValueError(f"n_clusters={n_clusters} is more than the n_samples={rows.shape[0]} rows of X.")
        if rows.on_cluster or rows.shape[0] * n_columns * rows.dtype.itemsize <= _HELD_BYTES:
            places = engine.map_rows(rows, self._embed, n_columns, rows.dtype, label="features")
        else:
            places = MappedRows(rows, self._embed, n_columns, name="the features")
        found: KMeansResult = kmeans(
            places,
            n_clusters,
            engine=engine,
            # The landmarks were drawn from the same seed: another stream keeps the two independent.
            rng=make_generator(self.random_state).spawn(1)[0],
            n_iter=check_count(self.max_iter, "max_iter"),
            n_init=check_count(self.n_init, "n_init"),
            tol=check_tolerance(self.tol, "tol"),
        )
        self.cluster_centers_ = np.asarray(found.centers)
        self.labels_ = found.labels
        self.inertia_ = found.inertia
        self.n_iter_ = max(found.n_iter, 1)

    def predict(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the number of the cluster nearest to each row; streamed to the path ``out`` if there is one."""
        check_is_fitted(self)
        centers = self.cluster_centers_
        rows = self._check_X(X, reset=False)

        def function(block: Block) -> Array:
            return assign(self._embed(block), centers)

        return self._emit(rows, function, None, np.int32, label="predict", out=out)

    def fit_predict(self, X: RowsLike, y: TargetLike = None) -> Emitted:
        """Fit, and return the cluster of each row."""
        return self.fit(X).labels_


class KernelKMeans(ClusterMachine):
    """K-means in the feature space of a kernel.

    Finds clusters that no plane separates, by k-means on features whose inner products are the kernel.

    Parameters
    ----------
    **shared : ClusterParameters
        Those of :class:`nystrom.estimators.cluster.ClusterMachine`.

    Attributes
    ----------
    labels_ : array of shape (n,)
        The cluster of each row.
    cluster_centers_ : array of shape (n_clusters, r)
        Their means, in the features.
    inertia_ : float
        Sum of the rows' squared distances to their centre, in the features.
    n_iter_ : int
        Iterations made.
    landmarks_, kernel_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    Cost: that of the map; then O(n r c) per iteration.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 5.0], [5.1, 5.0]])
    >>> labels = KernelKMeans(n_clusters=2, random_state=0).fit_predict(X)
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """

    def fit(self, X: RowsLike, y: TargetLike = None) -> KernelKMeans:
        """Fit the map and cluster the features of the rows."""
        rows = self._check_X(X, reset=True)
        fitted, _ = self._fit_map(rows)
        self._cluster(rows, fitted.n_components)
        return self

    def _embed(self, block: Block) -> Array:
        return self.map_.features(block.X)


class SpectralClustering(ClusterMachine):
    """Cluster by the normalised cut of the graph whose edges the kernel weighs.

    The leading eigenvectors of ``D⁻¹ L Lᵀ``, with the degrees ``d = L (Lᵀ1)`` from the factor, embed the rows; k-means
    finds the clusters there. It takes the place of :class:`sklearn.cluster.SpectralClustering`, and can place new rows.
    The kernel should be nowhere negative, as the Gaussian one is.

    Parameters
    ----------
    n_clusters : int, default=8
        Clusters to find, and eigenvectors to use.
    **shared : ClusterParameters
        Those of :class:`nystrom.estimators.cluster.ClusterMachine`.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, n_iter_
        As in :class:`nystrom.KernelKMeans`; the centres lie in the embedding.
    cut_values_ : array of shape (n_clusters,)
        Leading eigenvalues of ``D⁻¹ L Lᵀ``; as many are near 1 as there are parts that hardly touch.
    n_clipped_ : int
        Rows whose degree came out as no positive number, and was replaced by k(x, x).
    landmarks_, kernel_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    Cost: that of the map; O(n r²) for the cut, in one pass; then O(n c²) per iteration of k-means.

    Examples
    --------
    >>> angles = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    >>> circle = np.column_stack([np.cos(angles), np.sin(angles)])
    >>> model = SpectralClustering(n_clusters=2, gamma=20.0, random_state=0).fit(np.concatenate([circle, 3 * circle]))
    >>> np.bincount(model.labels_)
    array([200, 200])
    """

    def __init__(self, n_clusters: int = 8, *, n_init: int = 10, **shared: Unpack[ClusterParameters]) -> None:
        super().__init__(n_clusters, n_init=n_init, **shared)

    def fit(self, X: RowsLike, y: TargetLike = None) -> SpectralClustering:
        """Fit the map, cut the graph and cluster the rows: one pass more than the map, and those of k-means."""
        n_clusters = check_count(self.n_clusters, "n_clusters")
        rows = self._check_X(X, reset=True)
        fitted, _ = self._fit_map(rows)
        engine = self._engine(rows, fit_footprint(rows, self.landmarks_.shape[0]))
        total = fitted.rotation.T @ fitted.statistics.total
        # d(x) = φ(x) · Σφ = k(x, Z) @ degree_coef_
        self.degree_coef_ = fitted.projection @ total
        gram, self.n_clipped_ = engine.fold(rows, self._cut_step, label="cut")
        self._warn_of_clipping(rows.shape[0])
        values, V = psd_eigh(gram)
        values, V = values[:n_clusters], V[:, :n_clusters]
        kept = values > np.finfo(np.float64).eps * len(gram)
        self.cut_values_ = values[kept]
        projection = fitted.projection @ (V[:, kept] / np.sqrt(values[kept]))
        # √Σd makes the coordinates of order 1 whatever the number of rows: the first one is 1 for all.
        self.projection_ = projection * column_signs(projection) * np.linalg.norm(total)
        self._cluster(rows, int(kept.sum()))
        return self

    def _degrees(self, block: Block, C: Array) -> tuple[Array, Array]:
        """Return the degree of each row, and which of them had to be clipped."""
        degrees = C @ self.degree_coef_
        if isinstance(self.kernel_, Precomputed):
            # Rows of a precomputed kernel do not hold their k(x, x), so the mean over the training rows is used.
            diagonal = np.full(len(degrees), self.certificate_.kernel_trace / self.certificate_.n_rows)
        else:
            diagonal = np.asarray(self.kernel_.diag(block.X), dtype=np.float64)
        low = ~(degrees > _LEAST_DEGREE * diagonal)
        return np.where(low, np.where(diagonal > 0, diagonal, 1.0), degrees), low

    def _cut_step(self, block: Block) -> Sums:
        C = self.map_.evaluate(block.X)
        degrees, low = self._degrees(block, C)
        phi = C.astype(np.float64, copy=False) @ self.map_.projection
        return Sums(phi.T @ (phi / degrees[:, None]), int(low.sum()))

    def _embed(self, block: Block) -> Array:
        C = self.map_.evaluate(block.X)
        degrees, _ = self._degrees(block, C)
        return np.asarray((C @ self.projection_ / degrees[:, None]).astype(C.dtype, copy=False))

    def _warn_of_clipping(self, n_rows: int) -> None:
        if self.n_clipped_:
            warn_caller(
                f"{self.n_clipped_} of {n_rows} rows are so far from all landmarks that their degree came out as no "
                f"positive number; k(x, x) is taken in its place. Raise n_landmarks and n_components, or lower gamma.",
                AccuracyWarning,
            )
