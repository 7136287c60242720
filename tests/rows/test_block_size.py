"""How many rows a block has: by the rows alone, in blocks that threads share evenly."""

import pytest

from nystrom.rows import default_block_rows


@pytest.mark.parametrize(
    ("row_bytes", "n_rows", "rows"),
    [
        (160, 1, 1),
        (160, 2_000, 2_000),
        (160, 5_000, 2_500),
        (160, 100_000, 6_250),
        (3_136, 60_000, 2_500),
        (3_136, 10**7, 2_674),
        (8, 10**9, 8_192),
        (10**9, 10**9, 256),
        (0, 10, 10),
        (160, 0, 1),
    ],
)
def test_rows_of_a_block(row_bytes, n_rows, rows):
    assert default_block_rows(row_bytes, n_rows) == rows


@pytest.mark.parametrize("n_rows", [4_096, 9_999, 60_000, 100_000, 123_457, 400_000])
def test_blocks_are_even_and_a_number_that_cores_divide(n_rows):
    rows = default_block_rows(160, n_rows)
    count = -(-n_rows // rows)
    assert count in {2, 4} or count % 8 == 0
    assert count * rows - n_rows < count  # less than one row a block is missing
