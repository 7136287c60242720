"""Landmarks for rows that a sample misses: rare clusters, detected in the pass that factorises.

"auto" chooses from a sample, which may contain no row of a cluster of 40 rows in 100,000. The pass over all rows
evaluates the kernel with every landmark anyway, so it finds the rows unlike every landmark at no cost. If they resemble
each other, they replace some of the most redundant landmarks, and the pass is repeated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg.lapack

from nystrom.engine.passes import Passes
from nystrom.errors.trace import Certificate, lost_rows
from nystrom.kernels import Kernel
from nystrom.landmarks.base import Landmarks
from nystrom.nystroem.factor import NystromMap
from nystrom.rows.draw import gather
from nystrom.rows.sparse import stack_rows
from nystrom.types import Array, Matrix

# A row is unlike every landmark if its largest squared kernel value with them is below this.
_UNLIKE = 0.3
# Rare rows are at most this fraction of all rows; at most this many of them are examined.
_RARE = 0.05
_MOST_LOOKED = 2000
# Isolated: largest kernel value below half of the 5 % quantile. A fixed bound fails with many columns, where no row
# resembles a landmark much.
_ISOLATED = 0.5
# A landmark moves if that explains as much as 3 whole rows, and 2 % of the mean residual per landmark: the error of the
# other rows may rise a little.
_LEAST_ROWS = 3.0
_LEAST_SHARE = 0.02
# Landmarks may move if the residual of all rows grows by at most this factor, or by more if at most this fraction of
# the lost rows stays lost.
# Hidden clusters of 40 rows made it grow by up to 1.25, and 3 to 5 % of their rows stayed lost. Heavy-tailed rows
# (Student's t, 2 to 6 columns), which resemble each other a little, made it grow by up to 5.4, and whenever it grew,
# 35 % or more of them stayed lost.
_MOST_LOSS = 1.02
_STILL_LOST = 0.25
# Largest fraction of the landmarks to replace, and the least number of landmarks for replacing any.
_MOST_GIVEN = 1 / 3
_LEAST_LANDMARKS = 20
# Rows of the residual kernel updated at a time: a full copy would take 32 MB.
_TILE_ROWS = 128


class UnlikeRows(NamedTuple):
    """Rows unlike every landmark: their number, and the examined ones, every ``step``-th."""

    n_rows: int
    X: Matrix
    step: int


def unlike_rows(passes: Passes, largest: Array) -> UnlikeRows | None:
    """Return the rows unlike every landmark, given the largest kernel value of each row; None if there are none."""
    rare = int(_RARE * len(largest))
    # In float32: half the memory of the values, one per row.
    ordered = largest.astype(np.float32)
    ordered.partition(rare)
    reached = float(ordered[rare])
    del ordered
    unlike = np.flatnonzero(largest < min(float(np.sqrt(_UNLIKE)), _ISOLATED * reached))
    if not 0 < len(unlike) <= max(_RARE * len(largest), 1):
        return None
    step = -(-len(unlike) // _MOST_LOOKED)
    return UnlikeRows(len(unlike), gather(passes, unlike[::step]), step)


def can_watch(passes: Passes, kernel: Kernel, landmarks: Landmarks) -> bool:
    """Return whether rare rows can be detected from kernel values: k(x, x) = 1, and rows without weights."""
    rows = passes.rows
    if rows.has_weight or landmarks.indices is not None:
        return False
    return bool(np.all(kernel.diag(landmarks.points[:1]) == 1.0))


def with_rare_rows(passes: Passes, fitted: NystromMap, unlike: UnlikeRows) -> Landmarks | None:
    """Return the landmarks with some moved to rare clusters; None if that is not worthwhile.

    Parameters
    ----------
    passes : Passes
        The rows.
    fitted : NystromMap
        The map with the current landmarks.
    unlike : UnlikeRows
        The rows unlike every landmark.
    """
    m = len(fitted.landmarks)
    if unlike.n_rows < 2 or m < _LEAST_LANDMARKS:
        return None
    left = _left(fitted, unlike.X)
    average = max(fitted.statistics.trace - fitted.statistics.spanned, 0.0) / m
    least = max(_LEAST_ROWS, _LEAST_SHARE * average) / unlike.step
    pivots = _worthwhile(left, least, int(_MOST_GIVEN * m))
    if not pivots:
        return None
    kept = _least_redundant(fitted, m - len(pivots))
    given = unlike.X[np.array(pivots)].astype(passes.rows.dtype)
    return Landmarks(stack_rows([fitted.landmarks.points[kept], given]), None)


def costs_too_much(moved: NystromMap, fitted: NystromMap, unlike: UnlikeRows) -> bool:
    """Return whether landmarks for rare rows cost all rows more than the rare rows gain."""
    left, before = (max(f.statistics.trace - f.statistics.spanned, 0.0) for f in (moved, fitted))
    return left > _MOST_LOSS * before and _count_lost(moved, unlike) > _STILL_LOST * _count_lost(fitted, unlike)


def count_unlike(certificate: Certificate, fitted: NystromMap, unlike: UnlikeRows) -> Certificate:
    """Return the certificate with the number of isolated rows, and how many of them are not explained."""
    # Each examined row represents ``step`` rows.
    count = min(_count_lost(fitted, unlike) * unlike.step, unlike.n_rows)
    return replace(certificate, n_apart=unlike.n_rows, n_apart_lost=count)


def _count_lost(fitted: NystromMap, unlike: UnlikeRows) -> int:
    """Return how many of the examined rows are lost with every direction of the landmarks."""
    features = np.asarray(fitted.evaluate(unlike.X), dtype=np.float64) @ fitted.whitening
    return int(lost_rows(fitted.residual(unlike.X, features), fitted.kernel.diag(unlike.X)).sum())


def _left(fitted: NystromMap, X: Matrix) -> Array:
    """Return the kernel between these rows minus the part that the landmarks explain."""
    features = np.asarray(fitted.evaluate(X), dtype=np.float64) @ fitted.whitening
    left = np.asarray(fitted.kernel(X, X), dtype=np.float64)
    left -= features @ features.T
    return left


def _worthwhile(left: Array, least: float, most: int) -> list[int]:
    """Return rows that, chosen greedily, explain most of the residual, while each explains at least ``least``.

    ``left`` is overwritten.
    """
    pivots: list[int] = []
    while len(pivots) < most:
        diagonal = np.diag(left)
        gains = np.einsum("ij,ij->j", left, left) / np.maximum(diagonal, np.finfo(np.float32).eps)
        best = int(np.argmax(gains))
        if gains[best] < least or diagonal[best] <= np.finfo(np.float32).eps:
            break
        pivots.append(best)
        column = left[:, best] / np.sqrt(diagonal[best])
        for first in range(0, len(left), _TILE_ROWS):
            tile = slice(first, first + _TILE_ROWS)
            left[tile] -= np.multiply.outer(column[tile], column)
    return pivots


def _least_redundant(fitted: NystromMap, count: int) -> Array:
    """Return the numbers of the landmarks that a pivoted Cholesky factorisation of W selects first, in order."""
    Z = fitted.landmarks.points.astype(np.float64)
    _, pivots, _, _ = scipy.linalg.lapack.dpstrf(np.asarray(fitted.kernel(Z, Z), dtype=np.float64), lower=1)
    return np.sort(pivots[:count] - 1)
