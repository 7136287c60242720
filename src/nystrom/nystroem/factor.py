"""Build the feature map from landmarks; detect features that exceed their kernel, ``‖f‖² > k(x, x)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import DTypeLike

from nystrom import loops
from nystrom.devices import fetch, on_device, to_host, to_values
from nystrom.engine.base import Engine, Sums
from nystrom.engine.memory import Room
from nystrom.engine.passes import Passes
from nystrom.exceptions import AccuracyWarning, NotPositiveSemidefiniteError, warn_caller
from nystrom.kernels import Kernel
from nystrom.kernels.base import Prepared, fill, kernel_dtype, with_room
from nystrom.landmarks.base import Landmarks
from nystrom.linalg import column_signs, correct_orthonormal, gram, psd_eigh, whiten, whiten_quickly
from nystrom.nystroem.fit_pass import Fold, Kept, Statistics, choose_way
from nystrom.rows.base import ArrayRows, Block, RowBlocks, require_finite
from nystrom.types import Array, Emitted, Matrix, issparse, to_dense

# Factors by which the cut-off of the landmarks' eigenvalues is raised until no row's features exceed its kernel.
CAUTIONS = (1.0, 10.0, 100.0, 1000.0)
# An excess above this multiple of the possible rounding error shows that the kernel is not positive semidefinite; a
# higher cut-off would hide that.
_CLEARLY = 1e3


def excess(statistics: Statistics, fold: Fold) -> float:
    """Return the excess of the features over the kernel, in multiples of the tolerance; at most 1 is rounding.

    Considers the worst of the rows that were checked, and the sum over all rows.
    """
    s = statistics
    left = s.trace - s.spanned
    # Upper bound on the sum of the rows' scales, by the Cauchy-Schwarz inequality.
    scale = np.sqrt(s.trace) * np.sqrt(s.trace + s.weight * fold.top) + s.weight * fold.tolerance * fold.top
    margin = min(s.margin, left / scale if scale > 0 else 0.0)
    return float(-margin / fold.tolerance)


def value_tolerance(m: int, dtype: np.dtype) -> float:
    """Return ``√ε m^¼``: the part of :func:`rounding_tolerance` due to rounding of kernel values with m landmarks."""
    return float(np.sqrt(np.finfo(dtype).eps) * m**0.25)


def rounding_tolerance(kernel: Kernel, W: Array, T: Array, dtype: np.dtype) -> float:
    """Return how far features may exceed the kernel by rounding alone, as a fraction of the scale of ``margin_of``.

    Rounding of the kernel values with the landmarks contributes √ε m^¼. Rounding of W is ε √m top, which changes
    ``‖f‖²`` by the fraction ε √m top / σ, with σ the smallest eigenvalue kept. A higher cut-off reduces that error,
    unless σ is far above even the highest cut-off. Then the error must be allowed for a kernel that is positive
    semidefinite by theorem.
    """
    of_values, root = value_tolerance(len(W), dtype), len(W) ** 0.25
    spread = root * float(np.sqrt(np.max(np.diag(W)))) * float(np.max(np.linalg.norm(T, axis=0)))
    of_landmarks = float(np.finfo(np.float64).eps) * spread**2
    beyond_cut = of_landmarks < 1 / (10 * CAUTIONS[-1])
    return of_values + of_landmarks if kernel.is_psd and beyond_cut else of_values


def warn_or_refuse(kernel: Kernel, over: float) -> None:
    """Warn that a pass is repeated with a higher cut-off, or raise if rounding cannot be the reason."""
    if over > _CLEARLY and not kernel.is_psd:
        raise exceeded(kernel, over)
    warn_caller(
        f"rounding made the approximation exceed the kernel, by {over:.2g} times the expected error; the cut-off on "
        f"the landmarks' eigenvalues is raised tenfold and the pass repeated. float64 rows avoid this.",
        AccuracyWarning,
    )


def exceeded(kernel: Kernel, over: float) -> NotPositiveSemidefiniteError:
    advice = (
        "Its values are too inexact: give the rows as float64, or scale them."
        if kernel.is_psd
        else "A Nyström approximation needs k(x, y) to be an inner product; use a positive definite kernel such as "
        "'gaussian', or shift a precomputed one (add a constant to its diagonal)."
    )
    return NotPositiveSemidefiniteError(
        f"the kernel is not positive semidefinite on the rows: for some row k(x, x) is negative, or below what the "
        f"landmarks explain of it, by {over:.2g} times the possible rounding error. {advice}"
    )


# Largest condition number of W for Cholesky whitening: ε64 cond(W) is then a tenth of PROMISE. In float32 the cut-off
# on eigenvalues applies first.
_CHOLESKY_LIMIT = {"float32": np.inf, "float64": 5e6}
# Kernel values below this are near the subnormal range and lose digits in products.
_LEAST_KERNEL = 1e-300
# Bytes of float64 kernel values that `features` computes at a time, and the minimum number of rows.
_TILE_BYTES = 4 * 2**20
_TILE_ROWS = 1024
# Cholesky-QR steps that make nearly orthonormal eigenvectors orthonormal to machine precision.
_CORRECTIONS = 2


class FeatureMap:
    """Base of all maps ``features(x) = k(x, Z) @ M``."""

    landmarks: Landmarks
    kernel: Kernel
    projection: Array

    @property
    def n_components(self) -> int:
        return int(self.projection.shape[1])

    @cached_property
    def evaluate(self) -> Callable[[Matrix], Array]:
        """The function that turns rows X into k(X, Z)."""
        return prepare(self.kernel, self.landmarks)

    @cached_property
    def _products(self) -> dict[np.dtype, loops.Product]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in ("evaluate", "_products")}

    def project(self, C: Array, out: Array | None = None) -> Array:
        """Return ``C M`` for rows C of kernel values, in their dtype; written to ``out`` if given."""
        product = self._products.get(C.dtype)
        if product is None:
            product = self._products[C.dtype] = loops.Product(self.projection.astype(C.dtype, copy=False))
        return product(C, out)

    def features(self, X: Matrix, out: Array | None = None, room: Room | None = None) -> Array:
        """Return the features of one block of rows, in its dtype; written to ``out`` if given.

        Cost: O(n m (p + r)) time. Kernel values of dense rows are computed a few thousand rows at a time, in ``room``.
        """
        n, size = X.shape[0], max(_TILE_BYTES // (8 * len(self.landmarks)), _TILE_ROWS)
        if on_device(X):
            tiles = (X[first : first + size] for first in range(0, n, size))
            return np.concatenate([narrowed(self.project(self.evaluate(rows)), X.dtype) for rows in tiles])
        if issparse(X) or (n <= size and out is None) or X.dtype not in (np.float32, np.float64):
            found = narrowed(self.project(self.evaluate(X)), X.dtype)
            if out is None:
                return found
            out[:] = found
            return out
        out = np.empty((n, self.n_components), X.dtype) if out is None else out
        values = (room or Room()).array("values", (min(n, size), len(self.landmarks)), X.dtype)
        for first in range(0, n, size):
            rows, piece = X[first : first + size], out[first : first + size]
            C = values[: len(rows)]
            if fill(self.evaluate, C, rows) is None:
                C = self.evaluate(rows)
            if C.dtype == out.dtype:
                self.project(C, piece)
            else:
                piece[:] = narrowed(self.project(C), out.dtype)
        return out

    def residual(self, X: Matrix, features: Array | None = None, *, start: int = 0) -> Array:
        """Return ``k(x, x) − ‖φ(x)‖²`` of each row: the part that the landmarks do not explain. Never negative."""
        phi = self.features(X) if features is None else features
        phi = phi.astype(np.float64, copy=False)
        return np.maximum(self.kernel.diag(X, start=start) - to_host(np.einsum("ij,ij->i", phi, phi)), 0.0)


@dataclass(frozen=True)
class NystromMap(FeatureMap):
    """A fitted map ``features(x) = k(x, Z) @ M``, with ``L Lᵀ ≈ K`` for L the features of the rows.

    Attributes
    ----------
    landmarks : Landmarks
        Z, and their row numbers if the landmarks are rows.
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
        The requested rank.
    """

    landmarks: Landmarks
    kernel: Kernel
    projection: Array
    eigenvalues: Array
    whitening: Array
    rotation: Array
    statistics: Statistics
    rank: int | None

    def merge(self, other: NystromMap) -> NystromMap:
        """Return the map of the rows of both maps, for the same landmarks and kernel. Cost: O(k³); no row is read."""
        # Compare points too: for kernels of distances, landmarks shifted by a constant have the same whitening.
        same = np.array_equal(self.whitening, other.whitening) and self.landmarks.same_points(other.landmarks)
        if not same or self.kernel != other.kernel:
            raise ValueError(
                "maps can be merged only if they share landmarks, kernel and factorisation; fit both with "
                "landmarks=<the same array> and the same kernel with a numeric gamma."
            )
        merged = self.statistics.copy().merge(other.statistics)
        return _finish(self.landmarks, self.kernel, self.evaluate, self.whitening, merged, self.rank)


def prepare(kernel: Kernel, landmarks: Landmarks) -> Callable[[Matrix], Array]:
    """Return the function from rows to their kernel values with the landmarks, in the rows' dtype or float64."""
    Z = landmarks.points
    center = None if issparse(Z) else np.asarray(Z, dtype=np.float64).mean(axis=0)
    evaluate = kernel.prepare(Z, center=center)
    return with_room(evaluate, kernel, Z)


def narrowed(features: Array, dtype: np.dtype) -> Array:
    """Return features in the dtype of their rows, or raise if they overflow it."""
    if features.dtype == dtype or dtype not in (np.float32, np.float64):
        return features
    with np.errstate(over="ignore"):
        narrow = features.astype(dtype)
    if bool(np.isfinite(narrow).all()):
        return narrow
    raise ValueError(
        f"the features reach {float(np.max(np.abs(features))):.3g}, beyond the range of {np.dtype(dtype).name}. Give "
        f"the rows as float64, or scale them down."
    )


def landmark_kernel(kernel: Kernel, landmarks: Landmarks) -> Array:
    """Return W, in float64; raise unless it is finite and symmetric to within rounding."""
    Z = landmarks.points.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        W = np.asarray(kernel(Z, Z), dtype=np.float64)
        asymmetry = float(np.max(np.abs(W - W.T), initial=0.0))
    largest = float(np.max(np.abs(W), initial=0.0))
    if 0 < largest < _LEAST_KERNEL:
        raise ValueError(
            f"the kernel of the landmarks is at most {largest:.3g}, at the end of the range of float64, where digits "
            f"are lost. Multiply the rows by a constant, or raise gamma or coef0."
        )
    if asymmetry > float(np.sqrt(np.finfo(landmarks.points.dtype).eps)) * largest:
        raise NotPositiveSemidefiniteError(
            f"the kernel is not symmetric: k(z, z') and k(z', z) differ by up to {asymmetry:.3g} between landmarks, "
            f"where values reach {largest:.3g}. A Nyström approximation needs k(x, y) to be an inner product."
        )
    return W


def spanning_projection(kernel: Kernel, landmarks: Landmarks) -> Array:
    """Return M of the map that keeps every direction of the landmarks; reads no row. Cost: O(m³)."""
    dtype = kernel_dtype(kernel, landmarks.points, landmarks.points.dtype)
    return _whitening(landmark_kernel(kernel, landmarks), dtype, CAUTIONS[0], None)[0]


def optimal(
    passes: Passes,
    kernel: Kernel,
    landmarks: Landmarks,
    rank: int | None,
    *,
    keep: Kept | None = None,
    cut_first: bool = False,
) -> NystromMap:
    """Fit Algorithm 2: the best rank-r approximation of ``C W⁺ Cᵀ``.

    Parameters
    ----------
    passes : Passes
        The rows.
    kernel : Kernel
        With numeric parameters.
    landmarks : Landmarks
        Z.
    rank : int or None
        r; None keeps every direction.
    keep : Kept, optional
        Filled with the kernel values, for callers that then compute features or search for rare rows.
    cut_first : bool
        Fit Algorithm 1 instead, ``C W_(r)⁺ Cᵀ``: the rank is cut in W only.

    Returns
    -------
    NystromMap

    Notes
    -----
    Cost: O(n m (p + m)) time, or O(n m (p + r)) for Algorithm 1; one pass, O(m²) memory beyond the blocks.
    """
    kernel = kernel.at(landmarks.indices)
    W = landmark_kernel(kernel, landmarks)
    evaluate = prepare(kernel, landmarks)
    dtype = kernel_dtype(kernel, landmarks.points, passes.rows.dtype)
    for caution in CAUTIONS:
        T, norm = _whitening(W, dtype, caution, rank if cut_first else None)
        fold = _make_fold(kernel, evaluate, W, T, dtype, passes.rows.shape[0], keep, norm)
        statistics = fold.over(passes)
        over = excess(statistics, fold)
        if over <= 1:
            return _finish(landmarks, kernel, evaluate, T, statistics, rank)
        warn_or_refuse(kernel, over)
    raise exceeded(kernel, over)


standard = partial(optimal, cut_first=True)
FACTORS: dict[str, Callable[..., NystromMap]] = {"optimal": optimal, "standard": standard}


def _make_fold(
    kernel: Kernel,
    evaluate: Callable[[Matrix], Array],
    W: Array,
    T: Array,
    dtype: np.dtype,
    n_rows: int,
    keep: Kept | None = None,
    norm: float | None = None,
) -> Fold:
    # The column means of W approximate the column means of C.
    shift = W.mean(axis=0).astype(dtype).astype(np.float64)
    tolerance, top = rounding_tolerance(kernel, W, T, dtype), float(np.max(np.diag(W)))
    way, leading = choose_way(W, T, kernel, dtype, n_rows, norm)
    return Fold(kernel, evaluate, T, shift, top, tolerance, way, keep, leading)


def _whitening(W: Array, dtype: np.dtype, caution: float, cut: int | None) -> tuple[Array, float]:
    """Return T with ``Tᵀ W T = I`` on the directions kept, and ``‖T‖²``; ``cut`` is the rank of Algorithm 1."""
    if cut is None:
        quick = whiten_quickly(W, block_dtype=dtype, caution=caution, most=_CHOLESKY_LIMIT[dtype.name])
        if quick is not None:
            return quick.T, quick.norm
    T, values, _ = whiten(W, block_dtype=dtype, caution=caution)
    if not values.size:
        raise ValueError(
            "the kernel is zero between all landmarks, so there is nothing to approximate; check the rows and the "
            "kernel's parameters."
        )
    return T[:, :cut], 1 / float(values[:cut][-1])


def extend(fitted: NystromMap, passes: Passes) -> NystromMap:
    """Return the map of its own rows and those of ``passes`` together, for the same landmarks: one pass."""
    kernel, T = fitted.kernel, fitted.whitening
    dtype = kernel_dtype(kernel, fitted.landmarks.points, passes.rows.dtype)
    fold = _make_fold(
        kernel, fitted.evaluate, landmark_kernel(kernel, fitted.landmarks), T, dtype, passes.rows.shape[0]
    )
    added = fold.over(passes)
    over = excess(added, fold)
    if over > 1:
        raise exceeded(kernel, over)
    return _finish(fitted.landmarks, kernel, fitted.evaluate, T, fitted.statistics.copy().merge(added), fitted.rank)


def _finish(
    landmarks: Landmarks, kernel: Kernel, evaluate: Prepared, T: Array, statistics: Statistics, rank: int | None
) -> NystromMap:
    eigenvalues, Q = psd_eigh(statistics.gram)
    kept = eigenvalues > 4 * np.finfo(np.float64).eps * max(float(eigenvalues[0]), 0.0)
    r = int(kept.sum()) if rank is None else min(int(kept.sum()), rank)
    rotation = Q[:, :r]
    M = T @ rotation
    signs = column_signs(M)
    fitted = NystromMap(landmarks, kernel, M * signs, eigenvalues[:r], T, rotation * signs, statistics, rank)
    vars(fitted)["evaluate"] = evaluate  # prepared already
    return fitted


def truncate(fitted: NystromMap, rank: int) -> NystromMap:
    """Return the map with only its leading ``rank`` directions. Cost: negligible."""
    r = min(rank, fitted.n_components)
    return replace(
        fitted,
        projection=fitted.projection[:, :r],
        eigenvalues=fitted.eigenvalues[:r],
        rotation=fitted.rotation[:, :r],
        rank=rank,
    )


def naive_eigh(passes: Passes, kernel: Kernel, landmarks: Landmarks, rank: int) -> tuple[Array, Array]:
    """Return the paper's first, naive estimate: ``(n/m) Σ_r`` and ``√(m/n) C V_r Σ_r⁺``. Not orthonormal."""
    kernel = kernel.at(landmarks.indices)
    n, m = passes.rows.shape[0], landmarks.points.shape[0]
    T, values, _ = whiten(landmark_kernel(kernel, landmarks), block_dtype=passes.rows.dtype)
    values = values[:rank]
    projection = np.sqrt(m / n) * T[:, :rank] / np.sqrt(values)
    evaluate = prepare(kernel, landmarks)
    vectors = _emit(passes.rows, passes.engine, lambda X: evaluate(X) @ projection, len(values), np.float64)
    return n / m * values, vectors


def orthonormal_eigh(passes: Passes, fitted: NystromMap) -> tuple[Array, Emitted]:
    """Return eigenvalues and orthonormal eigenvectors of ``L Lᵀ`` for the rows: the output of Algorithms 1 and 2.

    Eigenvectors whose eigenvalue is below the rounding error of the largest are dropped. For Dask rows they are lazy:
    one pass per correction finds the factor that makes them orthonormal, which is then applied to the projection.
    """
    values = fitted.eigenvalues
    eps = float(np.finfo(passes.rows.dtype).eps)
    values = values[values > 10 * eps * values[0]]
    projection = fitted.projection[:, : len(values)] / np.sqrt(values)
    evaluate = fitted.evaluate

    def project(X: Matrix) -> Array:
        return evaluate(X) @ projection

    def step(block: Block) -> Sums:
        return Sums(gram(project(block.X)))

    here = passes.engine.reads_here(passes.rows)
    if not here:
        for _ in range(_CORRECTIONS):
            projection = correct_orthonormal(projection, passes.fold(step, label="orthonormality")[0])
    vectors = _emit(passes.rows, passes.engine, project, projection.shape[1], np.float64)
    if here:
        vectors = fetch(vectors)
        for _ in range(_CORRECTIONS):
            vectors = correct_orthonormal(vectors, gram(vectors))
    return values[: vectors.shape[1]], vectors


def emit_features(rows: RowBlocks, engine: Engine, fitted: NystromMap, *, keep: Kept | None = None) -> Emitted:
    """Return the features of all rows as one array (lazy for Dask rows); ``keep`` saves a second kernel evaluation."""
    n_columns = fitted.n_components
    if keep is not None and keep.tiles:
        parts = [narrowed(fitted.project(C), rows.dtype) for _, C in sorted(keep.tiles.items())]
        if rows.home is not None:
            return rows.home.join([to_values(part) for part in parts], rows.dtype)
        return to_host(np.concatenate(parts))
    if keep is None or keep.values is None:
        return engine.emit(rows, _FeatureStep(fitted, rows.name), n_columns, rows.dtype, label="features")
    step = _KeptStep(fitted)
    return engine.emit(ArrayRows(keep.values), step, n_columns, rows.dtype, label="features")


@dataclass(frozen=True)
class _FeatureStep:
    """Compute the features of a block and require that they are finite."""

    fitted: NystromMap
    name: str
    room: Room = field(default_factory=Room)

    def __call__(self, block: Block) -> Array:
        require_finite(block.X, self.name, block.start)
        return self.fitted.features(block.X)

    def write(self, block: Block, out: Array) -> None:
        require_finite(block.X, self.name, block.start)
        self.fitted.features(block.X, out, self.room)


@dataclass(frozen=True)
class _KeptStep:
    """Compute features from kernel values that a pass has kept and found to be finite."""

    fitted: NystromMap

    def __call__(self, block: Block) -> Array:
        return self.fitted.project(to_dense(block.X))

    def write(self, block: Block, out: Array) -> None:
        if out.dtype != block.X.dtype:
            out[:] = narrowed(self(block), out.dtype)
        else:
            self.fitted.project(to_dense(block.X), out)


def _emit(
    rows: RowBlocks, engine: Engine, function: Callable[[Matrix], Array], n_columns: int, dtype: DTypeLike
) -> Emitted:
    name = rows.name

    def step(block: Block) -> Array:
        require_finite(block.X, name, block.start)
        return function(block.X)

    return engine.emit(rows, step, n_columns, dtype, label="features")
