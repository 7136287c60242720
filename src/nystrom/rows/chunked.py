"""Rows of matrices that are stored in compressed chunks: each chunk is decoded once per pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nystrom.rows.stamp import Stamp
from nystrom.rows.stream import Piece, StreamRows
from nystrom.rows.target_column import Columns
from nystrom.types import Array

_SLAB_BYTES = 8 * 2**20
_MOST_NAMES = 20  # in a message


def slab_rows(chunk_rows: int, row_bytes: int) -> int:
    """Return the rows to decode at a time: whole chunks, about 8 MiB of them."""
    return int(chunk_rows * max(1, _SLAB_BYTES // max(chunk_rows * row_bytes, 1)))


def which_one(path: Path, word: str, inside: str, names: Sequence[str]) -> str:
    """Return the message for a file that does not have the one matrix that is asked for, or not just one."""
    asked = f"has no {word} {inside!r}" if inside else f"holds {len(names) or 'no'} {word}s"
    if not names:
        return f"{path} {asked}{', nor any other' if inside else ''}."
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    said = ", ".join(map(repr, names[:_MOST_NAMES]))
    return f"{path} {asked}; write the path as '{path.name}::{word}' with one of {said}{more}."


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
