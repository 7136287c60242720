"""Output of a command: CSV, JSON Lines, Parquet or .npy; a file appears under its name only when complete."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nystrom.commands.options import require_package
from nystrom.disk import FolderLock, replacing
from nystrom.types import Array

TABLE_SUFFIXES = (".csv", ".jsonl", ".parquet", ".npy")
# Bytes reserved for the header, enough for any written here; NumPy pads to a multiple of 64.
_NPY_HEADER_BYTES = 128


class _Writer(Protocol):
    """Appends columns of equal length to a file."""

    def write(self, columns: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class _Csv:
    """Python's own CSV writer quotes only where needed, and writes numbers that read back exactly."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._begun = False

    def write(self, columns: dict[str, Any]) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        if not self._begun:
            writer.writerow(columns)
            self._begun = True
        writer.writerows(zip(*map(_listed, columns.values()), strict=True))
        self._stream.write(text.getvalue().encode())

    def close(self) -> None:
        pass


class _JsonLines:
    """One object per row."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, columns: dict[str, Any]) -> None:
        rows = zip(*map(_listed, columns.values()), strict=True)
        lines = (to_json(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
        self._stream.write("".join(lines).encode())

    def close(self) -> None:
        pass


class _Parquet:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._writer: Any = None

    def write(self, columns: dict[str, Any]) -> None:
        from nystrom.rows.arrow import import_arrow

        arrow = import_arrow()
        values = [arrow.array(value) if isinstance(value, np.ndarray) else value for value in columns.values()]
        batch = arrow.record_batch(values, names=list(columns))
        if self._writer is None:
            self._writer = import_arrow("parquet").ParquetWriter(self._stream, batch.schema)
        self._writer.write_batch(batch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Npy:
    """The header contains the number of rows, so it is written last."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._stream.write(bytes(_NPY_HEADER_BYTES))
        self._rows = 0
        self._like: Any = None

    def write(self, columns: dict[str, Any]) -> None:
        values = [np.asarray(value) for value in columns.values()]
        block = values[0] if len(values) == 1 else np.column_stack(values)
        self._like = block[:0]
        self._rows += len(block)
        self._stream.write(np.ascontiguousarray(block).tobytes())

    def close(self) -> None:
        about = {
            "descr": np.lib.format.dtype_to_descr(self._like.dtype),
            "fortran_order": False,
            "shape": (self._rows, *self._like.shape[1:]),
        }
        start = np.lib.format.magic(1, 0)
        length = _NPY_HEADER_BYTES - len(start) - 2
        self._stream.seek(0)
        self._stream.write(start + length.to_bytes(2, "little") + repr(about).encode().ljust(length - 1) + b"\n")


_WRITERS: dict[str, Callable[[Any], _Writer]] = {".csv": _Csv, ".jsonl": _JsonLines, ".parquet": _Parquet, ".npy": _Npy}


class TableOut:
    """Columns written chunk by chunk."""

    def __init__(self, stream: Any, suffix: str) -> None:
        self._writer = _WRITERS[suffix](stream)
        self.n_rows = 0

    def write(self, columns: dict[str, Any]) -> None:
        """Append rows, as columns of equal length by name."""
        self.n_rows += len(next(iter(columns.values())))
        self._writer.write(columns)

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()


@contextmanager
def open_output(path: str, *, lines: bool = False) -> Iterator[TableOut]:
    """Yield a writer of columns: a file that appears when it is complete, or standard output.

    Standard output gets CSV, or with ``lines`` one JSON object per row.
    """
    suffix = (".jsonl" if lines else ".csv") if path == "-" else Path(path).suffix.lower()
    if suffix == ".parquet":
        require_package("pyarrow", "io", "Writing Parquet files")
    if path == "-":
        sys.stdout.flush()
        out = TableOut(sys.stdout.buffer, suffix)
        yield out
        out.close()
        sys.stdout.buffer.flush()
        return
    with replacing(Path(path)) as temporary, temporary.open("wb") as stream:
        out = TableOut(stream, suffix)
        try:
            yield out
        except BaseException:
            with suppress(Exception):  # a writer of Parquet that is not closed complains when it is collected
                out.close()
            raise
        out.close()


class Parts:
    """Computed columns of each chunk, kept in ``OUT.partial`` until the output is complete: a command resumes there.

    ``job`` describes the work: parts of other work are removed. A fault removes them too, but not an interruption.
    """

    def __init__(self, path: str, job: str) -> None:
        self._folder = Path(f"{path}.partial")
        self._lock = FolderLock(self._folder, path)
        self._described = self._folder / "job"
        if not self._described.exists() or self._described.read_text() != job:
            self._clear()
            self._described.write_text(job)
        self.n_resumed = 0

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        with self._lock:
            if kind is None or issubclass(kind, Exception):
                self._clear()
                self._lock.remove()

    def _clear(self) -> None:
        for file in (self._described, *self._folder.glob("*.npz*")):
            file.unlink(missing_ok=True)

    def get(self, index: int, n_rows: int, compute: Callable[[], dict[str, Array]]) -> dict[str, Array]:
        """Return the columns of a chunk: as stored, or else computed and stored."""
        part = self._folder / f"{index:09d}.npz"
        if part.exists():
            with np.load(part, allow_pickle=False) as stored:
                found = {str(name): stored[f"column{i}"] for i, name in enumerate(stored["names"])}
            self.n_resumed += n_rows
            return found
        found = compute()
        if any(values.dtype.hasobject for values in found.values()):
            return found  # it would take pickle to store them
        with replacing(part) as temporary, temporary.open("wb") as stream:
            named: dict[str, Any] = {f"column{i}": values for i, values in enumerate(found.values())}
            np.savez(stream, names=np.array(list(found)), **named)
        return found


def tell_written(out: TableOut, what: str, path: str, *, as_json: bool) -> None:
    """Report how many rows were written to a file: on standard error, or as JSON on standard output."""
    if path == "-":
        return
    if as_json:
        print_json({"rows": out.n_rows, "saved": path})
    else:
        print(f"{out.n_rows:,} {what} in {path}", file=sys.stderr)


def print_json(value: Any) -> None:
    """Print a result as one JSON object on standard output."""
    print(to_json(value, indent=2))


def to_json(value: Any, indent: int | None = None) -> str:
    """Return Python and NumPy values as JSON; NaN and infinity, which JSON lacks, become null."""
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)


def _listed(column: Any) -> list[Any]:
    listed: list[Any] = column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
    return listed
