"""Landmarks of a kernel in a metric: chosen among the rows as the metric sees them, and kept in their own columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nystrom.engine.survey import Survey
from nystrom.kernels import InMetric, Kernel, Precomputed, to_metric
from nystrom.landmarks.base import Landmarks, Selector, gather
from nystrom.landmarks.fixed import GivenPoints
from nystrom.rows.arrays import array_rows
from nystrom.rows.base import Block, RowBlocks
from nystrom.rows.finite import require_finite
from nystrom.types import Array, Matrix, to_dense

Settle = Callable[[Survey, Kernel, Landmarks, np.random.Generator], Kernel]


def select_in_metric(
    selector: Selector,
    survey: Survey,
    n_landmarks: int,
    kernel: InMetric,
    rng: np.random.Generator,
    *,
    settle: Settle,
    announce: bool = True,
) -> tuple[Kernel, Landmarks]:
    """Return the kernel, settled on the rows in its metric, and landmarks chosen there, in the columns of the rows.

    The rows in the metric are made by one pass and held where the engine holds data.

    Parameters
    ----------
    settle : callable
        From rows, kernel, landmarks (all three in the metric) and generator to the kernel without open parameters.
    """
    root, inner = kernel.root, kernel.kernel
    if isinstance(inner, Precomputed):
        raise ValueError("a metric needs rows with columns of their own; kernel='precomputed' has none.")
    seen = Survey(rows_in_metric(survey, root), survey.engine)
    if isinstance(selector, GivenPoints):
        landmarks = selector.select(survey, n_landmarks, inner, rng, announce=announce)
        inside = Landmarks(to_metric(landmarks.points, root), None)
    else:
        inside = selector.select(seen, n_landmarks, inner, rng, announce=announce)
        landmarks = Landmarks(_in_columns(survey, inside, root), inside.indices)
    return InMetric(settle(seen, inner, inside, rng), root), landmarks


def rows_in_metric(survey: Survey, root: Array) -> RowBlocks:
    """Return the rows times the root of a metric, with their targets and weights: one pass."""
    rows = survey.rows
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
        made = survey.engine.map_rows(rows, step, q, rows.dtype, label="rows in the metric")
    y, weight = _beside(survey)
    return made if y is None and weight is None else made.with_target(y, weight)


def _beside(survey: Survey) -> tuple[Any, Any]:
    """Return the targets and weights beside the rows, or inside them."""
    rows = survey.rows
    y, weight = getattr(rows, "y", None), getattr(rows, "weight", None)
    if y is None and rows.has_target:
        pieces = survey.engine.map(rows, lambda block: np.asarray(block.y), label="target")
        y = np.concatenate([piece for _, piece in pieces])
    return y, weight


def _in_columns(survey: Survey, inside: Landmarks, root: Array) -> Matrix:
    """Return landmarks chosen in the metric as points in the columns of the rows."""
    if inside.indices is not None:
        return gather(survey, inside.indices)
    points = inside.points
    if root.ndim == 1:
        inverse = np.where(root != 0, 1 / np.where(root != 0, root, 1.0), 0.0)
        return to_metric(points, inverse)
    dense = to_dense(points)
    return np.asarray(dense @ np.linalg.pinv(root), dtype=points.dtype, order="C")
