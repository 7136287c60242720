"""Products with the kernel matrix of all pairs of rows, tile by tile; tiles are held where there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike

from nystrom.engine import Engine, Sums
from nystrom.kernels import Kernel, Precomputed
from nystrom.rows import Block, RowBlocks
from nystrom.rows.base import WrappedRows
from nystrom.types import Array, Matrix

# Rows of a tile: its 512 × 512 values are 2 MiB in float64 and stay in the cache from the exponential to the product.
TILE_ROWS = 512
# Rows on which values in float32 are compared with those in float64, and the largest difference that is rounding.
_COMPARED_ROWS = 64
_FLOAT32_ROUNDING = 1e-5


class TiledRows(WrappedRows):
    """Rows cut into small blocks of float64, for products with the kernel of all pairs of them."""

    has_target = False
    has_weight = False

    def __init__(self, rows: RowBlocks, block_rows: int = TILE_ROWS) -> None:
        if not rows.random_access:
            raise ValueError(
                "solver='exact' reads rows in pairs of blocks, and this source can only be read from its beginning. "
                "Convert it to .npy first, or use solver='factor'."
            )
        super().__init__(rows)
        self.dtype = np.dtype(np.float64)
        self.block_rows = block_rows

    def block(self, index: int) -> Block:
        start = index * self.block_rows
        stop = min(start + self.block_rows, self.shape[0])
        return Block(index, start, self.take(np.arange(start, stop)))

    def take(self, indices: Array) -> Matrix:
        return self.rows.take(indices).astype(np.float64, copy=False)


@dataclass(frozen=True)
class KernelProduct:
    """``V ↦ K V`` for the kernel matrix of the rows.

    Cost of one call: n²/2 values of the kernel, or their reading where they are held, and O(n t) memory beyond a tile
    for each thread.

    Parameters
    ----------
    tiles, kernel, engine
        The rows, k, and what runs the passes.
    dtype : dtype
        Of the kernel values; sums are float64.
    room : float
        Bytes in which tiles are held from call to call, as many as fit.
    shards : RowBlocks or None
        The same rows on a cluster, which then computes the products, each chunk with all rows.
    """

    tiles: TiledRows
    kernel: Kernel
    engine: Engine
    dtype: DTypeLike = np.float64
    room: float = 0.0
    shards: RowBlocks | None = None
    _held: dict[int, list[Array]] = field(default_factory=dict, repr=False)

    def __call__(self, V: Array, *, label: str = "kernel product") -> Array:
        if self.shards is not None:
            (product,) = self.engine.fold(self.shards, self._by_chunks(V), label=label)
        else:
            step = self._given(V) if isinstance(self.kernel, Precomputed) else self._symmetric(V)
            (product,) = self.engine.fold(self.tiles, step, label=label)
        return np.asarray(product)

    @property
    def holds_all(self) -> bool:
        """Whether every tile fits in the room."""
        return self._n_held == self.tiles.n_blocks and self.shards is None

    def in_float32(self) -> KernelProduct | None:
        """Return the product with values in float32, at half the cost; None where they would not be the same values."""
        if isinstance(self.kernel, Precomputed) or self.shards is not None:
            return None
        few = self.tiles.take(np.arange(min(_COMPARED_ROWS, self.tiles.shape[0])))
        with np.errstate(over="ignore", invalid="ignore"):
            exact, single = self.kernel(few, few), self._prepare(few)(few.astype(np.float32))
        near = np.abs(single - exact) <= _FLOAT32_ROUNDING * np.max(np.abs(exact))
        return replace(self, dtype=np.dtype(np.float32), _held={}) if near.all() else None

    @cached_property
    def _n_held(self) -> int:
        """Rows of tiles, from the first on, that the room holds; the first has most tiles."""
        count, size = self.tiles.n_blocks, self.tiles.block_rows**2 * np.dtype(self.dtype).itemsize
        taken = np.cumsum([size * (count - index) for index in range(count)])
        return int(np.searchsorted(taken, self.room, side="right"))

    @cached_property
    def _center(self) -> Array | None:
        if self.tiles.is_sparse:
            return None
        return np.asarray(self.tiles.block(0).X.mean(axis=0))

    def _prepare(self, X: Matrix) -> Callable[[Matrix], Array]:
        return self.kernel.prepare(X, center=self._center)

    def _values(self, block: Block) -> Iterator[tuple[slice, Array]]:
        """Yield the tiles of K to the right of the diagonal in the rows of this block, with their columns."""
        tiles, dtype = self.tiles, self.dtype
        spans = [
            slice(i * tiles.block_rows, min((i + 1) * tiles.block_rows, tiles.shape[0]))
            for i in range(block.index, tiles.n_blocks)
        ]
        if block.index in self._held:
            yield from zip(spans, self._held[block.index], strict=True)
            return
        evaluate, made = self._prepare(block.X), []
        for index, span in enumerate(spans, start=block.index):
            X = block.X if index == block.index else tiles.block(index).X
            made.append(evaluate(X.astype(dtype, copy=False)))
            yield span, made[-1]
            if block.index >= self._n_held:
                made.clear()
        if made:
            self._held[block.index] = made

    def _symmetric(self, V: Array) -> Callable[[Block], Sums]:
        tile_rows = self.tiles.block_rows

        def step(block: Block) -> Sums:
            out = np.zeros_like(V)
            own = slice(block.start, block.stop)
            # One room for all tiles: it stays in the cache, and memory is not asked for anew.
            room = np.empty((tile_rows, tile_rows))
            for span, values in self._values(block):
                K = values
                if values.dtype != np.float64:
                    K = room[: values.shape[0], : values.shape[1]]
                    np.copyto(K, values)
                out[span] += K @ V[own]
                if span.start != block.start:
                    out[own] += K.T @ V[span]
            return Sums(out)

        return step

    def _given(self, V: Array) -> Callable[[Block], Sums]:
        def step(block: Block) -> Sums:
            out = np.zeros_like(V)
            out[block.start : block.stop] = block.X @ V
            return Sums(out)

        return step

    def _by_chunks(self, V: Array) -> Callable[[Block], Sums]:
        tiles, kernel = self.tiles, self.kernel

        def step(block: Block) -> Sums:
            out = np.zeros_like(V)
            out[block.start : block.stop] = product_with_rows(kernel, block.X, tiles, V)
            return Sums(out)

        return step

    def predict(self, X: Matrix, coefficients: Array) -> Array:
        """Return ``k(X, rows) @ coefficients`` for one block of new rows."""
        return product_with_rows(self.kernel, X, self.tiles, coefficients)


def product_with_rows(kernel: Kernel, X: Matrix, tiles: TiledRows, coefficients: Array) -> Array:
    """Return ``k(X, rows) @ coefficients``."""
    X = X.astype(np.float64, copy=False)
    if isinstance(kernel, Precomputed):
        return np.asarray(X @ coefficients)
    out = np.zeros((X.shape[0], coefficients.shape[1]))
    for block in tiles.iterate():
        out += kernel(X, block.X) @ coefficients[block.start : block.stop]
    return out
