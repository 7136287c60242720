"""How many rows a block has."""

from __future__ import annotations

import math

import numpy as np

_BLOCK_BYTES = 8 * 2**20
_MIN_BLOCK_ROWS = 256
_MAX_BLOCK_ROWS = 8192
# Blocks with more rows are worth sharing among threads.
_SHARED_ROWS = 2048
# With so many blocks threads end a pass together, even or not.
_MANY_BLOCKS = 64


def default_block_rows(row_bytes: float, n_rows: int) -> int:
    """Return the rows of a block: at most 8 MiB, but from 256 to 8192 rows.

    Blocks are as even as can be, and 2, 4 or a multiple of 8 of them, so that the threads end a pass together; fewer
    than 8 only where they would have less than 2048 rows. The size depends on the rows alone, never on threads or on
    ``max_memory``: sums are taken block by block, so this is what keeps results the same bits on every machine.
    """
    most = int(min(max(_BLOCK_BYTES / max(row_bytes, 1.0), _MIN_BLOCK_ROWS), _MAX_BLOCK_ROWS))
    count = max(math.ceil(n_rows / most), min(n_rows // _SHARED_ROWS, 8), 1)
    if count > _MANY_BLOCKS:
        return most
    even = -(-count // 8) * 8 if count > 4 else 1 << (count - 1).bit_length()
    return max(-(-n_rows // even), 1)


def blocks_to_join(have: int, want: int) -> int:
    """Return the largest power of two of blocks of ``have`` rows that makes at most ``want`` rows; 1 if none does."""
    return 1 << int(np.log2(max(want // max(have, 1), 1)))
