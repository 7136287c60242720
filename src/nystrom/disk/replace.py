"""Write a file under another name, then move it into place: it is there whole, or as it was before."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nystrom.disk.owner import Owner, remove_left_behind


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the name of a new file to write; it takes the place of ``path`` if the block ends without an error.

    What an earlier process left when it was killed is removed. The data are on the disk before the name is.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from nystrom.disk.replace import replacing
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "note.txt"
    >>> with replacing(path) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('whole', 1)
    """
    remove_left_behind(path.parent, f".{path.name}.", ".part")
    temporary = path.with_name(f".{path.name}.{Owner.this_process()}-{secrets.token_hex(4)}.part")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield temporary
        move(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def move(source: Path, path: Path) -> None:
    """Give a finished file its name, replacing what was there: its data first, then the name."""
    flush(source)
    os.replace(source, path)
    flush(path.parent)


def flush(path: Path) -> None:
    """Make sure that a file's data, or a folder's names, are on the disk; folders only where the system can."""
    try:
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(handle)
