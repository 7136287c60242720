"""The input data of a command: a table or a matrix, from a file or from standard input."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nystrom.commands.options import (
    parse_count,
    parse_date_format,
    parse_names,
    parse_words,
    require_package,
)
from nystrom.exceptions import TableWarning, warn_caller
from nystrom.rows.arrow import import_arrow
from nystrom.rows.base import RowBlocks
from nystrom.types import Array

_MAGIC = {b"PAR1": ".parquet", b"ARRO": ".feather", b"\x93NUM": ".npy", b"\x1f\x8b": ".csv.gz", b"BZh": ".csv.bz2"}


@dataclass(frozen=True)
class Source:
    """Input data, which may be read several times.

    Attributes
    ----------
    path : str
        The file, or a temporary copy of standard input.
    name : str
        The name shown in messages.
    is_table : bool
        Whether it is a table with named columns of any kind (CSV, Parquet), and not a matrix of numbers.
    """

    path: str
    name: str
    is_table: bool


@contextmanager
def open_source(text: str) -> Iterator[Source]:
    """Yield the data that an argument names; "-" is standard input, copied to a temporary file for several passes."""
    from nystrom.rows.reading import require_file
    from nystrom.tables.source import is_table_file

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
            start = stream.read(4)
        if not start:
            raise ValueError("standard input is empty; it should be a table.")
        suffix = next((_MAGIC[mark] for mark in _MAGIC if start.startswith(mark)), ".csv")
        named = path.rename(path.with_suffix(suffix))
        if suffix != ".npy":
            require_package("pyarrow", "io", "Reading tables")
        yield Source(str(named), "standard input", suffix != ".npy")


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe how to read a table."""
    table = parser.add_argument_group("the table")
    table.add_argument("--drop", type=parse_names, default=[], metavar="COLS", help="columns to leave out: a,b,c")
    table.add_argument(
        "--category", type=parse_names, default=[], metavar="COLS", help="columns of numbers that are codes, or classes"
    )
    table.add_argument(
        "--max-categories", type=parse_count, default=30, metavar="N", help="columns per text column (30)"
    )
    table.add_argument(
        "--date-format",
        type=parse_date_format,
        action="append",
        default=[],
        metavar="[COL=]FORMAT",
        help="of dates in text, such as built=%%d/%%m/%%Y (default: ISO 8601); may be repeated",
    )
    table.add_argument("--missing", type=parse_words, metavar="WORDS", help="words for a gap, such as NA,-999,unknown")
    table.add_argument(
        "--decimal", choices=[".", ","], help="sign before decimals (default: , where ; is between the values)"
    )


def given_table_options(args: argparse.Namespace) -> list[str]:
    """Return the given table options as command-line words, for another command."""
    given = []
    for name in ("drop", "category", "missing"):
        given += [f"--{name}", ",".join(getattr(args, name))] if getattr(args, name) else []
    given += ["--max-categories", str(args.max_categories)] if args.max_categories != 30 else []
    for name, form in args.date_format:
        given += ["--date-format", form if name is None else f"{name}={form}"]
    return given + (["--decimal", args.decimal] if args.decimal else [])


def make_encoder(args: argparse.Namespace) -> Any:
    """Return an encoder configured by the table options."""
    from nystrom.rows.arrow import MISSING
    from nystrom.tables import TableEncoder

    formats = dict(args.date_format)
    if None in formats and len(args.date_format) > 1:
        raise ValueError("--date-format: name the column of each format, as in --date-format built=%d/%m/%Y.")
    return TableEncoder(
        args.target,
        max_categories=args.max_categories,
        types=dict.fromkeys(args.category, "category") or None,
        drop=args.drop or None,
        date_format=formats.get(None, formats or None),
        missing_values=None if args.missing is None else [*MISSING, *args.missing],
        decimal=args.decimal,
    )


def split_model(model: Any) -> tuple[Any, Any]:
    """Return the encoder (or None) and the machine of a loaded model."""
    from nystrom.tables import TableEncoder

    if hasattr(model, "steps"):
        first = model.steps[0][1]
        if isinstance(first, TableEncoder) and len(model.steps) == 2:
            return first, model.steps[1][1]
        return None, model
    return None, model


def matrix_rows(source: Source, target: str | None = None) -> RowBlocks:
    """Return the rows of a numeric source: all columns except the target."""
    from nystrom import open_rows

    chosen: Any = target
    if target is not None and target.lstrip("-").isdigit():
        chosen = int(target)
    return open_rows(source.path, target=chosen)


def open_table_of(source: Source, encoder: Any) -> Any:
    """Return the table of a source as an encoder reads it, under the user's name for it."""
    if not source.is_table:
        raise ValueError(f"{source.name} has no column names, but the model was fitted to a table; give a table.")
    return replace(encoder.open(source.path), name=source.name)


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows as numbers, with the record batch that they came from, if any."""

    X: Any
    batch: Any = None


def chunks(source: Source, encoder: Any, *, keep: bool = False) -> Iterator[Chunk]:
    """Yield the encoded rows of a source in order; with ``keep``, their batches hold all columns."""
    if encoder is None:
        for block in matrix_rows(source).iterate():
            yield Chunk(block.X)
        return
    table = open_table_of(source, encoder)
    names = [name for name in table.names if name not in encoder._read_names] if keep else []
    empty = True
    for start, batch in encoder.batches(table, more=names):
        if batch.num_rows:
            empty = False
            yield Chunk(encoder.encode(batch, source.name, start), batch.select(table.names) if keep else None)
    if empty:
        arrow = import_arrow()
        schema = arrow.schema([(name, arrow.string()) for name in table.names])
        width = len(encoder.get_feature_names_out())
        nothing = arrow.RecordBatch.from_pylist([], schema=schema)
        yield Chunk(np.empty((0, width)), nothing if keep else None)


def count_rows(source: Source, encoder: Any) -> int | None:
    """Return the number of rows of a source if it is known without reading them all."""
    if encoder is None:
        return int(matrix_rows(source).shape[0])
    count: int | None = open_table_of(source, encoder).count
    return count


def of_rows(function: Callable[[Any], Sequence[Any]], X: Any) -> list[Array]:
    """Return the arrays that a function computes from rows; for no rows, empty arrays of the same kind."""
    if X.shape[0]:
        return [np.asarray(values) for values in function(X)]
    return [np.asarray(values)[:0] for values in function(np.zeros((1, X.shape[1])))]


class Unseen:
    """Counts the rows with a category that did not occur in the fit and has no column."""

    def __init__(self, encoder: Any) -> None:
        from nystrom.tables.columns import UNSEEN

        # The positions of its columns, and their sum if the category is unknown.
        self._places: dict[str, tuple[slice, float]] = {}
        start = 0
        for column in () if encoder is None else encoder.columns_:
            stop = start + len(column.features)
            if column.kind == "category" and not column.other:
                self._places[column.name] = slice(start, stop), UNSEEN if column.codes else 0.0
            start = stop
        self._counts: Counter[str] = Counter()
        self._rows = 0

    def look(self, chunk: Chunk) -> None:
        """Add some rows."""
        self._rows += chunk.X.shape[0]
        for name, (place, unknown) in self._places.items():
            self._counts[name] += int((chunk.X[:, place].sum(axis=1) == unknown).sum())

    def warn(self, source: str) -> None:
        """Warn about the columns with such rows."""
        found = [f"{name!r} in {count:,} rows" for name, count in self._counts.items() if count]
        if found:
            warn_caller(
                f"{source} holds categories or gaps that were not there in the fit, of {self._rows:,} rows: "
                f"{', '.join(found)}. They count as none of the known ones.",
                TableWarning,
            )


def labelled_chunks(source: Source, encoder: Any, target: str | None) -> Iterator[tuple[Any, Array]]:
    """Yield rows and their targets; rows without one are left out, with a warning."""
    rows = (
        matrix_rows(source, target)
        if encoder is None
        else encoder.rows(open_table_of(source, encoder), need_target=True)
    )
    if not rows.has_target:
        raise ValueError(f"{source.name} holds no target; name its column with --target.")
    for block in rows.iterate():
        yield block.X, np.asarray(block.y)
