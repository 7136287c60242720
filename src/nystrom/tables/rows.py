"""The encoding of table columns as rows, and encoded rows of a table larger than memory, computed in every pass."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nystrom.exceptions import DataFileError, TableWarning, warn_caller
from nystrom.rows.arrow import Batch, Table, import_arrow
from nystrom.rows.stream import Piece, StreamRows
from nystrom.tables.columns import Column
from nystrom.tables.text import as_labels, as_numbers, as_truths, as_wholes, column_of, decimal_of, first_bad
from nystrom.types import Array

# A whole-number target with at most this many distinct values is treated as classes.
MOST_CLASSES = 20


@dataclass(frozen=True)
class Target:
    """What was learned about the target column.

    Attributes
    ----------
    name : str
    kind : str
        "number", "boolean" or "text".
    whole : bool
        Whether all its numbers are whole.
    n_values : int
        Number of distinct values if they are few, else 0.
    missing : int
        Rows without a target.
    classes : bool
        Whether ``types`` declares whole numbers as classes, whatever their number.
    """

    name: str
    kind: str
    whole: bool
    n_values: int
    missing: int
    classes: bool = False

    @property
    def is_class(self) -> bool:
        """Whether the target holds classes: text, booleans, or whole numbers with few distinct values."""
        return self.kind != "number" or (self.whole and (self.classes or 0 < self.n_values <= MOST_CLASSES))

    def values(self, batch: Batch, source: str, start: int) -> tuple[Array, Array]:
        """Return the target of each row of a record batch in its own type, and a mask of rows without a target."""
        column, decimal = column_of(batch, self.name), decimal_of(batch)
        if self.kind == "text":
            labels = np.asarray(as_labels(column).to_numpy(zero_copy_only=False), dtype=object)
            gaps = np.array([label is None for label in labels], dtype=bool)
            return np.where(gaps, "", labels).astype(np.str_), gaps
        parse = as_truths if self.kind == "boolean" else lambda part: as_numbers(part, decimal)
        try:
            if self.kind == "number" and self.is_class:
                return as_wholes(column)
            values = parse(column)
        except import_arrow().ArrowInvalid:
            self._refuse(column, parse, source, start)
            raise
        gaps = ~np.isfinite(values)
        return (values == 1 if self.kind == "boolean" else np.where(gaps, np.nan, values)), gaps

    def _refuse(self, column: object, parse: object, source: str, start: int) -> None:
        at = first_bad(column, parse)  # type: ignore[arg-type]
        what = "true or false" if self.kind == "boolean" else "a whole number" if self.is_class else "a number"
        raise DataFileError(
            f"{source}, row {start + at}, column {self.name!r}: the target {str(column[at])!r} is not {what}, as "  # type: ignore[index]
            f"all targets were when the encoder was fitted."
        ) from None


@dataclass(frozen=True)
class Coding:
    """How each column of a table and its target are encoded: the result of fitting an encoder."""

    columns: tuple[Column, ...]
    target: Target | None = None
    n_rows: int = 0

    @property
    def used(self) -> list[Column]:
        """The columns that are not left out."""
        return [column for column in self.columns if column.features]

    @property
    def names(self) -> list[str]:
        """The names of the columns that are read."""
        return [column.name for column in self.used]

    @property
    def width(self) -> int:
        """How many columns the rows have."""
        return sum(len(column.features) for column in self.used)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the encoded columns if some are codes, which kernels refer to by name; else None."""
        if not any(column.codes for column in self.used):
            return None
        return tuple(name for column in self.used for name in column.features)

    def require_columns(self, table: Table) -> None:
        """Raise unless a table has every column that is encoded."""
        require_names(table, self.names)

    def batches(self, table: Table, more: Sequence[str] = ()) -> Iterator[tuple[int, Batch]]:
        """Yield the record batches of a table with the columns that are encoded, each with its first row's number."""
        self.require_columns(table)
        start = 0
        for batch in table.batches([*self.names, *more]):
            yield start, batch
            start += batch.num_rows

    def encode(self, batch: Batch, source: str, start: int) -> Array:
        """Return the rows of one record batch."""
        out = np.empty((batch.num_rows, self.width))
        position, decimal = 0, decimal_of(batch)
        for column in self.used:
            end = position + len(column.features)
            column.encode(column_of(batch, column.name), out[:, position:end], source, start, decimal)
            position = end
        return out


def require_names(table: Table, names: Sequence[str]) -> None:
    """Raise unless a table has these columns."""
    absent = [name for name in names if name not in table.names]
    if absent:
        others = ", ".join(map(repr, absent[1:6])) + (", …" if absent[6:] else "")
        raise ValueError(
            f"{table.name} has no column {absent[0]!r}, which was there when the encoder was fitted; "
            f"{near_names(absent[0], table.names)}{f' It lacks {others} too.' if others else ''}"
        )


def near_names(name: str, names: Sequence[str]) -> str:
    """Return a limited list of the existing columns, most similar names first."""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    near += [other for other in names if other not in near and other.lower() == name.lower()]
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    shown = ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
    return f"it has {shown}."


class EncodedRows(StreamRows):
    """The encoded rows of a table, computed when they are read.

    With ``labels``, the sorted classes, the target is the index of each row's class, in one or two bytes. ``fitted``
    means that the encoding was learned from this same table, so its number of rows is known. Rows without a target are
    left out; with ``keep_all`` all rows stay, without targets.
    """

    def __init__(
        self,
        coding: Coding,
        table: Table,
        *,
        has_target: bool,
        labels: Array | None = None,
        fitted: bool = False,
        keep_all: bool = False,
    ) -> None:
        self.labels = labels
        self.coding = coding
        self.table = table
        self.name = table.name
        self.stamp = table.stamp
        self.feature_names = coding.feature_names
        self.has_target = has_target and coding.target is not None
        self.dtype = np.dtype(np.float64)
        self.held_bytes = table.held_bytes
        # Check now: the first pass may come much later, and the file reader does not know the columns of the model.
        coding.require_columns(table)
        count, without = self._count(fitted)
        if without and keep_all:
            self.has_target, without = False, 0
        if count == without:
            raise DataFileError(f"{self.name} holds no rows{' with a target' if count else ''}.")
        if without:
            warn_caller(f"{without} of {count} rows of {self.name} have no target: left out.", TableWarning)
        self.set_size((count - without, coding.width), 0, None)

    def _count(self, fitted: bool) -> tuple[int, int]:
        """Return the numbers of rows and of rows without a target: known if the fit saw this table, else by a pass."""
        target = self.coding.target if self.has_target else None
        if fitted:
            return self.coding.n_rows, 0 if target is None else target.missing
        if target is None and self.table.count is not None:
            return self.table.count, 0
        count = without = 0
        for batch in self.table.batches(self.table.names[:1] if target is None else [target.name]):
            if target is not None:
                without += int(target.values(batch, self.name, count)[1].sum())
            count += batch.num_rows
        return count, without

    def pieces(self) -> Iterator[Piece]:
        target = self.coding.target if self.has_target else None
        for start, batch in self.coding.batches(self.table, [] if target is None else [target.name]):
            X = self.coding.encode(batch, self.name, start)
            if target is None:
                yield Piece(X)
                continue
            y, gaps = target.values(batch, self.name, start)
            if gaps.any():
                X, y = X[~gaps], y[~gaps]
            yield Piece(X, y if self.labels is None else _numbers_of(y, self.labels))


def _numbers_of(y: Array, labels: Array) -> Array:
    return np.searchsorted(labels, y).astype(np.min_scalar_type(-len(labels)))
