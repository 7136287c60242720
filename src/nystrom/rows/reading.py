"""The one place where a parser's error becomes one that names the file, and the row where it is known."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nystrom.exceptions import DataFileError, NystromError

# Errors of the operating system, not of the file: they keep their class and gain the file's name.
_MACHINE_NAMES = (
    *("ENOENT", "EACCES", "EPERM", "EMFILE", "ENFILE", "ENOSPC", "EDQUOT", "EFBIG", "EIO", "EINTR", "ENOMEM"),
    *("ENOTDIR", "EISDIR", "ESTALE", "EROFS", "EBUSY", "ETIMEDOUT", "ENXIO", "ENODEV", "ENETDOWN", "EHOSTUNREACH"),
)
_MACHINE = frozenset(getattr(errno, name) for name in _MACHINE_NAMES if hasattr(errno, name))


@contextmanager
def reading(name: str | Path, row: int | None = None) -> Iterator[None]:
    """Turn what a parser raises into :class:`DataFileError` with the file's name.

    Errors of this library, a lack of memory and what the operating system reports keep their class; interrupts pass
    untouched.

    Parameters
    ----------
    name : str or Path
        Of the file.
    row : int, optional
        The first row of those that are being read.

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
    except Exception as error:  # parsers raise every kind there is
        raise _damaged(name, error, row) from error


def _damaged(name: str | Path, error: Exception, row: int | None) -> DataFileError:
    if isinstance(error, ValueError) and str(error).startswith(str(name)):
        return DataFileError(str(error))  # a check of ours, which knew the name
    place = "" if row is None else f", in the rows from {row} on"
    what = " ".join(str(error).split())[:500]
    return DataFileError(
        f"{name}{place}: the file is damaged, or not what its name says ({type(error).__name__}: {what}). Write it "
        f"again."
    )
