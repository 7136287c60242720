"""Rows by number, with targets and weights: drawn at random, and read by direct access or within one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from nystrom.devices import to_host
from nystrom.rows.base import Block, BlockwiseRows, RowBlocks, require_finite
from nystrom.rows.sparse import join_arrays, stack_rows
from nystrom.types import Array, Matrix

T = TypeVar("T")


class RowPasses(Protocol):
    """Rows and their reader: the passes of a fit."""

    rows: RowBlocks

    def map(self, step: Callable[[Block], T], *, label: str) -> Iterator[tuple[int, T]]: ...


class Reader(Protocol):
    """A reader of any rows, such as an engine."""

    def map(self, rows: RowBlocks, step: Callable[[Block], T], *, label: str) -> Iterator[tuple[int, T]]: ...


class Sample(NamedTuple):
    """Some rows, and their targets as a matrix."""

    X: Matrix
    y: Array | None


def draw_rows(n: int, size: int, weight: Array | None, rng: np.random.Generator) -> tuple[Array, Array | None]:
    """Return ``size`` row numbers out of ``n``, in order and without repetition, and their adjusted weights.

    Returns all rows if there are at most ``size``. With weights, rows are drawn in proportion to them, and never with
    weight 0. A row so heavy that it is always drawn keeps its weight; the others share the remaining weight equally.
    """
    if weight is None:
        return (np.arange(n) if size >= n else np.sort(rng.choice(n, size, replace=False, shuffle=False))), None
    heavy = np.flatnonzero(weight > 0)
    if size >= heavy.size:
        return heavy, weight[heavy]
    # Sampling without replacement: each row gets an exponential time with its weight as the rate; take the earliest.
    times = rng.exponential(size=heavy.size) / weight[heavy]
    drawn = np.sort(heavy[np.argpartition(times, size - 1)[:size]])
    return drawn, np.maximum(weight[drawn], weight.sum() / size)


def are_whole(weight: Array) -> bool:
    """Return whether weights can be numbers of repetitions; of other weights only the ratios have a meaning."""
    return bool((np.abs(weight - np.rint(weight)) <= 1e-12 * weight).all())


def unit_weight(weight: Array | None) -> float:
    """Return the weight of one row: 1 if weights are repetitions, else their mean over the rows that count."""
    return 1.0 if weight is None or are_whole(weight) else float(weight.sum() / np.count_nonzero(weight))


def effective_count(weight: Array) -> float:
    """Return the number of rows that weights count as: their sum, or Kish's number if only their ratios matter."""
    total = float(weight.sum())
    return total if are_whole(weight) else total**2 / float(np.square(weight).sum())


def row_weights(passes: RowPasses) -> Array | None:
    """Return the weight of every row, or None if all are equal; costs a pass only if the blocks hold them."""
    rows = passes.rows
    if not rows.has_weight:
        return None
    held = getattr(rows, "weight", None)
    weight = _joined(passes.map(_weight_of, label="weights") if held is None else [(0, held)])
    return None if np.ptp(weight) == 0 else weight


def sample_rows(passes: RowPasses, size: int, rng: np.random.Generator) -> tuple[Matrix, Array | None]:
    """Return ``size`` finite rows drawn without replacement, in the order of the source, and their weights."""
    numbers, weight = draw_rows(passes.rows.shape[0], size, row_weights(passes), rng)
    sample = gather(passes, numbers)
    require_finite(sample, passes.rows.name, numbers=numbers)
    return sample, weight


def gather(passes: RowPasses, indices: Array) -> Matrix:
    """Return the rows with these numbers, in this order: by direct access if possible, else in one pass."""
    if passes.rows.random_access:
        return passes.rows.take(indices)
    order = np.argsort(indices, kind="stable")
    wanted = np.asarray(indices)[order]
    pieces = [X for _, X in passes.map(lambda block: pick(block, wanted).X, label="gather rows")]
    return stack_rows(pieces, order)


def take_from(blocks: Iterable[Block], indices: Array) -> Matrix:
    """Return the rows with these numbers, in this order, reading all blocks in turn."""
    order = np.argsort(indices, kind="stable")
    wanted = np.asarray(indices)[order]
    return stack_rows([pick(block, wanted).X for block in blocks], order)


def take_with_targets(rows: RowBlocks, engine: Reader, numbers: Array) -> Block:
    """Return the rows with these numbers, in ascending order, with their targets and weights: one pass."""
    pieces = [piece for _, piece in engine.map(rows, lambda block: pick(block, numbers), label="sample")]
    y, weight = join_arrays([piece.y for piece in pieces]), join_arrays([piece.weight for piece in pieces])
    return Block(0, 0, stack_rows([piece.X for piece in pieces]), y, weight)


class WatchedRows(BlockwiseRows):
    """Rows in a file, some of which are kept when a pass reads them."""

    def __init__(self, rows: RowBlocks, numbers: Array, found: list[dict[int, Block]] | None = None) -> None:
        self._pieces: dict[int, Block] = {}
        self._found = [] if found is None else found
        self._found.append(self._pieces)
        self._numbers = numbers
        super().__init__(rows, self._note)

    def _note(self, block: Block) -> Block:
        if block.start not in self._pieces:
            self._pieces[block.start] = pick(block, self._numbers)
        return block

    def widened(self, block_rows: int) -> RowBlocks:
        wide = self.rows.widened(block_rows)
        return self if wide is self.rows else WatchedRows(wide, self._numbers, self._found)

    def identity(self) -> str | None:
        return self.rows.identity()

    def target_dtype(self) -> np.dtype | None:
        return self.rows.target_dtype()

    def kept(self) -> Block | None:
        """Return the rows with the given numbers; None unless one pass has read all of them."""
        for pieces in self._found:
            parts = [pieces[start] for start in sorted(pieces)]
            if sum(part.X.shape[0] for part in parts) == len(self._numbers):
                y, weight = (join_arrays([getattr(part, name) for part in parts]) for name in ("y", "weight"))
                return Block(0, 0, stack_rows([part.X for part in parts]), y, weight)
        return None


def watched(rows: RowBlocks, numbers: Array) -> RowBlocks:
    """Return the rows so that those with these numbers are kept when read; they themselves if they can be read again.

    Rows in memory and on a cluster can; another pass over a file is slow.
    """
    return rows if rows.in_memory or rows.on_cluster else WatchedRows(rows, numbers)


def fetch_rows(passes: RowPasses, numbers: Array, *, with_target: bool = True) -> Sample:
    """Return the rows with these numbers, which are sorted and finite, and their targets as a matrix: one pass."""
    parts = [part for _, part in passes.map(lambda block: pick(block, numbers), label="rows on trial")]
    X = stack_rows([part.X for part in parts])
    require_finite(X, passes.rows.name, numbers=numbers)
    targets = [part.y.reshape(part.X.shape[0], -1) for part in parts if with_target and part.y is not None]
    return Sample(X, np.concatenate(targets) if targets else None)


def gather_target(rows: RowBlocks, engine: Reader) -> Array:
    """Return the target that the rows hold, as one array: one pass."""
    return np.concatenate([np.asarray(y) for _, y in engine.map(rows, _target_of, label="target")])


def gather_weight(rows: RowBlocks, engine: Reader) -> Array:
    """Return the weights that the rows hold, as one array: one pass."""
    return _joined(engine.map(rows, _weight_of, label="weights"))


def _joined(parts: Iterable[tuple[int, Array | None]]) -> Array:
    return np.concatenate([np.asarray(part, dtype=np.float64) for _, part in parts])


def _target_of(block: Block) -> Array | None:
    return block.y


def _weight_of(block: Block) -> Array | None:
    return block.weight


def pick(block: Block, wanted: Array) -> Block:
    """Return the rows of a block that are among ``wanted``, sorted numbers."""
    first, last = np.searchsorted(wanted, (block.start, block.stop))
    # Indexing with an array copies, so that the block itself can be freed.
    own = wanted[first:last] - block.start
    y = None if block.y is None else np.asarray(block.y)[own]
    weight = None if block.weight is None else np.asarray(block.weight)[own]
    return Block(block.index, block.start, to_host(block.X[own]), y, weight)
