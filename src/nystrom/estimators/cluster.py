"""Clustering in the kernel's feature space: kernel k-means and the normalised cut."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias, Unpack

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import check_count, check_optional_count, check_tolerance, make_generator
from nystrom.devices import fetch, to_host
from nystrom.engine import Sums
from nystrom.engine.memory import Footprint, cluster_footprint, fit_footprint
from nystrom.engine.progress import stage
from nystrom.errors.trace import WARN_ABOVE, Certificate
from nystrom.estimators.base import KernelMachine
from nystrom.estimators.parameters import (
    CommonParameters,
    ScikitClustering,
    ScikitKernel,
    SharedParameters,
    set_parameters,
)
from nystrom.estimators.pipeline import DEFAULT_LANDMARKS, GivenSize, MapFit, fit_enough, fit_map
from nystrom.exceptions import AccuracyWarning, ApproximationWarning, warn_caller
from nystrom.kernels import GammaLike, KernelLike
from nystrom.kmeans import assign, kmeans
from nystrom.linalg import column_signs, cross_product, psd_eigh
from nystrom.nystroem.factor import NystromMap
from nystrom.nystroem.fit_pass import Kept
from nystrom.rows import Block, RowBlocks
from nystrom.rows.base import MappedRows
from nystrom.rows.draw import gather_weight
from nystrom.types import Array, Emitted, OutPath, RowsLike, TargetLike

# Features of all rows are held up to this many bytes; beyond, every pass of k-means computes them again.
_HELD_BYTES = 2**30
# A computed degree below this fraction of k(x, x) is an error of the approximation: for a nonnegative kernel, the exact
# degree is at least k(x, x).
_LEAST_DEGREE = 1e-3
# Landmarks of the first cut.
_FIRST_LANDMARKS = 200
# Above this trace error, clusters may be lost, and nothing else shows it.
_WARN_ABOVE = 0.5
# A cluster holds outliers if it has less than this fraction of the mean size and the last eigenvalue is this near 1.
_OUTLIER_SHARE = 0.01
# An eigenvalue above this belongs to a part without links to others: in float64, it is 1 − 1.5e-8 / s, with s the share
# of links in its degrees. In float32 such parts cannot be told from chains of close rows.
_UNLINKED = 1 - 10 * float(np.sqrt(np.finfo(np.float64).eps))
# With fewer rows per cluster, small clusters cannot be told from outliers.
_LEAST_EVEN = 10


# The coordinates in which the rows of a block are clustered.
Embedding: TypeAlias = Callable[[Block], Array]


class ClusterParameters(SharedParameters, total=False):
    """Parameters of :class:`ClusterMachine` with the same defaults in both clusterings."""

    max_iter: int
    tol: float


class CutParameters(CommonParameters, total=False):
    """Parameters of :class:`SpectralClustering` with the defaults of :class:`ClusterMachine`."""

    max_iter: int
    tol: float
    kernel: KernelLike
    gamma: GammaLike


class ClusterMachine(ClusterMixin, KernelMachine, ABC):
    """Base of both clusterings: an embedding of the rows, k-means in it, and the nearest centre for new rows.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_init : int, default=3
        Number of seedings of k-means; the best is kept.
    max_iter : int, default=300
        Largest number of iterations of each.
    tol : float, default=1e-4
        Smallest relative decrease of the inertia to continue.
    n_components : int or None, default=100
        Largest number of directions in which rows are compared, capped at the number of landmarks. None keeps all.
    """

    n_clusters: int
    n_init: int
    max_iter: int
    tol: float
    cluster_centers_: Array
    labels_: Array

    _every_row_up_to: ClassVar[int] = DEFAULT_LANDMARKS

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
        set_parameters(self, ClusterMachine.__init__, locals())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("n_clusters", "n_init", "max_iter"):
            check_count(getattr(self, name), name)
        check_tolerance(self.tol, "tol")

    def _default_rank(self) -> int | None:
        # The rank serves the clustering only, so fewer landmarks do not contradict it.
        return self.n_components

    @abstractmethod
    def _embedding(self) -> Embedding:
        """Return the embedding of the fit."""

    def _fit_map(self, rows: RowBlocks, **values: Any) -> MapFit:
        if self.n_clusters > rows.shape[0]:
            raise ValueError(f"n_clusters={self.n_clusters} is more than the n_samples={rows.shape[0]} rows of X.")
        request = self._request(rows, footprint=self._footprint, **values)
        return fit_enough(rows, request) if self.n_landmarks is None else fit_map(rows, request)

    def _footprint(self, rows: RowBlocks, m: int, held: int, per_thread: int) -> Footprint:
        later = cluster_footprint(rows, m, min(self.n_components or m, m), self.n_clusters)
        return fit_footprint(rows, m, held, per_thread).joined(later)

    @stage("clusters")
    def _clusters(self, rows: RowBlocks, embed: Embedding, m: int, n_columns: int) -> dict[str, Any]:
        """Cluster the rows by k-means in their embedding."""
        engine = self._engine(rows, cluster_footprint(rows, m, n_columns, self.n_clusters))
        if not engine.reads_here(rows) or rows.shape[0] * n_columns * rows.dtype.itemsize <= _HELD_BYTES:
            places = engine.map_rows(rows, embed, n_columns, rows.dtype, label="features")
        else:
            places = MappedRows(rows, embed, n_columns, name="the features")
        if rows.has_weight:
            places = places.with_target(None, gather_weight(rows, engine))
        found = kmeans(
            places,
            self.n_clusters,
            engine=engine,
            # The landmarks were drawn from the same seed: a spawned stream keeps the two independent.
            rng=make_generator(self.random_state).spawn(1)[0],
            n_iter=self.max_iter,
            n_init=self.n_init,
            tol=self.tol,
        )
        return {
            "cluster_centers_": np.asarray(found.centers),
            "labels_": found.labels if rows.home is None else rows.home.send(found.labels),
            "inertia_": found.inertia,
            "n_iter_": max(found.n_iter, 1),
        }

    def predict(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the number of the nearest cluster of each row; streamed to the path ``out`` if given."""
        check_is_fitted(self)
        rows, centers, embed = self._check_X(X, reset=False), self.cluster_centers_, self._embedding()

        def function(block: Block) -> Array:
            return assign(embed(block), centers)

        return self._emit(rows, function, None, np.int32, label="predict", out=out)

    def fit_predict(self, X: RowsLike, y: TargetLike = None) -> Emitted:
        """Fit and return the cluster of each row."""
        return self.fit(X, y).labels_


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
        Centres of the clusters, in the features.
    inertia_ : float
        Sum of squared distances of the rows to their centre, in the features.
    n_iter_ : int
        Number of iterations.
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
        rows = self._rows_to_fit(X, y)
        fit = self._fit_map(rows)
        fitted = fit.factored
        found = self._clusters(rows, _features_of(fitted, fit.keep), len(fitted.landmarks), fitted.n_components)
        return self._store(rows, fit, **found)

    def _embedding(self) -> Embedding:
        return _features_of(self.map_)


def _features_of(fitted: NystromMap, keep: Kept | None = None) -> Embedding:
    if keep is None or keep.values is None:
        return lambda block: fitted.features(block.X)
    return lambda block: fitted.project(keep.read(fitted.evaluate, block))


@dataclass(frozen=True)
class Cut:
    """The embedding of the normalised cut: rows of a map, divided by their degrees.

    ``diagonal`` is the mean of k(x, x), for a precomputed kernel, whose rows do not contain their own. ``keep`` are the
    kernel values of the rows, if they are those of the fit.
    """

    fitted: NystromMap
    degree_coef: Array
    diagonal: float
    projection: Array | None = None
    keep: Kept = field(default_factory=lambda: Kept(None))

    def __call__(self, block: Block) -> Array:
        C = self.keep.read(self.fitted.evaluate, block)
        degrees, _ = self._degrees(block, C)
        return (C @ self.projection / degrees[:, None]).astype(C.dtype, copy=False)

    def _degrees(self, block: Block, C: Array) -> tuple[Array, Array]:
        """Return the degree of each row, and which of them had to be clipped."""
        degrees, kernel = to_host(C @ self.degree_coef), self.fitted.kernel
        diagonal = np.full(len(degrees), self.diagonal)
        if kernel.has_coordinates:
            diagonal = np.asarray(kernel.diag(block.X), dtype=np.float64)
        low = ~(degrees > _LEAST_DEGREE * diagonal)
        return np.where(low, np.where(diagonal > 0, diagonal, 1.0), degrees), low

    def sums(self, block: Block) -> Sums:
        """Return ``Lᵀ D⁻¹ L`` of a block, the same weighted by ``‖φ‖² / d`` per row, and the count of clipped rows."""
        C = self.keep.read(self.fitted.evaluate, block)
        degrees, low = self._degrees(block, C)
        phi = C.astype(np.float64, copy=False) @ self.fitted.projection
        share = 1 / degrees if block.weight is None else block.weight / degrees
        weighted = phi * share[:, None]
        loops = to_host((phi * phi).sum(axis=1)) / degrees
        return Sums(cross_product(phi, weighted), cross_product(weighted, phi * loops[:, None]), int(low.sum()))


def _cut_directions(gram: Array, loops: Array, rounding: float) -> tuple[Array, Array]:
    """Return the eigenvalues of the graph without self-loops, largest first, and z of the vectors ``D⁻¹ L z``.

    With D the degrees including self-loops and Δ = diag(L Lᵀ), the graph is ``(L Lᵀ − Δ) u = μ (D − Δ) u``. Its vectors
    for μ near 1 lie in the span of ``D⁻¹ L``, where ``gram = Lᵀ D⁻¹ L`` and ``loops = Lᵀ D⁻¹ Δ D⁻¹ L`` give an
    eigenproblem of the order of the rank. The degree of an isolated row is its self-loop only: degrees below
    ``rounding`` count as zero.
    """
    values, Q = psd_eigh(gram)
    kept = values > np.finfo(np.float64).eps * len(gram)
    values, Q = values[kept], Q[:, kept] / np.sqrt(values[kept])
    H = Q.T @ loops @ Q
    H = (H + H.T) / 2
    inner, V = psd_eigh(np.eye(len(H)) - H)
    root = V / np.sqrt(np.maximum(inner, 0.0) + rounding)
    found, U = psd_eigh(root.T @ (np.diag(values) - H) @ root)
    return found, Q @ (root @ U)


class SpectralClustering(ClusterMachine):
    """Cluster by the normalised cut of the graph with the kernel as edge weights.

    The leading eigenvectors of ``D⁻¹ A`` embed the rows, and k-means finds the clusters there. A is the approximate
    kernel ``L Lᵀ`` without its diagonal: no row is its own neighbour. D contains the row sums of A. It replaces
    :class:`sklearn.cluster.SpectralClustering`, and can assign new rows. The kernel should be nonnegative, like the
    Gaussian kernel.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_components : int or None, default=None
        Largest number of eigenvectors, at most ``n_clusters``: further ones only separate parts of clusters. None uses
        ``n_clusters``. The kernel keeps every direction that the landmarks span.
    **shared : ClusterParameters
        Those of :class:`nystrom.estimators.cluster.ClusterMachine`.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, n_iter_
        As in :class:`nystrom.KernelKMeans`; the centres lie in the embedding.
    cut_values_ : array of shape (n_clusters,) or fewer
        Leading eigenvalues of ``D⁻¹ A``; the number near 1 is the number of nearly disconnected parts.
    n_clipped_ : int
        Number of rows whose degree was not positive and was replaced by k(x, x).
    landmarks_, kernel_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    By default every row is a landmark up to 1,000 rows. With more rows, 200 landmarks are used, and 1,000 if these
    leave more than a quarter of the kernel unexplained and the larger fit takes at most about ten seconds. The fit
    warns if more than half of the kernel is unexplained, and if a narrow kernel makes clusters of a few outliers or
    leaves more parts without links than clusters.

    Cost: that of the map; O(n m²) for the cut, in one pass; then O(n c²) per iteration of k-means.

    Examples
    --------
    >>> angles = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    >>> circle = np.column_stack([np.cos(angles), np.sin(angles)])
    >>> model = SpectralClustering(n_clusters=2, gamma=20.0, random_state=0).fit(np.concatenate([circle, 3 * circle]))
    >>> np.bincount(model.labels_)
    array([200, 200])
    """

    _options: ClassVar[tuple[type, ...]] = (ScikitKernel, ScikitClustering)
    _cuts_map: ClassVar[bool] = False
    degree_coef_: Array
    projection_: Array

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_components: int | None = None,
        n_init: int = 10,
        **shared: Unpack[CutParameters],
    ) -> None:
        set_parameters(self, SpectralClustering.__init__, locals())

    def fit(self, X: RowsLike, y: TargetLike = None) -> SpectralClustering:
        """Fit the map, cut the graph and cluster the rows: one pass more than the map, and those of k-means."""
        rows = self._rows_to_fit(X, y)
        check_optional_count(self.n_components, "n_components")
        first = GivenSize(min(max(_FIRST_LANDMARKS, 4 * self.n_clusters), rows.shape[0]))
        default = self.n_landmarks is None and rows.shape[0] > self._every_row_up_to
        fit = self._fit_map(rows, rank=None, **({"size": first} if default else {}))
        fitted = fit.factored
        m, s = len(fitted.landmarks), fitted.statistics
        total = fitted.rotation.T @ s.total
        # d(x) = φ(x) · Σφ = k(x, Z) @ degree_coef
        cut = Cut(fitted, fitted.projection @ total, s.trace / s.weight, keep=fit.keep)
        gram, loops, n_clipped = self._engine(rows, fit_footprint(rows, m)).fold(rows, cut.sums, label="cut")
        _warn_of_clipping(n_clipped, rows.shape[0])
        if not n_clipped:
            _warn_of_loss(fit.certificate, m)
        values, Z = _cut_directions(gram, loops, float(np.sqrt(np.finfo(rows.dtype).eps)))
        n_parts = int(np.sum(values > _UNLINKED))
        c = min(self.n_clusters, self.n_components or self.n_clusters, int(np.sum(values > 0)))
        values, projection = values[:c], fitted.projection @ Z[:, :c]
        # Scaled by the root of the sum of all degrees, the coordinates do not depend on the number of rows: the first
        # one is 1 for all rows.
        size = np.sqrt(max(float(total @ total) - float(fitted.eigenvalues.sum()), np.finfo(np.float64).tiny))
        cut = replace(cut, projection=projection * column_signs(projection) * size)
        results = {"degree_coef_": cut.degree_coef, "n_clipped_": n_clipped, "cut_values_": values}
        results |= self._clusters(rows, cut, m, c)
        _warn_of_parts(np.bincount(fetch(results["labels_"]), minlength=self.n_clusters), values, n_parts)
        return self._store(rows, fit, **results, projection_=cut.projection)

    def _embedding(self) -> Embedding:
        diagonal = self.certificate_.kernel_trace / self.certificate_.n_rows
        return Cut(self.map_, self.degree_coef_, diagonal, self.projection_)


def _warn_of_loss(certificate: Certificate | None, m: int) -> None:
    """Warn of an error that may cost clusters; the fit itself warns of larger ones."""
    if certificate is not None and _WARN_ABOVE < certificate.unexplained <= WARN_ABOVE:
        warn_caller(
            f"{m:,} landmarks leave {certificate.unexplained:.0%} of the kernel unexplained, perhaps the links that "
            f"hold clusters together. Raise n_landmarks, or lower gamma.",
            ApproximationWarning,
        )


def _warn_of_parts(sizes: Array, values: Array, n_parts: int) -> None:
    """Warn of clusters of a few rows without links to others, and of more parts without links than clusters.

    A narrow kernel makes a cluster of each outlier. If it leaves more parts than clusters, their eigenvectors are
    equally good, and those taken merge parts at random.
    """
    even = sizes.sum() / len(sizes)
    small = sizes[sizes <= max(_OUTLIER_SHARE * even, 1.0)]
    if len(small) and even >= _LEAST_EVEN and values.size and values[-1] > 1 - _OUTLIER_SHARE:
        warn_caller(
            f"{len(small)} of the {len(sizes)} clusters hold {int(small.sum())} of {int(sizes.sum()):,} rows: the "
            f"kernel links these rows to hardly any other, and clusters among the other rows were not separated. Lower "
            f"gamma, or drop outliers.",
            ApproximationWarning,
        )
    elif n_parts > len(sizes):
        warn_caller(
            f"the kernel leaves at least {n_parts} parts of the rows without links to each other, more than the "
            f"{len(sizes)} clusters, so which of them share a cluster is arbitrary. Lower gamma, or drop outliers.",
            ApproximationWarning,
        )


def _warn_of_clipping(n_clipped: int, n_rows: int) -> None:
    if n_clipped:
        warn_caller(
            f"{n_clipped} of {n_rows} rows are so far from all landmarks that their computed degree is "
            f"not positive; k(x, x) is used instead. Raise n_landmarks, or lower gamma.",
            AccuracyWarning,
        )
