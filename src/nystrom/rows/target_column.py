"""Which columns of a stored matrix are features, and which one is the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from nystrom.checks import is_whole
from nystrom.types import Array


@dataclass(frozen=True)
class Columns:
    """The columns to read, by number; ``features`` is None for all of them."""

    n_features: int
    features: Array | None = None
    target: int | None = None

    @property
    def identity(self) -> str:
        """Text that is equal only for the same choice."""
        return f"{self.n_features} {None if self.features is None else self.features.tolist()}"

    def split(self, stored: Array) -> tuple[Array, Array | None]:
        """Return the features and the target of stored rows."""
        y = None if self.target is None else stored[:, self.target].astype(np.float64)
        return (stored if self.features is None else stored[:, self.features]), y


def choose_columns(
    names: Sequence[str] | int, columns: Sequence[int | str] | None, target: int | str | None, source: str
) -> Columns:
    """Return the columns meant by ``columns`` and ``target``: names or numbers, all but the target by default.

    ``names`` are the stored columns' names, or their number where they have none.
    """
    stored = names if isinstance(names, int) else len(names)
    chosen_target = None if target is None else _position(target, names, "target", source)
    if columns is None:
        if chosen_target is None:
            return Columns(stored)
        chosen = [j for j in range(stored) if j != chosen_target]
    else:
        if isinstance(columns, str):
            raise TypeError(f"columns must be a list of names or numbers; got the string {columns!r}.")
        chosen = [_position(column, names, "columns", source) for column in columns]
    if not chosen:
        raise ValueError(f"{source} has no column left for the features: columns={columns!r}, target={target!r}.")
    return Columns(len(chosen), np.array(chosen), chosen_target)


def _position(column: int | str, names: Sequence[str] | int, argument: str, source: str) -> int:
    stored = names if isinstance(names, int) else len(names)
    if is_whole(column):
        if not -stored <= column < stored:
            raise ValueError(f"{argument}={column}: {source} has {stored} columns, numbered from 0 to {stored - 1}.")
        return int(column) % stored
    if isinstance(names, int):
        raise ValueError(
            f"{argument}={column!r}: the columns of {source} have no names; give a number from 0 to {stored - 1}."
        )
    if column not in names:
        shown = ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
        raise ValueError(f"{argument}={column!r} is not a column of {source}; it has {shown}.")
    return list(names).index(str(column))


def check_dtype(stored: DTypeLike, wanted: DTypeLike | None, source: str) -> np.dtype:
    """Return the dtype of blocks: float32 for float32, float64 for other numbers, or the one asked for."""
    kind = np.dtype(stored).newbyteorder("=")
    if kind.kind not in "fiub":
        raise ValueError(f"{source} holds {kind}, which are not real numbers; rows must be numbers.")
    if wanted is None:
        return np.dtype(np.float32 if kind == np.float32 else np.float64)
    if np.dtype(wanted) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(
            f"dtype must be float32, float64 or None (float32 stays, all else is float64); got {wanted!r}."
        )
    return np.dtype(wanted)


def require_target(y: Array, source: str, start: int) -> None:
    """Raise ``ValueError`` naming the first row whose target is missing."""
    if y.dtype.kind == "f":
        bad = ~np.isfinite(y)
    elif y.dtype.kind == "O":
        bad = np.array([value is None for value in y.ravel()]).reshape(y.shape)
    else:
        return
    if bad.any():
        row = start + int(np.flatnonzero(bad.any(axis=1) if bad.ndim > 1 else bad)[0])
        raise ValueError(
            f"the target is missing or not finite in row {row} of {source}. Drop such rows, or fill the target in."
        )
