"""Every kind of file gives the rows, blocks and results of the same data in memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.sparse as sp
import zarr
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file

import nystrom
from nystrom import KernelRidge, Nystroem, open_rows
from nystrom.exceptions import DataFileError, MissingDependencyError, RowsChangedError
from nystrom.rows import array_rows
from nystrom.rows.binary import BinaryRows

N, P = 3000, 6
BLOCK = 256


def _data(dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(N, P)).astype(dtype)
    return X, np.sin(X[:, 0]).astype(np.float64)


def _table(X: np.ndarray, y: np.ndarray | None = None) -> pa.Table:
    columns = {f"x{j}": np.ascontiguousarray(X[:, j]) for j in range(X.shape[1])}
    if y is not None:
        columns["y"] = y
    return pa.table(columns)


def _save_hdf5(path: Path, X: np.ndarray, **options: Any) -> str:
    with h5py.File(path, "w") as file:
        file.create_dataset("group/X", data=X, **options)
        file.create_dataset("y", data=np.zeros(len(X)))
    return f"{path}::group/X"


def _save_zarr(path: Path, X: np.ndarray, rows: int) -> str:
    zarr.create_array(store=str(path), data=X, chunks=(rows, 4))
    return str(path)


def _write(kind: str, folder: Path, X: np.ndarray) -> str:
    if kind == "npy":
        np.save(folder / "X.npy", X)
        return str(folder / "X.npy")
    if kind == "npy-fortran":
        np.save(folder / "X.npy", np.asfortranarray(X))
        return str(folder / "X.npy")
    if kind == "parquet":
        pa.parquet.write_table(_table(X), folder / "X.parquet", row_group_size=700)
        return str(folder / "X.parquet")
    if kind == "parquet-folder":
        (folder / "parts").mkdir()
        for number, start in enumerate(range(0, N, 1100)):
            pa.parquet.write_table(_table(X[start : start + 1100]), folder / "parts" / f"{number}.parquet")
        return str(folder / "parts")
    if kind == "feather":
        pa.feather.write_feather(_table(X), folder / "X.feather", chunksize=500)
        return str(folder / "X.feather")
    if kind == "hdf5":
        return _save_hdf5(folder / "X.h5", X)
    if kind == "hdf5-chunked":
        return _save_hdf5(folder / "X.h5", X, chunks=(300, 4), compression="gzip")
    return _save_zarr(folder / "X.zarr", X, rows=170)


KINDS = ["npy", "npy-fortran", "parquet", "parquet-folder", "feather", "hdf5", "hdf5-chunked", "zarr"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_a_dense_file_gives_the_blocks_of_the_array(kind: str, dtype: Any, tmp_path: Path) -> None:
    X, _ = _data(dtype)
    rows = open_rows(_write(kind, tmp_path, X), block_rows=BLOCK)
    assert (rows.shape, rows.dtype) == (X.shape, X.dtype)
    for _ in range(2):  # a second pass gives the same
        blocks = list(rows.iterate())
        assert [block.start for block in blocks] == list(range(0, N, BLOCK))
        assert all(block.X.flags.c_contiguous for block in blocks)
        assert np.array_equal(np.concatenate([block.X for block in blocks]), X)
    assert np.array_equal(rows.block(2).X, X[2 * BLOCK : 3 * BLOCK])
    chosen = np.array([2999, 5, 5, 1234])
    assert np.array_equal(rows.take(chosen), X[chosen])


@pytest.mark.parametrize("kind", ["npy", "parquet", "hdf5", "hdf5-chunked", "zarr"])
def test_a_fit_from_a_file_is_bit_for_bit_the_fit_in_memory(kind: str, tmp_path: Path) -> None:
    X, y = _data()
    rows = open_rows(_write(kind, tmp_path, X), target=y)
    for landmarks in ("auto", "sketched-kmeans", "uniform"):
        settings: dict[str, Any] = {"n_components": 8, "n_landmarks": 20, "landmarks": landmarks, "random_state": 3}
        memory, file = Nystroem(**settings).fit(X), Nystroem(**settings).fit(rows)
        assert np.array_equal(file.landmarks_, memory.landmarks_)
        assert np.array_equal(file.projection_, memory.projection_)
        assert np.array_equal(file.eigenvalues_, memory.eigenvalues_)
        assert np.array_equal(file.transform(rows), memory.transform(X))
    model = KernelRidge(compute_dual=True, **settings)
    ridge, ridge_of_file = clone(model).fit(X, y), clone(model).fit(rows)
    assert np.array_equal(ridge_of_file.landmark_coef_, ridge.landmark_coef_)
    assert np.array_equal(ridge_of_file.predict(rows), ridge.predict(X))
    assert np.array_equal(ridge_of_file.dual_coef_, ridge.dual_coef_)
    assert ridge_of_file.score(rows) == ridge.score(X, y)


def test_the_default_block_is_that_of_the_array(tmp_path: Path) -> None:
    X = np.zeros((5000, 400), dtype=np.float32)
    for kind in ("npy", "parquet", "zarr"):
        assert open_rows(_write(kind, tmp_path, X)).block_rows == array_rows(X).block_rows == 2500


@pytest.mark.parametrize("suffix", ["", ".bz2", ".gz", ".xz"])
@pytest.mark.parametrize("spool", [False, True])
def test_libsvm_text_gives_the_rows_and_the_label(suffix: str, spool: bool, tmp_path: Path) -> None:
    X = sp.random(700, 40, density=0.2, random_state=0, format="csr")
    y = np.arange(700.0)
    plain = tmp_path / "set.svm"
    dump_svmlight_file(X, y, str(plain), zero_based=False)
    path = tmp_path / f"set.svm{suffix}"
    opener = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open, "": open}[suffix]
    text = plain.read_bytes()
    with opener(path, "wb") as stream:
        stream.write(text)
    rows = open_rows(path, n_features=40, block_rows=BLOCK, spool=spool)
    assert rows.is_sparse
    assert rows.has_target
    blocks = list(rows.iterate())
    assert abs(sp.vstack([block.X for block in blocks]) - X).max() < 1e-12
    assert np.array_equal(np.concatenate([block.y for block in blocks]), y)
    assert np.array_equal(rows.target(), y)
    chosen = np.array([650, 3])
    assert abs(rows.take(chosen) - X[chosen]).max() < 1e-12


def test_a_fit_from_libsvm_text_agrees_with_memory(tmp_path: Path) -> None:
    X = sp.random(700, 40, density=0.2, random_state=0, format="csr")
    dump_svmlight_file(X, np.zeros(700), str(tmp_path / "set"), zero_based=False)
    settings: dict[str, Any] = {"n_components": 5, "n_landmarks": 12, "landmarks": "uniform", "random_state": 1}
    memory = Nystroem(**settings).fit(X)
    file = Nystroem(**settings).fit(open_rows(tmp_path / "set", n_features=40))
    np.testing.assert_allclose(file.projection_, memory.projection_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(file.eigenvalues_, memory.eigenvalues_, rtol=1e-12)


def test_a_spooled_file_goes_when_the_rows_go(tmp_path: Path) -> None:
    (tmp_path / "set.svm").write_text("1 1:2\n2 2:1\n")
    rows = open_rows(tmp_path / "set.svm", spool=tmp_path)
    assert list(tmp_path.glob("nystrom-spool-*"))
    del rows
    assert not list(tmp_path.glob("nystrom-spool-*"))


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_a_scipy_file_gives_its_rows(layout: str, tmp_path: Path) -> None:
    X = sp.random(900, 30, density=0.1, random_state=0, format=layout)
    sp.save_npz(tmp_path / "X.npz", X)
    rows = open_rows(tmp_path / "X.npz", block_rows=BLOCK)
    assert rows.shape == X.shape
    assert (sp.vstack([block.X for block in rows.iterate()]) != X).nnz == 0


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_csv_is_read_by_column_names(suffix: str, tmp_path: Path) -> None:
    X, y = _data(np.float64)
    path = tmp_path / f"X.csv{suffix}"
    with pa.output_stream(str(path), compression="gzip" if suffix else None) as stream:
        pa.csv.write_csv(_table(X, y), stream)
    rows = open_rows(path, target="y", columns=["x3", "x0"], block_rows=BLOCK)
    assert np.array_equal(np.concatenate([block.X for block in rows.iterate()]), X[:, [3, 0]])
    assert np.array_equal(rows.target(), y)
    spooled = open_rows(path, target="y", spool=True)
    assert np.array_equal(spooled.take(np.arange(N)), X)
    assert np.array_equal(spooled.target(), y)


def test_a_csv_target_may_be_text(tmp_path: Path) -> None:
    (tmp_path / "X.csv").write_text("a,kind\n1,cat\n2,dog\n")
    assert open_rows(tmp_path / "X.csv", target="kind").target().tolist() == ["cat", "dog"]


def test_a_target_is_a_column_a_second_file_or_an_array(tmp_path: Path) -> None:
    X, y = _data(np.float64)
    both = np.column_stack([X, y])
    np.save(tmp_path / "both.npy", both)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file["y"] = y
    cases = [
        open_rows(tmp_path / "both.npy", target=-1),
        open_rows(tmp_path / "X.npy", target=tmp_path / "y.npy"),
        open_rows(tmp_path / "X.npy", target=f"{tmp_path}/y.h5::y"),
        open_rows(tmp_path / "X.npy", target=y),
        open_rows(_write("zarr", tmp_path, both), target=P),
    ]
    for rows in cases:
        assert rows.has_target
        assert rows.shape == X.shape
        assert np.array_equal(np.concatenate([block.y for block in rows.iterate()]), y)
        assert np.array_equal(rows.target(), y)


def test_a_memmap_is_read_from_its_file(tmp_path: Path) -> None:
    X, _ = _data()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for part, wanted in ((mapped, X), (mapped[100:2000], X[100:2000]), (mapped[:, ::2], X[:, ::2])):
        assert np.array_equal(open_rows(part).whole(), wanted)
    raw = np.memmap(tmp_path / "raw", np.float32, "w+", offset=4100, shape=X.shape)
    raw[:] = X
    assert np.array_equal(open_rows(raw).take(np.array([7, 2500])), X[[7, 2500]])


def test_estimators_read_a_memmap_from_its_file(tmp_path: Path) -> None:
    X, y = _data()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = KernelRidge(alpha=1.0, n_landmarks=20, random_state=0).fit(mapped, y)
    assert isinstance(model._check_X(mapped, reset=False), BinaryRows)
    assert np.array_equal(
        model.predict(mapped), KernelRidge(alpha=1.0, n_landmarks=20, random_state=0).fit(X, y).predict(X)
    )


def test_opened_files_can_be_pickled(tmp_path: Path) -> None:
    X, _ = _data()
    rows = pickle.loads(pickle.dumps(open_rows(_write("npy", tmp_path, X))))
    assert np.array_equal(rows.whole(), X)


def test_a_file_that_changes_between_passes_is_an_error(tmp_path: Path) -> None:
    X, _ = _data()
    for kind in ("npy", "parquet"):
        path = Path(_write(kind, tmp_path, X))
        rows = open_rows(path, block_rows=BLOCK)
        list(rows.iterate())
        os.utime(path, ns=(1, 1))
        with pytest.raises(RowsChangedError, match=rf"{path.name} changed while its rows were read \(at row 0\)"):
            list(rows.iterate())
        path.unlink()
        with pytest.raises(RowsChangedError, match=f"{path.name} was removed"):
            list(rows.iterate())


def test_a_file_that_ends_between_passes_is_an_error(tmp_path: Path) -> None:
    X, _ = _data()
    path = tmp_path / "X.npy"
    np.save(path, X)
    rows = open_rows(path, block_rows=BLOCK)
    os.truncate(path, 1000 * P * 4 + 128)
    with pytest.raises(RowsChangedError, match="its size went from"):
        rows.block(5)
    with pytest.raises(DataFileError, match=r"X\.npy: the file ends in row 1000"):
        open_rows(path)


def test_a_file_that_changes_in_a_fit_is_an_error(tmp_path: Path) -> None:
    X, _ = _data()
    np.save(tmp_path / "X.npy", X)
    rows = open_rows(tmp_path / "X.npy")
    model = Nystroem(n_components=4, landmarks="uniform", random_state=0).fit(rows)
    np.save(tmp_path / "X.npy", X[:-1])
    with pytest.raises(RowsChangedError, match=r"X\.npy changed"):
        model.transform(rows)


def test_a_wrong_column_count_names_the_row(tmp_path: Path) -> None:
    lines = ["a,b,c", *["1,2,3"] * 60_000, "1,2", *["1,2,3"] * 10]
    (tmp_path / "X.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataFileError, match=r"X\.csv, row 60000: 2 columns, but the header has 3"):
        open_rows(tmp_path / "X.csv")


def test_a_word_among_numbers_names_the_row_and_column(tmp_path: Path) -> None:
    lines = ["a,b", *["1,2"] * 5000, "1,oops"]
    (tmp_path / "X.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataFileError, match=r"X\.csv, row 5000, column 'b': 'oops' is not a number\. Leave"):
        open_rows(tmp_path / "X.csv")


def test_a_bad_libsvm_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "set.svm").write_text("1 1:2\n" * 3000 + "1 9:1\n")
    with pytest.raises(DataFileError, match=r"set\.svm, line 3001: index 9 is beyond the 4 columns"):
        open_rows(tmp_path / "set.svm", n_features=4)


def test_a_missing_target_value_names_file_and_row(tmp_path: Path) -> None:
    X, y = _data(np.float64)
    y[1700] = np.nan
    pa.parquet.write_table(_table(X, y), tmp_path / "X.parquet")
    np.save(tmp_path / "X.npy", np.column_stack([X, y]))
    for rows in (open_rows(tmp_path / "X.parquet", target="y"), open_rows(tmp_path / "X.npy", target=P)):
        with pytest.raises(ValueError, match=r"target is missing or not finite in row 1700 of .*X\.(parquet|npy)"):
            list(rows.iterate())


def test_a_missing_target_column_or_value_is_named(tmp_path: Path) -> None:
    X, y = _data()
    path = _write("parquet", tmp_path, X)
    with pytest.raises(ValueError, match=r"target='price' is not a column of .*X\.parquet; it has 'x0'"):
        open_rows(path, target="price")
    np.save(tmp_path / "y.npy", y[:-10])
    with pytest.raises(DataFileError, match=r"y\.npy has 2990 values for the 3000 rows.*from row 2990 on"):
        open_rows(path, target=tmp_path / "y.npy")


def test_files_that_are_not_what_they_say_are_errors(tmp_path: Path) -> None:
    for name in ("X.npy", "X.npz", "X.parquet", "X.feather", "X.h5"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        with pytest.raises(DataFileError, match=name):
            open_rows(tmp_path / name)
    (tmp_path / "X.what").write_bytes(b"hello world")
    with pytest.raises(ValueError, match="is unknown"):
        open_rows(tmp_path / "X.what")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.npy"):
        open_rows(tmp_path / "none.npy")
    with pytest.raises(ValueError, match=r"write the path as 'two\.h5::dataset'"):
        open_rows(_save_hdf5(tmp_path / "two.h5", np.zeros((3, 2))).partition("::")[0])


def test_an_absent_package_gives_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = _data()
    for kind, package in (("parquet", "pyarrow"), ("hdf5", "h5py"), ("zarr", "zarr")):
        path = _write(kind, tmp_path, X)
        with monkeypatch.context() as patch:
            patch.setitem(__import__("sys").modules, package, None)
            with pytest.raises(MissingDependencyError, match=f"pip install {package}"):
                open_rows(path)


def test_open_rows_is_public() -> None:
    assert nystrom.open_rows is open_rows


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("block_rows", "n_features") for value in (0, -1, 2.5, True, "", "3", np.nan, [])),
        *(("columns", value) for value in (0, 2.5, True, "a", b"x", np.array(2))),
        *(("target", value) for value in (2.5, True, b"x", np.nan, {}, np.array(2))),
        *(("dtype", value) for value in ("bogus", 0, 2.5, ())),
        *(("spool", value) for value in (0, 2.5, b"x", [], None)),
        *(("fill_missing", value) for value in ("yes", 2.5, None)),
        *(("format", value) for value in ("bogus", 3, np.array([1, 2]))),
    ],
    ids=repr,
)
def test_a_choice_of_no_use_is_named(tmp_path, name, value):
    np.save(tmp_path / "rows.npy", np.eye(5))
    with pytest.raises(ValueError, match=f"^{name} must be"):
        open_rows(tmp_path / "rows.npy", **{name: value})
