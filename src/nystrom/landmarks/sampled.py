"""Landmarks drawn from the rows, with equal or unequal probabilities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from nystrom.devices import to_host
from nystrom.engine.passes import Passes
from nystrom.exceptions import NotPositiveSemidefiniteError
from nystrom.kernels import Kernel
from nystrom.kernels.base import near_one
from nystrom.landmarks.base import Landmarks, Selector, evaluator, kernel_diagonal, resolve, rows_in_order
from nystrom.linalg import cholesky
from nystrom.rows.base import Block, RowBlocks
from nystrom.rows.draw import gather, row_weights
from nystrom.types import Array, Matrix


class Uniform(Selector):
    """Draw m rows uniformly without replacement (section 3.2 of the paper). Cost: O(mp), and no pass.

    Rows with weights are drawn in proportion to them.

    Examples
    --------
    >>> import numpy as np
    >>> from nystrom.landmarks import Uniform, select_landmarks
    >>> X = np.arange(20.0).reshape(10, 2)
    >>> found = select_landmarks(X, 3, method=Uniform(), random_state=0)
    >>> bool((found.points == X[found.indices]).all())
    True
    """

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        weight = row_weights(passes)
        if weight is not None:
            return draw_weighted(passes, weight, m, rng)
        n = passes.rows.shape[0]
        head = rng.choice(n, size=m, replace=False)

        def order() -> np.ndarray:
            return np.concatenate([head, rng.permutation(np.setdiff1d(np.arange(n), head))])

        return rows_in_order(passes, head, order)


_TILE_BYTES = 12 * 2**20
# Range of kernel values whose sums of squares stay within the range of float64.
_SQUARABLE = (1e-140, 1e140)
_TINY = float(np.finfo(np.float64).tiny)
# Number of values held per row at a time: diagonal, weight, exponential clock, order.
_ROW_NUMBERS = 5


def draw_weighted(passes: Passes, weights: Array, m: int, rng: np.random.Generator) -> Landmarks:
    """Draw m rows without replacement, row i with probability proportional to ``weights[i]``.

    Each row gets the time of an exponential clock of rate w_i, and the m earliest are taken: the same
    distribution as drawing one row after another, in O(n) time. Rows of weight zero are never drawn.
    """
    with np.errstate(divide="ignore", over="ignore"):
        times = rng.exponential(size=len(weights)) / weights
    m = min(m, int(np.count_nonzero(np.isfinite(times))))
    head = np.argpartition(times, m - 1)[:m] if m else np.empty(0, dtype=np.intp)
    head = head[np.argsort(times[head])]

    def order() -> Array:
        eligible = np.argsort(times)
        return eligible[np.isfinite(times[eligible])]

    return rows_in_order(passes, head, order)


def _times(scores: Array, weight: Array | None) -> Array:
    """Return the scores of rows, with weights as repetitions."""
    return scores if weight is None else scores * weight


def _scaled(values: Array) -> Array:
    """Return values divided by the largest, so that their squares stay within range."""
    largest = float(np.max(np.abs(values), initial=0.0))
    return values / largest if 0 < largest < np.inf else values


class Diagonal(Selector):
    """Draw rows with p_i ∝ K_ii² (section 3.2 of the paper): uniform for kernels of distance.

    Cost: O(np) time, O(n) memory, one pass.
    """

    def held_bytes(self, rows: RowBlocks, n_landmarks: int) -> int:
        return _ROW_NUMBERS * 8 * rows.shape[0]

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        diagonal = kernel_diagonal(passes, resolve(kernel, passes))
        return draw_weighted(passes, _times(np.square(_scaled(diagonal)), row_weights(passes)), m, rng)


class ColumnNorm(Selector):
    """Draw rows with p_i ∝ ‖k_i‖², the squared norms of the columns of K (section 3.2 of the paper).

    Every entry above the diagonal is evaluated once, tile by tile: O(n²p) time, and memory for O(n) numbers and a tile.
    With more than about 10⁵ rows this is by far the most expensive selector, and rarely the best one.
    """

    def held_bytes(self, rows: RowBlocks, n_landmarks: int) -> int:
        return _ROW_NUMBERS * 8 * rows.shape[0]

    def thread_bytes(self, rows: RowBlocks, n_landmarks: int) -> int:
        # Intermediate values of the kernel, the kernel values, their scaled copy, and their squares in float64.
        return _TILE_BYTES * (3 + 8 // rows.dtype.itemsize)

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        norms = column_norms(passes, resolve(kernel, passes))
        return draw_weighted(passes, _times(norms, row_weights(passes)), m, rng)


def column_norms(passes: Passes, kernel: Kernel) -> Array:
    """Return ‖k_i‖² for every row i, entries weighted by the weights of their rows, up to a common factor.

    One pass for each tile of rows, each over the rows from that tile on.
    """
    rows = passes.rows
    n = rows.shape[0]
    norms = np.zeros(n)
    masses = row_weights(passes)
    masses = np.ones(n) if masses is None else masses
    scale = 0.0
    tile_rows = int(max(1, _TILE_BYTES // (rows.dtype.itemsize * rows.block_rows)))
    for first in range(0, n, tile_rows):
        last = min(first + tile_rows, n)
        tile = np.arange(first, last)
        points = gather(passes, tile)
        # One scale for all tiles keeps squares within range and the norms in proportion.
        with np.errstate(over="ignore"):
            scale = scale or _scale(float(np.max(kernel.diag(points, start=first))))
        step = _TileNorms(evaluator(kernel, points, tile), first, last, masses, scale)
        for start, (own, across) in passes.map(step, label=f"column norms, {last} of {n}"):
            stop = min(start + rows.block_rows, n)
            norms[stop - len(own) : stop] += own
            norms[first:last] += across
    return norms


def _scale(largest: float) -> float:
    """Return the factor that scales kernel values of this size so that their squares are within range."""
    return 1.0 if _SQUARABLE[0] < largest < _SQUARABLE[1] or not largest > _TINY else 1 / largest


class _TileNorms:
    """Sums of squares of k(block, tile): over the block's rows, and over the tile's for rows after the tile."""

    def __init__(self, evaluate: Callable[[Matrix], Array], first: int, last: int, masses: Array, scale: float) -> None:
        self.evaluate = evaluate
        self.first = first
        self.last = last
        self.masses = masses
        self.scale = scale

    def __call__(self, block: Block) -> tuple[Array, Array]:
        # Entries with rows before the tile were counted, from both sides, with the tile of those rows.
        skip = min(max(self.first - block.start, 0), block.X.shape[0])
        if skip == block.X.shape[0]:
            return np.zeros(0), np.zeros(self.last - self.first)
        beyond = max(self.last - block.start - skip, 0)
        here = self.masses[block.start + skip + beyond : block.stop]
        # Overflow is detected in the weights of the rows.
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.square(self.evaluate(block.X[skip:]) * self.scale, dtype=np.float64)
            along = to_host(squares @ self.masses[self.first : self.last])
            return along, to_host(here @ squares[beyond:])


class Leverage(Selector):
    """Draw rows by approximate ridge leverage scores, (K (K + λI)⁻¹)_ii (Musco and Musco, 2017, Algorithm 3).

    Half of the rows, chosen at random, give the landmarks that measure all rows; their own landmarks come from a
    quarter, and so on down to m rows. K is never formed: O(nmp + nm²) time, and memory for O(n) numbers and a block.

    Parameters
    ----------
    regularization : float or None
        λ. None estimates it from the tail of the spectrum, so that about m directions count.
    """

    def __init__(self, regularization: float | None = None) -> None:
        self.regularization = regularization

    def held_bytes(self, rows: RowBlocks, n_landmarks: int) -> int:
        return _ROW_NUMBERS * 8 * rows.shape[0]

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        if self.regularization is not None and not self.regularization > 0:
            raise ValueError(
                f"regularization must be a positive number or None (chosen from the data); got {self.regularization!r}."
            )
        kernel = resolve(kernel, passes)
        n = passes.rows.shape[0]
        kernel, diagonal = near_one(kernel, kernel_diagonal(passes, kernel), passes.rows.dtype)
        weight = row_weights(passes)
        counted = np.ones(n, dtype=bool) if weight is None else weight > 0
        # Row i is in the subset of level l if its height is at least l: each level holds half of the previous one.
        levels = max(0, int(np.ceil(np.log2(n / m))))
        height = np.empty(n, dtype=np.int64)
        order = rng.permutation(n)
        order = np.concatenate([order[counted[order]], order[~counted[order]]])
        height[order] = np.floor(np.log2(n / (1.0 + np.arange(n)))).astype(np.int64)
        height[~counted] = -1
        # With one landmark the last level would be empty.
        levels = min(levels, int(height.max()))
        chosen = np.flatnonzero(height >= levels)
        weights = np.ones(len(chosen))
        oversampling = max(1.0, np.log(m))
        for level in range(levels - 1, -1, -1):
            members = height >= level  # rows of weight 0 never are
            scores = self._scores(passes, kernel, diagonal, members, chosen, weights, m / (4 * oversampling))
            if level == 0:
                return draw_weighted(passes, _times(scores, weight), m, rng)
            chance = np.minimum(1.0, oversampling * scores)
            drawn = rng.random(n) < chance
            if not drawn.any():
                drawn = members
            chosen = np.flatnonzero(drawn)
            weights = 1 / chance[chosen] if chance[chosen].all() else np.ones(len(chosen))
        return draw_weighted(passes, _times(np.where(diagonal > 0, 1.0, 0.0), weight), m, rng)

    def _scores(
        self,
        passes: Passes,
        kernel: Kernel,
        diagonal: Array,
        members: Array,
        chosen: Array,
        weights: Array,
        rank: float,
    ) -> Array:
        """Return the scores (k_ii − k_iS (K_SS + λ D⁻¹)⁻¹ k_Si) / λ of the members, 0 for others; one pass."""
        points = gather(passes, chosen)
        evaluate = evaluator(kernel, points, chosen)
        K_SS = np.asarray(evaluate(points), dtype=np.float64)
        if not np.isfinite(K_SS).all():
            raise ValueError(
                "the kernel of the rows is not finite: its values overflow. Scale the rows down (for example with "
                "sklearn.preprocessing.StandardScaler), or lower gamma, degree or coef0."
            )
        # In units of the largest k(x, x): squares and inverses stay in range.
        unit = float(np.max(np.diag(K_SS))) or 1.0
        K_SS, diagonal = K_SS / unit, diagonal / unit
        root = np.sqrt(weights)
        values = np.linalg.eigvalsh(K_SS * root[:, None] * root)[::-1]
        top = max(1, int(np.ceil(rank)))
        tail = values[top:].clip(min=0).sum() / top
        given = None if self.regularization is None else self.regularization / unit
        ridge = given or max(tail, 1e-6 * values[0], np.finfo(np.float64).tiny)
        inverse_root = _inverse_root(K_SS + np.diag(ridge / weights + 1e-12 * values[0]))

        def step(block: Block) -> Array:
            inside = np.flatnonzero(members[block.start : block.stop])
            scores = np.zeros(block.X.shape[0])
            if inside.size:
                explained = (evaluate(block.X[inside]).astype(np.float64, copy=False) / unit) @ inverse_root.T
                rest = diagonal[block.start + inside] - to_host(np.einsum("ij,ij->i", explained, explained))
                scores[inside] = np.clip(rest / ridge, 0.0, 1.0)
            return scores

        return np.concatenate([part for _, part in passes.map(step, label="leverage scores")])


def _inverse_root(K: Array) -> Array:
    """Return ``R⁻¹`` with ``R Rᵀ = K``."""
    try:
        return np.asarray(scipy.linalg.solve_triangular(cholesky(K), np.eye(len(K)), trans="T", check_finite=False))
    except np.linalg.LinAlgError as error:
        raise NotPositiveSemidefiniteError(
            "the kernel is not positive semidefinite between the rows that landmarks='leverage' looked at: use a "
            "positive definite kernel such as 'gaussian', shift a precomputed one, or give landmarks='uniform'."
        ) from error
