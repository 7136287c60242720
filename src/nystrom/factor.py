"""The two factorisations of the paper, as one fold over the rows.

Both end as ``features(x) = k(x, Z) @ M``. They differ in one place only: Algorithm 1 (:func:`standard`) cuts the rank
in the kernel of the landmarks, before it has seen a row; Algorithm 2 (:func:`optimal`) cuts it in the fold's result.

Algorithm 2 is not computed as written. ``R W⁺ Rᵀ`` loses about half the digits; whitening with ``T = V S^{-1/2}``
first and taking the eigenvectors of the m × m Gram matrix of ``B = C T`` gives the same best rank-r approximation of
``C W⁺ Cᵀ`` to full accuracy, without a tall QR.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from nystrom.engine.base import Engine, Sums
from nystrom.engine.local import merge_two
from nystrom.engine.survey import Survey
from nystrom.exceptions import AccuracyWarning
from nystrom.feature_sums import Statistics, block_statistics
from nystrom.kernels import Kernel, Precomputed
from nystrom.landmarks.base import Landmarks
from nystrom.linalg import (
    algebra_threads,
    column_signs,
    correct_orthonormal,
    psd_eigh,
    row_sum_norm,
    whiten,
    whiten_quickly,
    whitening_norm,
)
from nystrom.rows.arrays import ArrayRows
from nystrom.rows.base import Block, RowBlocks, require_finite
from nystrom.types import Array, Matrix

# Folding C and whitening afterwards saves the product C T, two thirds of the work. Rounding errors then grow with the
# condition of W; less its column means, C is so much smaller that on mnist in float32 the worst of 250 eigenvalues
# is off by 3e-5 at condition 2e4 and 4e-4 at 8e5 (without: 2e-4 and 0.6), and the trace error by 2e-7 and 1e-6.
_CONDITION_LIMIT = {"float32": 1e5, "float64": 1e8}
_MAX_CAUTIONS = 4
# Kernel values are taken this many bytes at a time: they stay in the cache, and many landmarks do not need much memory.
# Fewer rows than the least would cost more in adding up the m × m results than they save.
_TILE_BYTES = 16 * 2**20
_MIN_TILE_ROWS = 1024
# Cholesky-QR steps that take eigenvectors from orthonormal to within rounding to orthonormal.
_CORRECTIONS = 2


@dataclass(frozen=True)
class NystromMap:
    """A fitted map ``features(x) = k(x, Z) @ M``, with ``L Lᵀ ≈ K`` for L the features of the rows.

    Attributes
    ----------
    landmarks : Landmarks
        Z, and the row numbers where the landmarks are rows.
    kernel : Kernel
        The kernel, all its parameters numbers.
    projection : array (m, r)
        M.
    eigenvalues : array (r,)
        Of ``L Lᵀ``: the estimates of the leading eigenvalues of K.
    whitening : array (m, k)
        T with ``Tᵀ W T = I``; k = r for Algorithm 1.
    rotation : array (k, r)
        Q with ``M = T Q``.
    statistics : Statistics
        Of the fold, for the features ``k(x, Z) T``: enough to merge maps, centre them or solve for a target.
    rank : int or None
        The rank asked for.
    """

    landmarks: Landmarks
    kernel: Kernel
    projection: Array
    eigenvalues: Array
    whitening: Array
    rotation: Array
    statistics: Statistics
    rank: int | None

    @property
    def n_components(self) -> int:
        return int(self.projection.shape[1])

    @cached_property
    def evaluate(self) -> Callable[[Matrix], Array]:
        """The function that turns rows X into k(X, Z)."""
        return prepare(self.kernel, self.landmarks)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "evaluate"}

    def features(self, X: Matrix) -> Array:
        """Return the features of one block of rows, in its dtype. Cost: O(n m (p + r))."""
        C = self.evaluate(X)
        return C @ self.projection.astype(C.dtype, copy=False)

    def residual(self, X: Matrix, features: Array | None = None, *, start: int = 0) -> Array:
        """Return ``k(x, x) − ‖φ(x)‖²`` of each row: what the landmarks do not explain. Never negative."""
        phi = self.features(X) if features is None else features
        phi = phi.astype(np.float64, copy=False)
        return np.maximum(self.kernel.diag(X, start=start) - np.einsum("ij,ij->i", phi, phi), 0.0)

    def merge(self, other: NystromMap) -> NystromMap:
        """Return the map of the rows of both, for the same landmarks and kernel. Cost: O(k³); no row is read."""
        # Landmarks moved by a constant have the same whitening under a kernel of distance, so they are compared too.
        same = np.array_equal(self.whitening, other.whitening) and self.landmarks.same_points(other.landmarks)
        if not same or self.kernel != other.kernel:
            raise ValueError(
                "maps can be merged only if they share landmarks, kernel and factorisation; fit both with "
                "landmarks=<the same array> and the same kernel with a numeric gamma."
            )
        merged = self.statistics.copy().merge(other.statistics)
        return _finish(self.landmarks, self.kernel, self.whitening, merged, self.rank)


def prepare(kernel: Kernel, landmarks: Landmarks) -> Callable[[Matrix], Array]:
    """Return the function from rows to their kernel values with the landmarks."""
    Z = landmarks.points
    center = None if sp.issparse(Z) else np.asarray(Z, dtype=np.float64).mean(axis=0)
    return kernel.prepare(Z, center=center)


def landmark_kernel(kernel: Kernel, landmarks: Landmarks) -> Array:
    """Return W, in float64."""
    Z = landmarks.points.astype(np.float64)
    return np.asarray(kernel(Z, Z), dtype=np.float64)


def bind(kernel: Kernel, landmarks: Landmarks) -> Kernel:
    """Return the kernel ready for these landmarks: a precomputed one learns which columns they are."""
    if isinstance(kernel, Precomputed):
        return Precomputed(indices=tuple(int(i) for i in landmarks.indices))  # type: ignore[union-attr]
    return kernel


def standard(
    survey: Survey, kernel: Kernel, landmarks: Landmarks, rank: int | None, *, keep: Array | None = None
) -> NystromMap:
    """Fit Algorithm 1: ``C W_(r)⁺ Cᵀ``, the rank cut in W alone.

    See :func:`optimal` for the parameters. Cost: O(n m (p + r)) time, one pass.
    """
    with algebra_threads(len(landmarks)):
        return _fit(survey, kernel, landmarks, rank, cut_first=True, keep=keep)


def optimal(
    survey: Survey, kernel: Kernel, landmarks: Landmarks, rank: int | None, *, keep: Array | None = None
) -> NystromMap:
    """Fit Algorithm 2: the best rank-r approximation of ``C W⁺ Cᵀ``.

    Parameters
    ----------
    survey : Survey
        The rows.
    kernel : Kernel
        With numeric parameters.
    landmarks : Landmarks
        Z.
    rank : int or None
        r; None keeps every direction.
    keep : array (n, m), optional
        Filled with C, for callers that go on to emit features.

    Returns
    -------
    NystromMap

    Notes
    -----
    Cost: O(n m (p + m)) time, one pass, O(m²) memory beyond the blocks.
    """
    with algebra_threads(len(landmarks)):
        return _fit(survey, kernel, landmarks, rank, cut_first=False, keep=keep)


FACTORS: dict[str, Callable[..., NystromMap]] = {"optimal": optimal, "standard": standard}


def _fit(
    survey: Survey,
    kernel: Kernel,
    landmarks: Landmarks,
    rank: int | None,
    *,
    cut_first: bool,
    keep: Array | None,
) -> NystromMap:
    kernel = bind(kernel, landmarks)
    W = landmark_kernel(kernel, landmarks)
    evaluate = prepare(kernel, landmarks)
    dtype = survey.rows.dtype
    caution = 1.0
    for _ in range(_MAX_CAUTIONS):
        T, condition = _whitening(W, dtype, caution, rank if cut_first else None)
        # The landmarks' own kernel means stand near the column means of C.
        shift = W.mean(axis=0).astype(dtype)
        statistics = _fold(survey, kernel, evaluate, T, shift, condition, keep)
        tolerance = np.sqrt(np.finfo(dtype).eps) * len(W) ** 0.25 * float(np.max(np.diag(W)))
        if statistics.lowest > -tolerance:
            break
        warnings.warn(
            f"rounding made the approximation exceed the kernel by {-statistics.lowest:.2g} in some row; the cut-off "
            f"on the landmarks' eigenvalues is raised tenfold and the pass repeated. float64 rows avoid this.",
            AccuracyWarning,
            stacklevel=2,
        )
        caution *= 10
    return _finish(landmarks, kernel, T, statistics, rank)


def _whitening(W: Array, dtype: np.dtype, caution: float, cut: int | None) -> tuple[Array, float]:
    """Return T with ``Tᵀ W T = I`` on what is kept and the condition of W there; ``cut`` is the rank of Algorithm 1."""
    if cut is None:
        quick = whiten_quickly(W, block_dtype=dtype, caution=caution, most=_CONDITION_LIMIT[dtype.name])
        if quick is not None:
            return quick
    T, values, _ = whiten(W, block_dtype=dtype, caution=caution)
    if not values.size:
        raise ValueError(
            "the kernel is zero between all landmarks, so there is nothing to approximate; check the rows and the "
            "kernel's parameters."
        )
    T, values = T[:, :cut], values[:cut]
    return T, float(values[0] / values[-1])


def extend(fitted: NystromMap, survey: Survey) -> NystromMap:
    """Return the map of the rows it was fitted to and those of ``survey``, for the same landmarks: one pass."""
    T = fitted.whitening
    W = landmark_kernel(fitted.kernel, fitted.landmarks)
    shift = W.mean(axis=0).astype(survey.rows.dtype)
    condition = row_sum_norm(W) * whitening_norm(T)
    added = _fold(survey, fitted.kernel, fitted.evaluate, T, shift, condition, None)
    return _finish(fitted.landmarks, fitted.kernel, T, fitted.statistics.copy().merge(added), fitted.rank)


def _fold(
    survey: Survey,
    kernel: Kernel,
    evaluate: Callable[[Matrix], Array],
    T: Array,
    shift: Array,
    condition: float,
    keep: Array | None,
) -> Statistics:
    m, k = T.shape
    dtype = survey.rows.dtype
    whiten_later = 2 * m * k + k * k > m * m and (condition < _CONDITION_LIMIT[dtype.name] or dtype == np.float32)
    # Past the limit, float32 blocks are summed in float64; float64 blocks are whitened first.
    sum_dtype = dtype if condition < _CONDITION_LIMIT[dtype.name] else np.float64

    tile_rows = max(_TILE_BYTES // (8 * m), _MIN_TILE_ROWS)

    def tile(block: Block) -> Statistics:
        C = evaluate(block.X)
        if keep is not None:
            keep[block.start : block.stop] = C
        diagonal = np.asarray(kernel.diag(block.X, start=block.start), dtype=np.float64)
        if whiten_later:
            # Kernel values that nobody else holds are shifted in place: to fill fresh memory takes as long again.
            own = C.flags.owndata and C.dtype == sum_dtype and C is not block.X
            shifted = np.subtract(C, shift, out=C if own else None, dtype=sum_dtype)
            return block_statistics(shifted, diagonal, block, whitened=False)
        F = C @ T.astype(C.dtype, copy=False)
        return block_statistics(F.astype(np.float64, copy=False), diagonal, block, whitened=True)

    def step(block: Block) -> Statistics:
        return reduce(merge_two, map(tile, block.split(tile_rows)))

    statistics = survey.fold(step, label="factor")
    return statistics.shifted_back(shift.astype(np.float64)).in_basis(T) if whiten_later else statistics


def _finish(landmarks: Landmarks, kernel: Kernel, T: Array, statistics: Statistics, rank: int | None) -> NystromMap:
    eigenvalues, Q = psd_eigh(statistics.gram)
    kept = eigenvalues > 4 * np.finfo(np.float64).eps * max(float(eigenvalues[0]), 0.0)
    r = int(kept.sum()) if rank is None else min(int(kept.sum()), rank)
    rotation = Q[:, :r]
    M = T @ rotation
    signs = column_signs(M)
    return NystromMap(landmarks, kernel, M * signs, eigenvalues[:r], T, rotation * signs, statistics, rank)


def naive_eigh(survey: Survey, kernel: Kernel, landmarks: Landmarks, rank: int) -> tuple[Array, Array]:
    """Return the paper's first, naive estimate: ``(n/m) Σ_r`` and ``√(m/n) C V_r Σ_r⁺``. Not orthonormal."""
    kernel = bind(kernel, landmarks)
    n, m = survey.rows.shape[0], landmarks.points.shape[0]
    T, values, _ = whiten(landmark_kernel(kernel, landmarks), block_dtype=survey.rows.dtype)
    values = values[:rank]
    projection = np.sqrt(m / n) * T[:, :rank] / np.sqrt(values)
    evaluate = prepare(kernel, landmarks)
    vectors = _emit(survey.rows, survey.engine, lambda X: evaluate(X) @ projection, len(values), np.float64)
    return n / m * values, vectors


def orthonormal_eigh(survey: Survey, fitted: NystromMap) -> tuple[Array, Any]:
    """Return eigenvalues and orthonormal eigenvectors of ``L Lᵀ`` for the rows: the output of Algorithms 1 and 2.

    Eigenvectors whose eigenvalue is below the rounding error of the largest are left out. Of Dask rows they are lazy,
    so what makes them orthonormal is found by a pass for each correction, and applied to the projection.
    """
    values = fitted.eigenvalues
    eps = float(np.finfo(survey.rows.dtype).eps)
    values = values[values > 10 * eps * values[0]]
    projection = fitted.projection[:, : len(values)] / np.sqrt(values)
    evaluate = fitted.evaluate

    def project(X: Matrix) -> Array:
        return evaluate(X) @ projection

    def gram(block: Block) -> Sums:
        F = project(block.X)
        return Sums(F.T @ F)

    if survey.rows.on_cluster:
        for _ in range(_CORRECTIONS):
            projection = correct_orthonormal(projection, survey.fold(gram, label="orthonormality")[0])
    vectors = _emit(survey.rows, survey.engine, project, len(values), np.float64)
    if not survey.rows.on_cluster:
        for _ in range(_CORRECTIONS):
            vectors = correct_orthonormal(vectors, vectors.T @ vectors)
    return values, vectors


def emit_features(rows: RowBlocks, engine: Engine, fitted: NystromMap, *, C: Array | None = None) -> Any:
    """Return the features of all rows as one array (lazy for Dask rows); ``C`` saves evaluating the kernel again."""
    if C is None:
        return _emit(rows, engine, fitted.features, fitted.n_components, rows.dtype)
    projection = fitted.projection.astype(C.dtype, copy=False)
    return _emit(ArrayRows(C), engine, lambda block: block @ projection, fitted.n_components, rows.dtype)


def _emit(rows: RowBlocks, engine: Engine, function: Callable[[Matrix], Array], n_columns: int, dtype: Any) -> Any:
    name = rows.name

    def step(block: Block) -> Array:
        require_finite(block.X, name, block.start)
        return function(block.X)

    return engine.emit(rows, step, n_columns, dtype, label="features")
