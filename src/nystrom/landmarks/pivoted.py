"""Landmarks drawn one after another, each in proportion to what the earlier ones leave unexplained.

Drawing by the current residual needs a pass per landmark. Here many rows are proposed from one residual, and each is
accepted with probability (its residual now) / (its residual when proposed). The landmarks then have exactly the
distribution of one-by-one drawing, with a few passes in total (Epperly, Tropp and Webber, 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from nystrom.checks import check_count
from nystrom.devices import host, on_device, to_host
from nystrom.engine.passes import Passes
from nystrom.kernels import Kernel
from nystrom.kernels.base import near_one
from nystrom.kernels.pairwise import Exponents
from nystrom.landmarks.base import Landmarks, Selector, evaluator, kernel_diagonal, resolve, smaller_form
from nystrom.landmarks.clustered import clusters_in_kernel, has_means, lloyd
from nystrom.rows.base import Block, RowBlocks
from nystrom.rows.draw import gather, row_weights
from nystrom.types import Array, Matrix

# Rows proposed per round: m divided by this, but enough for an efficient product.
_ROUNDS = 8
_MIN_PROPOSALS = 16
# Largest squared distance that can be compared; its inverse is the smallest.
_RANGE = 1e305


class RPCholesky(Selector):
    """Randomly pivoted Cholesky: each landmark is drawn by the diagonal of the residual K − K̂.

    Near-optimal in trace norm for any kernel, and good at rare clusters and outliers. Cost: O(nmp + nm²) time, about
    ten passes, and n × m numbers of the rows' dtype in memory.

    Parameters
    ----------
    block_size : int or None
        Rows proposed in one pass; None for an eighth of m. The distribution of the landmarks does not depend on it.
    lloyd : int
        Lloyd steps that follow, in the space of the rows: the landmarks move to the means of their nearest rows and are
        no longer rows. A few steps ("rpcholesky+lloyd": 3) help if the spectrum decays slowly.

    References
    ----------
    Chen, Epperly, Tropp and Webber, "Randomly pivoted Cholesky", 2025; Epperly, Tropp and Webber, "Embrace rejection:
    kernel matrix approximation by accelerated randomly pivoted Cholesky", 2024.
    """

    def __init__(self, block_size: int | None = None, lloyd: int = 0) -> None:
        self.block_size = block_size
        self.lloyd = lloyd

    @property
    def needs_moments(self) -> bool:
        return self.lloyd != 0

    def held_bytes(self, rows: RowBlocks, n_landmarks: int) -> int:
        return rows.shape[0] * (n_landmarks * rows.dtype.itemsize + 24)

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        steps = check_count(self.lloyd, "lloyd", least=0)
        if steps and not kernel.has_coordinates:
            raise ValueError(
                f"lloyd={steps} moves landmarks in the space of the rows, and kernel='precomputed' has no coordinates; "
                f"use landmarks='rpcholesky' (lloyd=0)."
            )
        if steps and not has_means(passes, kernel):
            return clusters_in_kernel(passes, m, kernel, rng, steps)
        indices = cholesky_pivots(passes, resolve(kernel, passes), m, rng, self.block_size)
        points = gather(passes, indices)
        if steps == 0:
            return Landmarks(smaller_form(points), indices)
        return Landmarks(lloyd(passes, points, steps), None)


class KMeansPlusPlus(Selector):
    """Draw rows by D² sampling: each with probability proportional to its squared distance to the earlier ones.

    The seeds of k-means++ as landmarks. Cost: O(nmp) time, about ten passes, O(n) memory.

    Parameters
    ----------
    block_size : int or None
        Rows proposed in one pass; None for an eighth of m. The distribution of the landmarks does not depend on it.
    """

    needs_points = True

    def __init__(self, block_size: int | None = None) -> None:
        self.block_size = block_size

    @property
    def needs_moments(self) -> bool:
        return True

    def held_bytes(self, rows: RowBlocks, n_landmarks: int) -> int:
        return 24 * rows.shape[0]

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        inside = None if has_means(passes, kernel) else resolve(kernel, passes)
        indices = distant_rows(passes, m, rng, self.block_size, inside)
        return Landmarks(smaller_form(gather(passes, indices)), indices)


def n_proposals(block_size: int | None, m: int) -> int:
    if block_size is None:
        return max(_MIN_PROPOSALS, -(-m // _ROUNDS))
    return check_count(block_size, "block_size")


def draw(weights: Array, count: int, rng: np.random.Generator) -> Array:
    """Draw ``count`` positions with replacement, in proportion to ``weights``."""
    cumulative = np.cumsum(weights)
    drawn = np.searchsorted(cumulative, rng.random(count) * cumulative[-1], side="right")
    # Rounding can put the largest draw past the end: take the last row with a positive weight then.
    return np.minimum(drawn, np.flatnonzero(weights)[-1])


def cholesky_pivots(
    passes: Passes, kernel: Kernel, m: int, rng: np.random.Generator, proposals: int | None = None
) -> Array:
    """Return the row numbers of at most m pivots; fewer if the residual falls to rounding earlier."""
    proposals = n_proposals(proposals, m)
    rows = passes.rows
    kernel, residual = near_one(kernel, kernel_diagonal(passes, kernel), rows.dtype)
    weight = row_weights(passes)
    masses = np.ones(rows.shape[0]) if weight is None else weight
    residual[masses == 0] = 0.0
    floor = 32 * np.finfo(rows.dtype).eps * residual
    factor = np.empty((rows.shape[0], m), dtype=rows.dtype)
    chosen = np.empty(0, dtype=np.intp)
    while len(chosen) < m and residual.any():
        k = len(chosen)
        drawn = draw(residual * masses, min(proposals, m - k), rng)
        points = gather(passes, drawn)
        K_drawn = np.asarray(evaluator(kernel, points, drawn)(points), dtype=np.float64)
        known = factor[drawn, :k].astype(np.float64)
        accepted, L = _rejection_cholesky(K_drawn - known @ known.T, residual[drawn], floor[drawn], rng)
        if not accepted.size:
            # Their residuals are rounding errors: the dtype cannot distinguish these rows from the landmarks.
            residual[drawn] = 0.0
            continue
        pivots = drawn[accepted]
        evaluate = evaluator(kernel, points[accepted], pivots)
        step = _CholeskyStep(evaluate, factor, k, pivots, np.linalg.inv(L).T.astype(rows.dtype))
        stop = k + len(pivots)
        for start, (new, explained) in passes.map(step, label=f"pivots, {stop} of {m}"):
            piece = slice(start, start + len(new))
            factor[piece, k:stop] = new
            residual[piece] -= explained
        residual[pivots] = 0.0
        residual[residual <= floor] = 0.0
        chosen = np.concatenate([chosen, pivots])
    return chosen


class _CholeskyStep:
    """A block's contribution: its rows of the new columns of the factor, and the part of the diagonal they explain."""

    def __init__(
        self, evaluate: Callable[[Matrix], Array], factor: Array, k: int, pivots: Array, inverse: Array
    ) -> None:
        self.evaluate = evaluate
        self.known = factor[:, :k]
        self.columns = np.ascontiguousarray(factor[pivots, :k].T)
        self.inverse = inverse

    def __call__(self, block: Block) -> tuple[Array, Array]:
        rest = self.evaluate(block.X)
        if self.columns.size:
            known = self.known[block.start : block.stop]
            rest -= (rest.beside(known) if on_device(rest) else known) @ self.columns
        new = rest @ self.inverse
        return to_host(new), to_host(np.einsum("ij,ij->i", new, new, dtype=np.float64))


def _rejection_cholesky(H: Array, proposed: Array, floor: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return which rows of the residual H are accepted as pivots, and the Cholesky factor L of H among them.

    Row j is accepted with probability (H_jj after the pivots accepted before it) / (H_jj when proposed).
    """
    L = np.zeros_like(H)
    accepted: list[int] = []
    for j, bar in enumerate(rng.random(len(H)) * proposed):
        if H[j, j] > floor[j] and (not accepted or H[j, j] > bar):
            L[j:, j] = H[j:, j] / np.sqrt(H[j, j])
            H[j:, j:] -= np.outer(L[j:, j], L[j:, j])
            accepted.append(j)
    kept = np.asarray(accepted, dtype=np.intp)
    return kept, L[np.ix_(kept, kept)]


# Smallest squared distance with a finite reciprocal in float64.
_LEAST_SPREAD = 4 * float(np.finfo(np.float64).tiny)


# Maps points to the function from rows to their negative squared distances from each point, in some unit.
_Measure: TypeAlias = Callable[[Matrix], Callable[[Matrix], Array]]


def distant_rows(
    passes: Passes,
    m: int,
    rng: np.random.Generator,
    proposals: int | None = None,
    kernel: Kernel | None = None,
) -> Array:
    """Return the numbers of at most m rows drawn by D² sampling; fewer if there are fewer distinct rows.

    With a ``kernel``, distances are those in its feature space.
    """
    proposals = n_proposals(proposals, m)
    rows = passes.rows
    weight = row_weights(passes)
    masses = np.ones(rows.shape[0]) if weight is None else weight
    chosen = drawn = rng.integers(rows.shape[0], size=1) if weight is None else draw(masses, 1, rng)
    measure = _between_columns(passes) if kernel is None else _between_features(passes, kernel)
    if measure is None:
        return chosen
    distances = np.full(rows.shape[0], np.inf)
    floor = 256 * np.finfo(rows.dtype).eps
    while True:
        nearest = _Nearest(measure(gather(passes, drawn)))
        parts = [part for _, part in passes.map(nearest, label=f"seeds, {len(chosen)} of {m}")]
        np.minimum(distances, np.concatenate(parts), out=distances)
        distances[drawn] = 0.0
        distances[(distances <= floor) | (masses == 0)] = 0.0
        if len(chosen) == m or not distances.any():
            return chosen
        drawn = draw(distances * masses, min(proposals, m - len(chosen)), rng)
        points = gather(passes, drawn)
        between = -measure(points)(points).astype(np.float64)
        drawn = drawn[_rejection_distances(between, distances[drawn], floor, rng)]
        chosen = np.concatenate([chosen, drawn])


def _between_columns(passes: Passes) -> _Measure | None:
    """Return distances of rows, or None if all rows are equal.

    They are divided by the spread, so that one floor bounds the rounding for any scale of the data.
    """
    moments = passes.moments
    if moments.spread < _LEAST_SPREAD:
        return None
    if not 1 / _RANGE < moments.spread < _RANGE:
        raise ValueError(
            f"k-means++ compares squared distances, and those of {passes.rows.name} (mean {moments.spread:.3g}) leave "
            f"the range of float64. Multiply the rows by a constant."
        )
    center = None if passes.rows.is_sparse else moments.mean
    return lambda points: Exponents(points, 1 / moments.spread, center)


def _between_features(passes: Passes, kernel: Kernel) -> _Measure:
    """Return distances ``k(x, x) + k(z, z) − 2 k(x, z)``, in units of the largest k(x, x)."""
    unit = float(np.max(kernel_diagonal(passes, kernel), initial=0.0)) or 1.0

    def measure(points: Matrix) -> Callable[[Matrix], Array]:
        evaluate, own = kernel.prepare(points), kernel.diag(points)

        def exponents(X: Matrix) -> Array:
            squares = kernel.diag(X)[:, None] + own - 2 * evaluate(X).astype(np.float64, copy=False)
            return -np.maximum(squares / unit, 0.0)

        return exponents

    return measure


class _Nearest:
    """A block's squared distances, in some unit, to the nearest of the points."""

    def __init__(self, exponents: Callable[[Matrix], Array]) -> None:
        self.exponents = exponents

    def __call__(self, block: Block) -> Array:
        return host(-self.exponents(block.X).max(axis=1))


def _rejection_distances(between: Array, proposed: Array, floor: float, rng: np.random.Generator) -> Array:
    """Return which of the proposed rows D² sampling accepts, given the squared distances between them."""
    current = proposed.copy()
    accepted: list[int] = []
    for j, bar in enumerate(rng.random(len(proposed)) * proposed):
        if not accepted or (current[j] > floor and current[j] > bar):
            np.minimum(current, between[j], out=current)
            current[j] = 0.0
            accepted.append(j)
    return np.asarray(accepted, dtype=np.intp)
