"""Blocks that come in order: rechunked, checked, and started again for every pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from nystrom import Nystroem, open_rows
from nystrom.exceptions import DataFileError, RowsChangedError
from nystrom.rows.stream import Piece, rechunk

X = np.random.default_rng(0).normal(size=(1000, 5))


def _parts(sizes: list[int]) -> list[np.ndarray]:
    return np.split(X[: sum(sizes)], np.cumsum(sizes)[:-1])


@given(st.lists(st.integers(0, 40), min_size=1, max_size=20), st.integers(1, 64), st.booleans())
def test_pieces_of_any_size_become_blocks_of_one(sizes: list[int], block_rows: int, sparse: bool) -> None:
    whole = X[: sum(sizes)]
    pieces = [Piece(sp.csr_matrix(part) if sparse else part, part[:, 0]) for part in _parts(sizes)]
    found = list(rechunk(pieces, block_rows))
    assert all(piece.n_rows == block_rows for piece in found[:-1])
    assert sum(piece.n_rows for piece in found) == len(whole)
    for start, piece in zip(range(0, len(whole), block_rows), found, strict=True):
        wanted = whole[start : start + block_rows]
        assert np.array_equal(piece.X.toarray() if sparse else piece.X, wanted)
        assert np.array_equal(piece.y, wanted[:, 0])


class _Source:
    shape = X.shape
    name = "sensor"

    def iterate(self) -> Iterator[np.ndarray]:
        return iter(_parts([300, 700]))


@pytest.mark.parametrize(
    "source",
    [lambda: iter(_parts([10, 500, 490])), _parts([999, 1]), _Source()],
    ids=["callable", "list", "object"],
)
def test_a_fit_on_restartable_blocks_is_the_fit_on_the_array(source: object) -> None:
    settings = {"n_components": 5, "landmarks": "uniform", "random_state": 0}
    streamed = Nystroem(**settings).fit(open_rows(source))
    assert np.array_equal(streamed.projection_, Nystroem(**settings).fit(X).projection_)


def test_algorithm_3_reads_the_rows_twice_and_the_factor_once() -> None:
    passes: list[int] = []

    class Counted(_Source):
        def iterate(self) -> Iterator[np.ndarray]:
            passes.append(1)
            return super().iterate()

    rows = open_rows(Counted())
    passes.clear()
    model = Nystroem(n_components=5, landmarks="sketched-kmeans", gamma="scale", random_state=0).fit(rows)
    assert len(passes) == 3  # sketch (with the bandwidth), means of clusters, factor
    model.transform(rows)
    assert len(passes) == 4


def test_blocks_may_carry_targets_and_weights() -> None:
    rows = open_rows(lambda: ((part, part[:, 0], part[:, 1] ** 2) for part in _parts([400, 600])), block_rows=256)
    assert np.array_equal(rows.target(), X[:, 0])
    assert np.array_equal(np.concatenate([block.weight for block in rows.iterate()]), X[:, 1] ** 2)


def test_a_generator_is_refused_because_it_can_be_read_once() -> None:
    with pytest.raises(TypeError, match="can be read once only"):
        open_rows(part for part in _parts([500, 500]))


def test_a_source_that_gives_other_rows_in_the_next_pass_is_an_error() -> None:
    sizes = [500, 500]
    rows = open_rows(lambda: iter(_parts(sizes)), block_rows=256)
    sizes[1] = 400
    with pytest.raises(
        RowsChangedError, match="fewer rows than the 1000 it had when it was opened: it ended at row 900"
    ):
        list(rows.iterate())
    sizes[:] = [500, 450]
    rows = open_rows(lambda: iter(_parts(sizes)), block_rows=256)
    sizes[1] = 500
    with pytest.raises(RowsChangedError, match="more rows than the 950"):
        list(rows.iterate())


def test_blocks_of_other_width_are_an_error() -> None:
    with pytest.raises(DataFileError, match="rows from 100 on have 4 columns, but the rows before them have 5"):
        open_rows(lambda: iter([X[:100], X[100:200, :4]]))


def test_things_that_hold_no_rows_are_refused() -> None:
    with pytest.raises(TypeError, match="open_rows takes a path"):
        open_rows(3.0)
    with pytest.raises(DataFileError, match="gives no blocks"):
        open_rows(lambda: iter([]))
