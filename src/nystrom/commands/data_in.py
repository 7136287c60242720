"""The data that a command is given: a table or a matrix, from a file or from standard input."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nystrom.commands.options import require_package
from nystrom.rows.base import RowBlocks
from nystrom.types import Array

_MAGIC = {b"PAR1": ".parquet", b"ARRO": ".feather", b"\x93NUM": ".npy"}


@dataclass(frozen=True)
class Source:
    """Data to be read, maybe several times.

    Attributes
    ----------
    path : str
        The file; of standard input a copy.
    name : str
        For messages.
    is_table : bool
        Whether it has named columns of any kind, as CSV and Parquet files do, or is a matrix of numbers.
    """

    path: str
    name: str
    is_table: bool


@contextmanager
def open_source(text: str) -> Iterator[Source]:
    """Give the data that an argument names; "-" is standard input, copied to a temporary file for several passes."""
    from nystrom.preprocessing.tables import is_table_file
    from nystrom.rows.stamp import require_file

    if text != "-":
        bare = text.partition("::")[0]
        require_file(Path(bare))
        table = is_table_file(bare)
        if table:
            require_package("pyarrow", "io", "Reading tables")
        yield Source(text, text, table)
        return
    with tempfile.TemporaryDirectory(prefix="nystrom-") as folder:
        path = Path(folder) / "input"
        with path.open("wb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream)
        with path.open("rb") as stream:
            suffix = _MAGIC.get(stream.read(4), ".csv")
        named = path.rename(path.with_suffix(suffix))
        if suffix != ".npy":
            require_package("pyarrow", "io", "Reading tables")
        yield Source(str(named), "standard input", suffix != ".npy")


def split_model(model: Any) -> tuple[Any, Any]:
    """Return the encoder (or None) and the machine of a loaded model."""
    from nystrom.preprocessing import TableEncoder

    if hasattr(model, "steps"):
        first = model.steps[0][1]
        if isinstance(first, TableEncoder) and len(model.steps) == 2:
            return first, model.steps[1][1]
        return None, model
    return None, model


def matrix_rows(source: Source, target: str | None = None) -> RowBlocks:
    """Return the rows of a source without text: all its columns but the target, as numbers."""
    from nystrom import open_rows

    chosen: Any = target
    if target is not None and target.lstrip("-").isdigit():
        chosen = int(target)
    return open_rows(source.path, target=chosen)


@dataclass(frozen=True)
class Chunk:
    """Some consecutive rows: as numbers, and the record batch that they came from where there is one."""

    X: Any
    batch: Any = None


def chunks(source: Source, encoder: Any, *, keep: bool = False) -> Iterator[Chunk]:
    """Yield the rows of a source, encoded, in order; with ``keep`` their batches hold every column."""
    if encoder is None:
        for block in matrix_rows(source).iterate():
            yield Chunk(block.X)
        return
    if not source.is_table:
        raise ValueError(f"{source.name} has no column names, but the model was fitted to a table; give a table.")
    table = encoder._open(source.path)
    encoder._require(table, encoder._read_names)
    names = [name for name in table.names if name not in encoder._read_names] if keep else []
    for start, batch in encoder.batches(table, more=names):
        if batch.num_rows:
            yield Chunk(encoder.encode(batch, source.name, start), batch.select(table.names) if keep else None)


def labelled_chunks(source: Source, encoder: Any, target: str | None) -> Iterator[tuple[Any, Array]]:
    """Yield rows and their targets; rows without one are left out, with a warning."""
    rows = matrix_rows(source, target) if encoder is None else encoder.rows(source.path, need_target=True)
    if not rows.has_target:
        raise ValueError(f"{source.name} holds no target; say where it is with --target.")
    for block in rows.iterate():
        yield block.X, np.asarray(block.y)
