"""Search for a kernel's bandwidth: coarse on few rows, finer on more, never on all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from nystrom.engine.passes import Passes
from nystrom.kernels import Kernel
from nystrom.landmarks import Landmarks
from nystrom.nystroem.factor import NystromMap
from nystrom.rows import RowBlocks, array_rows
from nystrom.rows.draw import draw_rows, row_weights, take_with_targets

Criterion = Callable[[NystromMap, RowBlocks], float]
Factorise = Callable[[Passes, Kernel, Landmarks], NystromMap]

# Bandwidths are powers of two times the initial one. The coarse stage tries these exponents ...
_EXPONENTS = range(-10, 11, 2)
# ... and the fine stage moves from the best while its neighbour is better, at most this far from the start.
_FARTHEST = 24
# (rows, landmarks) of the coarse and the fine stage.
_COARSE = (2000, 200)
_FINE = (20_000, 1000)


def check_searchable(kernel: Kernel) -> None:
    """Raise unless the kernel has a bandwidth."""
    if not hasattr(kernel, "gamma"):
        raise ValueError(
            f"gamma='auto' needs a kernel with a bandwidth ('gaussian', 'laplacian', 'matern' or 'polynomial'); "
            f"{kernel!r} has none. Leave gamma at 'scale'."
        )


def search_gamma(
    passes: Passes,
    kernel: Kernel,
    landmarks: Landmarks,
    factorise: Factorise,
    criterion: Criterion,
    rng: np.random.Generator,
    *,
    bounds: tuple[float, float] = (0.0, np.inf),
) -> Kernel:
    """Return the kernel with the ``gamma`` that minimises ``criterion``.

    Eleven values, in steps of a factor of 4 around the initial ``gamma``, are tried on 2,000 rows with 200 of the
    landmarks. The initial value and the best of these are then compared on 20,000 rows with 1,000 landmarks: from the
    better one the search halves or doubles until neither helps, and ends with one step to the vertex of a parabola.
    With more landmarks, the winner and the initial value are compared once more with all of them. So the result is
    never worse than the initial value on those rows, which are all rows if there are at most 20,000.

    Parameters
    ----------
    passes : Passes
        All rows, with their target.
    kernel : Kernel
        With a number for ``gamma``, the initial value.
    landmarks : Landmarks
        Landmarks of the fit; some of them are used here.
    factorise : callable
        From rows, kernel and landmarks to the map, as in the fit itself.
    criterion : callable
        From the map of some rows and the rows to a number to be minimised.
    bounds : pair of float
        The smallest and the largest ``gamma`` allowed.

    Notes
    -----
    Cost: 11 small fits and about 6 larger ones for any number of rows, and one pass per stage if rows can only be read
    in order.
    """
    check_searchable(kernel)

    def scaled(exponent: float) -> Kernel:
        gamma = np.clip(kernel.gamma * 2.0**exponent, *bounds)  # type: ignore[attr-defined]
        return replace(kernel, gamma=float(gamma))  # type: ignore

    def stage(rows: RowBlocks, some: Landmarks) -> Callable[[float], float]:
        here = Passes(rows, passes.engine)

        @cache
        def score(exponent: float) -> float:
            found = float(criterion(factorise(here, scaled(exponent), some), rows))
            return found if np.isfinite(found) else np.inf

        return score

    def some_landmarks(count: int) -> Landmarks:
        return _some_landmarks(landmarks, count, rng)

    coarse = stage(sample_rows(passes, _COARSE[0], rng), some_landmarks(_COARSE[1]))
    best: float = min(_EXPONENTS, key=coarse)
    rows = sample_rows(passes, _FINE[0], rng)
    fine = stage(rows, some_landmarks(_FINE[1]))
    best = _descend(fine, min((0, best), key=fine))
    if best != 0 and len(landmarks) > _FINE[1]:
        best = min((0, best), key=stage(rows, landmarks))
    return scaled(best)


def _descend(score: Callable[[float], float], start: float) -> float:
    """Return the local minimum on the grid, or the vertex of the parabola through it if that is lower."""
    best = start
    while abs(best) < _FARTHEST:
        # On a tie, stay.
        step = min((best, best - 1, best + 1), key=score)
        if step == best:
            break
        best = step
    below, here, above = score(best - 1), score(best), score(best + 1)
    curvature = below - 2 * here + above
    if not 0 < curvature < np.inf:
        return best
    return min((best, best + (below - above) / (2 * curvature)), key=score)


def _some_landmarks(landmarks: Landmarks, count: int, rng: np.random.Generator) -> Landmarks:
    if len(landmarks) <= count:
        return landmarks
    return Landmarks(landmarks.points[np.sort(rng.choice(len(landmarks), count, replace=False))], None)


def sample_rows(passes: Passes, count: int, rng: np.random.Generator) -> RowBlocks:
    """Draw at most ``count`` rows into memory, with targets and weights: one pass over larger sets.

    Rows are drawn in proportion to their weights, and then have equal weights.
    """
    n = passes.rows.shape[0]
    if n <= count and passes.engine.reads_here(passes.rows):
        return passes.rows
    wanted, stands = draw_rows(n, count, row_weights(passes) if n > count else None, rng)
    sample = take_with_targets(passes.rows, passes.counted, wanted)
    # Keep the blocks of a cluster if all rows are taken: sums then equal those of a local fit bit by bit.
    taken = array_rows(sample.X, block_rows=passes.rows.block_rows if n <= count else None)
    return taken.with_target(sample.y, sample.weight if stands is None else stands)
