"""Inputs that are cut, changed or exchanged while they are read: an error that says so, never a signal or a mixture."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.sparse as sp
import zarr

pytestmark = [pytest.mark.faults, pytest.mark.skipif(os.name != "posix", reason="open files are not removed elsewhere")]

N, P = 4000, 5


def _values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(N, P))


def _table(X: np.ndarray) -> pa.Table:
    return pa.table({f"c{j}": X[:, j] for j in range(P)})


def _text(X: np.ndarray) -> str:
    return ",".join(f"c{j}" for j in range(P)) + "\n" + "\n".join(",".join(map(repr, row)) for row in X.tolist()) + "\n"


def _libsvm(X: np.ndarray) -> str:
    return "\n".join("1 " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row)) for row in X.tolist()) + "\n"


def _hdf5(path: Path, X: np.ndarray, **options: object) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, **options)


WRITE: dict[str, Callable[[Path, np.ndarray], object]] = {
    "x.npy": np.save,
    "f.npy": lambda path, X: np.save(path, np.asfortranarray(X)),
    "x.npz": lambda path, X: sp.save_npz(path, sp.csr_matrix(X)),
    "x.csv": lambda path, X: path.write_text(_text(X)),
    "x.csv.gz": lambda path, X: path.write_bytes(gzip.compress(_text(X).encode())),
    "x.parquet": lambda path, X: pa.parquet.write_table(_table(X), path, row_group_size=500),
    "x.feather": lambda path, X: pa.feather.write_feather(_table(X), path, chunksize=500),
    "x.h5": _hdf5,
    "chunked.h5": lambda path, X: _hdf5(path, X, chunks=(200, P), compression="gzip"),
    "x.zarr": lambda path, X: zarr.create_array(str(path), data=X, chunks=(200, P)),
    "x.svm": lambda path, X: path.write_text(_libsvm(X)),
}

_READ = """
import os, shutil, sys
import numpy as np
from nystrom import open_rows

def chunks(path):
    found = (os.path.join(place, name) for place, _, names in os.walk(path) for name in names)
    return sorted(name for name in found if not name.endswith("json"))

def strike(path, other, how, at):
    target = chunks(path)[at % len(chunks(path))] if os.path.isdir(path) else path
    if how == "cut":
        os.truncate(target, os.path.getsize(target) // 2)
    elif how == "remove":
        os.remove(target)
    elif how == "write":
        before = os.stat(target)
        with open(target, "r+b") as stream:
            stream.seek(before.st_size // 2)
            stream.write(b"\\x01")
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif os.path.isdir(path):
        shutil.rmtree(path)
        os.rename(other, path)
    else:
        os.replace(other, path)

def read(folder, name, how, at):
    path = os.path.join(folder, str(at), name)
    rows = open_rows(path, block_rows=100)
    seen = []
    try:
        for number in (1, 2):
            for block in rows.iterate():
                seen.append(block.X.toarray() if rows.is_sparse else np.array(block.X))
                if len(seen) == at:
                    strike(path, os.path.join(folder, str(at), "other"), how, at)
    except Exception as error:
        print("refused", type(error).__name__, name in str(error), flush=True)
    else:
        print("read", flush=True)
    np.save(os.path.join(folder, str(at), "seen.npy"), np.concatenate(seen))

for at in map(int, sys.argv[4:]):
    read(*sys.argv[1:4], at)
"""
MOMENTS = (1, 17, 40)


@pytest.mark.parametrize("name", WRITE)
@pytest.mark.parametrize("how", ["cut", "remove", "write", "exchange"])
def test_an_input_that_changes_while_it_is_read_is_refused(
    name: str, how: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    X = _values(0)
    for at in MOMENTS:
        folder = tmp_path / str(at)
        folder.mkdir()
        WRITE[name](folder / name, _values(1))
        (folder / name).rename(folder / "other")
        WRITE[name](folder / name, X)
    command = [sys.executable, "-c", _READ, str(tmp_path), name, how, *map(str, MOMENTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-1000:]
    allowed = ("refused RowsChangedError True", "refused DataFileError True")
    assert all(line in allowed for line in done.stdout.splitlines()), done.stdout
    for at in MOMENTS:  # what was given out before the error are the rows as they were
        seen = np.load(tmp_path / str(at) / "seen.npy")
        assert np.array_equal(seen[: at * 100], np.concatenate([X, X])[: at * 100])
    record_property("faults", {"inputs": len(MOMENTS)})
