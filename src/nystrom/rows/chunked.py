"""Rows of matrices that are stored in compressed chunks: each chunk is decoded once per pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nystrom.rows.stamp import Stamp
from nystrom.rows.stream import Piece, StreamRows
from nystrom.rows.target_column import Columns
from nystrom.types import Array

_SLAB_BYTES = 8 * 2**20


def slab_rows(chunk_rows: int, row_bytes: int) -> int:
    """Return the rows to decode at a time: whole chunks, about 8 MiB of them."""
    return int(chunk_rows * max(1, _SLAB_BYTES // max(chunk_rows * row_bytes, 1)))


class ChunkedRows(StreamRows):
    """Base of the chunked formats. A subclass yields the decoded slabs."""

    def __init__(
        self,
        path: Path,
        inside: str,
        name: str,
        stamp: Stamp,
        shape: tuple[int, int],
        dtype: np.dtype,
        slab: int,
        columns: Columns,
        block_rows: int | None,
    ) -> None:
        self.path = path
        self.inside = inside
        self.name = name
        self.stamp = stamp
        self.dtype = dtype
        self.slab_rows = slab
        self.columns = columns
        self.has_target = columns.target is not None
        self.held_bytes = 2 * min(slab, shape[0]) * shape[1] * 8
        self.set_size(shape, 0, block_rows)

    @abstractmethod
    def _slabs(self) -> Iterator[Array]:
        """Yield the stored rows, ``slab_rows`` at a time."""

    def _choice(self) -> str:
        return self.columns.identity

    def pieces(self) -> Iterator[Piece]:
        for stored in self._slabs():
            yield Piece(*self.columns.split(stored))
