"""Rows of results: one JSON object per line, appended and flushed as soon as it is known."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
# Fields that identify a piece of work. They include the hash of the data, so other data gives other rows.
IDENTITY = ("experiment", "study", "method", "m", "r", "trial", "data_sha256")


def identity(row: Row) -> tuple[Any, ...]:
    """Return the fields that identify this row."""
    return tuple(row.get(name) for name in IDENTITY)


class RowFile:
    """The file that rows are appended to.

    Opening it reads its rows. An incomplete last line, left by an interruption, is removed so that a new row begins on
    its own line; all lines before it are complete and stay.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = RowFile(pathlib.Path(tempfile.mkdtemp()) / "rows.jsonl")
    >>> file.append([{"experiment": "toy", "error": 0.5}])
    >>> RowFile(file.path).rows
    [{'experiment': 'toy', 'error': 0.5}]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._read()
        self.done = {identity(row) for row in self.rows}

    def _read(self) -> None:
        raw = self.path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            os.truncate(self.path, len(whole))
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(
                    f"{self.path}, line {number}: not a row of results ({error}). Delete that line, or choose "
                    f"another --output, and start again."
                ) from None
            self.rows.append(row)

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows to the file, all at once, and force them to the disk."""
        added = list(rows)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in added)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        self.rows.extend(added)
        self.done.update(map(identity, added))
