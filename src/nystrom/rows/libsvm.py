"""Sparse rows from LIBSVM text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from nystrom.rows.libsvm_text import iterate_libsvm
from nystrom.rows.sparse import csr_rows
from nystrom.rows.stamp import Stamp
from nystrom.rows.stream import Piece, StreamRows
from nystrom.rows.target_column import check_dtype
from nystrom.types import Array

# A piece of text of 8 MiB, its tokens and numbers, as the parser holds them.
_PARSER_BYTES = 160 * 2**20
_NPZ_PIECE_ENTRIES = 2**19


class LibsvmRows(StreamRows):
    """A LIBSVM text file, plain or compressed; the label is the target."""

    is_sparse = True
    has_target = True
    held_bytes = _PARSER_BYTES

    def __init__(self, path: Path, *, n_features: int | None, dtype: DTypeLike, label: bool) -> None:
        self.path = path
        self.name = str(path)
        self.dtype = check_dtype(np.float64, dtype, self.name)
        self.stamp = Stamp.of(path)
        self.has_target = label
        self._n_features = n_features

    def pieces(self) -> Iterator[Piece]:
        width = self._n_features
        for part in iterate_libsvm(self.path, n_features=width):
            columns = width or self._width(part.columns)
            indptr = np.concatenate([[0], np.cumsum(part.counts)])
            X = csr_rows(part.values, part.columns, indptr, (part.y.size, columns), self.name)
            yield Piece(X.astype(self.dtype, copy=False), part.y if self.has_target else None)

    def _width(self, columns: Array) -> int:
        # Once measured, every piece has the width of the whole; before that, its own.
        known = getattr(self, "shape", None)
        return int(known[1]) if known else int(columns.max(initial=0)) + 1
