"""Some of the rows with their targets and weights, in memory, and what makes two rows equal.

A weight is a number of repetitions, so a choice by held-out rows may depend neither on how often a row is written down
nor on its place: equal rows are found by a key made of their numbers, and stand in the order of the keys.
"""

from __future__ import annotations

import numpy as np

from nystrom.engine.base import Engine
from nystrom.rows import Block, RowBlocks
from nystrom.rows.stack import join_arrays, stack_rows
from nystrom.types import Array, Matrix, issparse

# The golden ratio's bits: the increment of the generator whose output function is `_mixed`.
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
# Rows are turned into keys this many numbers at a time.
_TILE_NUMBERS = 2**21


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


def gather_keys(rows: RowBlocks, engine: Engine) -> tuple[Array, Array]:
    """Return the key and the weight of every row, 1 where they have none: one pass."""

    def step(block: Block) -> tuple[Array, Array]:
        weight = np.ones(block.X.shape[0]) if block.weight is None else np.asarray(block.weight, dtype=np.float64)
        return row_keys(block.X), weight

    found = [pair for _, pair in engine.map(rows, step, label="keys")]
    return np.concatenate([keys for keys, _ in found]), np.concatenate([weight for _, weight in found])


def row_keys(X: Matrix) -> Array:
    """Return a number for each row that is the same for equal rows, sparse or dense, and no others (but for chance).

    The key is a sum over the columns, of the bits of each number times an odd number of the column. Cost: O(n p).
    """
    n, p = X.shape
    if issparse(X):
        X = X.tocsr()
        terms = _bits(X.data) * _column_factors(X.indices)
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        return _mixed(ends[X.indptr[1:]] - ends[X.indptr[:-1]])
    factors = _column_factors(np.arange(p))
    keys = np.empty(n, np.uint64)
    tile = max(_TILE_NUMBERS // max(p, 1), 1)
    for first in range(0, n, tile):
        bits = _bits(np.asarray(X[first : first + tile]))
        keys[first : first + tile] = np.einsum("ij,j->i", bits, factors)
    return _mixed(keys)


def _bits(values: Array) -> Array:
    """Return the bits of the numbers as float64, with the high half in the low half too; 0 for both zeros."""
    bits = (values.astype(np.float64, order="C") + 0.0).view(np.uint64)
    # Numbers with few digits have them in the high half, which a product modulo 2⁶⁴ would lose.
    bits ^= bits >> np.uint64(32)
    return bits


def _column_factors(columns: Array) -> Array:
    return _mixed(columns.astype(np.uint64)) | np.uint64(1)


def _mixed(state: Array) -> Array:
    """Return the output of the generator SplitMix64 for each state."""
    z = state + _INCREMENT
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def distinct_rows(block: Block) -> Block:
    """Return each row with its target once, with the sum of its weights, in the order of keys; no row of weight 0.

    Weights are left out where no row is there twice and none has a weight.
    """
    X, y = block.X, None if block.y is None else np.asarray(block.y, dtype=np.float64)
    weight = np.ones(X.shape[0]) if block.weight is None else np.asarray(block.weight, dtype=np.float64)
    keys = row_keys(X) if y is None else _mixed(row_keys(X) + row_keys(y.reshape(len(y), -1)))
    keys[weight <= 0] = 0  # all of these are one, which is dropped
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    sums = np.bincount(group.ravel(), weight)
    first, sums = first[sums > 0], sums[sums > 0]
    plain = block.weight is None and len(first) == X.shape[0]
    return Block(0, 0, X[first], None if y is None else y[first], None if plain else sums)


def _joined(parts: list[Array | None]) -> Array | None:
    kept = [part for part in parts if part is not None]
    return np.concatenate(kept) if len(kept) == len(parts) else None
