"""Features of all rows, held for the passes of an iteration: kernel values, or whitened ones of small problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from nystrom.engine.base import Engine
from nystrom.excess import CAUTIONS, exceeded, rounding_tolerance, warn_or_refuse
from nystrom.factor import landmark_kernel
from nystrom.feature_sums import margin_of
from nystrom.kernels import Kernel
from nystrom.landmarks.base import Landmarks
from nystrom.linalg import whiten
from nystrom.rows.base import Block, RowBlocks
from nystrom.rows.finite import require_finite
from nystrom.rows.stack import join_arrays
from nystrom.types import Array, Matrix


def hold_features(
    rows: RowBlocks,
    engine: Engine,
    features: Callable[[Matrix], Array],
    width: int,
    dtype: DTypeLike,
    margin: Callable[[Matrix, Array], float] | None = None,
) -> tuple[RowBlocks, Array | None, float]:
    """Return the features of all rows with their targets, the weights, and the least ``margin`` of a block."""
    name = rows.name

    def step(block: Block) -> tuple[Array, _Beside]:
        require_finite(block.X, name, block.start)
        F = features(block.X)
        return F, _Beside([block.y], [block.weight], np.inf if margin is None else margin(block.X, F))

    held, beside = engine.map_rows_and_fold(rows, step, width, dtype, label="kernel values")
    target, weight = join_arrays(beside.targets), join_arrays(beside.weights)
    return held.with_target(target, weight), weight, beside.margin


def hold_whitened(
    rows: RowBlocks, engine: Engine, kernel: Kernel, landmarks: Landmarks, evaluate: Callable[[Matrix], Array]
) -> tuple[Array, RowBlocks, Array | None]:
    """Return the whitening T, the features ``C T`` of all rows, none of which exceeds its kernel, and the weights."""
    W = landmark_kernel(kernel, landmarks)
    top = float(np.max(np.diag(W)))
    for caution in CAUTIONS:
        T = whiten(W, block_dtype=rows.dtype, caution=caution).T
        tolerance = rounding_tolerance(kernel, W, T, rows.dtype)

        def features(X: Matrix, T: Array = T) -> Array:
            return np.asarray(evaluate(X).astype(np.float64, copy=False) @ T)

        def margin(X: Matrix, F: Array, tolerance: float = tolerance) -> float:
            return margin_of(F, kernel.diag(X), top, tolerance)

        held, weight, least = hold_features(rows, engine, features, T.shape[1], np.dtype(np.float64), margin)
        over = -least / tolerance
        if over <= 1:
            return T, held, weight
        warn_or_refuse(kernel, over)
    raise exceeded(kernel, over)


@dataclass(frozen=True)
class _Beside:
    """Targets and weights of consecutive rows, block by block, and the least margin of their features."""

    targets: list[Array | None]
    weights: list[Array | None]
    margin: float

    def merge(self, other: _Beside) -> _Beside:
        return _Beside(self.targets + other.targets, self.weights + other.weights, min(self.margin, other.margin))
