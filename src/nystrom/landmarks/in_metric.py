"""The rows as the metric of a kernel sees them, and the way back to their own columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nystrom.engine.passes import Passes
from nystrom.kernels import InMetric, Kernel, to_metric
from nystrom.landmarks.base import Landmarks, Selector, resolve
from nystrom.landmarks.fixed import GivenPoints
from nystrom.rows.arrays import array_rows
from nystrom.rows.base import Block, RowBlocks, require_finite
from nystrom.rows.draw import gather, gather_target, gather_weight
from nystrom.types import Array, Matrix, to_dense


@dataclass(frozen=True)
class View:
    """Rows and kernel in which landmarks are chosen and widths searched.

    Attributes
    ----------
    passes, kernel : Passes, Kernel
        In the metric: distances there are plain ones.
    root : array or None
        The root of the metric; None where there is none.
    outer : Passes
        The rows in their own columns.
    """

    passes: Passes
    kernel: Kernel
    root: Array | None
    outer: Passes

    def over(self, outer: Passes) -> View:
        """Return the same view with another engine."""
        if self.root is None:
            return replace(self, passes=outer, outer=outer)
        return replace(self, passes=Passes(self.passes.rows, outer.engine), outer=outer)

    def resolved(self) -> Kernel:
        """Return the kernel of the view with numbers for all its parameters."""
        return resolve(self.kernel, self.passes)

    def back(self, kernel: Kernel) -> Kernel:
        """Return a kernel of the view as one of the rows in their own columns."""
        return kernel if self.root is None else InMetric(kernel, self.root)

    def selector(self, selector: Selector) -> Selector:
        """Return the selector that does in the view what this one does in the rows' own columns."""
        if self.root is None or not isinstance(selector, GivenPoints):
            return selector
        return GivenPoints(to_metric(selector.points, self.root))

    def select(
        self, selector: Selector, n_landmarks: int, rng: np.random.Generator, *, announce: bool = True
    ) -> tuple[Landmarks, Landmarks]:
        """Return the landmarks in their own columns, and as the view sees them."""
        if self.root is not None and isinstance(selector, GivenPoints):
            outer = selector.select(self.outer, n_landmarks, self.kernel, rng, announce=announce)
            return outer, Landmarks(to_metric(outer.points, self.root), None)
        inside = selector.select(self.passes, n_landmarks, self.kernel, rng, announce=announce)
        return self.outside(inside), inside

    def outside(self, inside: Landmarks) -> Landmarks:
        """Return landmarks of the view as points in the columns of the rows."""
        if self.root is None:
            return inside
        return Landmarks(_in_columns(self.outer, inside, self.root), inside.indices)


def see(passes: Passes, kernel: Kernel) -> View:
    """Return the view of a kernel: the rows themselves, or in its metric, made by one pass and held."""
    if not isinstance(kernel, InMetric):
        return View(passes, kernel, None, passes)
    if not kernel.kernel.has_coordinates:
        raise ValueError("a metric needs rows with columns of their own; kernel='precomputed' has none.")
    seen = Passes(_rows_in_metric(passes, kernel.root), passes.engine)
    return View(seen, kernel.kernel, kernel.root, passes)


def _rows_in_metric(passes: Passes, root: Array) -> RowBlocks:
    """Return the rows times the root of a metric, with their targets and weights: one pass."""
    rows = passes.rows
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
        made = passes.engine.map_rows(rows, step, q, np.dtype(np.float64), label="rows in the metric")
    y, weight = _beside(passes)
    return made if y is None and weight is None else made.with_target(y, weight)


def _beside(passes: Passes) -> tuple[Any, Any]:
    """Return the targets and weights beside the rows, or inside them."""
    rows = passes.rows
    y, weight = getattr(rows, "y", None), getattr(rows, "weight", None)
    if y is None and rows.has_target:
        y = gather_target(rows, passes.engine)
    if weight is None and rows.has_weight:
        weight = gather_weight(rows, passes.engine)
    return y, weight


def _in_columns(passes: Passes, inside: Landmarks, root: Array) -> Matrix:
    """Return landmarks chosen in the metric as points in the columns of the rows."""
    if inside.indices is not None:
        return gather(passes, inside.indices)
    dtype = passes.rows.dtype
    if root.ndim == 1:
        inverse = np.where(root != 0, 1 / np.where(root != 0, root, 1.0), 0.0)
        return to_metric(inside.points, inverse).astype(dtype)
    return np.asarray(to_dense(inside.points) @ np.linalg.pinv(root), dtype=dtype, order="C")
