"""The search for a kernel's bandwidth: coarse on few rows, finer on more, never on all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from nystrom.engine.survey import Survey
from nystrom.factor import NystromMap, optimal
from nystrom.kernels import Kernel
from nystrom.landmarks import Landmarks
from nystrom.rows import Block, RowBlocks, array_rows
from nystrom.types import Array

Criterion = Callable[[NystromMap, RowBlocks], float]

# (rows, landmarks) of the two stages, and the factors on gamma that each tries.
_COARSE = (2000, 200, 4.0 ** np.arange(-5, 6))
_FINE = (20_000, 1000, 2.0 ** np.arange(-1, 2))


def check_searchable(kernel: Kernel) -> None:
    """Raise unless the kernel has a bandwidth."""
    if not hasattr(kernel, "gamma"):
        raise ValueError(
            f"gamma='auto' needs a kernel with a bandwidth ('gaussian', 'laplacian', 'matern' or 'polynomial'); "
            f"{kernel!r} has none. Leave gamma at 'scale'."
        )


def search_gamma(
    survey: Survey, kernel: Kernel, landmarks: Landmarks, criterion: Criterion, rng: np.random.Generator
) -> Kernel:
    """Return the kernel with the ``gamma`` that makes ``criterion`` least.

    Eleven values, four times apart around the kernel's own, are tried on 2,000 rows with 200 of the landmarks; then the
    best and its halves and doubles on 20,000 rows with 1,000.

    Parameters
    ----------
    survey : Survey
        All rows, with their target.
    kernel : Kernel
        With a number for ``gamma``, where the search begins.
    landmarks : Landmarks
        Of the fit; some of them serve here.
    criterion : callable
        From the map of some rows and the rows to a number, less is better.

    Notes
    -----
    Cost: 14 small fits whatever the number of rows, and one pass where rows can only be read in order.
    """
    check_searchable(kernel)
    for n_rows, n_landmarks, factors in (_COARSE, _FINE):
        rows = sample_rows(survey, n_rows, rng)
        few = _some_landmarks(landmarks, n_landmarks, rng)
        here = Survey(rows, survey.engine)
        tried = [replace(kernel, gamma=float(kernel.gamma * factor)) for factor in factors]  # type: ignore
        scores = [criterion(optimal(here, candidate, few, None), rows) for candidate in tried]
        kernel = tried[int(np.argmin(scores))]
    return kernel


def _some_landmarks(landmarks: Landmarks, count: int, rng: np.random.Generator) -> Landmarks:
    if len(landmarks) <= count:
        return landmarks
    return Landmarks(landmarks.points[np.sort(rng.choice(len(landmarks), count, replace=False))], None)


def sample_rows(survey: Survey, count: int, rng: np.random.Generator) -> RowBlocks:
    """Return at most ``count`` rows at random, in memory, with their targets and weights: one pass over larger sets."""
    n = survey.rows.shape[0]
    if n <= count and not survey.rows.on_cluster:
        return survey.rows
    wanted = np.sort(rng.choice(n, min(count, n), replace=False))

    def step(block: Block) -> tuple[Array, Array | None, Array | None]:
        first, last = np.searchsorted(wanted, (block.start, block.stop))
        here = wanted[first:last] - block.start
        y = None if block.y is None else block.y[here]
        return block.X[here], y, None if block.weight is None else block.weight[here]

    pieces = [piece for _, piece in survey.map(step, label="sample")]
    X = [piece[0] for piece in pieces]
    stacked = sp.vstack(X, format="csr") if survey.rows.is_sparse else np.concatenate(X)
    y, weight = (None if pieces[0][i] is None else np.concatenate([p[i] for p in pieces]) for i in (1, 2))
    return array_rows(stacked).with_target(y, weight)
