"""The pass of a fit: kernel values with the landmarks, whitened, summed up over the rows.

The sums form one monoid for the map, the centring, the target and the trace error. Squares are taken about means, and
means are merged as by Chan, Golub and LeVeque, so that neither a shifted target nor features far from zero lose
digits. A weight is a number of repetitions: every sum counts a row as often as its weight says.

Whitening can precede the Gram matrix, ``B = C T`` and ``Σ BᵀB``, or follow it, ``Tᵀ (Σ CᵀC) T``. The second saves a
product, but multiplies the rounding errors of the sums by ``‖T‖²``: :func:`choose_way` decides when that is allowed.
It is allowed for many more kernels if a few leading directions Q are projected out of C before summing: ``A = C Q`` and
``D = C − A Qᵀ`` are summed as ``[A, D]``, and whitening multiplies only the errors of the small part D.
docs/numerics.md has the bounds and the tests that check them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike

from nystrom import loops
from nystrom.devices import host, on_device, to_host
from nystrom.engine.memory import Room
from nystrom.engine.passes import Passes
from nystrom.kernels import Kernel
from nystrom.kernels.base import fill, overflow_error
from nystrom.linalg import congruent, row_sum_norm, whitened, whitening_norm
from nystrom.loops.device import cross
from nystrom.rows.base import Block, require_finite
from nystrom.rows.draw import are_whole
from nystrom.types import Array, Matrix


@dataclass(frozen=True)
class Statistics:
    """The sums of one pass over the rows, for rows ``f`` of a feature matrix with k columns.

    Attributes
    ----------
    count : int
        Number of rows of positive weight.
    weight : float
        ``Σ w``; the number of rows if there are no weights.
    mean, scatter : arrays (k,) and (k, k)
        ``f̄ = Σ w f / Σ w`` and ``Σ w (f − f̄)(f − f̄)ᵀ``.
    trace : float
        ``Σ w k(x, x)``.
    margin : float
        The least ``(k(x, x) − ‖f‖²) / scale``, with the scale of :func:`margin_of`; infinity if no row was checked.
    cross : array (k, t)
        ``Σ w (f − f̄)(y − ȳ)ᵀ``; t = 0 without a target.
    target_mean, target_scatter : arrays (t,), (t,)
        ``ȳ`` and ``Σ w (y − ȳ)²``.
    n_checked : int
        Number of rows of positive weight that were checked for ``margin``.
    repeats : bool
        Whether all weights are whole numbers, and so may be repetitions.
    """

    count: int
    weight: float
    mean: Array
    scatter: Array
    trace: float
    margin: float
    cross: Array
    target_mean: Array
    target_scatter: Array
    n_checked: int = 0
    repeats: bool = True
    _above: ClassVar[bool] = False

    @property
    def gram(self) -> Array:
        """``Σ w f fᵀ``."""
        gram = self.scatter.copy()
        _add_outer(gram, self.mean, self.weight)
        return gram

    @property
    def spanned(self) -> float:
        """``Σ w ‖f‖²``, the trace of :attr:`gram`."""
        return float(np.trace(self.scatter)) + self.weight * float(self.mean @ self.mean)

    @property
    def total(self) -> Array:
        """``Σ w f``."""
        return self.weight * self.mean

    @property
    def raw_cross(self) -> Array:
        """``Σ w f yᵀ``."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.cross + self.weight * np.outer(self.mean, self.target_mean)

    @property
    def raw_target_squares(self) -> Array:
        """``Σ w y²``."""
        with np.errstate(over="ignore"):
            return self.target_scatter + self.weight * self.target_mean**2

    def merge(self, other: Self) -> Self:
        """Return the statistics of both sets of rows; reuses the memory of ``self``."""
        # Do not warn of overflow here: it is detected in the sums and raised with advice.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._merged(other)

    def _merged(self, other: Self) -> Self:
        weight = self.weight + other.weight
        share = other.weight / weight if weight > 0 else 0.0
        between = self.weight * share
        gap, target_gap = other.mean - self.mean, other.target_mean - self.target_mean
        scatter, cross = self.scatter, self.cross
        _add_outer(scatter, gap, between, other.scatter, above=self._above)
        cross += other.cross
        cross += between * np.outer(gap, target_gap)
        return type(self)(
            self.count + other.count,
            weight,
            self.mean + share * gap,
            scatter,
            self.trace + other.trace,
            min(self.margin, other.margin),
            cross,
            self.target_mean + share * target_gap,
            self.target_scatter + other.target_scatter + between * target_gap**2,
            self.n_checked + other.n_checked,
            self.repeats and other.repeats,
        )

    def copy(self) -> Statistics:
        """Return a copy that :meth:`merge` may overwrite."""
        return replace(self, scatter=self.scatter.copy(), cross=self.cross.copy())

    def in_basis(self, T: Array) -> Statistics:
        """Return the statistics of the features ``f T``."""
        return replace(self, mean=self.mean @ T, scatter=congruent(self.scatter, T), cross=T.T @ self.cross)

    def moved(self, shift: Array) -> Statistics:
        """Return the statistics of the features ``f + shift``."""
        return replace(self, mean=self.mean + shift)


@dataclass(frozen=True)
class HalfStatistics(Statistics):
    """Statistics while blocks are being added: only the upper triangle of ``scatter`` is filled."""

    _above: ClassVar[bool] = True

    def whole(self) -> Statistics:
        """Return the statistics with the whole ``scatter``, completed in place."""
        _mirror(self.scatter)
        return Statistics(**vars(self))


def margin_of(F: Array, diagonal: Array, top: float, tolerance: float) -> float:
    """Return the least ``(k(x, x) − ‖f‖²) / scale`` over the rows; below −tolerance it is not rounding.

    Each kernel value of a row has an error of at most ``ε √(k(x, x) top)``, or ε top if the values are given.
    Whitening divides by at least ``√(10 ε √m top)``, so the error of ``‖f‖²`` is at most ``√ε m^¼ √(k(x, x) top)`` plus
    ``ε √m top``. With ``tolerance = √ε m^¼`` both terms are within ``tolerance · scale``.

    Parameters
    ----------
    F : array (n, k)
        Whitened features.
    diagonal : array (n,)
        ``k(x, x)``.
    top : float
        The largest ``k(z, z)`` of the landmarks.
    tolerance : float
        ``√ε m^¼``.
    """
    if not len(F):
        return np.inf
    squares = host(np.einsum("ij,ij->i", F, F, dtype=np.float64))
    if not np.min(diagonal) >= 0:
        return -np.inf
    # Take the roots separately: the product may overflow or underflow.
    scale = np.sqrt(diagonal) * np.sqrt(np.maximum(diagonal, top)) + tolerance * top
    # If all kernel values are zero, so are the scale and the residual.
    margins = np.divide(diagonal - squares, scale, out=np.zeros(len(F)), where=scale > 0)
    return float(np.min(margins))


class BlockSums:
    """The sums over one block, accumulated tile by tile; means are subtracted once, at the end.

    Products of a tile are accumulated in float64. All blocks may subtract the same vector from their features.

    Parameters
    ----------
    block : Block
    k : int
        Number of features.
    room : Room
        Memory that can be reused once the sums are complete.
    """

    def __init__(self, block: Block, k: int, room: Room) -> None:
        n = block.X.shape[0]
        # A target of strings belongs to a classifier, which encodes it as numbers later; ignore it here.
        has_numbers = block.y is not None and block.y.dtype.kind in "fiub"
        y = np.asarray(block.y, dtype=np.float64).reshape(n, -1) if has_numbers else np.empty((n, 0))
        self._w = w = None if block.weight is None else np.asarray(block.weight, dtype=np.float64)
        heavy = slice(None) if w is None else np.flatnonzero(w > 0)
        own = None if w is None else w[heavy]
        self._count = n if own is None else len(own)
        self._weight = float(n) if own is None else float(own.sum())
        self._repeats = own is None or are_whole(own)
        self._target_mean, centred = _centred(y[heavy], own, self._weight)
        # Zero for rows of weight zero.
        self._wy = np.zeros_like(y)
        self._wy[heavy] = centred if own is None else centred * own[:, None]
        self._target_scatter = np.einsum("ij,ij->j", self._wy[heavy], centred)
        self._sum, self._gram, self._cross = np.zeros(k), np.zeros((k, k)), np.zeros((k, y.shape[1]))
        self._room = room
        self._trace, self._margin, self._checked = 0.0, np.inf, 0

    def room(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return memory for the features of some rows; every tile reuses it."""
        return self._room.array("features", shape, dtype)

    def add(
        self, F: Array, diagonal: Array, first: int, *, dtype: DTypeLike | None = None, margin: float | None = None
    ) -> None:
        """Add the rows from ``first`` on, with features ``F`` and ``k(x, x)``.

        Products are computed in ``dtype``, by default that of F. ``margin`` is that of :func:`margin_of`, if known.
        """
        dtype = np.dtype(dtype or F.dtype)
        wy = self._wy[first : first + len(F)]
        w = None if self._w is None else self._w[first : first + len(F)]
        if w is not None and not (w > 0).all():
            kept = np.flatnonzero(w > 0)
            F, wy, w, diagonal = F[kept], wy[kept], w[kept], diagonal[kept]
        if wy.shape[1]:
            self._cross += cross(F, wy) if on_device(F) else F.T @ wy
        if w is not None:
            self._sum += cross(F, w[:, None])[:, 0] if on_device(F) else w @ F
            F = F * np.sqrt(w).astype(dtype)[:, None]
        totals = self._sum if w is None else None
        loops.add_gram(self._gram, F, dtype, totals, lambda shape, dtype: self._room.array("product", shape, dtype))
        self._trace += float(diagonal.sum() if w is None else w @ diagonal)
        if margin is not None:
            self._margin = min(self._margin, margin)
            self._checked += len(wy)

    def statistics(self) -> HalfStatistics:
        """Return the statistics of all tiles; no tile can be added afterwards."""
        mean = self._sum / (self._weight or 1.0)
        _add_outer(self._gram, mean, -self._weight, above=True)
        return HalfStatistics(
            self._count,
            self._weight,
            mean,
            self._gram,
            self._trace,
            self._margin,
            self._cross,
            self._target_mean,
            self._target_scatter,
            self._checked,
            self._repeats,
        )


def _mirror(A: Array) -> None:
    """Copy the upper triangle to the lower one."""
    for rows in loops.panels(len(A)):
        own = A[rows, rows]
        np.copyto(own, own.T.copy(), where=np.tri(len(own), k=-1, dtype=bool))
        A[rows.stop :, rows] = A[rows, rows.stop :].T


def _add_outer(A: Array, x: Array, factor: float, also: Array | None = None, *, above: bool = False) -> None:
    """Add ``factor · x xᵀ`` and ``also`` to A, exactly symmetric; ``above`` restricts this to the upper panels."""
    for rows in loops.panels(len(A)):
        columns = slice(rows.start if above else 0, None)
        added = np.multiply.outer(x[rows], x[columns])
        added *= factor
        if also is not None:
            added += also[rows, columns]
        A[rows, columns] += added


def _centred(y: Array, w: Array | None, weight: float) -> tuple[Array, Array]:
    """Return the mean of the target and the centred target; centres twice to remove the rounding of the first mean."""
    mean = np.zeros(y.shape[1])
    if not len(y):
        return mean, y
    for _ in range(2):
        step = (y.sum(axis=0) if w is None else w @ y) / weight
        mean, y = mean + step, y - step
    return mean, y


# Relative error of each eigenvalue that is promised, in addition to the unavoidable ε cond(W).
PROMISE = {"float32": 1e-4, "float64": 1e-8}
# Range of kernel values whose sums of squares fit in float64; outside it, whitening comes first.
_SQUARABLE = (1e-140, 1e140)
# The same range for sums in float32.
_SQUARABLE32 = (1e-15, 1e15)
# Bytes of kernel values per tile, counted in float64: a tile stays in the cache, and memory does not grow with m.
_TILE_BYTES = 4 * 2**20
# NumPy adds the m × m results at the cost of the products of some hundred rows, so its tiles are larger.
_NUMPY_TILE_BYTES = 16 * 2**20
_NUMPY_TILE_ROWS = 1024
_MOST_TILE_ROWS = 4096
# From 256 landmarks on, project out at most m/8 leading directions (128 at most) before summing.
_MANY = 256
_LEADING_SHARE = 8
_MOST_LEADING = 128
# From 8 rows per landmark on, average rounding errors over at most 64 sums.
_ROWS_PER_LANDMARK = 8
_MOST_AVERAGED = 64
# Repeat the pass if the rows of C spread this many times more than W predicts. On 9 data sets with landmarks like the
# rows, they spread up to 3 times more, and the promise was kept: the bound is for the worst case.
_MUCH_WIDER = 8


@dataclass(frozen=True)
class Way:
    """How the Gram matrix of whitened features is computed.

    Attributes
    ----------
    whiten_first : bool
        Whether each block is whitened before its Gram matrix is taken. Only then is every row checked.
    sum_dtype : dtype
        Dtype of the products of a block; blocks are added in float64.
    n_leading : int
        Number of leading directions projected out of the kernel values before summing; only if whitening comes after.
    most_spread : float
        Largest mean of ``‖c − s‖²`` over the rows c of C, leading directions excluded, for which the promise holds.
    otherwise : Way or None
        The way to use instead if the measured mean is far above ``most_spread``.
    """

    whiten_first: bool
    sum_dtype: np.dtype
    n_leading: int = 0
    most_spread: float = field(default=np.inf, compare=False)
    otherwise: Way | None = field(default=None, compare=False)


WHITEN_FIRST = Way(True, np.dtype(np.float64))


def choose_way(
    W: Array, T: Array, kernel: Kernel, dtype: np.dtype, n_rows: int = 0, norm: float | None = None
) -> tuple[Way, Leading | None]:
    """Return the cheapest way whose rounding errors stay within the promise, and the directions to project out.

    ``norm`` is ``‖T‖²``, if known.

    Sums with precision ε have an error of ``ε ‖C − s‖²``, with s the mean row of W. Whitening afterwards turns it into
    ``ε ‖C − s‖² ‖T‖²``. The smallest eigenvalue is about ``(n/m) / ‖T‖²``, and the n rows of C are distributed like the
    m rows of W: relative to that eigenvalue the error is ``ε (‖W − s‖ ‖T‖²)²``.

    That is the worst case, in which all errors point the same way. The errors of the m × m sums are independent of each
    other, and so are those of sums over different rows: with many rows, :func:`_share` gives the reduction.

    Float32 values have an error of ε32 themselves, which costs ``ε32 cond(W)`` with any method; sums of them in float64
    add less than that while ``‖W − s‖ ‖T‖²`` is below ε32/ε64, which the cut-off of :func:`nystrom.linalg.whiten`
    ensures. Only kernels that are positive semidefinite by theorem are summed this way: their rows need no check.

    The landmarks may be unlike the rows, for example all in one of two distant clusters. The pass measures the spread
    of the rows of C, and is repeated another way if that is far above ``most_spread``.
    """
    m, k = T.shape
    top = float(np.max(np.diag(W)))
    saves = 2 * m * k + k * k > m * m
    if not saves or not kernel.is_psd or not _SQUARABLE[0] < top < _SQUARABLE[1]:
        return WHITEN_FIRST, None
    size = whitening_norm(T) if norm is None else norm
    growth = float(np.linalg.norm(W - W.mean(axis=0))) * size
    narrow = dtype == np.float32 and _in(top, _SQUARABLE32)
    candidates: list[np.dtype] = [np.dtype(np.float32)] if narrow else []
    # This way keeps the promise for any rows.
    careful = Way(False, np.dtype(np.float64)) if dtype == np.float32 else WHITEN_FIRST
    for sum_dtype in [*candidates, np.dtype(np.float64)]:
        error = float(np.finfo(sum_dtype).eps) * _share(m, n_rows)
        if error * growth**2 <= PROMISE[dtype.name]:
            return Way(False, sum_dtype, 0, PROMISE[dtype.name] / error / size / size / m, careful), None
        found = _enough_leading(W, size, sum_dtype, n_rows) if m >= _MANY and sum_dtype == dtype else None
        if found is not None:
            leading, most_spread = found
            return Way(False, sum_dtype, leading.shape[1], most_spread, careful), Leading(leading)
    return careful, None


def _share(m: int, n_rows: int) -> float:
    """Return the errors of the sums as a fraction of the worst case.

    A symmetric matrix of independent errors has a spectral norm of about 2/√m of its Frobenius norm, and the errors of
    B sums add up to √B times those of one. This is not used for few rows, where the smallest eigenvalues can be smaller
    than assumed.
    """
    if n_rows < _ROWS_PER_LANDMARK * m:
        return 1.0
    return min(1.0, 2 / np.sqrt(m)) / _averaged(m, n_rows)


def _averaged(m: int, n_rows: int) -> float:
    # Capped, because repeated rows have the same errors in every sum.
    return float(np.sqrt(np.clip(n_rows / (loops.rows_per_sum(m) or tile_rows(m)), 1, _MOST_AVERAGED)))


def tile_rows(m: int) -> int:
    """Return the number of rows whose kernel values are computed and summed at a time."""
    together = loops.rows_per_sum(m)
    if together is None:
        return max(_NUMPY_TILE_BYTES // (8 * m), min(2 * m, _MOST_TILE_ROWS), _NUMPY_TILE_ROWS)
    return min(max(_TILE_BYTES // (8 * m) // together, 1) * together, _MOST_TILE_ROWS)


def _enough_leading(W: Array, size: float, dtype: np.dtype, n_rows: int) -> tuple[Array, float] | None:
    """Return the fewest directions to project out for the promise to hold in ``dtype``; None if too many are needed.

    Also return the largest mean of ``‖c − s‖²`` over rows c, without those directions, for which it holds.
    """
    m, eps = len(W), float(np.finfo(dtype).eps)
    allowed, share = PROMISE[dtype.name], _share(m, n_rows)
    if dtype == np.float32:
        # Allow an error of a tenth of the values' own rounding.
        allowed += 0.1 * eps * row_sum_norm(W) * size
        # The rounding errors of m × m sums are independent: along one direction they are 1/m of their Frobenius norm.
        share = 1.0 / m / (_averaged(m, n_rows) if n_rows >= _ROWS_PER_LANDMARK * m else 1.0)
    Q, left = leading_directions(W)
    enough = np.flatnonzero(eps * share * (left * size) ** 2 <= allowed)
    if not enough.size:
        return None
    return Q[:, : int(enough[0]) + 1].astype(dtype), allowed / (eps * share) / size / size / m


def _in(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] < value < bounds[1]


def leading_directions(W: Array) -> tuple[Array, Array]:
    """Return orthonormal directions with most of ``W − s``, and the Frobenius norm that remains after the first j.

    One step of subspace iteration from random directions, ordered by the norm they capture. Cost: O(m² · 128).
    """
    centred = W - W.mean(axis=0)
    width = min(len(W) // _LEADING_SHARE, _MOST_LEADING)
    start = np.random.default_rng(0).standard_normal((len(W), width))
    basis, _ = np.linalg.qr(centred.T @ (centred @ start))
    _, held, turn = np.linalg.svd(np.linalg.qr(centred @ basis, mode="r"))
    left = np.linalg.norm(centred) ** 2 - np.cumsum(held**2)
    # Below this, the difference of squares is rounding.
    least = float(np.finfo(np.float64).eps) * np.linalg.norm(centred) ** 2 * len(W)
    return basis @ turn.T, np.sqrt(np.maximum(left, least))


class Kept:
    """Kernel values that a pass keeps for later.

    Attributes
    ----------
    values : array (n, m) or None
        C, if there is room for it.
    largest : array (n,) or None
        The largest kernel value of each row.
    first : int
        The number of the first row.
    tiles : dict or None
        For rows on a device: C there, in pieces, by the number of their first row.
    """

    def __init__(
        self,
        values: Array | None,
        largest: Array | None = None,
        *,
        first: int = 0,
        tiles: dict[int, Array] | None = None,
    ) -> None:
        self.values = values
        self.largest = largest
        self.first = first
        self.tiles = tiles

    def of(self, tile: Block) -> tuple[Array | None, Array | None]:
        """Return the slices of ``values`` and ``largest`` for the rows of a tile."""
        rows = slice(tile.start - self.first, tile.stop - self.first)
        return (None if array is None else array[rows] for array in (self.values, self.largest))  # type: ignore[return-value]

    def read(self, evaluate: Callable[[Matrix], Array], block: Block) -> Array:
        """Return the kernel values of a block: those that are kept, or new ones."""
        return evaluate(block.X) if self.values is None else self.values[block.start : block.stop]


@dataclass(frozen=True)
class _Sent:
    """The statistics of some rows, and the largest kernel values of each block of them."""

    statistics: HalfStatistics
    largest: list[tuple[int, Array]]

    def merge(self, other: _Sent) -> _Sent:
        return _Sent(self.statistics.merge(other.statistics), self.largest + other.largest)


class Leading:
    """The directions Q that are projected out of the kernel values before summing.

    Attributes
    ----------
    directions : array (m, n_leading)
        Q, rounded to the dtype of the sums.
    """

    def __init__(self, directions: Array) -> None:
        self.directions = directions
        self._products: dict[np.dtype, tuple[loops.Product, loops.Product]] = {}

    def part(self, F: Array) -> Array:
        """Turn ``[·, C]`` into ``[A, D]``, with ``A = C Q`` and ``D = C − A Qᵀ``: in place, unless C is on a device."""
        if F.dtype not in self._products:
            Q = self.directions.astype(F.dtype, copy=False)
            # Two racing threads compute the same products.
            self._products[F.dtype] = loops.Product(Q), loops.Product(-Q.T)
        onto, back = self._products[F.dtype]
        if on_device(F):
            return np.concatenate([onto(F), F + back(onto(F))], axis=1)
        A, C = np.split(F, [self.directions.shape[1]], axis=1)
        back.add_to(C, onto(C, A))
        return F


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
        The mean row of W, near the mean row of C; subtracted from C before squares are taken.
    top : float
        The largest k(z, z).
    tolerance : float
        Largest rounding error of ``k(x, x) − ‖f‖²``, in units of :func:`nystrom.nystroem.fit_pass.margin_of`.
    way : Way
        When to whiten.
    keep : Kept or None
        Filled with the kernel values that it has room for.
    leading : Leading or None
        The directions that are projected out of the kernel values.
    name : str
        Name of the rows, for error messages.
    room : Room
        Memory of the blocks.
    """

    kernel: Kernel
    evaluate: Callable[[Matrix], Array]
    T: Array
    shift: Array
    top: float
    tolerance: float
    way: Way
    keep: Kept | None = None
    leading: Leading | None = None
    name: str = "X"
    room: Room = field(default_factory=Room)

    def over(self, passes: Passes) -> Statistics:
        """Return the statistics of all rows, checked to be finite: one pass."""
        # A Room of its own, freed with the pass.
        named, largest = (
            replace(self, name=passes.rows.name, room=Room()),
            None if self.keep is None else self.keep.largest,
        )
        if passes.engine.reads_here(passes.rows):
            halves = passes.fold(named, label="factor", checks=True)
        elif largest is None:
            halves = passes.fold(replace(named, keep=None), label="factor", checks=True)
        else:
            halves = replace(named, keep=None)._over_cluster(passes, largest)
        del named
        _require_finite_sums(halves, passes.rows.dtype)
        statistics = halves.whole()
        if self.way.otherwise and _spread(statistics, self.way.n_leading) > _MUCH_WIDER * self.way.most_spread:
            return replace(self, way=self.way.otherwise, leading=None).over(passes)
        if self.way.whiten_first:
            return statistics.moved(self.shift @ self.T)
        if self.leading is not None:
            # C T = A (Qᵀ T) + D T, with Q as rounded.
            both = np.concatenate([self.leading.directions.T.astype(np.float64) @ self.T, self.T])
            return statistics.in_basis(both).moved(self.shift @ self.T)
        return statistics.moved(self.shift).in_basis(self.T)

    def _over_cluster(self, passes: Passes, largest: Array) -> HalfStatistics:
        """Return the statistics from the workers of a cluster, which also send the ``largest`` values of their rows."""

        def step(block: Block) -> _Sent:
            own = np.empty(block.X.shape[0], block.X.dtype)
            statistics = replace(self, keep=Kept(None, own, first=block.start))(block)
            return _Sent(statistics, [(block.start, own)])

        found = passes.fold(step, label="factor", checks=True)
        for start, values in found.largest:
            largest[start : start + len(values)] = values
        return found.statistics

    def __call__(self, block: Block) -> HalfStatistics:
        m, k = self.T.shape
        # Do not warn of overflow here: it is detected in the sums and raised with advice.
        with np.errstate(over="ignore", invalid="ignore"):
            sums = BlockSums(block, k if self.way.whiten_first else m + self.way.n_leading, self.room)
            for tile in block.split(tile_rows(m)):
                self._add(sums, tile, tile.start - block.start)
            return sums.statistics()

    def _add(self, sums: BlockSums, tile: Block, first: int) -> None:
        there = on_device(tile.X)
        shifted = None if self.way.whiten_first or there else self._fill(sums, tile)
        if shifted is None:
            require_finite(tile.X, self.name, tile.start)
            C = self.evaluate(tile.X)
            self._note(C, tile)
        diagonal = host(self.kernel.diag(tile.X, start=tile.start))
        if self.way.whiten_first:
            self._add_whitened(sums, C, diagonal, tile, first)
            return
        if shifted is None:
            dtype = self.way.sum_dtype
            if dtype == np.float32 and not float(diagonal.max()) < _SQUARABLE32[1]:
                dtype = np.dtype(np.float64)
            if there:
                shifted = np.subtract(C, self.shift, dtype=dtype)
            else:
                shifted = sums.room((tile.X.shape[0], self.way.n_leading + len(self.T)), dtype)
                np.subtract(C, self.shift, out=shifted[:, self.way.n_leading :], dtype=dtype, casting="same_kind")
        if self.leading is not None:
            shifted = self.leading.part(shifted)
        sums.add(shifted, diagonal, first, dtype=np.promote_types(shifted.dtype, self.way.sum_dtype))

    def _fill(self, sums: BlockSums, tile: Block) -> Array | None:
        """Return the kernel values minus the shift, and keep the values; None if the kernel has no step for both."""
        kept, largest = (None, None) if self.keep is None else self.keep.of(tile)
        to = sums.room((tile.X.shape[0], self.way.n_leading + len(self.T)), tile.X.dtype)
        squares = fill(self.evaluate, to[:, self.way.n_leading :], tile.X, self.shift, largest, kept)
        if squares is None:
            return None
        if not np.isfinite(squares):
            require_finite(tile.X, self.name, tile.start)
        return to

    def _note(self, C: Array, tile: Block) -> None:
        if self.keep is None:
            return
        kept, largest = self.keep.of(tile)
        if largest is not None:
            largest[:] = to_host(C.max(axis=1))
        if kept is not None:
            kept[:] = to_host(C)
        if self.keep.tiles is not None:
            self.keep.tiles[tile.start] = C

    def _add_whitened(self, sums: BlockSums, C: Array, diagonal: Array, tile: Block, first: int) -> None:
        F = whitened(C, self.T).astype(np.float64, copy=False)
        heavy = slice(None) if tile.weight is None else np.flatnonzero(np.asarray(tile.weight) > 0)
        margin = margin_of(F[heavy], diagonal[heavy], self.top, self.tolerance)
        F = F - self.shift @ self.T if on_device(F) else np.subtract(F, self.shift @ self.T, out=F)
        sums.add(F, diagonal, first, margin=margin)


def _spread(statistics: Statistics, n_leading: int) -> float:
    """Return the mean squared norm of the rows' features about zero, leading ones excluded."""
    mean, scatter = statistics.mean[n_leading:], statistics.scatter.diagonal()[n_leading:]
    return float(mean @ mean) + float(scatter.sum()) / (statistics.weight or 1.0)


def _require_finite_sums(statistics: HalfStatistics, dtype: np.dtype) -> None:
    """Raise unless the sums over the rows are finite."""
    scatter = statistics.scatter
    above = (np.isfinite(scatter[rows, rows.start :]).all() for rows in loops.panels(len(scatter)))
    if not (np.isfinite(statistics.trace) and np.isfinite(statistics.mean).all() and all(above)):
        raise overflow_error(dtype)
