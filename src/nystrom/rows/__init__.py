"""Where rows come from: everything a pass can read, behind one contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from nystrom.rows.arrays import ArrayRows, SparseRows, array_rows
from nystrom.rows.base import (
    Block,
    RowBlocks,
    TargetedRows,
    default_block_rows,
    require_finite,
)
from nystrom.types import Array

__all__ = [
    "ArrayRows",
    "Block",
    "RowBlocks",
    "SparseRows",
    "TargetedRows",
    "array_rows",
    "as_blocks",
    "default_block_rows",
    "require_finite",
]


def as_blocks(
    X: Any, y: Array | None = None, *, weight: Array | None = None, block_rows: int | None = None
) -> RowBlocks:
    """Return ``X`` as :class:`RowBlocks`, with a target and weights beside the rows if given.

    ``X`` is RowBlocks already, a dense two-dimensional array, a memmap, or a scipy sparse matrix.
    """
    if isinstance(X, RowBlocks):
        rows = X
    elif sp.issparse(X):
        rows = array_rows(X, block_rows=block_rows)
    else:
        array = X if isinstance(X, np.ndarray) else np.asarray(X)
        if array.ndim != 2:
            raise ValueError(f"X must have two dimensions (rows and columns); got shape {array.shape}.")
        rows = array_rows(array, block_rows=block_rows)
    return rows if y is None and weight is None else rows.with_target(y, weight)
