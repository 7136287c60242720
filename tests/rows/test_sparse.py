"""Sparse rows are checked once, wherever they enter; no damaged index reaches a compiled loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import KernelRidge, Nystroem, open_rows, select_landmarks
from nystrom.engine import LocalEngine
from nystrom.engine.dask.rows import ChunkForm
from nystrom.exceptions import DataFileError
from nystrom.kernels import make_kernel
from nystrom.kmeans import assign, kmeans
from nystrom.rows import as_blocks
from nystrom.rows.sparse import canonical

N, P = 50, 20


def _matrix(seed: int = 0) -> Any:
    return sp.random(N, P, 0.2, format="csr", random_state=seed)


def _far_column(S: Any) -> None:
    S.indices[3] = 10**6


def _negative_column(S: Any) -> None:
    S.indices[5] = -1


def _falling_indptr(S: Any) -> None:
    S.indptr[4] = S.indptr[6] + 3


def _late_start(S: Any) -> None:
    S.indptr[0] = 1


def _far_end(S: Any) -> None:
    S.indptr[-1] += 10**6


def _float_indices(S: Any) -> None:
    S.indices = S.indices + 0.5


def _short_data(S: Any) -> None:
    S.data = S.data[:-4]


DAMAGES = [_far_column, _negative_column, _falling_indptr, _late_start, _far_end, _float_indices, _short_data]
ENTRANCES = {
    "fit": lambda S: Nystroem(n_components=5).fit(S),
    "fit of rows": lambda S: Nystroem(n_components=5).fit(as_blocks(S)),
    "open_rows": lambda S: open_rows(S),
    "open_rows of blocks": lambda S: Nystroem(n_components=5).fit(open_rows(lambda: [S])),
    "predict": lambda S: KernelRidge(alpha=1.0, n_landmarks=5).fit(_matrix(1), np.arange(N) / N).predict(S),
    "landmarks": lambda S: Nystroem(n_components=5, landmarks=S).fit(_matrix(1)),
    "select_landmarks": lambda S: select_landmarks(S, 5),
    "kernel of rows": lambda S: make_kernel("gaussian", gamma=1.0)(S, _matrix(1)),
    "kernel of landmarks": lambda S: make_kernel("gaussian", gamma=1.0)(_matrix(1), S),
    "assign": lambda S: assign(S, _matrix(1)[:4]),
    "a chunk of Dask": lambda S: ChunkForm(np.dtype(np.float64), True, "X").matrix(S),
    "centres": lambda S: assign(_matrix(1), S),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_matrix_is_refused_at_every_entrance(damage: Any, entrance: str) -> None:
    S = _matrix()
    damage(S)
    with pytest.raises(ValueError, match=r"indptr|column|indices"):
        ENTRANCES[entrance](S)


def test_flags_remembered_from_before_the_damage_are_not_trusted() -> None:
    S = sp.csr_matrix(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]]))
    assert S.has_canonical_format
    S.indices[:2] = 1
    assert canonical(S).data.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("layout", ["csc", "bsr", "coo", "lil", "dok", "dia"])
def test_other_layouts_become_the_same_rows(layout: str) -> None:
    S = _matrix()
    np.testing.assert_array_equal(canonical(S.asformat(layout)).toarray(), S.toarray())


@pytest.mark.parametrize("layout", ["csc", "bsr", "coo"])
def test_damage_in_other_layouts_is_refused_before_they_are_converted(layout: str) -> None:
    S = _matrix().asformat(layout)
    (S.col if layout == "coo" else S.indices)[3] = 10**6
    with pytest.raises(ValueError, match="numbered from 0"):
        Nystroem(n_components=5).fit(S)


def _changed(layout: str, **parts: Any) -> Any:
    S = _matrix().asformat(layout)
    for part, change in parts.items():
        setattr(S, part, change(getattr(S, part)))
    return S


def _in_row_3(change: Any) -> Any:
    def changed(lists: Any) -> Any:
        lists[3] = change(lists[3])
        return lists

    return changed


# SciPy writes beyond its arrays where it converts the first and the fifth of these.
MISFITS = {
    "more values than columns": lambda: _changed("lil", data=_in_row_3(lambda row: row + [1.0] * 100)),
    "more columns than values": lambda: _changed("lil", rows=_in_row_3(lambda row: row + [1] * 100)),
    "a negative column": lambda: _changed("lil", rows=_in_row_3(lambda row: [-4] * len(row))),
    "columns of too few rows": lambda: _changed("lil", rows=lambda rows: rows[:20]),
    "fewer offsets than diagonals": lambda: _changed("dia", offsets=lambda offsets: np.arange(5) * 10**6),
    "fewer diagonals than offsets": lambda: _changed("dia", data=lambda data: data[:2]),
    "offsets that are not whole": lambda: _changed("dia", offsets=lambda offsets: offsets + 0.5),
    "an offset twice": lambda: _changed("dia", offsets=np.zeros_like),
    "blocks without a width": lambda: _changed("bsr", data=lambda data: data.reshape(len(data), -1)),
    "indices in a list": lambda: _changed("csr", indices=list),
    "no indptr": lambda: _changed("csc", indptr=lambda indptr: None),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_parts_of_any_layout_that_do_not_fit_together_are_refused_by_name(misfit: str) -> None:
    with pytest.raises(ValueError, match=r"^X: .* The data are damaged\."):
        Nystroem(n_components=5).fit(MISFITS[misfit]())


def test_a_key_out_of_bounds_is_refused_by_name() -> None:
    S = _matrix().todok()
    S._dict[5, P] = 1.0
    with pytest.raises(ValueError, match=r"^X: .*The data are damaged"):
        Nystroem(n_components=5).fit(S)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint64, ">i4", ">i8"])
def test_indices_of_any_integer_type_and_byte_order_mean_the_same(kind: Any) -> None:
    S = _matrix()
    other = S.copy()
    other.indices, other.indptr = S.indices.astype(kind), S.indptr.astype(kind)
    np.testing.assert_array_equal(canonical(other).toarray(), S.toarray())


def test_values_of_another_byte_order_mean_the_same() -> None:
    S = _matrix()
    other = S.copy()
    other.data = S.data.astype(">f8")
    Z = _matrix(1)[:10]
    fits = [Nystroem(n_components=5, landmarks=Z).fit(M).transform(M) for M in (S, other)]
    np.testing.assert_array_equal(*fits)


def test_complex_values_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="X holds complex128, which are not real numbers"):
        canonical(_matrix().astype(complex))


def _save(path: Path, S: Any, **changes: Any) -> Path:
    parts = {"indices": S.indices, "indptr": S.indptr, "data": S.data, "shape": S.shape, "format": b"csr"}
    np.savez(path, **{**parts, **changes})
    return path


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_npz_is_refused_and_named(tmp_path: Path, damage: Any) -> None:
    S = _matrix()
    damage(S)
    path = _save(tmp_path / "bad.npz", S)
    with pytest.raises(DataFileError, match=r"bad\.npz"):
        Nystroem(n_components=5).fit(open_rows(path))


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (N - 5, P)},
        {"shape": (N + 5, P)},
        {"shape": (N, P - 5)},
        {"shape": (N,)},
        {"shape": (N, -P)},
        {"shape": (float(N), float(P))},
        {"data": np.ones(3)},
        {"data": np.full((9, 2), 1j)},
    ],
)
def test_an_npz_whose_arrays_do_not_fit_its_shape_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = _save(tmp_path / "bad.npz", _matrix(), **changes)
    with pytest.raises(DataFileError, match=r"bad\.npz"):
        Nystroem(n_components=5).fit(open_rows(path))


@pytest.mark.parametrize("layout", ["csc", "coo", "bsr"])
def test_damage_in_an_npz_of_another_layout_is_refused_and_named(tmp_path: Path, layout: str) -> None:
    S = _matrix().asformat(layout)
    path = tmp_path / "bad.npz"
    sp.save_npz(path, S)
    with np.load(path) as stored:
        parts = dict(stored)
    for name in ("indices", "col"):
        if name in parts:
            parts[name] = parts[name] + 10**6
    np.savez(path, **parts)
    with pytest.raises(DataFileError, match=r"bad\.npz"):
        open_rows(path)


def test_the_row_of_the_damage_is_named(tmp_path: Path) -> None:
    S = _matrix()
    S.indices[S.indptr[33]] = P
    rows = open_rows(_save(tmp_path / "bad.npz", S))
    with pytest.raises(DataFileError, match=f"row 33 has an entry in column {P}, but there are {P} columns"):
        rows.take(np.arange(3))


@pytest.mark.parametrize("init", ["greedy", "kmeans++"])
@pytest.mark.parametrize("count", [0, -3])
def test_seeding_needs_a_candidate(init: Any, count: int) -> None:
    rows = as_blocks(np.random.default_rng(0).normal(size=(40, 3)))
    with pytest.raises(ValueError, match=f"most_candidates must be at least 1, or None for no bound; got {count}"):
        kmeans(rows, 4, engine=LocalEngine(), rng=np.random.default_rng(0), init=init, most_candidates=count)
