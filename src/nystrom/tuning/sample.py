"""Samples of rows with targets and weights, in memory, and keys that identify equal rows.

A weight is a number of repetitions, so a choice on held-out rows must depend neither on how often a row is repeated nor
on its position: rows are sorted by their projection onto one direction, which makes equal rows neighbours. Shifting all
rows, or changing their unit, does not change that order.
"""

from __future__ import annotations

import numpy as np

from nystrom.devices import to_host
from nystrom.engine.base import Engine
from nystrom.rows import Block, RowBlocks
from nystrom.types import Array, Matrix, issparse

# Seed of the direction. Any value works: the randomness of a choice comes from the estimator's own seed.
_SEED = 20_011
# Number of values of dense rows that are projected at a time.
_TILE_NUMBERS = 2**17


def gather_keys(rows: RowBlocks, engine: Engine) -> tuple[Array, Array]:
    """Return the key and the weight of every row (1 if there are no weights): one pass."""

    def step(block: Block) -> tuple[Array, Array]:
        weight = np.ones(block.X.shape[0]) if block.weight is None else np.asarray(block.weight, dtype=np.float64)
        return row_keys(block.X), weight

    found = [pair for _, pair in engine.map(rows, step, label="keys")]
    return np.concatenate([keys for keys, _ in found]), np.concatenate([weight for _, weight in found])


def lowest_marks(rows: RowBlocks, engine: Engine, salt: int, most: int) -> Array:
    """Return the ``most`` lowest marks of the distinct rows of positive weight, sorted: one pass.

    A mark is a random number that equal rows share. Fewer than ``most`` marks cover all distinct rows.
    """

    def step(block: Block) -> Array:
        return np.unique(_marks(block, salt))[:most]

    lowest = np.empty(0, np.uint64)
    for _, marks in engine.map(rows, step, label="keys"):
        lowest = np.unique(np.concatenate([lowest, marks]))[:most]
    return lowest


def numbers_below(rows: RowBlocks, engine: Engine, salt: int, mark: int) -> Array:
    """Return the numbers of the rows of positive weight with a mark of at most ``mark``: one pass."""

    def step(block: Block) -> Array:
        kept = np.arange(block.X.shape[0]) if block.weight is None else np.flatnonzero(np.asarray(block.weight) > 0)
        return block.start + kept[_marks(block, salt) <= np.uint64(mark)]

    return np.concatenate([numbers for _, numbers in engine.map(rows, step, label="held-out rows")])


def _marks(block: Block, salt: int) -> Array:
    """Return a random number for each row of positive weight: a hash of its key by the finaliser of splitmix64."""
    keys = row_keys(block.X) + 0.0  # no minus zero
    keys[np.isnan(keys)] = np.nan  # one pattern of bits
    z = keys.view(np.uint64) if block.weight is None else keys[np.asarray(block.weight) > 0].view(np.uint64)
    z = (z ^ np.uint64(salt)) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def row_keys(X: Matrix) -> Array:
    """Return the projection of each row onto one direction: equal for equal rows, and else only by chance.

    Cost: O(n p).
    """
    X = to_host(X)
    n, p = X.shape
    direction = np.random.default_rng(_SEED).standard_normal((p,))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if issparse(X):
            return np.asarray(X.astype(np.float64) @ direction)
        keys = np.zeros(n)
        tile = max(_TILE_NUMBERS // max(p, 1), 1)
        for first in range(0, n, tile):
            # Column by column: BLAS sums may differ in the last bit between equal rows at different positions.
            columns = np.array(X[first : first + tile].T, dtype=np.float64, order="C")
            for j in range(p):
                keys[first : first + tile] += columns[j] * direction[j]
    return keys


def distinct_rows(block: Block) -> Block:
    """Return each distinct pair of row and target once, with the sum of its weights, sorted by key; drop weight 0.

    There are no weights if no row is repeated and none has a weight. Equal rows with several targets are sorted so that
    renaming classes changes nothing.
    """
    X, n = block.X, block.X.shape[0]
    y = None if block.y is None else np.asarray(block.y, dtype=np.float64)
    weight = np.ones(n) if block.weight is None else np.asarray(block.weight, dtype=np.float64)
    kept = np.flatnonzero(weight > 0)
    group = np.unique(row_keys(X)[kept], return_inverse=True)[1].ravel()
    target = np.zeros(len(kept), np.int64)
    if y is not None:
        values = np.unique(y[kept].reshape(len(kept), -1), axis=0, return_inverse=True)[1].ravel()
        target = _by_contents(values, group, weight[kept])
    place = np.lexsort((target, group))
    order, begins = kept[place], np.ones(len(kept), dtype=bool)
    begins[1:] = np.any([numbers[place][1:] != numbers[place][:-1] for numbers in (group, target)], axis=0)
    first, sums = order[begins], np.bincount(np.cumsum(begins) - 1, weight[order])
    plain = block.weight is None and len(first) == n
    return Block(0, 0, X[first], None if y is None else y[first], None if plain else sums)


def assign_parts(
    keys: Array, weight: Array | None, n_parts: int, rng: np.random.Generator, *, strata: Array | None = None
) -> Array:
    """Assign each row to a random part, 0 to ``n_parts − 1``; equal rows share a part.

    Parts depend on the rows' keys, so neither their order nor repetitions matter, and rows of weight 0 have no effect.
    Each stratum is spread evenly over the parts; only which rows it contains matters, not its number.
    """
    weight = np.ones(len(keys)) if weight is None else weight
    kept = np.flatnonzero(weight > 0)
    distinct, group = np.unique(keys[kept], return_inverse=True)
    order = rng.permutation(len(distinct))
    if strata is not None:
        least = np.full(len(distinct), np.iinfo(np.int64).max)
        places = _by_contents(np.asarray(strata)[kept], group.ravel(), weight[kept])
        np.minimum.at(least, group.ravel(), places)
        order = order[np.argsort(least[order], kind="stable")]
    place = np.empty(len(distinct), np.int64)
    place[order] = np.arange(len(distinct))
    parts = np.zeros(len(keys), dtype=np.int64)
    parts[kept] = place[group.ravel()] % n_parts
    return parts


def count_distinct(keys: Array, weight: Array | None) -> int:
    """Return how many distinct rows of positive weight there are."""
    return len(np.unique(keys if weight is None else keys[weight > 0]))


def _by_contents(strata: Array, group: Array, weight: Array) -> Array:
    """Number the strata by the smallest group of rows in each, so that renaming classes changes nothing."""
    names, codes = np.unique(strata, return_inverse=True)
    codes = codes.ravel()
    first = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(first, codes, group)
    # Classes that share their first group differ in weight, or in the place of their rows.
    sums = (np.bincount(codes, weight * group), np.bincount(codes, weight))
    place = np.empty(len(names), np.int64)
    place[np.lexsort((*sums, first))] = np.arange(len(names))
    return np.asarray(place[codes])
