"""The pass of a fit: kernel values with the landmarks, whitened, summed up over the rows.

Whitening may come before the Gram matrix, ``B = C T`` and ``Σ BᵀB``, or after it, ``Tᵀ (Σ CᵀC) T``. The second saves a
product, and multiplies rounding errors of the sums by ``‖T‖²``: :func:`choose_way` says where that is allowed.
It is allowed far longer if the few leading directions Q leave C first: ``A = C Q`` and ``D = C − A Qᵀ`` are folded as
``[A, D]``, and the errors that whitening multiplies are those of the small part D.
docs/numerics.md has the bounds and the tests that hold them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np

from nystrom.engine.survey import Survey
from nystrom.exceptions import NotPositiveSemidefiniteError
from nystrom.feature_sums import BlockSums, Statistics, margin_of
from nystrom.kernels import Kernel
from nystrom.kernels.ranges import overflow_error
from nystrom.linalg import row_sum_norm, whitened, whitening_norm
from nystrom.rows.base import Block
from nystrom.types import Array, Matrix

# What is promised of each eigenvalue, relative to itself, beside the ε cond(W) that no method can avoid.
PROMISE = {"float32": 1e-4, "float64": 1e-8}
# Sums of squares of kernel values stay within float64 for kernels of this size; beyond, whitening comes first.
_SQUARABLE = (1e-140, 1e140)
# The same for sums in float32.
_SQUARABLE32 = (1e-15, 1e15)
# Kernel values are taken this many bytes at a time: they stay in the cache, and many landmarks do not need much memory.
# Fewer rows than the least would cost more in adding up the m × m results than they save.
_TILE_BYTES = 16 * 2**20
_MIN_TILE_ROWS = 1024
# From this many landmarks on, leading directions may leave first; up to one in so many: more would cost what they save.
_MANY = 256
_LEADING_SHARE = 8
_MOST_LEADING = 128


@dataclass(frozen=True)
class Way:
    """How the Gram matrix of whitened features is taken.

    Attributes
    ----------
    whiten_first : bool
        Whether each block is whitened before its Gram matrix is taken. Only then is every row checked.
    sum_dtype : dtype
        Of the products of a block; blocks are added up in float64.
    n_leading : int
        How many leading directions leave the kernel values before they are summed; only where whitening comes after.
    """

    whiten_first: bool
    sum_dtype: np.dtype
    n_leading: int = 0


WHITEN_FIRST = Way(True, np.dtype(np.float64))


def choose_way(W: Array, T: Array, kernel: Kernel, dtype: np.dtype) -> Way:
    """Return the cheapest way whose rounding errors stay within the promise.

    Sums in arithmetic of precision ε are off by ``ε ‖C − s‖²``, with s the landmarks' mean row of W, which whitening
    afterwards turns into ``ε ‖C − s‖² ‖T‖²``. The least eigenvalue is about ``(n/m) / ‖T‖²``, and ``C`` is to its n
    rows what W is to its m: relative to that eigenvalue the error is ``ε (‖W − s‖ ‖T‖²)²``.

    Values in float32 are themselves off by ε32, which costs ``ε32 cond(W)`` whatever is done; sums of them in float64
    add less than that while ``‖W − s‖ ‖T‖²`` is below ε32/ε64, and the cut-off of :func:`nystrom.linalg.whiten` sees
    to that.
    Kernels that are positive semidefinite by theorem alone are summed so, for no row of theirs needs to be checked.
    """
    return plan_way(W, T, kernel, dtype)[0]


def plan_way(W: Array, T: Array, kernel: Kernel, dtype: np.dtype) -> tuple[Way, Array | None]:
    """Return what :func:`choose_way` says, and the directions that leave first, if any do."""
    m, k = T.shape
    top = float(np.max(np.diag(W)))
    saves = 2 * m * k + k * k > m * m
    if not saves or not kernel.is_psd or not _SQUARABLE[0] < top < _SQUARABLE[1]:
        return WHITEN_FIRST, None
    size = whitening_norm(T)
    growth = float(np.linalg.norm(W - W.mean(axis=0))) * size
    narrow = dtype == np.float32 and _in(top, _SQUARABLE32)
    candidates: list[np.dtype] = [np.dtype(np.float32)] if narrow else []
    for sum_dtype in [*candidates, np.dtype(np.float64)]:
        if float(np.finfo(sum_dtype).eps) * growth**2 <= PROMISE[dtype.name]:
            return Way(False, sum_dtype), None
        leading = _enough_leading(W, size, sum_dtype) if m >= _MANY and sum_dtype == dtype else None
        if leading is not None:
            return Way(False, sum_dtype, leading.shape[1]), leading
    return (Way(False, np.dtype(np.float64)) if dtype == np.float32 else WHITEN_FIRST), None


def _enough_leading(W: Array, size: float, dtype: np.dtype) -> Array | None:
    """Return as many directions as must leave first for the promise to hold, in ``dtype``; None if too many."""
    m, eps = len(W), float(np.finfo(dtype).eps)
    allowed, share = PROMISE[dtype.name], 1.0
    if dtype == np.float32:
        # An error of a tenth of the values' own rounding does not matter.
        allowed += 0.1 * eps * row_sum_norm(W) * size
        # Rounding errors of m × m sums are independent: along one direction they are 1/m of their Frobenius norm.
        share = 1.0 / m
    Q, left = leading_directions(W)
    enough = np.flatnonzero(eps * share * (left * size) ** 2 <= allowed)
    return Q[:, : int(enough[0]) + 1].astype(dtype) if enough.size else None


def _in(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] < value < bounds[1]


def leading_directions(W: Array) -> tuple[Array, Array]:
    """Return orthonormal directions that hold most of ``W − s``, and the Frobenius norm of what j of them leave of it.

    One step of subspace iteration from random directions, in order of what they hold. Cost: O(m² · 128).
    """
    centred = W - W.mean(axis=0)
    width = min(len(W) // _LEADING_SHARE, _MOST_LEADING)
    start = np.random.default_rng(0).standard_normal((len(W), width))
    basis, _ = np.linalg.qr(centred.T @ (centred @ start))
    _, held, turn = np.linalg.svd(np.linalg.qr(centred @ basis, mode="r"))
    left = np.linalg.norm(centred) ** 2 - np.cumsum(held**2)
    # Below this the difference of squares is rounding.
    least = float(np.finfo(np.float64).eps) * np.linalg.norm(centred) ** 2 * len(W)
    return basis @ turn.T, np.sqrt(np.maximum(left, least))


class Keeper(Protocol):
    """What takes kernel values as they are made: an array (n, m), or something that looks at them."""

    def __setitem__(self, rows: slice, C: Array, /) -> None: ...


class RemoteKeeper(Keeper, Protocol):
    """A keeper that needs a few numbers per row only, which can be sent from where a step runs."""

    def reduced(self, C: Array, /) -> Array: ...
    def place(self, rows: slice, values: Array, /) -> None: ...


class _Pieces:
    """The keeper of a step that runs elsewhere."""

    def __init__(self, reduced: Callable[[Array], Array]) -> None:
        self.reduced = reduced
        self.made: list[tuple[slice, Array]] = []

    def __setitem__(self, rows: slice, C: Array) -> None:
        self.made.append((rows, self.reduced(C)))


@dataclass(frozen=True)
class _Kept:
    """The statistics of some rows, and what was kept of their kernel values."""

    statistics: Statistics
    pieces: list[tuple[slice, Array]]

    def merge(self, other: _Kept) -> _Kept:
        return _Kept(self.statistics.merge(other.statistics), self.pieces + other.pieces)


@dataclass(frozen=True)
class Fold:
    """The step of the pass: from a block of rows to the statistics of their whitened features.

    Attributes
    ----------
    kernel, evaluate
        The kernel, and its function from rows to C.
    T : array (m, k)
        Whitens C.
    shift : array (m,)
        The landmarks' mean row of W, near the mean row of C; it leaves C before squares are taken.
    top : float
        The largest k(z, z).
    tolerance : float
        What rounding may take from ``k(x, x) − ‖f‖²``, in units of :func:`nystrom.feature_sums.margin_of`.
    way : Way
        When to whiten.
    keep : array (n, m), Keeper or None
        Filled with C.
    leading : array (m, n_leading) or None
        Q, rounded to the dtype of the sums.
    """

    kernel: Kernel
    evaluate: Callable[[Matrix], Array]
    T: Array
    shift: Array
    top: float
    tolerance: float
    way: Way
    keep: Keeper | None = None
    leading: Array | None = None

    def over(self, survey: Survey) -> Statistics:
        """Return the statistics of all rows, finite and symmetric: one pass."""
        if self.keep is not None and survey.rows.on_cluster:
            statistics = self._over_cluster(survey, cast(RemoteKeeper, self.keep))
        else:
            statistics = survey.fold(self, label="factor")
        _require_sound(statistics, survey.rows.dtype)
        if self.way.whiten_first:
            return statistics.moved(self.shift @ self.T)
        if self.leading is not None:
            # C T = A (Qᵀ T) + D T, for Q as it was rounded.
            both = np.concatenate([self.leading.T.astype(np.float64) @ self.T, self.T])
            return statistics.in_basis(both).moved(self.shift @ self.T)
        return statistics.moved(self.shift).in_basis(self.T)

    def _over_cluster(self, survey: Survey, keep: RemoteKeeper) -> Statistics:
        """Do the same where steps run elsewhere: they send back what the keeper makes of C."""
        reduced_by, here = keep.reduced, replace(self, keep=None)

        def step(block: Block) -> _Kept:
            pieces = _Pieces(reduced_by)
            return _Kept(replace(here, keep=pieces)(block), pieces.made)

        found = survey.fold(step, label="factor")
        for rows, values in found.pieces:
            keep.place(rows, values)
        return found.statistics

    def __call__(self, block: Block) -> Statistics:
        m, k = self.T.shape
        tile_rows = max(_TILE_BYTES // (8 * m), _MIN_TILE_ROWS)
        sums = BlockSums(block, k if self.way.whiten_first else m + self.way.n_leading)
        # Overflow is found in the sums, where it is an error with advice.
        with np.errstate(over="ignore", invalid="ignore"):
            for tile in block.split(tile_rows):
                self._add(sums, tile, tile.start - block.start)
            return sums.statistics()

    def _add(self, sums: BlockSums, tile: Block, first: int) -> None:
        C = self.evaluate(tile.X)
        if self.keep is not None:
            self.keep[tile.start : tile.stop] = C
        diagonal = np.asarray(self.kernel.diag(tile.X, start=tile.start), dtype=np.float64)
        if self.way.whiten_first:
            self._add_whitened(sums, C, diagonal, tile, first)
            return
        dtype = self.way.sum_dtype
        if dtype == np.float32 and not float(diagonal.max()) < _SQUARABLE32[1]:
            dtype = np.dtype(np.float64)
        sums.add(self._shifted(C, sums.room(len(C), dtype)), diagonal, first)

    def _shifted(self, C: Array, room: Array) -> Array:
        """Return the kernel values minus the shift, or ``[A, D]`` of that, in ``room``."""
        if self.leading is None:
            return np.subtract(C, self.shift, out=room, dtype=room.dtype, casting="same_kind")
        k, dtype = self.way.n_leading, room.dtype
        Q = self.leading.astype(dtype, copy=False)
        # With a column of ones the same product takes the shift away.
        A = np.ones((len(C), k + 1), dtype)
        np.subtract(C @ Q, (self.shift @ Q).astype(dtype), out=A[:, :k])
        room[:, :k] = A[:, :k]
        rest = np.matmul(A, np.concatenate([Q.T, self.shift[None].astype(dtype)]), out=room[:, k:])
        np.subtract(C, rest, out=rest)
        return room

    def _add_whitened(self, sums: BlockSums, C: Array, diagonal: Array, tile: Block, first: int) -> None:
        F = whitened(C, self.T).astype(np.float64, copy=False)
        heavy = slice(None) if tile.weight is None else np.flatnonzero(np.asarray(tile.weight) > 0)
        margin = margin_of(F[heavy], diagonal[heavy], self.top, self.tolerance)
        F -= self.shift @ self.T
        sums.add(F, diagonal, first, margin=margin)


def _require_sound(statistics: Statistics, dtype: np.dtype) -> None:
    """Raise unless the sums over the rows are finite and symmetric."""
    s = statistics
    if np.isfinite(s.trace) and np.isfinite(s.scatter).all() and np.isfinite(s.mean).all():
        asymmetry = float(np.max(np.abs(s.scatter - s.scatter.T), initial=0.0))
        bound = len(s.scatter) * np.finfo(np.float64).eps * float(np.max(np.abs(np.diag(s.scatter)), initial=0.0))
        if asymmetry <= bound:
            return
        raise NotPositiveSemidefiniteError(f"the Gram matrix of the features is asymmetric by {asymmetry:.3g}.")
    raise overflow_error(dtype)


def excess(statistics: Statistics, fold: Fold) -> float:
    """Return by how many times the tolerance the features exceed the kernel; at most 1 is rounding.

    Looks at the row that exceeds it most, where rows were looked at, and at the sum of all.
    """
    s = statistics
    left = s.trace - float(np.trace(s.gram))
    # The rows' scales add up to at most this, by the inequality of Cauchy and Schwarz.
    scale = np.sqrt(s.trace) * np.sqrt(s.trace + s.weight * fold.top) + s.weight * fold.tolerance * fold.top
    margin = min(s.margin, left / scale if scale > 0 else 0.0)
    return float(-margin / fold.tolerance)
