"""Gram matrices of the compiled loops are those of NumPy, for every instruction set of this machine."""

from __future__ import annotations

import numpy as np
import pytest
from loop_tolerance import assert_close

from nystrom import loops
from nystrom.loops import extension

DTYPES = [np.float32, np.float64]
# About the widths of vectors, panels and tiles, and the rows of one sum.
SHAPES = [(1, 1), (3, 2), (255, 7), (256, 8), (257, 9), (40, 16), (600, 17), (300, 24), (31, 25), (520, 47), (64, 48)]
SHAPES += [(10, 49), (100, 97), (30, 300), (0, 5), (4, 0)]


@pytest.mark.parametrize(
    ("dtype", "sums"), [(np.float32, np.float32), (np.float32, np.float64), (np.float64, np.float64)]
)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_is_added_above_the_diagonal_and_nowhere_outside(n, k, dtype, sums, both, rng):
    wide = rng.normal(size=(n, k + 3)).astype(dtype)
    F, before = wide[:, 2 : k + 2], rng.normal(size=(k, k))
    exact = before + F.astype(np.float64).T @ F.astype(np.float64)
    scale = np.abs(before) + np.abs(F).astype(np.float64).T @ np.abs(F).astype(np.float64)

    def run():
        out, totals = np.full((k, k + 2), 7.0), np.ones(k)
        out[:, 1 : k + 1] = before
        loops.add_gram(out[:, 1 : k + 1], F, sums, totals)
        assert (out[:, [0, -1]] == 7).all()
        return out[:, 1 : k + 1], totals

    for found, totals in both(run):
        assert_close(np.triu(found), np.triu(exact), scale, sums, n)
        assert_close(totals, 1 + F.sum(axis=0, dtype=np.float64), 1 + np.abs(F).sum(axis=0, dtype=np.float64), sums, n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_sums_of_float32_are_as_good_as_short_ones(dtype, both, rng):
    """Sums of some hundred rows are rounded as float32, and added up as float64."""
    n = 100_000
    F = 1 + rng.random((n, 5)).astype(dtype)
    exact = F.astype(np.float64).T @ F.astype(np.float64)
    out = np.zeros((5, 5))
    loops.add_gram(out, F)
    rounded = loops.rows_per_sum(5)
    assert rounded is not None
    error = np.abs(np.triu(out - exact)).max() / exact.max()
    assert error <= np.finfo(dtype).eps * np.sqrt(rounded)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_in_any_layout(dtype, both, rng):
    F = rng.normal(size=(300, 30)).astype(dtype)
    want = np.zeros((30, 30))
    loops.add_gram(want, F)
    for rows in (
        np.asfortranarray(F),
        F[::-1][::-1],
        np.repeat(F, 2, axis=1)[:, ::2],
        F.astype(F.dtype.newbyteorder()),
    ):
        out = np.zeros((30, 30))
        loops.add_gram(out, rows)
        np.testing.assert_array_equal(np.triu(out), np.triu(want))


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_does_not_fit_is_refused(dtype, both):
    native, F = extension.native, np.ones((4, 3), dtype)
    with pytest.raises(ValueError, match=r"out must have shape \(3, 3\); got \(3, 4\)"):
        native.add_gram(F, np.zeros((3, 4)))
    with pytest.raises(ValueError, match="out must have contiguous rows"):
        native.add_gram(F, np.zeros((3, 3), order="F"))
    with pytest.raises(ValueError, match="F must have contiguous rows"):
        native.add_gram(np.asfortranarray(F), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="totals must have size 3; got 2"):
        native.add_gram(F, np.zeros((3, 3)), False, np.zeros(2))
    with pytest.raises(TypeError):
        native.add_gram(F, np.zeros((3, 3), np.float32))
