"""The selector base class, its result, and what all selectors share: counting, gathering and comparing rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from nystrom.checks import is_whole
from nystrom.devices import to_host
from nystrom.engine.passes import Passes
from nystrom.exceptions import FewerLandmarksWarning, NotFiniteError, NotPositiveSemidefiniteError, warn_caller
from nystrom.kernels import InMetric, Kernel, to_metric
from nystrom.kernels.base import Finite, with_room
from nystrom.linalg import INDEFINITE, least_ritz_share
from nystrom.rows.base import Block, RowBlocks, array_rows, require_finite
from nystrom.rows.draw import draw_rows, gather, gather_target, gather_weight, row_weights
from nystrom.rows.sparse import canonical
from nystrom.types import Array, Matrix, issparse, to_dense

# A precomputed kernel matrix is checked for a negative eigenvalue on this many of its rows, by 30 cheap products.
_PROBED_ROWS = 2000
# The same for a kernel function with fewer landmarks than this; the kernel of more landmarks is checked anyway.
_PROBED_FEW = 64


@dataclass(frozen=True)
class Landmarks:
    """The landmarks Z: m points, and their row numbers if they are rows of X.

    Attributes
    ----------
    points : ndarray or CSR, shape (m, p)
        Sparse if the rows are sparse and the sparse form is smaller.
    indices : ndarray of int, shape (m,), or None
        ``points[j]`` is row ``indices[j]`` of X; None if the points are not rows.
    """

    points: Matrix
    indices: Array | None = None

    def __len__(self) -> int:
        return int(self.points.shape[0])

    def same_points(self, other: Landmarks) -> bool:
        """Return whether both have the same points in the same order."""
        a, b = self.points, other.points
        if a.shape != b.shape:
            return False
        if issparse(a):
            return issparse(b) and (a != b).nnz == 0
        return not issparse(b) and np.array_equal(a, b)


class Selector(BaseEstimator, ABC):
    """Chooses landmarks. A subclass has plain keyword parameters, so that ``get_params`` and ``clone`` work.

    With ``needs_points``, the selector reads coordinates and cannot use a precomputed kernel matrix.
    """

    needs_points: bool = False

    @property
    def needs_moments(self) -> bool:
        """Whether the selector needs the moments of the rows whatever the kernel."""
        return False

    def select(
        self,
        passes: Passes,
        n_landmarks: int,
        kernel: Kernel,
        rng: np.random.Generator,
        *,
        announce: bool = True,
    ) -> Landmarks:
        """Choose at most ``n_landmarks`` landmarks for the rows of ``passes``.

        Parameters
        ----------
        passes : Passes
            The rows, and the engine that reads them.
        n_landmarks : int
            The number m; at most the number of rows is used.
        kernel : Kernel
            May still have ``gamma="scale"``; it is resolved only by selectors that evaluate it.
        rng : numpy.random.Generator
            The only source of randomness.
        announce : bool
            Whether to warn of fewer landmarks than requested.

        Returns
        -------
        Landmarks
            Fewer than m, with a :class:`~nystrom.exceptions.FewerLandmarksWarning`, if X has fewer distinct rows.
        """
        if self.needs_moments or kernel.needs_moments:
            passes.want_moments(by_column=kernel.moments_by_column)
        weight = row_weights(passes)
        n = passes.rows.shape[0] if weight is None else int(np.count_nonzero(weight))
        wanted = self.count(n_landmarks, n)
        if self.needs_points and not kernel.has_coordinates:
            raise ValueError(
                f"{type(self).__name__} needs the coordinates of the rows, and kernel='precomputed' has none: its "
                f"rows are rows of K. Use landmarks='rpcholesky', 'uniform', 'diagonal', 'column-norm' or 'leverage', "
                f"or an array of row numbers."
            )
        try:
            if not kernel.has_coordinates:
                _require_inner_product(passes)
            elif not kernel.is_psd and wanted < _PROBED_FEW:
                _probe_kernel(passes, kernel, weight)
            found = self._select(passes, wanted, kernel, rng)
            require_finite(found.points, "landmarks")
        except NotFiniteError:
            # The NaN may have been found in a sample: report the first among all rows.
            passes.require_finite()
            raise
        if not len(found):
            raise ValueError(
                f"no row can be a landmark: k(x, x) is zero, or below rounding, for every row of {passes.rows.name}. "
                f"Check the rows and the kernel's parameters."
            )
        if announce and len(found) < wanted:
            warn_caller(
                f"Found {len(found)} landmarks where {wanted} were asked for: {passes.rows.name} has no more "
                f"distinct rows. More landmarks would not help; ask for n_landmarks={len(found)} to silence this.",
                FewerLandmarksWarning,
            )
        return found

    def count(self, n_landmarks: object, n_rows: int) -> int:
        """Return the number of landmarks to find."""
        return check_n_landmarks(n_landmarks, n_rows)

    def held_bytes(self, rows: RowBlocks, n_landmarks: int) -> int:
        """Return the bytes that the selector holds in addition to the blocks in flight; for a memory budget."""
        return 0

    def thread_bytes(self, rows: RowBlocks, n_landmarks: int) -> int:
        """Return the bytes that the selector adds per block in flight; for a memory budget."""
        return 0

    @abstractmethod
    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        """Choose the landmarks; 1 ≤ m ≤ n was checked."""


def _probe_kernel(passes: Passes, kernel: Kernel, weight: Array | None) -> None:
    """Raise if a few rows show that a kernel is not positive semidefinite; few landmarks alone might not show it."""
    rows = passes.rows
    numbers, _ = draw_rows(rows.shape[0], _PROBED_FEW, weight, np.random.default_rng(0))
    X = gather(passes, numbers)
    require_finite(X, rows.name, numbers=numbers)
    kernel = resolve(kernel, passes)
    with np.errstate(over="ignore", invalid="ignore"):
        K = np.asarray(kernel(X, X), dtype=np.float64)
    # Leave values that are not finite or not symmetric to the fit, which reports them.
    if np.isfinite(K).all() and np.allclose(K, K.T, atol=INDEFINITE * float(np.max(np.abs(K)))):
        share = least_ritz_share(K)
        if share < -INDEFINITE:
            raise NotPositiveSemidefiniteError(
                f"the kernel is not positive semidefinite: for {len(numbers)} of the rows, its least "
                f"eigenvalue is at most {share:.3g} times the largest magnitude of an eigenvalue. A Nyström "
                f"approximation needs K to hold inner products; use a positive definite kernel such as 'gaussian'."
            )


def _require_inner_product(passes: Passes) -> None:
    """Raise if the kernel matrix, or a part of a large one, is not symmetric and positive semidefinite."""
    rows, n = passes.rows, passes.rows.shape[0]
    if rows.shape[1] != n or not rows.random_access or not passes.engine.reads_here(rows):
        return
    some = np.arange(n) if n <= _PROBED_ROWS else np.sort(np.random.default_rng(0).choice(n, _PROBED_ROWS, False))
    K = rows.take(some)[:, some]
    K = np.asarray(to_dense(K), dtype=np.float64)
    require_finite(K, rows.name, numbers=some)
    asymmetry, largest = float(np.max(np.abs(K - K.T))), float(np.max(np.abs(K)))
    share = least_ritz_share(K)
    if asymmetry <= INDEFINITE * largest and share >= -INDEFINITE:
        return
    seen = (
        f"its least eigenvalue is at most {share:.3g} times the largest magnitude of an eigenvalue"
        if asymmetry <= INDEFINITE * largest
        else f"it is not even symmetric (by {asymmetry:.3g}, where values reach {largest:.3g})"
    )
    raise NotPositiveSemidefiniteError(
        f"the kernel is not positive semidefinite: {seen}, in {len(some)} of the {n} rows of the given matrix. A "
        f"Nyström approximation needs K to hold inner products; shift it (add a constant to its diagonal), or use a "
        f"positive definite kernel such as 'gaussian'."
    )


def check_n_landmarks(n_landmarks: object, n_rows: int) -> int:
    """Return the number of landmarks, at most the number of rows."""
    if not is_whole(n_landmarks):
        raise TypeError(
            f"n_landmarks must be an integer, at least 1; got {n_landmarks!r} "
            f"({type(n_landmarks).__name__}). Try n_landmarks=int(...)."
        )
    if n_landmarks < 1:
        raise ValueError(f"n_landmarks must be at least 1; got {n_landmarks}. Twice the rank is a good start.")
    return min(int(n_landmarks), n_rows)


def smaller_form(points: Matrix) -> Matrix:
    """Return sparse points as CSR if that takes less memory than dense, and as an ndarray if not."""
    if not issparse(points):
        return np.asarray(points)
    points = points.tocsr()
    points.sort_indices()
    sparse_bytes = points.data.nbytes + points.indices.nbytes + points.indptr.nbytes
    dense_bytes = points.shape[0] * points.shape[1] * points.dtype.itemsize
    return points if sparse_bytes < dense_bytes else points.toarray()


def fingerprints(X: Matrix) -> Array:
    """Return one 64-bit number per row, equal for equal rows."""
    if issparse(X):
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
        bounds = zip(X.indptr[:-1], X.indptr[1:], strict=True)
        keys = [X.indices[a:b].astype(np.int64).tobytes() + X.data[a:b].tobytes() for a, b in bounds]
    else:
        # Adding zero turns -0.0 into 0.0, an equal number with different bytes.
        keys = [row.tobytes() for row in np.ascontiguousarray(X) + X.dtype.type(0)]
    digests = b"".join(blake2b(key, digest_size=8).digest() for key in keys)
    return np.frombuffer(digests, dtype=np.uint64)


def first_distinct(marks: Array) -> Array:
    """Return the positions, in order, at which a fingerprint appears for the first time."""
    _, first = np.unique(marks, return_index=True)
    return np.sort(first)


def rows_in_order(passes: Passes, head: Array, order: Callable[[], Array]) -> Landmarks:
    """Return the rows numbered in ``head``, or as many distinct ones from the whole ``order`` if two are equal.

    ``order()`` lists all eligible rows and begins with ``head``. It is called, with a pass that compares all rows, only
    if two rows of ``head`` are equal.
    """
    points = gather(passes, head)
    if len(first_distinct(fingerprints(points))) < len(head):
        marks = np.concatenate([part for _, part in passes.map(_mark, label="tell rows apart")])
        eligible = order()
        head = eligible[first_distinct(marks[eligible])[: len(head)]]
        points = gather(passes, head)
    return Landmarks(smaller_form(points), np.asarray(head, dtype=np.intp))


def _mark(block: Block) -> Array:
    return fingerprints(to_host(block.X))


def resolve(kernel: Kernel, passes: Passes) -> Kernel:
    """Return the kernel with numbers for all its parameters; costs a pass only if it needs moments not yet known."""
    if not kernel.needs_moments:
        return kernel.bind(None, passes.rows.n_columns)
    passes.want_moments(by_column=kernel.moments_by_column)
    return kernel.resolve(passes.moments)


def evaluator(kernel: Kernel, points: Matrix, indices: Array) -> Callable[[Matrix], Array]:
    """Return the function from rows to kernel values with ``points``, which are the rows numbered ``indices``."""
    if not kernel.has_coordinates:
        return kernel.at(indices).prepare(points)
    return Finite(with_room(kernel.prepare(points), kernel, points))


def kernel_diagonal(passes: Passes, kernel: Kernel) -> Array:
    """Return every k(x_i, x_i) in float64; one pass."""

    def step(block: Block) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(kernel.diag(block.X, start=block.start), dtype=np.float64)

    return np.concatenate([part for _, part in passes.map(step, label="kernel diagonal")])


class GivenPoints(Selector):
    """Use exactly these points, whatever ``n_landmarks`` says.

    Parameters
    ----------
    points : array or sparse matrix, shape (m, p)
        The landmarks; they need not be rows of X.
    """

    needs_points = True

    def __init__(self, points: Matrix) -> None:
        self.points = points

    def count(self, n_landmarks: object, n_rows: int) -> int:
        return int(np.shape(self.points)[0])

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        rows = passes.rows
        points = canonical(self.points, "landmarks") if issparse(self.points) else np.asarray(self.points)
        if points.ndim != 2 or points.shape[0] < 1 or points.shape[1] != rows.shape[1]:
            raise ValueError(
                f"landmarks given as points must have shape (m, {rows.shape[1]}), as many columns as {rows.name}; "
                f"got shape {points.shape}. Row numbers go in a one-dimensional integer array."
            )
        # A copy: a fitted model must not change when the caller's array does.
        points = points.astype(rows.dtype, order="C") if not issparse(points) else points.astype(rows.dtype)
        require_finite(points, "landmarks")
        return Landmarks(smaller_form(points) if rows.is_sparse else _dense(points), None)


class GivenIndices(Selector):
    """Use exactly the rows with these numbers, whatever ``n_landmarks`` says.

    Parameters
    ----------
    indices : array of int, shape (m,)
        Row numbers of X; negative ones count from the end.
    """

    def __init__(self, indices: Array) -> None:
        self.indices = indices

    def count(self, n_landmarks: object, n_rows: int) -> int:
        return len(np.atleast_1d(self.indices))

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        n = passes.rows.shape[0]
        indices = np.asarray(self.indices)
        if indices.ndim != 1 or indices.size == 0 or indices.dtype.kind not in "iu":
            raise ValueError(
                f"landmarks given as row numbers must be a one-dimensional, non-empty integer array; got shape "
                f"{indices.shape} of {indices.dtype}. For a mask use numpy.flatnonzero(mask)."
            )
        outside = indices[(indices < -n) | (indices >= n)]
        if outside.size:
            raise ValueError(
                f"landmarks holds the row number {outside[0]}, but {passes.rows.name} has {n} rows; "
                f"row numbers go from 0 to {n - 1}."
            )
        indices = np.where(indices < 0, indices.astype(np.intp) + n, indices).astype(np.intp)
        return Landmarks(smaller_form(gather(passes, indices)), indices)


class Own(Selector):
    """Choose landmarks by a user function, or by the method ``select`` of an object.

    Parameters
    ----------
    way : callable or object
        Called as ``way(rows, m, kernel, rng)``, or ``way.select(rows, m, kernel, rng)``: the
        :class:`~nystrom.rows.RowBlocks`, the number of landmarks, the kernel with numbers for all its parameters, and a
        ``numpy.random.Generator``. Returns the numbers of rows, integers of shape (m,), or points of shape (m, p).
        ``rows.take(numbers)`` returns rows, ``rows.iterate()`` yields blocks with ``start`` and ``X``.
    """

    def __init__(self, way: Any) -> None:
        self.way = way

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        choose = getattr(self.way, "select", self.way)
        found = choose(passes.rows, m, resolve(kernel, passes), rng)
        points: Any = found if issparse(found) else np.asarray(found)
        if points.ndim == 1 and points.dtype.kind in "iu" and 0 < len(points) <= m:
            return GivenIndices(points)._select(passes, m, kernel, rng)
        if points.ndim == 2 and points.dtype.kind in "fiu" and 0 < points.shape[0] <= m:
            return GivenPoints(points)._select(passes, m, kernel, rng)
        raise ValueError(
            f"landmarks: {choose!r} must return at most {m} row numbers, a one-dimensional integer array, or points of "
            f"shape (m, {passes.rows.shape[1]}); it returned shape {points.shape} of {points.dtype}."
        )


# Selectors with fixed landmarks.
GIVEN = (GivenPoints, GivenIndices)


def _dense(points: Matrix) -> Array:
    return np.asarray(to_dense(points))


@dataclass(frozen=True)
class View:
    """Rows and kernel in the metric in which landmarks are chosen and widths searched.

    Attributes
    ----------
    passes, kernel : Passes, Kernel
        The rows and the kernel in the metric, where distances are Euclidean.
    root : array or None
        The root of the metric; None without a metric.
    outer : Passes
        The rows in their original columns.
    """

    passes: Passes
    kernel: Kernel
    root: Array | None
    outer: Passes

    def over(self, outer: Passes) -> View:
        """Return the same view with another engine."""
        if self.root is None:
            return replace(self, passes=outer, outer=outer)
        return replace(self, passes=Passes(self.passes.rows, outer.engine), outer=outer)

    def resolved(self) -> Kernel:
        """Return the kernel of the view with numbers for all its parameters."""
        return resolve(self.kernel, self.passes)

    def back(self, kernel: Kernel) -> Kernel:
        """Return a kernel of the view as a kernel of the original columns."""
        return kernel if self.root is None else InMetric(kernel, self.root)

    def selector(self, selector: Selector) -> Selector:
        """Return the selector for the view that is equivalent to this one for the original columns."""
        if self.root is None or not isinstance(selector, GivenPoints):
            return selector
        return GivenPoints(to_metric(selector.points, self.root))

    def select(
        self, selector: Selector, n_landmarks: int, rng: np.random.Generator, *, announce: bool = True
    ) -> tuple[Landmarks, Landmarks]:
        """Return the landmarks in their original columns, and in the view."""
        if self.root is not None and isinstance(selector, GivenPoints):
            outer = selector.select(self.outer, n_landmarks, self.kernel, rng, announce=announce)
            return outer, Landmarks(to_metric(outer.points, self.root), None)
        inside = selector.select(self.passes, n_landmarks, self.kernel, rng, announce=announce)
        return self.outside(inside), inside

    def outside(self, inside: Landmarks) -> Landmarks:
        """Return landmarks of the view as points in the original columns."""
        if self.root is None:
            return inside
        return Landmarks(_in_columns(self.outer, inside, self.root), inside.indices)


def see(passes: Passes, kernel: Kernel) -> View:
    """Return the view of a kernel: the rows themselves, or the rows in its metric, computed in one pass and stored.

    Column names in the kernel are replaced by numbers.
    """
    rows = passes.rows
    kernel = kernel.bind(rows.feature_names, rows.n_columns, rows.frame)
    if not isinstance(kernel, InMetric):
        return View(passes, kernel, None, passes)
    if not kernel.kernel.has_coordinates:
        raise ValueError("a metric needs rows with columns of their own; kernel='precomputed' has none.")
    seen = Passes(_rows_in_metric(passes, kernel.root), passes.engine)
    return View(seen, kernel.kernel, kernel.root, passes)


def _rows_in_metric(passes: Passes, root: Array) -> RowBlocks:
    """Return the rows times the root of a metric, with their targets and weights: one pass."""
    rows = passes.rows
    name = rows.name
    if rows.is_sparse:
        if not rows.in_memory:
            raise ValueError("sparse rows must be in memory for a metric: load the file, or give dense rows.")
        made = array_rows(to_metric(rows.take(np.arange(rows.shape[0])), root), block_rows=rows.block_rows)
    else:

        def step(block: Block) -> Array:
            require_finite(block.X, name, block.start)
            return to_dense(to_metric(block.X, root))

        q = root.shape[-1]
        made = passes.engine.map_rows(rows, step, q, np.dtype(np.float64), label="rows in the metric")
    return made.with_target(*_targets_and_weights(passes))


def _targets_and_weights(passes: Passes) -> tuple[Any, Any]:
    """Return the targets and weights, whether given separately or held by the rows."""
    rows = passes.rows
    y, weight = getattr(rows, "y", None), getattr(rows, "weight", None)
    if y is None and rows.has_target:
        y = gather_target(rows, passes.engine)
    if weight is None and rows.has_weight:
        weight = gather_weight(rows, passes.engine)
    return y, weight


def _in_columns(passes: Passes, inside: Landmarks, root: Array) -> Matrix:
    """Return landmarks chosen in the metric as points in the original columns."""
    if inside.indices is not None:
        return gather(passes, inside.indices)
    dtype = passes.rows.dtype
    if root.ndim == 1:
        inverse = np.where(root != 0, 1 / np.where(root != 0, root, 1.0), 0.0)
        return to_metric(inside.points, inverse).astype(dtype)
    return np.asarray(to_dense(inside.points) @ np.linalg.pinv(root), dtype=dtype, order="C")
