"""The transformer from tables to rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

import nystrom
from nystrom.checks import check_choice
from nystrom.exceptions import TableWarning, warn_caller
from nystrom.rows import RowBlocks, array_rows
from nystrom.rows.arrow import MISSING, Batch, Table
from nystrom.rows.base import TargetedArray
from nystrom.tables.columns import COUNTS_ROWS, KINDS, Column, Summary, settle
from nystrom.tables.rows import MOST_CLASSES, Coding, EncodedRows, Target, near_names, require_names
from nystrom.tables.source import is_path, open_table
from nystrom.tables.text import column_of, decimal_of, kind_of
from nystrom.types import Array, RowsLike, TargetLike

# Possible kinds of a column by its Arrow type; columns of a CSV file have no type.
_OPEN_KINDS = {
    "number": ("number",),
    "boolean": ("boolean",),
    "date": ("date",),
    "text": ("date", "category"),
    None: ("number", "boolean", "date", "category"),
}
# Maximum number of columns named in one message.
_NAMED = 10
# A text target with more distinct values than this is checked: it may hold identifiers instead of classes.
_MANY_LABELS = 30


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn a table with numbers, text, dates and gaps into rows of numbers, learned in one pass.

    Numbers and dates are scaled to mean 0 and deviation 1. Text and categories become one column of 0 and 1 for each of
    the most frequent values. Gaps become 0 after scaling (the mean) and 1 in a column of their own. A table is a path
    (CSV, Parquet, Feather, also larger than memory), a pandas or polars frame (lazy too), an Arrow table, a dict of
    columns, or a two-dimensional array.

    Parameters
    ----------
    target : str or None
        The column to predict: excluded from the rows, and returned with them by :meth:`rows` and ``fit_transform``.
    max_categories : int, default=30
        Maximum number of values of a text column with their own column; the others share one.
    categories : "one-hot" or "codes", default="one-hot"
        "codes" encodes each text column as one column of whole numbers, for :class:`nystrom.kernels.Overlap`. Every
        value has a code; values not seen in the fit are -1.
    types : dict or None
        Kinds of columns by name, instead of automatic detection: "number", "category", "boolean", "date" or "drop".
        The target may be "number", or "category" for classes.
    drop : list of str or None
        Columns to leave out.
    date_format : str, dict or None
        Format of dates in text, such as "%d.%m.%Y"; None is ISO 8601, or the only common format with years of four
        digits in which all values of a column are dates. A string is tried on every column first; a dict gives formats
        by column, as in ``{"born": "%d.%m.%Y"}``.
    missing_values : list of str or None
        Words in a CSV file that mean a gap; by default the empty word, NA, N/A, NaN, null, None and "?".
    decimal : "." or "," or None
        The decimal sign in a CSV file. None means a comma in files separated by semicolons, unless their numbers have
        a point; otherwise a point.

    Attributes
    ----------
    columns_ : list of Column
        What was learned about each column of the table: its kind, numbers, categories.
    target_ : Target or None
        What was learned about the target.
    n_rows_ : int
        Rows seen.
    feature_names_in_ : array of str
        All columns of the table except the target.

    Notes
    -----
    Rules: a CSV column holds numbers if all its values are numbers; else booleans if all are, else dates if all are,
    else text. A column with fewer than two distinct values is left out with a warning, and so is text that differs in
    nearly every row. A date becomes days since 1970, and cycles of the year, the week and the day where the dates span
    them, as sine and cosine.
    A category not seen in the fit is encoded as "other", or as zeros without such a column. Infinite numbers are gaps.

    Examples
    --------
    >>> table = {"age": [20.0, None, 40.0], "city": ["Bern", "Oslo", "Bern"]}
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'age_missing', 'city_Bern', 'city_Oslo']
    >>> encoder.transform(table)
    array([[-1.,  0.,  1.,  0.],
           [ 0.,  1.,  0.,  1.],
           [ 1.,  0.,  1.,  0.]])
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        max_categories: int = 30,
        categories: str = "one-hot",
        types: Mapping[str, str] | None = None,
        drop: Sequence[str] | None = None,
        date_format: str | Mapping[str, str] | None = None,
        missing_values: Sequence[str] | None = None,
        decimal: str | None = None,
    ) -> None:
        self.target = target
        self.max_categories = max_categories
        self.categories = categories
        self.types = types
        self.drop = drop
        self.date_format = date_format
        self.missing_values = missing_values
        self.decimal = decimal

    def fit(self, X: RowsLike, y: TargetLike = None) -> TableEncoder:
        """Learn the columns of a table: one pass. ``y`` is ignored."""
        for name in ("_summaries", "columns_"):
            self.__dict__.pop(name, None)
        return self.partial_fit(X)

    def partial_fit(self, X: RowsLike, y: TargetLike = None) -> TableEncoder:
        """Learn from more rows of the same columns: one pass over the new rows."""
        self._check_parameters()
        table = self.open(X)
        if getattr(self, "_summaries", None) is None:
            if hasattr(self, "columns_"):
                raise ValueError("this encoder came from a file without its statistics; fit it again, on all rows.")
            self._summaries = self._begin(table)
        summaries = self._summaries
        require_names(table, list(summaries))
        for batch in table.batches(list(summaries)):
            decimal = decimal_of(batch)
            for name, summary in summaries.items():
                summary.update(column_of(batch, name), table.name, decimal)
        self._settle(table.name)
        return self

    def _check_parameters(self) -> None:
        whole = isinstance(self.max_categories, (int, np.integer)) and not isinstance(self.max_categories, bool)
        if not whole or self.max_categories < 1:
            raise ValueError(f"max_categories must be a whole number of at least 1; got {self.max_categories!r}.")
        check_choice(self.categories, "categories", ("one-hot", "codes"))
        for name, kind in (self.types or {}).items():
            if kind not in KINDS:
                raise ValueError(f"types[{name!r}] must be one of {KINDS}; got {kind!r}.")
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be '.', ',' or None; got {self.decimal!r}.")
        if isinstance(self.missing_values, str):
            raise TypeError(f"missing_values must be a list of words; got the string {self.missing_values!r}.")
        if not (self.date_format is None or isinstance(self.date_format, (str, Mapping))):
            raise TypeError(f"date_format must be a string, a dict of strings or None; got {self.date_format!r}.")
        if isinstance(self.drop, str):
            raise TypeError(f"drop must be a list of column names; got the string {self.drop!r}.")

    def open(self, X: RowsLike) -> Table:
        """Return X as a table, read according to the parameters."""
        words = MISSING if self.missing_values is None else self.missing_values
        return open_table(X, missing=words, decimal=self.decimal)

    def _begin(self, table: Table) -> dict[str, Summary]:
        """Return an empty summary for each column, with the kinds that its type allows."""
        formats = self.date_format if isinstance(self.date_format, Mapping) else {}
        for name in (*(self.types or {}), *(self.drop or ()), *formats, *([self.target] if self.target else [])):
            if name not in table.names:
                raise ValueError(f"{table.name} has no column {name!r}; {near_names(name, table.names)}")
        dropped = {*(self.drop or ()), *(name for name, kind in (self.types or {}).items() if kind == "drop")}
        kinds: dict[str, Any] = dict.fromkeys(table.names)
        if table.typed:
            kept = [name for name in table.names if name not in dropped]
            schema = next(iter(table.batches(kept)), None)
            if schema is None:
                raise ValueError(f"{table.name} holds no rows (0 sample(s)); at least a minimum of 1 is required.")
            kinds.update({name: kind_of(schema.schema.field(name).type, name, table.name) for name in kept})
        self.feature_names_in_ = np.array([name for name in table.names if name != self.target], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        found = {}
        for name in table.names:
            forced = (self.types or {}).get(name)
            if name not in dropped:
                allowed = (forced,) if forced else _OPEN_KINDS[kinds[name]]
                if name == self.target:
                    allowed = _target_kinds(name, forced, kinds[name])
                given = formats.get(name) if isinstance(self.date_format, Mapping) else self.date_format
                summary = Summary(name, given, allowed, is_target=name == self.target)
                summary.iso_too = isinstance(self.date_format, str)
                found[name] = summary
        return found

    def _settle(self, source: str) -> None:
        forced = dict(self.types or {})
        formats = self.date_format if isinstance(self.date_format, Mapping) else {}
        columns = []
        for name in self.feature_names_in_:
            summary = self._summaries.get(name)
            if summary is None:
                columns.append(Column(name, "left out", note="dropped as asked"))
                continue
            kind = forced.get(name)
            if kind == "date" and len(summary.guessed) > 1:
                forms = " or ".join(map(repr, summary.guessed))
                raise ValueError(f"the dates of {name!r} may be written as {forms}: give the right one as date_format.")
            if kind in ("number", "boolean", "date") and kind not in summary.open_kinds:
                shown = "" if summary.stray is None else f": {summary.stray!r} is not a number"
                raise ValueError(f"types says that {name!r} holds a {kind} in each row, but it does not{shown}.")
            if kind is None and name in formats and summary.present and "date" not in summary.open_kinds:
                raise ValueError(
                    f"date_format says that the dates of {name!r} are written as {formats[name]!r}, but not all of its "
                    f"values are; write them in one way, or leave the column out of date_format."
                )
            columns.append(settle(summary, kind, int(self.max_categories), codes=self.categories == "codes"))
        first = next(iter(self._summaries.values()), None)
        self.n_rows_ = 0 if first is None else first.rows
        if self.n_rows_ == 0:
            raise ValueError(f"{source} holds no rows: there is nothing to learn from.")
        if not columns:
            raise ValueError(f"{source} has no column besides the target {self.target!r}.")
        if not any(column.features for column in columns):
            raise ValueError(f"no column of {source} is left to encode: {_listed(columns)}")
        self.columns_ = columns
        self.target_ = (
            None
            if self.target is None
            else _describe_target(self._summaries[self.target], source, forced.get(self.target))
        )
        if isinstance(self.date_format, str) and not any(
            column.kind == "date" and column.date_format == self.date_format for column in columns
        ):
            warn_caller(f"date_format={self.date_format!r} is the form of no column of {source}.", TableWarning)
        odd = [column for column in columns if column.note not in ("", "dropped as asked", COUNTS_ROWS)]
        if odd:
            warn_caller(_listed(odd), TableWarning)

    def transform(self, X: RowsLike) -> Any:
        """Return all rows of a table: an array, or for a path :class:`~nystrom.rows.RowBlocks`, read block by block.

        If the table holds the target for every row, the blocks hold it too, and ``score`` of a pipeline uses it.
        """
        check_is_fitted(self, "columns_")
        table = self.open(X)
        has_target = self.target is not None and self.target in table.names
        if is_path(X):
            return EncodedRows(self.coding, table, has_target=has_target, keep_all=True)
        if not has_target:
            parts = [self.encode(batch, table.name, start) for start, batch in self.batches(table)]
            return self._named(np.concatenate(parts) if parts else np.empty((0, self.coding.width)))
        rows = EncodedRows(self.coding, table, has_target=True, keep_all=True)
        if not rows.has_target:
            return self._named(np.asarray(rows.whole()))
        held = _in_memory(rows)
        return self._named(np.asarray(held.whole()), np.asarray(held.target()))

    def _named(self, X: Array, target: Array | None = None) -> Array:
        """Return rows with their target, and with the column names that kernels of codes refer to."""
        names = self.coding.feature_names
        return X if target is None and names is None else TargetedArray.of(X, target, names)

    def fit_transform(self, X: RowsLike, y: TargetLike = None) -> Any:
        """Fit and return the rows; with ``target``, as :class:`~nystrom.rows.RowBlocks` that include the target."""
        self.fit(X)
        return self.transform(X) if self.target is None else self.rows(X)

    def rows(self, source: RowsLike, *, need_target: bool = False) -> RowBlocks:
        """Return the encoded rows of a table, with their target if the table has it; every estimator accepts them.

        Files are read and encoded again in every pass, so the rows need not fit in memory. Rows without a target are
        left out, with a warning.

        Parameters
        ----------
        source : path, data frame, ...
            As for :meth:`fit`.
        need_target : bool, default=False
            Whether to raise if the table does not have the target.
        """
        check_is_fitted(self, "columns_")
        table = self.open(source)
        has_target = self.target is not None and self.target in table.names
        if need_target and not has_target:
            raise ValueError(f"{table.name} has no column {self.target!r}; {near_names(str(self.target), table.names)}")
        if is_path(source) or source is table:
            return EncodedRows(self.coding, table, has_target=has_target)
        return _in_memory(EncodedRows(self.coding, table, has_target=has_target))

    @property
    def coding(self) -> Coding:
        """How each column and the target are encoded: the part of the encoder that encoded rows need."""
        return Coding(tuple(self.columns_), self.target_, getattr(self, "n_rows_", 0))

    @property
    def _read_names(self) -> list[str]:
        return self.coding.names

    def batches(self, table: Table, *, more: Sequence[str] = ()) -> Iterator[tuple[int, Batch]]:
        """Yield the record batches of a table with the columns that are encoded, each with its first row's number."""
        return self.coding.batches(table, more)

    def encode(self, batch: Batch, source: str, start: int) -> Array:
        """Return the rows of one record batch."""
        return self.coding.encode(batch, source, start)

    def class_labels(self) -> Array | None:
        """Return the sorted classes of the target if the encoder has just seen all of them, else None."""
        check_is_fitted(self, "columns_")
        summary = None if self.target is None else (self._summaries or {}).get(self.target)
        if summary is None or summary.forgot or self.target_ is None or not self.target_.is_class:
            return None
        if self.target_.kind == "text":
            return np.array(sorted(summary.counts))
        if self.target_.kind == "boolean":
            return np.array(sorted({text.strip().lower() == "true" for text in summary.counts}))
        numbers = sorted(_distinct_numbers(summary))
        return np.array(numbers, dtype=np.uint64 if numbers[-1] > np.iinfo(np.int64).max else np.int64)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the encoded columns."""
        check_is_fitted(self, "columns_")
        names: dict[str, None] = {}
        for name in (name for column in self.columns_ for name in column.features):
            number = 2
            unique = name
            while unique in names:  # a column and a category of another column can have the same name
                unique, number = f"{name}_{number}", number + 1
            names[unique] = None
        return np.array(list(names), dtype=object)

    def save(self, path: str | os.PathLike[str], *, full: bool = False) -> None:
        """Save the fitted encoder in one file without pickle; see :func:`nystrom.save`."""
        nystrom.save(self, path, full=full)

    def _check_loaded(self) -> None:
        """Raise ``ValueError`` unless the contents of a file describe a valid encoder."""
        good = isinstance(self.columns_, list) and all(isinstance(column, Column) for column in self.columns_)
        good = good and (self.target_ is None or isinstance(self.target_, Target)) and bool(self._read_names)
        names = len(set(self._read_names)) if good else 0
        if not good or names != len(self._read_names) or (self.target is None) != (self.target_ is None):
            raise ValueError("its columns do not describe an encoder")
        self._check_parameters()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _in_memory(rows: EncodedRows) -> RowBlocks:
    parts = list(rows.pieces())
    held = array_rows(np.concatenate([part.X for part in parts]))
    held.feature_names = rows.feature_names
    return held.with_target(np.concatenate([np.asarray(part.y) for part in parts])) if rows.has_target else held


def _distinct_numbers(summary: Summary) -> set[int]:
    """Return the whole numbers of a target."""
    found = set()
    for text in summary.counts:
        try:
            found.add(int(text))
        except ValueError:
            number = float(text)
            found |= {int(number)} if np.isfinite(number) else set()
    return found


def _listed(columns: Sequence[Column]) -> str:
    """Return the messages about columns, grouped by reason, with a limited number of names each."""
    said = [f"column {column.name!r} {column.note}" for column in columns if column.kind != "left out"]
    reasons: dict[str, list[str]] = {}
    for column in columns:
        if column.kind == "left out":
            reasons.setdefault(column.note, []).append(column.name)
    for reason, names in reasons.items():
        shown = ", ".join(map(repr, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")
        said.append(
            f"column {shown} is left out: {reason}"
            if len(names) == 1
            else f"{len(names)} columns are left out: {reason} ({shown})"
        )
    return "; ".join(said) + "."


def _target_kinds(name: str, forced: str | None, typed: str | None) -> tuple[str, ...]:
    """Return the possible kinds of a target, from ``types`` if given, else from the type of its column."""
    if forced not in (None, "number", "category"):
        raise ValueError(f"types[{name!r}] must be 'number' or 'category', because it is the target; got {forced!r}.")
    if typed == "date":
        raise TypeError(
            f"the target {name!r} holds dates, which are neither numbers nor classes. Turn them into days "
            f"since a date to learn a number, or into text to learn classes."
        )
    if forced == "category" and typed in ("number", "boolean"):
        return (typed, "category")  # labels keep their type
    if forced:
        return (forced,)
    return {
        None: ("number", "boolean", "category"),
        "number": ("number", "category"),
        "boolean": ("boolean", "category"),
    }.get(typed, ("category",))


def _check_classes(summary: Summary, source: str) -> None:
    """Raise if a text target does not hold class labels: misread numbers, or a distinct value per row."""
    # Few distinct values in a text column are classes, whatever they look like.
    reason = summary.number_hint if summary.stray is not None or len(summary.counts) > MOST_CLASSES else ""
    if not reason and len(summary.counts) > _MANY_LABELS and summary.identifies_rows(_MANY_LABELS):
        reason = f"it is text, and {summary.variety}, so there are no classes to learn"
    if reason:
        raise ValueError(
            f"the target {summary.name!r} of {source}: {reason}. If these are classes nevertheless, set "
            f"types={{{summary.name!r}: 'category'}} (--category {summary.name} in the shell)."
        )


def _describe_target(summary: Summary, source: str, forced: str | None) -> Target:
    if summary.present == 0:
        raise ValueError(f"the target {summary.name!r} of {source} has no value in any row.")
    if not summary.open_kinds:
        raise ValueError(
            f"types says that the target {summary.name!r} holds a number in each row, but {summary.stray!r} is not a "
            f"number."
        )
    kind = {"number": "number", "boolean": "boolean"}.get(summary.open_kinds[0], "text")
    if kind == "number" and forced == "category" and not summary.whole:
        kind = "text"
    if kind == "text" and forced is None:
        _check_classes(summary, source)
    n_values = 0 if summary.forgot else len(summary.counts)
    if kind == "number" and summary.whole and n_values:
        n_values = len(_distinct_numbers(summary))
    # In a numeric column infinity is a gap; in a text column it is a word.
    missing = summary.missing if kind == "number" else summary.empty
    target = Target(summary.name, kind, kind == "number" and summary.whole, n_values, missing, forced == "category")
    if kind == "number" and target.is_class and not summary.exact:
        raise ValueError(
            f"the target {summary.name!r} of {source} holds whole numbers that double precision cannot tell apart, "
            f"beyond 2**53. If they are classes, set types={{{summary.name!r}: 'category'}} or store them as "
            f"text; if they are quantities, divide them by a constant."
        )
    return target
