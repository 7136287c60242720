"""A damaged, changed or odd file is read right or refused, by an error that names it."""

from __future__ import annotations

import bz2
import errno
import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.sparse as sp
import zarr

from nystrom import KernelRidgeClassifier, Nystroem, open_rows
from nystrom.exceptions import DataFileError, RowsChangedError
from nystrom.rows import arrow, binary
from nystrom.rows.reading import reading

X = np.random.default_rng(0).normal(size=(300, 4))


def _all(source: Any, **options: Any) -> Any:
    rows = open_rows(source, **options)
    return rows.take(np.arange(rows.shape[0]))


def _csv(path: Path, values: Any = X, opener: Callable[..., Any] = open) -> Path:
    with opener(path, "wt") as stream:
        stream.write(",".join("abcd"[: values.shape[1]]) + "\n")
        np.savetxt(stream, values, delimiter=",", fmt="%.17g")
    return path


def _table(values: Any = X) -> Any:
    return pa.table({name: values[:, j] for j, name in enumerate("abcd")})


# -- one place turns a parser's error into ours ------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyError("x"), IndexError("x"), EOFError("x"), RuntimeError("x"), OSError("x")])
def test_what_a_parser_raises_names_the_file_and_the_row(error: Exception) -> None:
    with pytest.raises(DataFileError, match=r"^a\.npz, in the rows from 7 on: .*x"), reading("a.npz", 7):
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), RowsChangedError("as it is")])
def test_interrupts_and_our_own_errors_pass_untouched(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, reading("a.npz"):
        raise error
    assert caught.value is error


def test_a_lack_of_memory_stays_one_and_names_the_file() -> None:
    with pytest.raises(MemoryError, match=r"a\.npz"), reading("a.npz"):
        raise MemoryError


def test_what_the_system_reports_keeps_its_number_and_gets_the_name() -> None:
    with pytest.raises(OSError, match=r"a\.npz") as caught, reading("a.npz"):
        raise OSError(errno.EIO, "Input/output error")
    assert caught.value.errno == errno.EIO


def _write_all(folder: Path) -> dict[str, Path]:
    np.save(folder / "x.npy", X)
    sp.save_npz(folder / "x.npz", sp.csr_matrix(X))
    pa.parquet.write_table(_table(), folder / "x.parquet")
    pa.feather.write_feather(_table(), folder / "x.feather")
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(50, 4), compression="gzip")
    _csv(folder / "x.csv")
    _csv(folder / "x.csv.gz", opener=gzip.open)
    _csv(folder / "x.csv.bz2", opener=bz2.open)
    return {path.name: path for path in folder.iterdir()}


NAMES = ["x.npy", "x.npz", "x.parquet", "x.feather", "x.h5", "x.csv", "x.csv.gz", "x.csv.bz2"]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "x.csv"])  # the beginning of a text is a text
def test_a_file_cut_short_is_an_error_that_names_it(name: str, tmp_path: Path) -> None:
    path = _write_all(tmp_path)[name]
    whole = path.read_bytes()
    for share in (0.02, 0.3, 0.6, 0.9):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ValueError, match=name.replace(".", r"\.")):
            _all(path)


@pytest.mark.parametrize("name", NAMES)
def test_noise_instead_of_a_file_is_an_error_that_names_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(DataFileError, match=name.replace(".", r"\.")):
        _all(path)


@pytest.mark.parametrize(("claimed", "said"), [(290, "more rows than the 290.*row 290"), (310, "fewer.*row 300")])
def test_a_table_that_miscounts_its_rows_is_damaged_and_not_changed(
    claimed: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write_all(tmp_path)["x.parquet"]
    monkeypatch.setattr(arrow, "_rows_in", lambda file, path: claimed)
    with pytest.raises(DataFileError, match=rf"x\.parquet is damaged: it has {said}"):
        list(open_rows(path).iterate())


def test_groups_within_groups_and_circles_of_them_are_searched_once(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/b/X"] = X
        file["a/b/back"] = file["a"]
        file["soft"] = h5py.SoftLink("/a/b/X")
    np.testing.assert_array_equal(_all(tmp_path / "x.h5"), X)
    with h5py.File(tmp_path / "x.h5", "a") as file:
        file["a/Y"] = X
    with pytest.raises(ValueError, match=r"holds 2 datasets.* one of 'a/Y', 'a/b/X'\."):
        _all(tmp_path / "x.h5")


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opener", [open, gzip.open])
def test_the_mark_at_the_beginning_of_a_csv_is_no_part_of_a_name(opener: Any, tmp_path: Path) -> None:
    path = _csv(tmp_path / ("x.csv" if opener is open else "x.csv.gz"), opener=opener)
    with opener(path, "rb") as stream:
        raw = stream.read()
    with opener(path, "wb") as stream:
        stream.write(b"\xef\xbb\xbf" + raw)
    rows = open_rows(path, target="a")
    np.testing.assert_array_equal(rows.target(), X[:, 0])
    np.testing.assert_array_equal(rows.take(np.arange(300)), X[:, 1:])


def test_rows_whose_target_is_text_can_be_fitted_without_it(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    words = np.where(X[:, 0] > 0, "cat", "dog")
    path.write_text("a,b,label\n" + "".join(f"{a},{b},{word}\n" for (a, b), word in zip(X[:, :2], words, strict=True)))
    rows = open_rows(path, target="label")
    fitted = Nystroem(n_components=3, random_state=0).fit(rows)
    np.testing.assert_array_equal(fitted.landmarks_, Nystroem(n_components=3, random_state=0).fit(X[:, :2]).landmarks_)
    assert KernelRidgeClassifier(n_landmarks=20, random_state=0).fit(rows).score(rows, words) > 0.9


@pytest.mark.parametrize("line", ["1_0 1:1", "1 1:1_0", "1 1_0:1"])
def test_an_underscore_is_no_part_of_a_number(line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.svm"
    path.write_text(f"1 1:2\n{line}\n")
    with pytest.raises(DataFileError, match=r"x\.svm, line 2"):
        open_rows(path)


_BOMB = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from nystrom import open_rows
from nystrom.exceptions import DataFileError
try:
    open_rows(sys.argv[1])
except DataFileError as error:
    # Not ru_maxrss, which a child inherits from the process that forked it.
    print(error, open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
def test_a_header_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wt", compresslevel=1) as stream:
        for _ in range(300):
            stream.write("a," * 500_000)
    done = subprocess.run([sys.executable, "-c", _BOMB, str(path)], capture_output=True, text=True, check=True)
    assert "bomb.csv.gz" in done.stdout
    assert int(done.stdout.split()[-1]) < 500_000  # kilobytes; the header has 300 MB


# -- stamps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.parquet", "x.csv", "x.h5"])
def test_a_change_that_keeps_size_and_time_is_noticed(name: str, tmp_path: Path) -> None:
    path = _write_all(tmp_path)[name]
    rows = open_rows(path)
    before = path.stat()
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(RowsChangedError, match="changed while its rows were read"):
        list(rows.iterate())


def test_another_file_in_its_place_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, X)
    rows = open_rows(path)
    np.save(tmp_path / "y.npy", X + 1)
    os.utime(tmp_path / "y.npy", ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    os.replace(tmp_path / "y.npy", path)
    with pytest.raises(RowsChangedError, match="another file took its place"):
        rows.block(0)


def test_a_changed_chunk_of_a_store_is_noticed(tmp_path: Path) -> None:
    zarr.save_array(str(tmp_path / "x.zarr"), X)
    rows = open_rows(tmp_path / "x.zarr")
    chunk = next(file for file in (tmp_path / "x.zarr" / "c").rglob("*") if file.is_file())
    chunk.write_bytes(chunk.read_bytes())
    with pytest.raises(RowsChangedError, match="changed"):
        list(rows.iterate())


# -- what is not there is not zero -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_a_missing_chunk_of_a_store_is_an_error_unless_it_is_allowed(version: int, tmp_path: Path) -> None:
    stored = zarr.create_array(str(tmp_path / "x.zarr"), shape=X.shape, chunks=(50, 4), dtype="f8", zarr_format=version)
    stored[:] = X
    name = "2.0" if version == 2 else "c/2/0"
    (tmp_path / "x.zarr" / name).unlink()
    with pytest.raises(DataFileError, match=rf"x\.zarr: the chunk '{name}', from row 100 on, has no file"):
        _all(tmp_path / "x.zarr")
    filled = _all(tmp_path / "x.zarr", fill_missing=True)
    assert not filled[100:150].any()
    np.testing.assert_array_equal(filled[150:], X[150:])


@pytest.mark.parametrize("chunks", [None, (50, 4)])
def test_a_dataset_never_written_is_an_error_unless_it_is_allowed(chunks: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        stored = file.create_dataset("X", shape=X.shape, chunks=chunks, dtype="f8")
        if chunks:
            stored[:100] = X[:100]
    with pytest.raises(DataFileError, match=r"x\.h5::X: parts of the dataset were never written"):
        _all(tmp_path / "x.h5")
    assert _all(tmp_path / "x.h5", fill_missing=True).shape == X.shape


# -- HDF5 --------------------------------------------------------------------------------------------------------------


def test_a_dataset_behind_an_external_link_is_read_from_its_own_file(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["padding"] = np.arange(1000.0)
        other["X"] = X
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["noise"] = np.ones((2000, 10))
        file["X"] = h5py.ExternalLink("other.h5", "/X")
    np.testing.assert_array_equal(_all(f"{tmp_path / 'x.h5'}::X"), X)


@pytest.mark.parametrize(
    ("link", "where"),
    [
        (h5py.ExternalLink("gone.h5", "/X"), r"'/X' of the file 'gone\.h5'"),
        (h5py.SoftLink("/nothing"), "'/nothing'"),
        (h5py.SoftLink("/link"), "'/link'"),
    ],
    ids=["file gone", "nothing there", "circle"],
)
def test_a_file_of_links_says_where_they_lead(link: Any, where: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["link"] = link
    with pytest.raises(ValueError, match=rf"x\.h5 holds no datasets\. There is a link, 'link', to {where}; no link is"):
        open_rows(tmp_path / "x.h5")
    with pytest.raises(DataFileError, match=rf"x\.h5::link is a link to {where}, and there is nothing to read there"):
        open_rows(f"{tmp_path / 'x.h5'}::link")


def test_many_datasets_are_not_all_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for number in range(300):
            file[f"d{number:03}"] = X
    with pytest.raises(ValueError, match=r"holds 300 datasets.*'d019' and 280 more\.$"):
        open_rows(tmp_path / "x.h5")


def test_an_array_in_a_group_of_a_group_is_found(tmp_path: Path) -> None:
    group = zarr.open_group(str(tmp_path / "x.zarr"), mode="w").create_group("a")
    group.create_array("X", data=X)
    np.testing.assert_array_equal(_all(tmp_path / "x.zarr"), X)
    group.create_array("Y", data=X)
    with pytest.raises(ValueError, match=r"holds 2 arrays.* one of 'a/X', 'a/Y'\."):
        open_rows(tmp_path / "x.zarr")
    with pytest.raises(DataFileError, match="is one array, with none inside it; leave '::Z' out of the path"):
        open_rows(f"{tmp_path / 'x.zarr' / 'a' / 'X'}::Z")


def test_integers_with_an_offset_are_read_by_value(tmp_path: Path) -> None:
    values = np.arange(600, dtype=np.int32).reshape(300, 2)
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_precision(16)
    kind.set_offset(8)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        space = h5py.h5s.create_simple(values.shape)
        stored = h5py.h5d.create(file.id, b"X", kind, space)
        stored.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    np.testing.assert_array_equal(_all(tmp_path / "x.h5"), values)


@pytest.mark.parametrize("kind", [">f8", ">f4", ">i4", "<f2", "u1", "?"])
def test_every_number_type_in_one_piece_is_read_by_value(kind: str, tmp_path: Path) -> None:
    values = np.abs(10 * X).astype(kind)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["X"] = values
    found = open_rows(tmp_path / "x.h5")
    assert found.dtype == (np.float32 if kind == ">f4" else np.float64)
    np.testing.assert_array_equal(found.take(np.arange(300)), values.astype(found.dtype))


def test_a_compact_dataset_is_read(tmp_path: Path) -> None:
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.COMPACT)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        space = h5py.h5s.create_simple(X.shape)
        stored = h5py.h5d.create(file.id, b"X", h5py.h5t.NATIVE_DOUBLE, space, layout)
        stored.write(h5py.h5s.ALL, h5py.h5s.ALL, X)
    np.testing.assert_array_equal(_all(tmp_path / "x.h5"), X)


def test_a_user_block_does_not_move_the_rows(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=1024) as file:
        file["X"] = X
    np.testing.assert_array_equal(_all(tmp_path / "x.h5"), X)


def test_virtual_external_and_empty_datasets_are_refused_with_what_to_do(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout(shape=X.shape, dtype="f8")
    layout[:] = h5py.VirtualSource(str(tmp_path / "gone.h5"), "X", shape=X.shape)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("external", shape=X.shape, dtype="f8", external=[(str(tmp_path / "raw"), 0, X.nbytes)])
        file["empty"] = h5py.Empty("f8")
    for name, what in (("virtual", "is virtual"), ("external", "kept in external files"), ("empty", "holds no rows")):
        with pytest.raises(DataFileError, match=rf"x\.h5::{name}.*{what}"):
            open_rows(f"{tmp_path / 'x.h5'}::{name}")


# -- the rest ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_a_folder_has_the_widest_type_of_its_files(kind: str, tmp_path: Path) -> None:
    write = pa.parquet.write_table if kind == "parquet" else pa.feather.write_feather
    write(_table(X[:100].astype(np.float32)), tmp_path / f"0.{kind}")
    write(_table(X[100:]), tmp_path / f"1.{kind}")
    rows = open_rows(tmp_path)
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows.take(np.arange(100, 300)), X[100:])


def test_spooled_column_numbers_beyond_32_bits_stay(tmp_path: Path) -> None:
    columns = np.array([5, 2**33 + 7])
    sp.save_npz(tmp_path / "x.npz", sp.csr_array((np.ones(2), (np.arange(2), columns)), shape=(2, 2**33 + 8)))
    rows = open_rows(tmp_path / "x.npz", spool=True)
    np.testing.assert_array_equal(rows.take(np.arange(2)).indices, columns)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(ValueError, match=r"format must be one of \['csv', .*\] or None; got 'bogus'"):
        open_rows(tmp_path / "x.npy", format="bogus")


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_system_without_positioned_reads_reads_the_same(
    order: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.asarray(X, order=order))
    monkeypatch.delattr(binary.os, "preadv")
    rows = open_rows(tmp_path / "x.npy", block_rows=70)
    np.testing.assert_array_equal(np.concatenate([block.X for block in rows.iterate()]), X)
    np.testing.assert_array_equal(rows.take(np.array([250, 3, 3])), X[[250, 3, 3]])


_TRUNCATE = """
import os, sys
import numpy as np
from nystrom import open_rows
rows = open_rows(sys.argv[1], block_rows=1000)
rows.block(0)
os.truncate(sys.argv[1], 4096)
try:
    rows.block(1)
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_cut_while_it_is_read_is_an_error_and_no_signal(order: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.asarray(np.ones((20_000, 4)), order=order))
    command = [sys.executable, "-c", _TRUNCATE, str(tmp_path / "x.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "RowsChangedError"
