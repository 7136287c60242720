"""Some of the rows with their targets and weights, in memory."""

from __future__ import annotations

import numpy as np

from nystrom.engine.base import Engine
from nystrom.rows import Block, RowBlocks
from nystrom.rows.stack import join_arrays, stack_rows
from nystrom.types import Array


def take_with_targets(rows: RowBlocks, engine: Engine, numbers: Array) -> Block:
    """Return the rows with these numbers, in ascending order, with their targets and weights: one pass."""

    def step(block: Block) -> Block:
        first, last = np.searchsorted(numbers, (block.start, block.stop))
        here = numbers[first:last] - block.start
        y = None if block.y is None else np.asarray(block.y)[here]
        return Block(block.index, block.start, block.X[here], y, None if block.weight is None else block.weight[here])

    pieces = [piece for _, piece in engine.map(rows, step, label="sample")]
    y, weight = join_arrays([piece.y for piece in pieces]), join_arrays([piece.weight for piece in pieces])
    return Block(0, 0, stack_rows([piece.X for piece in pieces]), y, weight)


def gather_weights(rows: RowBlocks, engine: Engine) -> Array:
    """Return the weight of every row, 1 where they have none: one pass."""
    found = engine.map(
        rows, lambda block: np.ones(block.X.shape[0]) if block.weight is None else block.weight, label="weights"
    )
    return np.concatenate([np.asarray(weight, dtype=np.float64) for _, weight in found])
