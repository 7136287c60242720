"""Landmarks for rows that a sample does not show: rare clusters, seen in the pass that factorises.

"auto" chooses from a sample, and a cluster of 40 rows in 100,000 may have none in it. The pass over all rows evaluates
the kernel with every landmark anyway, so the rows that resemble none of them are known after it, at no cost. Where they
resemble each other, some of the most redundant landmarks are given to them and the pass is made again.
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

# Below this squared kernel value with its nearest landmark, a row is not explained by any one landmark.
_UNLIKE = 0.3
# Rare is at most this share of the rows; of more of them, this many are looked at.
_RARE = 0.05
_MOST_LOOKED = 2000
# Rows of many columns resemble no landmark much; those below this share of what all but the rare reach stand apart.
_APART = 0.5
# A landmark is worth moving if it explains as much as this many rows, and this share of the mean residual per landmark:
# a little of the error in the bulk is given for rows that would be lost.
_LEAST_ROWS = 3.0
_LEAST_SHARE = 0.02
# What the landmarks leave of all rows may grow by this factor, or by more if no more than this share of the rows that
# were lost still are. Hidden clusters of 40 rows made it grow by up to 1.25, and 3 to 5 % of their rows stayed lost.
# Rows of heavy tails (Student's t, 2 to 6 columns), which resemble each other a little, made it grow by up to 5.4, and
# wherever it grew, 35 % or more of them stayed lost.
_MOST_LOSS = 1.02
_STILL_LOST = 0.25
# At most this share of the landmarks is given away, and none of few.
_MOST_GIVEN = 1 / 3
_LEAST_LANDMARKS = 20
# What is left is updated this many rows at a time: a copy of it would be 32 MB.
_TILE_ROWS = 128


class Apart(NamedTuple):
    """Rows that resemble no landmark: how many, and those that are looked at, each of which stands for ``step``."""

    n_rows: int
    X: Matrix
    step: int


def rows_apart(passes: Passes, largest: Array) -> Apart | None:
    """Return the rows that resemble no landmark, by the largest kernel value of each row; None if every row does."""
    rare = int(_RARE * len(largest))
    # In half the memory of the values themselves, which are as many as the rows.
    ordered = largest.astype(np.float32)
    ordered.partition(rare)
    reached = float(ordered[rare])
    del ordered
    unlike = np.flatnonzero(largest < min(float(np.sqrt(_UNLIKE)), _APART * reached))
    if not 0 < len(unlike) <= max(_RARE * len(largest), 1):
        return None
    step = -(-len(unlike) // _MOST_LOOKED)
    return Apart(len(unlike), gather(passes, unlike[::step]), step)


def can_watch(passes: Passes, kernel: Kernel, landmarks: Landmarks) -> bool:
    """Return whether rare rows can be told by kernel values: k(x, x) = 1, and no row weighted."""
    rows = passes.rows
    if rows.has_weight or landmarks.indices is not None:
        return False
    return bool(np.all(kernel.diag(landmarks.points[:1]) == 1.0))


def with_rare_rows(passes: Passes, fitted: NystromMap, apart: Apart) -> Landmarks | None:
    """Return the landmarks with some given to rare clusters; None where there are none that are worth it.

    Parameters
    ----------
    passes : Passes
        The rows.
    fitted : NystromMap
        With the landmarks so far.
    apart : Apart
        The rows that resemble none of these.
    """
    m = len(fitted.landmarks)
    if apart.n_rows < 2 or m < _LEAST_LANDMARKS:
        return None
    left = _left(fitted, apart.X)
    average = max(fitted.statistics.trace - fitted.statistics.spanned, 0.0) / m
    least = max(_LEAST_ROWS, _LEAST_SHARE * average) / apart.step
    pivots = _worthwhile(left, least, int(_MOST_GIVEN * m))
    if not pivots:
        return None
    kept = _least_redundant(fitted, m - len(pivots))
    given = apart.X[np.array(pivots)].astype(passes.rows.dtype)
    return Landmarks(stack_rows([fitted.landmarks.points[kept], given]), None)


def costs_too_much(moved: NystromMap, fitted: NystromMap, apart: Apart) -> bool:
    """Return whether all rows lose more by landmarks for rare ones than these gain."""
    left, before = (max(f.statistics.trace - f.statistics.spanned, 0.0) for f in (moved, fitted))
    return left > _MOST_LOSS * before and _count_lost(moved, apart) > _STILL_LOST * _count_lost(fitted, apart)


def count_apart(certificate: Certificate, fitted: NystromMap, apart: Apart) -> Certificate:
    """Return the certificate with the rows that stood apart, and how many of them the landmarks do not explain."""
    # Where only some were looked at, each stands for as many.
    count = min(_count_lost(fitted, apart) * apart.step, apart.n_rows)
    return replace(certificate, n_apart=apart.n_rows, n_apart_lost=count)


def _count_lost(fitted: NystromMap, apart: Apart) -> int:
    """Return how many of the rows looked at no direction of the landmarks explains."""
    features = np.asarray(fitted.evaluate(apart.X), dtype=np.float64) @ fitted.whitening
    return int(lost_rows(fitted.residual(apart.X, features), fitted.kernel.diag(apart.X)).sum())


def _left(fitted: NystromMap, X: Matrix) -> Array:
    """Return the kernel between these rows, without what all directions of the landmarks explain."""
    features = np.asarray(fitted.evaluate(X), dtype=np.float64) @ fitted.whitening
    left = np.asarray(fitted.kernel(X, X), dtype=np.float64)
    left -= features @ features.T
    return left


def _worthwhile(left: Array, least: float, most: int) -> list[int]:
    """Return the rows that, one after another, explain most of what is left, while that is at least ``least``.

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
    """Return the numbers of the landmarks that a pivoted Cholesky factorisation of W takes first, in order."""
    Z = fitted.landmarks.points.astype(np.float64)
    _, pivots, _, _ = scipy.linalg.lapack.dpstrf(np.asarray(fitted.kernel(Z, Z), dtype=np.float64), lower=1)
    return np.sort(pivots[:count] - 1)
