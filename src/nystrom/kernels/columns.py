"""Column selections: names, numbers, slices, booleans and callables, and the column numbers they select."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np

from nystrom.types import Array, Matrix, issparse

ColumnsLike: TypeAlias = str | int | slice | Iterable[str | int | bool] | Callable[[Any], Any]


def take_columns(X: Matrix, numbers: Array) -> Matrix:
    """Return some columns of rows, in the order of their numbers."""
    return X[:, numbers].tocsr() if issparse(X) else X.take(numbers, axis=1)


def checked_columns(columns: Any) -> Any:
    """Return columns as a slice, a callable or a tuple of one kind: names, numbers or booleans."""
    if callable(columns):
        return columns
    if isinstance(columns, slice):
        ends = (columns.start, columns.stop)
        if all(end is None or isinstance(end, (str, Integral)) for end in ends):
            return columns
        raise TypeError(f"columns={columns!r} must begin and end with names or numbers.")
    single = isinstance(columns, (str, Integral)) and not isinstance(columns, bool)
    found: list[Any] = [columns] if single else list(columns) if isinstance(columns, Iterable) else []
    for kind, make in (((bool, np.bool_), bool), (str, str), (Integral, int)):
        if found and all(isinstance(column, kind) for column in found):
            return tuple(make(column) for column in found)
    raise TypeError(
        f"columns must be names, numbers, a slice, one boolean per column, or a callable, and at least one; got "
        f"{columns!r}."
    )


def column_numbers(columns: Any, names: list[str] | None, n_columns: int) -> tuple[int, ...]:
    """Return the numbers of columns, checked."""
    if callable(columns):
        raise ValueError(f"columns={columns!r} chooses from a table: call kernel.bind(names, n_columns, table) first.")
    if isinstance(columns, slice):
        found = _of_slice(columns, names, n_columns)
    elif isinstance(columns[0], bool):
        if len(columns) != n_columns:
            raise ValueError(f"columns has {len(columns)} booleans, but the rows have {n_columns} columns.")
        found = [number for number, chosen in enumerate(columns) if chosen]
    else:
        found = [_number(column, names, n_columns) for column in columns]
    if not found or len(set(found)) < len(found):
        problem = "chooses a column twice" if found else "chooses no column"
        raise ValueError(f"columns={columns!r} {problem} of the {n_columns} columns of the rows.")
    return tuple(found)


def _of_slice(columns: slice, names: list[str] | None, n_columns: int) -> list[int]:
    start, stop = columns.start, columns.stop
    if isinstance(start, str):
        start = _number(start, names, n_columns)
    if isinstance(stop, str):
        stop = _number(stop, names, n_columns) + 1
    return list(range(*slice(start, stop, columns.step).indices(n_columns)))


def _number(column: str | int, names: list[str] | None, n_columns: int) -> int:
    if isinstance(column, str):
        if names is None:
            raise ValueError(
                f"the kernel is of the column {column!r}, but the rows have no names of columns. Give a data frame, or "
                f"numbers of columns."
            )
        if column not in names:
            shown = ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")
            raise ValueError(f"the kernel is of the column {column!r}, which the rows lack. They have {shown}.")
        return names.index(column)
    if not -n_columns <= column < n_columns:
        raise ValueError(f"the kernel is of column {column}, but the rows have {n_columns} columns (the first is 0).")
    return column % n_columns


# Maximum number of column names in an error message.
_SHOWN = 20
