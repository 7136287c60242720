"""What is fuzzed: for each format how to write a good file, how to damage it, and how it is read."""

from __future__ import annotations

import bz2
import gzip
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

# The forgeries of model files stand beside the tests of model files.
sys.path.append(str(Path(__file__).parents[1] / "models"))

from forgeries import WAYS

Generator = np.random.Generator
N, P = 60, 6


@dataclass(frozen=True)
class Format:
    """One kind of file.

    Parameters
    ----------
    name : str
        Of the file; a damaged one is read under it, and its error must hold it.
    make : callable (folder)
        Writes a good file (or folder) of this name.
    damage : callable (path, rng)
        Damages what ``make`` wrote.
    read : callable (path)
        Reads it, wholly. It may return, or raise a ``ValueError`` that names the file.
    """

    name: str
    make: Callable[[Path], None]
    damage: Callable[[Path, Generator], None]
    read: Callable[[Path], None]


# -- damage ------------------------------------------------------------------------------------------------------------

_EXTREMES = (0, 1, 2, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def damage_bytes(raw: bytes, rng: Generator) -> bytes:
    """Return the bytes with one to three wounds: flips, noise, zeros, cuts, repetitions, extreme numbers."""
    held = bytearray(raw)
    for _ in range(int(rng.integers(1, 4))):
        if not held:
            break
        at = int(rng.integers(len(held)))
        if rng.random() < 0.3:  # headers and footers hold the structure
            at = int(rng.integers(min(len(held), 200)))
            at = at if rng.random() < 0.5 else len(held) - 1 - at
        size = int(min(rng.integers(1, 40), len(held) - at))
        kind = int(rng.integers(8))
        if kind == 0:
            held[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            held[at : at + size] = rng.bytes(size)
        elif kind == 2:
            held[at : at + size] = bytes(size)
        elif kind == 3:
            del held[at:]
        elif kind == 4:
            held[at:at] = rng.bytes(size)
        elif kind == 5:
            del held[at : at + size]
        elif kind == 6:
            held[at:at] = held[at : at + size] * int(rng.integers(1, 5))
        else:
            width = int(rng.choice([2, 4, 8]))
            number = int(rng.choice(np.array(_EXTREMES, dtype=np.uint64))) % 2 ** (8 * width)
            held[at : at + width] = number.to_bytes(width, "little")
    return bytes(held)


_SCRAPS = [
    b"nan",
    b"inf",
    b"1_0",
    b"-1",
    b"1e999",
    b"",
    b",",
    b'"',
    b"\n",
    b"\x00",
    b"\xff",
    b":",
    b"9" * 30,
    b"#",
    b"\r",
]


def damage_text(raw: bytes, rng: Generator) -> bytes:
    """Return text with scraps of text put among it, and perhaps wounds of bytes too."""
    held = raw
    for _ in range(int(rng.integers(1, 6))):
        at = int(rng.integers(len(held) + 1))
        scrap = _SCRAPS[int(rng.integers(len(_SCRAPS)))]
        held = held[:at] + scrap + held[at + int(rng.integers(0, 6)) :]
    return damage_bytes(held, rng) if rng.random() < 0.3 else held


def _rewrite(path: Path, rng: Generator) -> None:
    path.write_bytes(damage_bytes(path.read_bytes(), rng))


def _in_text(opener: Any, compress: Callable[[bytes], bytes]) -> Callable[[Path, Generator], None]:
    """Damage the text and compress it again, or damage the compressed bytes."""

    def damage(path: Path, rng: Generator) -> None:
        if rng.random() < 0.5:
            with opener(path, "rb") as stream:
                raw = stream.read()
            path.write_bytes(compress(damage_text(raw, rng)))
        else:
            _rewrite(path, rng)

    return damage


def _plain(raw: bytes) -> bytes:
    return raw


def _in_arrays(path: Path, rng: Generator) -> None:
    """Damage the arrays of an archive and archive them again, or damage its bytes."""
    if rng.random() < 0.4:
        _rewrite(path, rng)
        return
    with np.load(path) as stored:
        parts = dict(stored)
    for name in rng.choice(sorted(parts), size=int(rng.integers(1, 3)), replace=False):
        parts[name] = _damage_array(parts[name], rng)
        if rng.random() < 0.05:
            del parts[name]
    (np.savez if rng.random() < 0.5 else np.savez_compressed)(path, **parts)


def _damage_array(array: Any, rng: Generator) -> Any:
    kind = int(rng.integers(7))
    if array.ndim == 0 or array.dtype.kind in "SU":
        return np.array([b"csr", b"csc", b"coo", b"bsr", b"dia", b"xyz"][int(rng.integers(6))])
    array = array.copy()
    at = int(rng.integers(max(len(array), 1)))
    if kind < 2 and array.size:
        number = rng.integers(-10, 10**6) if kind else rng.choice([-1, 2**31 - 1, -(2**31)])
        array.reshape(-1)[at % array.size] = number.astype(array.dtype)
    elif kind == 2:
        array = array[:at]
    elif kind == 3:
        array = np.concatenate([array, array[:at]])
    elif kind == 4:
        array = array.astype(rng.choice(["f8", "f4", ">i4", "u1", "i8", "u8", "c16", "?", "i2"]), casting="unsafe")
    elif kind == 5:
        array = array[None]
    else:
        array = rng.permutation(array)
    return array


def _in_store(path: Path, rng: Generator) -> None:
    """Damage or remove a file of a folder; half the time its metadata."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    metadata = [file for file in files if file.suffix == ".json"]
    file = metadata[0] if rng.random() < 0.5 else files[int(rng.integers(len(files)))]
    if file.suffix == ".json" and rng.random() < 0.6:
        file.write_text(json.dumps(_damage_json(json.loads(file.read_text()), rng)))
    elif rng.random() < 0.1:
        file.unlink()
    else:
        _rewrite(file, rng)


def _damage_json(value: Any, rng: Generator) -> Any:
    """Change one leaf, somewhere."""
    if isinstance(value, dict) and value:
        key = sorted(value)[int(rng.integers(len(value)))]
        if rng.random() < 0.1:
            return {name: part for name, part in value.items() if name != key}
        return {**value, key: _damage_json(value[key], rng)}
    if isinstance(value, list) and value:
        at = int(rng.integers(len(value)))
        return [*value[:at], _damage_json(value[at], rng), *value[at + 1 :]]
    numbers: list[Any] = [None, -1, 0, 1, 3, 10**6, 10**12, 2**63, 0.5, True]
    choices = [*numbers, "", "float32", "<i8", "|O", "gzip", "NaN", [], {}, [1]]
    return choices[int(rng.integers(len(choices)))]


# -- the formats -------------------------------------------------------------------------------------------------------


def _values() -> Any:
    return np.random.default_rng(0).normal(size=(N, P))


def _sparse() -> Any:
    return sp.random(N, 30, 0.2, format="csr", random_state=0)


def _read_rows(path: Path, **options: Any) -> None:
    """Read every row, and let the loops have them: the kernel of the rows and some landmarks of theirs."""
    from nystrom import Nystroem, open_rows

    rows = open_rows(path, **options)
    for block in rows.iterate():
        del block
    # Rows that were read whole may still be too wide or too large for a kernel; that is no matter of the file.
    with suppress(ValueError, MemoryError):
        Nystroem(gamma=0.5, n_components=3, landmarks="uniform", random_state=0).fit(rows)


def _make_npy(folder: Path) -> None:
    np.save(folder / "rows.npy", _values())


def _make_npz(folder: Path) -> None:
    sp.save_npz(folder / "rows.npz", _sparse(), compressed=False)


def _csv_text() -> bytes:
    lines = [",".join(f"{value:.6g}" for value in row) for row in _values()]
    return ("a,b,c,d,e,f\n" + "\n".join(lines) + "\n").encode()


def _make_csv(folder: Path) -> None:
    (folder / "rows.csv").write_bytes(_csv_text())


def _make_csv_gz(folder: Path) -> None:
    (folder / "rows.csv.gz").write_bytes(gzip.compress(_csv_text(), mtime=0))


def _table() -> Any:
    import pyarrow as pa

    return pa.table(dict(zip("abcdef", _values().T, strict=True)))


def _make_parquet(folder: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(_table(), folder / "rows.parquet", row_group_size=25)


def _make_feather(folder: Path) -> None:
    import pyarrow.feather

    pyarrow.feather.write_feather(_table(), folder / "rows.feather", chunksize=25)


def _make_hdf5(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("X", data=_values(), chunks=(20, P), compression="gzip")


def _make_hdf5_plain(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "plain.h5", "w") as file:
        file["X"] = _values()


def _make_zarr(folder: Path) -> None:
    import zarr

    stored = zarr.create_array(str(folder / "rows.zarr"), shape=(N, P), chunks=(20, P), dtype="f8")
    stored[:] = _values()


def _libsvm_text() -> bytes:
    X = _sparse()
    lines = []
    for i in range(N):
        row = slice(X.indptr[i], X.indptr[i + 1])
        pairs = " ".join(f"{j + 1}:{v:.5g}" for j, v in zip(X.indices[row], X.data[row], strict=True))
        lines.append(f"{i % 3} {pairs}")
    return ("\n".join(lines) + "\n").encode()


def _make_libsvm(folder: Path) -> None:
    (folder / "rows.svm").write_bytes(_libsvm_text())


def _make_libsvm_bz2(folder: Path) -> None:
    (folder / "rows.svm.bz2").write_bytes(bz2.compress(_libsvm_text()))


def _make_libsvm_gz(folder: Path) -> None:
    (folder / "rows.svm.gz").write_bytes(gzip.compress(_libsvm_text(), mtime=0))


# The cache of a parsed file is not the user's: damaged, it is made again, and what is read is right in any case.


def _parse() -> tuple[Any, Any]:
    return _sparse(), np.arange(float(N))


def _cached(folder: Path) -> tuple[Any, Any]:
    import os

    from nystrom.datasets.loader import cached

    os.environ["NYSTROM_CACHE"] = str(folder / "cache")
    return cached(folder / "source.txt", _parse)


def _make_cache(folder: Path) -> None:
    shutil.rmtree(folder / "cache", ignore_errors=True)
    if not (folder / "source.txt").exists():
        (folder / "source.txt").write_text("what was parsed")
    _cached(folder)


def _damage_cache(path: Path, rng: Generator) -> None:
    _rewrite(next(path.glob("*.npz")), rng)


def _read_cache(path: Path) -> None:
    X, y = _cached(path.parent)
    expected, target = _parse()
    if (expected != X).nnz or not np.array_equal(y, target):
        raise AssertionError("the cache gave other rows than the parser")


def _make_model(folder: Path) -> None:
    from nystrom import KernelRidge, save

    X = _values()
    save(KernelRidge(alpha=1.0, gamma=0.5, n_landmarks=5, random_state=0).fit(X, X[:, 0]), folder / "model.nystrom")


def _read_model(path: Path) -> None:
    from nystrom import load

    load(path).predict(_values())


def _make_forged(folder: Path) -> None:
    _make_model(folder)
    (folder / "model.nystrom").rename(folder / "forged.nystrom")


def _forge(path: Path, rng: Generator) -> None:
    """Forge a model file, its checksums right, some of them with code that leaves a folder behind if it is run."""
    way = WAYS[int(rng.integers(len(WAYS)))]
    path.write_bytes(way(path.read_bytes(), rng, path.parent / "canary"))


def _read_forged(path: Path) -> None:
    try:
        _read_model(path)
    finally:
        if (path.parent / "canary").exists():
            raise AssertionError("code in the file was run")


def _make_table(folder: Path) -> None:
    lines = ["age,city,since,member,price"]
    lines += [
        f"{20 + i},{('Bern', 'Oslo', '')[i % 3]},2020-01-{i % 28 + 1:02},{i % 2 == 0},{i * 1.5}" for i in range(N)
    ]
    (folder / "table.csv").write_text("\n".join(lines))


def _make_table_of(suffix: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        import pandas as pd

        _make_table(folder)
        frame = pd.read_csv(folder / "table.csv", parse_dates=["since"])
        (folder / "table.csv").unlink()
        (frame.to_parquet if suffix == "parquet" else frame.to_feather)(folder / f"table.{suffix}")

    return make


def _read_table(path: Path) -> None:
    from nystrom.preprocessing import TableEncoder

    encoder = TableEncoder().fit(path)
    for _ in encoder.rows(path).iterate():
        pass


_ROWS = [
    Format("rows.npy", _make_npy, _rewrite, _read_rows),
    Format("rows.npz", _make_npz, _in_arrays, _read_rows),
    Format("rows.csv", _make_csv, _in_text(open, _plain), _read_rows),
    Format("rows.csv.gz", _make_csv_gz, _in_text(gzip.open, gzip.compress), _read_rows),
    Format("rows.parquet", _make_parquet, _rewrite, _read_rows),
    Format("rows.feather", _make_feather, _rewrite, _read_rows),
    Format("rows.h5", _make_hdf5, _rewrite, _read_rows),
    Format("plain.h5", _make_hdf5_plain, _rewrite, _read_rows),
    Format("rows.zarr", _make_zarr, _in_store, _read_rows),
    Format("rows.svm", _make_libsvm, _in_text(open, _plain), _read_rows),
    Format("rows.svm.bz2", _make_libsvm_bz2, _in_text(bz2.open, bz2.compress), _read_rows),
    Format("rows.svm.gz", _make_libsvm_gz, _in_text(gzip.open, gzip.compress), _read_rows),
    Format("cache", _make_cache, _damage_cache, _read_cache),
    Format("model.nystrom", _make_model, _rewrite, _read_model),
    Format("forged.nystrom", _make_forged, _forge, _read_forged),
    Format("table.csv", _make_table, _in_text(open, _plain), _read_table),
    Format("table.parquet", _make_table_of("parquet"), _rewrite, _read_table),
    Format("table.feather", _make_table_of("feather"), _rewrite, _read_table),
]

# Add a format by adding a line above, or here from another file.
FORMATS: dict[str, Format] = {form.name: form for form in _ROWS}
