"""Where rows come from: everything a pass can read, behind one contract."""

from __future__ import annotations

from nystrom.rows.arrays import ArrayRows, SparseRows, array_rows
from nystrom.rows.base import Block, RowBlocks, TargetedRows, default_block_rows, require_finite
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
