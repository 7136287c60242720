"""Reading a stored matrix: errors name its file, changes are noticed, columns are selected."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from nystrom.checks import is_whole
from nystrom.disk import machine_mark
from nystrom.exceptions import DataFileError, NystromError, RowsChangedError
from nystrom.types import Array

# Errors of the operating system, not of the file: they keep their class, with the file's name added.
_MACHINE_NAMES = (
    *("ENOENT", "EACCES", "EPERM", "EMFILE", "ENFILE", "ENOSPC", "EDQUOT", "EFBIG", "EIO", "EINTR", "ENOMEM"),
    *("ENOTDIR", "EISDIR", "ESTALE", "EROFS", "EBUSY", "ETIMEDOUT", "ENXIO", "ENODEV", "ENETDOWN", "EHOSTUNREACH"),
)
_MACHINE = frozenset(getattr(errno, name) for name in _MACHINE_NAMES if hasattr(errno, name))


State = tuple[int, ...]


@contextmanager
def reading(name: str | Path, row: int | None = None) -> Iterator[None]:
    """Turn errors of a parser into :class:`DataFileError` with the file's name.

    Errors of this library, a lack of memory and errors of the operating system keep their class; interrupts pass
    unchanged.

    Parameters
    ----------
    name : str or Path
        The file's name.
    row : int, optional
        The first of the rows being read.

    Examples
    --------
    >>> from nystrom.rows.reading import reading
    >>> with reading("a.npz", row=12):
    ...     raise KeyError("indptr")
    Traceback (most recent call last):
    nystrom.exceptions.DataFileError: a.npz, in the rows from 12 on: the file is damaged, or not what its name says
    (KeyError: 'indptr'). Write it again.
    """
    try:
        yield
    except (NystromError, GeneratorExit):
        raise
    except MemoryError as error:
        raise MemoryError(f"{name}: no memory for what the file says it holds ({error}); it may be damaged.") from error
    except OSError as error:
        if error.errno not in _MACHINE:
            raise _damaged(name, error, row) from error
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or str(error), str(name)) from error
    except Exception as error:  # parsers raise exceptions of every kind
        raise _damaged(name, error, row) from error


def _damaged(name: str | Path, error: Exception, row: int | None) -> DataFileError:
    if isinstance(error, ValueError) and str(error).startswith(str(name)):
        return DataFileError(str(error))  # one of our checks, which already names the file
    place = "" if row is None else f", in the rows from {row} on"
    what = " ".join(str(error).split())[:500]
    return DataFileError(
        f"{name}{place}: the file is damaged, or not what its name says ({type(error).__name__}: {what}). Write it "
        f"again."
    )


@dataclass(frozen=True)
class Stamp:
    """The state of the files of a source when it was opened.

    The state of a file is its size, times of change and inode, so a change shows even if it keeps the size and resets
    the modification time. The state of a folder is a digest of the states of all files in it.
    """

    paths: tuple[Path, ...]
    states: tuple[State, ...]
    machine: str = field(default_factory=machine_mark)

    @classmethod
    def of(cls, paths: Path | Sequence[Path]) -> Stamp:
        several = (paths,) if isinstance(paths, Path) else tuple(paths)
        return cls(several, tuple(_state(path) for path in several))

    @property
    def identity(self) -> str:
        """Text that is equal only while the files are the same and unchanged."""
        return repr([(os.path.abspath(path), state) for path, state in zip(self.paths, self.states, strict=True)])

    def check(self, row: int) -> None:
        """Raise unless every file is unchanged; ``row`` is the position of the reader."""
        for path, state in zip(self.paths, self.states, strict=True):
            try:
                now = _state(path)
            except FileNotFoundError:
                raise RowsChangedError(
                    f"{path} was removed while its rows were read (at row {row}). Put it back and start again."
                ) from None
            self._compare(path, state, now, row)

    def check_open(self, handle: int, row: int) -> None:
        """Raise unless the open file, the only one of this stamp, is unchanged."""
        self._compare(self.paths[0], self.states[0], _state_of(os.fstat(handle)), row)

    def _compare(self, path: Path, before: State, now: State, row: int) -> None:
        # A worker on another machine may read a copy, which has its own inode.
        known = len(now) if self.machine == machine_mark() else 2
        if now[:known] == before[:known]:
            return
        what = f"its size went from {before[0]} to {now[0]} bytes" if now[0] != before[0] else "it was written to"
        if len(now) > 2 and now[3] != before[3]:
            what = "another file took its place"
        raise RowsChangedError(
            f"{path} changed while its rows were read (at row {row}): {what}. Every pass must see the same rows; "
            f"wait until the file is complete, open it again with open_rows and start again."
        )


def _state(path: Path) -> State:
    status = os.stat(path)
    return _folder_state(path) if path.is_dir() else _state_of(status)


def _state_of(status: os.stat_result) -> State:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _folder_state(path: Path) -> State:
    """Return (total bytes, a digest of sizes and times, a digest of everything, the folder's inode)."""
    plain, full = hashlib.blake2b(digest_size=8), hashlib.blake2b(digest_size=8)
    total = 0
    for place, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            state = _state_of(os.stat(os.path.join(place, name)))
            total += state[0]
            plain.update(f"{name} {state[:2]}".encode())
            full.update(f"{name} {state}".encode())
    return total, int(plain.hexdigest(), 16), int(full.hexdigest(), 16), os.stat(path).st_ino


def require_file(path: Path) -> Path:
    """Return ``path`` if it is a file or folder; raise if not."""
    if not path.exists():
        near = path.parent
        while not near.exists() and near != near.parent:
            near = near.parent
        raise FileNotFoundError(f"there is no file {path} (its folder {near} exists). Check the path's spelling.")
    if path.is_file() and path.stat().st_size == 0:
        raise DataFileError(f"{path}: the file is empty. Write it again.")
    return path


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

    ``names`` are the names of the stored columns, or their number if they have none.
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
        bad = np.array([value is None or value != value for value in y.ravel()], dtype=bool).reshape(y.shape)
    else:
        return
    if bad.any():
        row = start + int(np.flatnonzero(bad.any(axis=1) if bad.ndim > 1 else bad)[0])
        raise ValueError(
            f"the target is missing or not finite in row {row} of {source}. Drop such rows, or fill the target in."
        )


def require_unmasked(values: object, name: str) -> None:
    """Raise ``ValueError`` for masked entries, which would otherwise be read as values."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        row = int(np.argwhere(np.ma.getmaskarray(values))[0][0])
        raise ValueError(
            f"{name} is a masked array with masked entries (first in row {row}): drop these rows, or fill them in "
            f"with .filled()."
        )


# Largest weight: the square of a larger one overflows in float64.
MOST_WEIGHT = 1e154


def check_weights(weight: Array, name: str, start: int = 0) -> None:
    """Raise ``ValueError`` naming the first weight that is not a finite number of at least 0, or overflows in sums."""
    if weight.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numbers; got {weight.dtype}.")
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if bad.size:
        raise ValueError(
            f"{name} must be finite and not negative (Negative values in data passed to `sample_weight`, NaN or "
            f"infinity); row {start + int(bad[0])} has {weight[bad[0]]}."
        )
    if weight.size and not float(np.max(weight)) <= MOST_WEIGHT:
        raise ValueError(
            f"{name} must be at most {MOST_WEIGHT:g}, or their sums overflow; row {start + int(np.argmax(weight))} has "
            f"{np.max(weight):.3g}. Divide them by a constant."
        )
