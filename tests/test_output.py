"""Streamed output: complete or absent under its name, the same bytes after any interruption, clean after errors."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nystrom import Nystroem, open_rows
from nystrom.engine import LocalEngine
from nystrom.output import write_rows
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
