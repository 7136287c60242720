"""Results of a command: CSV, Parquet or .npy, written under another name and moved into place when complete."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nystrom.commands.options import require_package
from nystrom.disk.replace import replacing
from nystrom.types import Array

TABLE_SUFFIXES = (".csv", ".parquet", ".npy")


class TableOut:
    """Columns written chunk by chunk."""

    def __init__(self, stream: Any, suffix: str) -> None:
        self._stream = stream
        self._suffix = suffix
        self._writer: Any = None
        self._begun = False
        self._held: list[Array] = []
        self.n_rows = 0

    def write(self, columns: dict[str, Any]) -> None:
        """Append rows: equally long columns, by name."""
        self.n_rows += len(next(iter(columns.values())))
        if self._suffix == ".npy":
            values = [np.asarray(value) for value in columns.values()]
            self._held.append(values[0] if len(values) == 1 else np.column_stack(values))
        elif self._suffix == ".csv":
            self._write_csv(columns)
        else:
            self._write_parquet(columns)

    def _write_csv(self, columns: dict[str, Any]) -> None:
        # Python's own writer quotes only what needs it, and writes numbers so that they read back the same.
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        if not self._begun:
            writer.writerow(columns)
            self._begun = True
        values = (value.tolist() if isinstance(value, np.ndarray) else value.to_pylist() for value in columns.values())
        writer.writerows(zip(*values, strict=True))
        self._stream.write(text.getvalue().encode())

    def _write_parquet(self, columns: dict[str, Any]) -> None:
        from nystrom.rows.arrow import import_arrow

        batch = import_arrow().record_batch(
            [import_arrow().array(value) if isinstance(value, np.ndarray) else value for value in columns.values()],
            names=list(columns),
        )
        if self._writer is None:
            self._writer = import_arrow("parquet").ParquetWriter(self._stream, batch.schema)
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Write what is held back, and the end of the file."""
        if self._writer is not None:
            self._writer.close()
        if self._held:
            np.save(self._stream, np.concatenate(self._held), allow_pickle=False)


@contextmanager
def open_output(path: str) -> Iterator[TableOut]:
    """Give a place to write columns to: a file that appears when it is complete, or standard output as CSV."""
    suffix = ".csv" if path == "-" else Path(path).suffix.lower()
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
        yield out
        out.close()


def print_json(value: Any) -> None:
    """Print a result as one JSON object on standard output."""
    import json

    print(json.dumps(value, indent=2, default=_plain, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return str(value)
