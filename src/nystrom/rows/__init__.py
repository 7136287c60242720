"""Where rows come from: everything a pass can read, behind one contract."""

from __future__ import annotations

from nystrom.rows.base import (
    ArrayRows,
    Block,
    RowBlocks,
    SparseRows,
    TargetedRows,
    array_rows,
    default_block_rows,
    require_finite,
)
from nystrom.rows.validation import as_blocks

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
