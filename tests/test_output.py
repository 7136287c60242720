"""Streamed output: complete or absent under its name, the same bytes after any interruption, clean after errors."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse as sp
import zarr

from nystrom import Nystroem, open_rows
from nystrom.engine import LocalEngine
from nystrom.exceptions import NystromError, OutputBusyError
from nystrom.kernels.custom import FromCallable
from nystrom.output import describe_job, write_rows
from nystrom.rows import Block, as_blocks

FORMATS = ["npy", "zarr", "parquet"]
X = np.random.default_rng(0).normal(size=(5000, 4)).astype(np.float32)


def _write(path: Path, step: Callable[[Block], Any], job: str = "job", block_rows: int = 500) -> Any:
    rows = open_rows(X, block_rows=block_rows)
    return write_rows(path, rows, LocalEngine(2), step, 4, np.float32, job=job, label="write")


def _double(block: Block) -> Any:
    return 2 * block.X


@pytest.mark.parametrize("kind", FORMATS)
def test_the_features_in_a_file_are_those_in_memory(kind: str, tmp_path: Path) -> None:
    model = Nystroem(n_components=6, random_state=0).fit(X)
    found = model.transform(X, out=tmp_path / f"F.{kind}")
    assert np.array_equal(found.take(np.arange(5000)), model.transform(X))
    assert [path.name for path in tmp_path.iterdir()] == [f"F.{kind}"]
    model.transform(X[:100], out=tmp_path / f"F.{kind}")
    assert open_rows(tmp_path / f"F.{kind}").shape == (100, 6)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_interrupted_write_goes_on_and_ends_with_the_same_bytes(kind: str, tmp_path: Path) -> None:
    _write(tmp_path / f"whole.{kind}", _double)
    path = tmp_path / f"F.{kind}"

    def interrupted(block: Block) -> Any:
        if block.start == 2500:
            raise KeyboardInterrupt
        return 2 * block.X

    with pytest.raises(KeyboardInterrupt):
        _write(path, interrupted)
    assert not path.exists()
    seen: list[int] = []

    def watched(block: Block) -> Any:
        seen.append(block.start)
        return 2 * block.X

    _write(path, watched)
    assert 0 < min(seen) <= 2500
    whole = (tmp_path / f"whole.{kind}").rename(tmp_path / f"other.{kind}")
    mine, theirs = (_digest(place) for place in (path, whole))
    assert mine == theirs


def _digest(path: Path) -> str:
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return hashlib.sha256(
        b"".join(str(file)[len(str(path)) :].encode() + file.read_bytes() for file in files)
    ).hexdigest()


def test_unfinished_output_of_another_job_is_not_taken_up(tmp_path: Path) -> None:
    def interrupted(block: Block) -> Any:
        if block.start == 2500:
            raise KeyboardInterrupt
        return -block.X

    with pytest.raises(KeyboardInterrupt):
        _write(tmp_path / "F.npy", interrupted, job="another")
    _write(tmp_path / "F.npy", _double)
    assert np.array_equal(np.load(tmp_path / "F.npy"), 2 * X)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_error_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    def failing(block: Block) -> Any:
        if block.start == 2500:
            raise ValueError("row 2500 is bad")
        return block.X

    with pytest.raises(ValueError, match="row 2500 is bad"):
        _write(tmp_path / f"F.{kind}", failing)
    assert not list(tmp_path.iterdir())


_FULL_DISK = """
import resource, sys
import numpy as np
from nystrom import Nystroem
X = np.random.default_rng(0).normal(size=(40_000, 4)).astype(np.float32)
model = Nystroem(n_components=8, random_state=0).fit(X)
resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, 900_000))
try:
    model.transform(X, out=sys.argv[1])
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no file-size limits")
def test_a_full_disk_names_the_file_and_row_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(tmp_path / "F.npy")], capture_output=True, text=True, check=True
    )
    assert "F.npy cannot be written at row 25000: File too large. Free some disk and call again" in done.stdout
    assert not list(tmp_path.iterdir())


_SLOW = """
import sys, time
import numpy as np
from nystrom import open_rows
from nystrom.engine import LocalEngine
from nystrom.output import write_rows
rows = open_rows(sys.argv[1], block_rows=500)
def step(block):
    time.sleep(0.1)
    return 2 * block.X
write_rows(sys.argv[2], rows, LocalEngine(1), step, 4, np.float32, job="job", label="write")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize("kind", FORMATS)
def test_a_killed_process_leaves_no_broken_output_and_the_next_one_finishes_it(kind: str, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    path = tmp_path / f"F.{kind}"
    partial = tmp_path / f"F.{kind}.partial"
    process = subprocess.Popen([sys.executable, "-c", _SLOW, str(tmp_path / "X.npy"), str(path)])
    began = {"npy": "data.npy", "zarr": "data.zarr/c/1", "parquet": "000000001.parquet"}[kind]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _has_begun(partial / began):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not path.exists()
    assert partial.exists()
    rows = open_rows(tmp_path / "X.npy", block_rows=500)
    write_rows(path, rows, LocalEngine(2), _double, 4, np.float32, job="job", label="write")
    assert not partial.exists()
    write_rows(tmp_path / f"G.{kind}", rows, LocalEngine(2), _double, 4, np.float32, job="job", label="write")
    assert _digest(path) == _digest(tmp_path / f"G.{kind}")


def test_what_a_kill_left_of_a_chunk_is_not_in_the_output(tmp_path: Path) -> None:
    rows = as_blocks(X, block_rows=500)

    def interrupted(block: Block) -> Any:
        if block.start == 2500:
            raise KeyboardInterrupt
        return _double(block)

    path = tmp_path / "F.zarr"
    with pytest.raises(KeyboardInterrupt):
        write_rows(path, rows, LocalEngine(1), interrupted, 4, np.float32, job="job", label="write")
    orphan = tmp_path / "F.zarr.partial" / "data.zarr" / "c" / "2" / "0.0123.partial"
    orphan.write_bytes(b"half a chunk")
    write_rows(path, rows, LocalEngine(1), _double, 4, np.float32, job="job", label="write")
    assert not list(path.rglob("*.partial"))


def _has_begun(path: Path) -> bool:
    return path.exists() and (path.is_dir() or path.suffix == ".parquet" or path.stat().st_size > 8000)


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"out must end in one of \['.npy', '.parquet', '.zarr'\]"):
        _write(tmp_path / "F.csv", _double)


_MARK = """
import numpy as np
from nystrom import Nystroem
from nystrom.output import describe_job
X = np.random.default_rng(0).normal(size=(100, 3))
print(describe_job(Nystroem(n_components=3, random_state=0).fit(X).map_, "features", {}))
"""


# -- the content of the rows decides what is taken up ------------------------------------------------------------------

_OTHER = np.random.default_rng(1).normal(size=X.shape).astype(np.float32)


def _dense(block: Block) -> Any:
    return 2 * (block.X.toarray() if sp.issparse(block.X) else block.X)


def _interrupt(path: Path, rows: Any, after: int = 2500) -> None:
    def step(block: Block) -> Any:
        if block.start == after:
            raise KeyboardInterrupt
        return _dense(block)

    with pytest.raises(KeyboardInterrupt):
        write_rows(path, rows, LocalEngine(1), step, 4, np.float32, job="job", label="write")


def _finish(path: Path, rows: Any) -> tuple[Any, list[int]]:
    seen: list[int] = []

    def step(block: Block) -> Any:
        seen.append(block.start)
        return _dense(block)

    found = write_rows(path, rows, LocalEngine(1), step, 4, np.float32, job="job", label="write")
    return found.take(np.arange(rows.shape[0])), seen


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_of_the_same_shape_with_other_content_are_not_mixed(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"F.{kind}"
    _interrupt(path, open_rows(X, block_rows=500))
    found, seen = _finish(path, open_rows(_OTHER, block_rows=500))
    assert seen[0] == 0
    assert np.array_equal(found, 2 * _OTHER)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("source", ["npy", "parquet", "zarr", "npz"])
def test_a_rewritten_input_file_is_not_mixed_with_what_it_was(source: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"F.{kind}"
    place = tmp_path / f"X.{source}"
    _save(place, X)
    _interrupt(path, open_rows(place, block_rows=500))
    _save(place, _OTHER)
    found, seen = _finish(path, open_rows(place, block_rows=500))
    assert seen[0] == 0
    assert np.array_equal(found, 2 * _OTHER)


@pytest.mark.parametrize("source", ["npy", "parquet", "zarr", "npz", "npz-spooled", "memory"])
def test_the_same_rows_are_taken_up(source: str, tmp_path: Path) -> None:
    name, _, spooled = source.partition("-")
    place = tmp_path / f"X.{name}"
    if source != "memory":
        _save(place, X)

    def rows() -> Any:
        return open_rows(X.copy(), block_rows=500) if source == "memory" else _open(place, bool(spooled))

    _interrupt(tmp_path / "F.npy", rows())
    found, seen = _finish(tmp_path / "F.npy", rows())
    assert seen[0] == 2500
    assert np.array_equal(found, 2 * X)


def _open(place: Path, spool: bool) -> Any:
    return open_rows(place, block_rows=500, spool=spool)


def _save(place: Path, values: Any) -> None:
    if place.suffix == ".npy":
        np.save(place, values)
    elif place.suffix == ".npz":
        sp.save_npz(place, sp.csr_matrix(values))
    elif place.suffix == ".zarr":
        shutil.rmtree(place, ignore_errors=True)
        zarr.save_array(str(place), values)
    else:
        table = pa.table({str(j): values[:, j] for j in range(values.shape[1])})
        pa.parquet.write_table(table, place)


def test_rows_without_an_identity_are_never_taken_up(tmp_path: Path) -> None:
    def blocks() -> Any:
        return (X[i : i + 500] for i in range(0, len(X), 500))

    _interrupt(tmp_path / "F.npy", open_rows(blocks, block_rows=500))
    found, seen = _finish(tmp_path / "F.npy", open_rows(blocks, block_rows=500))
    assert seen[0] == 0
    assert np.array_equal(found, 2 * X)


def test_a_kernel_that_is_a_function_has_no_identity() -> None:
    fits = [Nystroem(kernel, gamma=0.5, n_components=3, random_state=0).fit(X[:50]) for kernel in ("rbf", "rbf")]
    marks = [describe_job(fit.map_, "features", {}) for fit in fits]
    assert marks[0] == marks[1]
    assert marks[0] is not None
    kernel = FromCallable(lambda a, b: a @ b.T)
    assert describe_job(replace(fits[0].map_, kernel=kernel), "features", {}) is None


def test_the_same_map_has_the_same_identity_in_another_process() -> None:
    done = [subprocess.run([sys.executable, "-c", _MARK], capture_output=True, text=True, check=True) for _ in range(2)]
    assert done[0].stdout == done[1].stdout != "None\n"


def test_maps_of_the_same_landmarks_and_other_rows_differ() -> None:
    fits = [Nystroem(gamma=0.3, n_components=3, landmarks=X[:9]).fit(rows) for rows in (X[:100], X[100:200])]
    assert len({describe_job(fit.map_, "features", {}) for fit in fits}) == 2


# -- damage, kills during the clean-up, other writers ------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_a_kill_during_the_clean_up_does_not_shorten_the_next_output(kind: str, tmp_path: Path) -> None:
    """Whatever is left of the folder, the next call ends with the whole output."""
    path = tmp_path / f"F.{kind}"
    rows = open_rows(X, block_rows=500)
    _interrupt(path, rows, after=4500)
    whole = sorted(file for file in (tmp_path / f"F.{kind}.partial").rglob("*") if file.is_file())
    # Chunks and parts are alike; some of them will do.
    for number in range(0, len(whole), 3):
        _interrupt(path, rows, after=4500)
        whole = sorted(file for file in (tmp_path / f"F.{kind}.partial").rglob("*") if file.is_file())
        whole[number % len(whole)].unlink()
        found, _ = _finish(path, rows)
        assert np.array_equal(found, 2 * X)
        assert os.listdir(tmp_path) == [f"F.{kind}"]


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_blocks_are_written_again(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"F.{kind}"
    rows = open_rows(X, block_rows=500)
    _interrupt(path, rows)
    place = tmp_path / f"F.{kind}.partial"
    part = {"npy": "data.npy", "zarr": "data.zarr/c/3/0", "parquet": "000000003.parquet"}[kind]
    raw = bytearray((place / part).read_bytes())
    at = 128 + 3 * 500 * 16 + 40 if kind == "npy" else len(raw) // 2
    raw[at] ^= 255
    (place / part).write_bytes(bytes(raw))
    found, seen = _finish(path, rows)
    assert seen[0] == 1500
    assert np.array_equal(found, 2 * X)


@pytest.mark.parametrize("kind", FORMATS)
def test_blocks_that_vanish_while_writing_are_an_error_and_the_old_output_stays(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"F.{kind}"
    _finish(path, open_rows(_OTHER, block_rows=500))
    part = {"npy": "data.npy", "zarr": "data.zarr/c/1/0", "parquet": "000000001.parquet"}[kind]

    def step(block: Block) -> Any:
        if block.start == 4500:
            place = tmp_path / f"F.{kind}.partial" / part
            os.truncate(place, 4000) if kind == "npy" else place.unlink()
        return 2 * block.X

    with pytest.raises(NystromError, match=r"missing or short"):
        write_rows(path, open_rows(X, block_rows=500), LocalEngine(1), step, 4, np.float32, job="job", label="write")
    assert np.array_equal(open_rows(path).take(np.arange(5000)), 2 * _OTHER)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("kind", FORMATS)
def test_two_writers_of_one_output_are_told_of_each_other(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"F.{kind}"

    def step(block: Block) -> Any:
        if block.start == 1000:
            with pytest.raises(OutputBusyError, match=rf"is being written by process {os.getpid()} on "):
                _finish(path, open_rows(_OTHER, block_rows=500))
        return 2 * block.X

    rows = open_rows(X, block_rows=500)
    found = write_rows(path, rows, LocalEngine(1), step, 4, np.float32, job="job", label="write")
    assert np.array_equal(found.take(np.arange(5000)), 2 * X)


def test_what_is_no_output_is_not_replaced(tmp_path: Path) -> None:
    rows = open_rows(X, block_rows=500)
    (tmp_path / "F.zarr").write_text("a letter")
    (tmp_path / "G.zarr").mkdir()
    (tmp_path / "G.zarr" / "letter").write_text("a letter")
    (tmp_path / "F.npy").mkdir()
    for name, what in (("F.zarr", "is a file"), ("G.zarr", "not a Zarr store"), ("F.npy", "is a folder")):
        with pytest.raises(FileExistsError, match=rf"{name}' {what}|{name}' is a folder that is {what}"):
            _finish(tmp_path / name, rows)
    assert (tmp_path / "F.zarr").read_text() == "a letter"
    assert (tmp_path / "G.zarr" / "letter").exists()


def test_a_move_cut_in_half_keeps_the_old_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "F.zarr"
    _finish(path, open_rows(_OTHER, block_rows=500))
    with monkeypatch.context() as patched:
        patched.setattr("nystrom.output.move", lambda *names: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            _finish(path, open_rows(X, block_rows=500))
    assert not path.exists()

    def failing(block: Block) -> Any:
        raise ValueError("bad")

    # Another job fails; what was there before both is there again.
    with pytest.raises(ValueError, match="bad"):
        write_rows(path, open_rows(X, block_rows=500), LocalEngine(1), failing, 4, np.float32, job="2", label="write")
    assert np.array_equal(open_rows(path).take(np.arange(5000)), 2 * _OTHER)
    assert os.listdir(tmp_path) == ["F.zarr"]
