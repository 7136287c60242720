"""Rows on a device: arrays of another namespace, and rows on the host whose blocks are sent there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nystrom.devices import Place, fetch, numpy_dtype, put
from nystrom.rows.base import Block, BlockwiseRows, RowBlocks, WrappedRows, blocks_to_join, default_block_rows
from nystrom.types import Array, Matrix


class DeviceRows(RowBlocks):
    """An array of another namespace; blocks are parts of it, and rows selected by number are copied to the host."""

    in_memory = True

    def __init__(self, X: Any, *, block_rows: int | None = None, name: str = "X") -> None:
        if X.ndim != 2 or min(X.shape) < 1:
            raise ValueError(
                f"{name} must have two dimensions, with at least one row and one column; got shape {tuple(X.shape)}."
            )
        self._X = X
        self.home: Place = Place.of(X)
        self.place = self.home
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        kind = numpy_dtype(X)
        if kind.kind not in "fiub":
            raise ValueError(f"{name} holds {kind}, not real numbers.")
        wide = kind != np.float32 and self.home.has_float64
        self.dtype = np.dtype(np.float64 if wide else np.float32)
        self.block_rows = block_rows or default_block_rows(self.shape[1] * self.dtype.itemsize, self.shape[0])
        self.name = name

    def block(self, index: int) -> Block:
        start = index * self.block_rows
        piece = self._X[start : min(start + self.block_rows, self.shape[0]), :]
        return Block(index, start, put(self.home.send(piece, self.dtype), self.home))

    def take(self, indices: Array) -> Matrix:
        numbers = self.home.send(np.asarray(indices, dtype=np.int64))
        return fetch(self.home.xp.take(self._X, numbers, axis=0)).astype(self.dtype, copy=False)

    def whole(self) -> Matrix:
        return fetch(self._X).astype(self.dtype, copy=False)

    def widened(self, block_rows: int) -> DeviceRows:
        if self.home.memory is not None:
            return self
        joined = self.block_rows * blocks_to_join(self.block_rows, block_rows)
        return DeviceRows(self._X, block_rows=joined, name=self.name)

    def within(self, memory: int, block_rows: int) -> DeviceRows:
        """Return the same rows in smaller blocks, whose passes hold at most ``memory`` bytes on the device."""
        made = DeviceRows(self._X, block_rows=min(block_rows, self.block_rows), name=self.name)
        made.home = made.place = replace(self.home, memory=memory)
        return made

    def identity(self) -> str | None:
        return None


class SentRows(BlockwiseRows):
    """Dense rows on the host, sent to the device block by block; results come back to the host."""

    # One thread reads ahead of the thread that computes.
    in_memory = False

    def __init__(self, rows: RowBlocks, place: Place, *, home: Place | None = None) -> None:
        if rows.is_sparse:
            raise ValueError(
                f"{rows.name} is sparse, and a device needs dense rows: leave engine='auto', or give X.toarray()."
            )
        super().__init__(rows, _Send(place))
        self.place: Place = place
        self.home = home
        self.dtype = rows.dtype if place.has_float64 else np.dtype(np.float32)

    def take(self, indices: Array) -> Matrix:
        return self.rows.take(indices).astype(self.dtype, copy=False)

    def widened(self, block_rows: int) -> SentRows:
        if self.place.memory is not None:
            return self
        return SentRows(self.rows.widened(block_rows), self.place, home=self.home)

    def within(self, memory: int, block_rows: int) -> SentRows:
        """Return the same rows in smaller blocks, whose passes hold at most ``memory`` bytes on the device."""
        rows = self.rows if block_rows >= self.rows.block_rows else _SmallerBlocks(self.rows, block_rows)
        return SentRows(rows, replace(self.place, memory=memory), home=self.home)

    def whole(self) -> Matrix:
        return self.rows.whole().astype(self.dtype, copy=False)

    def identity(self) -> str | None:
        return self.rows.identity()

    def target(self) -> Array | None:
        return self.rows.target()

    def target_dtype(self) -> np.dtype | None:
        return self.rows.target_dtype()


@dataclass(frozen=True)
class _Send:
    place: Place

    def __call__(self, block: Block) -> Block:
        return replace(block, X=put(block.X, self.place))


class _SmallerBlocks(WrappedRows):
    """Dense rows on the host in blocks of another size, which may hold rows of two blocks of theirs."""

    def __init__(self, rows: RowBlocks, block_rows: int) -> None:
        super().__init__(rows)
        self.block_rows = block_rows

    def block(self, index: int) -> Block:
        start, size = index * self.block_rows, self.rows.block_rows
        stop = min(start + self.block_rows, self.shape[0])
        return self._cut(index, [self.rows.block(number) for number in range(start // size, -(-stop // size))])

    def iterate(self) -> Iterator[Block]:
        index, held = 0, []
        for block in self.rows.iterate():
            held.append(block)
            while min((index + 1) * self.block_rows, self.shape[0]) <= block.stop and index < self.n_blocks:
                yield self._cut(index, held)
                held, index = [block], index + 1

    def _cut(self, index: int, blocks: list[Block]) -> Block:
        start, stop = index * self.block_rows, min((index + 1) * self.block_rows, self.shape[0])
        parts = [slice(max(start - block.start, 0), stop - block.start) for block in blocks]

        def joined(values: list[Any]) -> Any:
            if values[0] is None:
                return None
            cut = [each[part] for each, part in zip(values, parts, strict=True)]
            return cut[0] if len(cut) == 1 else np.concatenate(cut)

        X, y, weight = (joined([getattr(block, name) for block in blocks]) for name in ("X", "y", "weight"))
        return Block(index, start, X, y, weight)

    def whole(self) -> Matrix:
        return self.rows.whole()

    def identity(self) -> str | None:
        return self.rows.identity()

    def target(self) -> Array | None:
        return self.rows.target()

    def target_dtype(self) -> np.dtype | None:
        return self.rows.target_dtype()


def device_rows(X: Any, *, name: str) -> DeviceRows:
    """Return an array of another namespace as rows."""
    return DeviceRows(X, name=name)


__all__ = ["DeviceRows", "SentRows", "device_rows"]
