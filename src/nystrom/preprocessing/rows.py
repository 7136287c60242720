"""Encoded rows of a table larger than memory, as every pass reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from nystrom.exceptions import DataFileError, TableWarning
from nystrom.preprocessing.parse import as_numbers, as_text, column_of, first_bad
from nystrom.rows.arrow import Batch, import_arrow
from nystrom.rows.stream import Piece, StreamRows
from nystrom.types import Array
from nystrom.warn import warn_caller

if TYPE_CHECKING:
    from nystrom.preprocessing.encoder import TableEncoder, Target
    from nystrom.preprocessing.tables import Table


class EncodedRows(StreamRows):
    """The rows that an encoder makes of a table, computed when they are read.

    With ``labels``, sorted classes, the target is the number of each row's class among them, in one or two bytes.
    ``fitted`` says that the encoder was fitted to this very table, so that its rows are counted. Rows without a target
    are left out; with ``keep_all`` they stay, and then no row has one.
    """

    def __init__(
        self,
        encoder: TableEncoder,
        table: Table,
        *,
        has_target: bool,
        labels: Array | None = None,
        fitted: bool = False,
        keep_all: bool = False,
    ) -> None:
        self.labels = labels
        self.fitted = fitted
        self.encoder = encoder
        self.table = table
        self.name = table.name
        self.stamp = table.stamp
        self.has_target = has_target
        self.dtype = np.dtype(np.float64)
        self.held_bytes = table.held_bytes
        # A pass may be far off, and the file's own reader does not say which columns the model needs.
        encoder.require_columns(table)
        width = len(encoder.get_feature_names_out())
        count, without = self._count()
        if without and keep_all:
            self.has_target, without = False, 0
        if count == without:
            raise DataFileError(f"{self.name} holds no rows{' with a target' if count else ''}.")
        if without:
            warn_caller(f"{without} of {count} rows of {self.name} have no target: left out.", TableWarning)
        self.set_size((count - without, width), 0, None)

    def _count(self) -> tuple[int, int]:
        """Return the rows, and those among them without a target: from the fit if it saw this table, else by a pass."""
        target = self.encoder.target_
        if self.fitted:
            return self.encoder.n_rows_, target.missing if self.has_target and target is not None else 0
        if not self.has_target and self.table.count is not None:
            return self.table.count, 0
        count = without = 0
        names = [target.name] if self.has_target and target is not None else self.table.names[:1]
        for batch in self.table.batches(names):
            if self.has_target:
                without += int(missing_targets(self.encoder.encode_target(batch, self.name, count)).sum())
            count += batch.num_rows
        return count, without

    def pieces(self) -> Iterator[Piece]:
        target = self.encoder.target_
        more = [target.name] if self.has_target and target is not None else []
        for start, batch in self.encoder.batches(self.table, more=more):
            X = self.encoder.encode(batch, self.name, start)
            if not more:
                yield Piece(X)
                continue
            y = self.encoder.encode_target(batch, self.name, start)
            gaps = missing_targets(y)
            if gaps.any():
                X, y = X[~gaps], y[~gaps]
            y = typed_target(y, target)
            yield Piece(X, y if self.labels is None else _numbers_of(y, self.labels))


def _numbers_of(y: Array, labels: Array) -> Array:
    return np.searchsorted(labels, y).astype(np.min_scalar_type(-len(labels)))


def target_values(batch: Batch, target: Target, source: str, start: int) -> Array:
    """Return the target column of a record batch: float64 with NaN for gaps, or objects with None for them."""
    column = column_of(batch, target.name)
    if target.kind == "text":
        return np.asarray(as_text(column).to_numpy(zero_copy_only=False), dtype=object)
    try:
        values = as_numbers(column)
    except import_arrow().ArrowInvalid:
        at = first_bad(column, as_numbers)
        raise DataFileError(
            f"{source}, row {start + at}, column {target.name!r}: the target {str(column[at])!r} is not a number, as "
            f"all targets were when the encoder was fitted."
        ) from None
    return np.where(np.isfinite(values), values, np.nan)


def missing_targets(y: Array) -> Array:
    """Return which targets are gaps."""
    return np.array([value is None for value in y], dtype=bool) if y.dtype == object else np.isnan(y)


def typed_target(y: Array, target: Target | None) -> Array:
    """Return targets without gaps in their own type: text, whole numbers for classes, or real numbers."""
    if y.dtype == object:
        return y.astype(np.str_)
    return y.astype(np.int64) if target is not None and target.is_class else y
