"""Means of clusters over all rows, and Lloyd steps, with landmarks that stay sparse where the rows are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nystrom.engine.survey import Survey
from nystrom.kmeans.lloyd import ClusterSums, Nearest, cluster_sums
from nystrom.landmarks.base import smaller_form
from nystrom.rows.base import Block
from nystrom.rows.offset import minus_columns, offset_columns
from nystrom.rows.stack import stack_rows
from nystrom.types import Array, Matrix, issparse


class MeansStep:
    """What a block adds to the means: the sum and the number of the rows that have each label."""

    def __init__(self, label: Callable[[Matrix], Array], m: int) -> None:
        self.label = label
        self.m = m

    def __call__(self, block: Block) -> ClusterSums:
        return cluster_sums(self.label(block.X), block.X, self.m, block.weight)


def nearest_label(survey: Survey, points: Matrix) -> Nearest:
    """Return the function from rows to the number of the nearest point."""
    rows = survey.rows
    if rows.is_sparse:
        offset = offset_columns(survey.moments.mean, survey.moments.spread)
        if offset is None:
            return Nearest(points, None, rows.dtype)
        offset = offset.astype(rows.dtype)
        moved = minus_columns(points, offset) if issparse(points) else points - offset
        return Nearest(moved, offset, rows.dtype, sparse=True)
    shift = survey.moments.mean
    return Nearest(points - shift, shift, rows.dtype)


def lloyd(survey: Survey, points: Matrix, n_iter: int) -> Matrix:
    """Return the landmarks after ``n_iter`` Lloyd steps, one pass each; a landmark that loses all rows stays.

    Cost: O(nmp) time per step. Landmarks of sparse rows are kept sparse while that is smaller.
    """
    for number in range(n_iter):
        step = MeansStep(nearest_label(survey, points), points.shape[0])
        found = survey.fold(step, label=f"Lloyd step {number + 1} of {n_iter}")
        stay = points[np.flatnonzero(found.counts == 0)]
        moved = found.means().astype(survey.rows.dtype)
        if stay.shape[0]:
            moved = stack_rows([moved, stay])
        points = smaller_form(moved)
    return points
