"""Checksums of downloaded files: pinned by the caller, else trusted once and recorded beside the file.

No archive could be reached when the registry was made, so it states no checksum of its own for most sets (see its
head). A first download is therefore trusted; what it brought is written to ``FILE.sha256``, in the form of the program
sha256sum, and every later reading of the text must agree with that.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from nystrom.disk.replace import replacing
from nystrom.exceptions import DataFileError

_LINE = re.compile(r"([0-9a-fA-F]{64})\s+\*?(.+)")


def pinned(name: str, registered: str | None, given: str | None) -> str | None:
    """Return the checksum that a file must have: the one given, else of ``NYSTROM_CHECKSUMS``, else the registry's.

    The environment variable names a file in the form of sha256sum: a checksum and a file's name per line.
    """
    if given is not None:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", given):
            raise ValueError(f"sha256 must be 64 hexadecimal digits; got {given!r}.")
        return given.lower()
    listed = os.environ.get("NYSTROM_CHECKSUMS")
    return (_read(Path(listed)).get(name) if listed else None) or registered


def record(path: Path) -> None:
    """Write the checksum of a new download beside it."""
    with replacing(_beside(path)) as temporary:
        temporary.write_text(f"{_digest(path)}  {path.name}\n")


def verify(path: Path, expected: str | None) -> None:
    """Raise unless the file has the checksum that is expected, or that was recorded; without either, accept it."""
    recorded = _read(_beside(path)).get(path.name) if _beside(path).is_file() else None
    wanted = expected or recorded
    if wanted is None:
        return
    found = _digest(path)
    if found != wanted:
        source = "expected" if expected else f"recorded when it was downloaded ({_beside(path).name})"
        raise DataFileError(
            f"{path}: its sha256 is {found}, not the {wanted} {source}. It was damaged or exchanged: remove it and "
            f"fetch it again."
        )


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _read(path: Path) -> dict[str, str]:
    lines = (_LINE.fullmatch(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())
    return {Path(found[2]).name: found[1].lower() for found in lines if found}


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
