"""Whether a file is still the one that was opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nystrom.exceptions import DataFileError, RowsChangedError


@dataclass(frozen=True)
class Stamp:
    """Size and time of change of the files that a source reads, as they were when it was opened."""

    paths: tuple[Path, ...]
    states: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, paths: Path | Sequence[Path]) -> Stamp:
        several = (paths,) if isinstance(paths, Path) else tuple(paths)
        return cls(several, tuple(_state(os.stat(path)) for path in several))

    def check(self, row: int) -> None:
        """Raise unless every file is as it was; ``row`` is where the reader stands."""
        for path, state in zip(self.paths, self.states, strict=True):
            try:
                now = os.stat(path)
            except FileNotFoundError:
                raise RowsChangedError(
                    f"{path} was removed while its rows were read (at row {row}). Put it back and start again."
                ) from None
            _compare(path, state, now, row)

    def check_open(self, handle: int, row: int) -> None:
        """Raise unless the open file, the only one of this stamp, is as it was."""
        _compare(self.paths[0], self.states[0], os.fstat(handle), row)


def _state(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _compare(path: Path, before: tuple[int, int], status: os.stat_result, row: int) -> None:
    now = _state(status)
    if now != before:
        what = f"its size went from {before[0]} to {now[0]} bytes" if now[0] != before[0] else "it was written to"
        raise RowsChangedError(
            f"{path} changed while its rows were read (at row {row}): {what}. Every pass must see the same rows; "
            f"wait until the file is complete, open it anew with open_rows and start again."
        )


def require_file(path: Path) -> Path:
    """Return ``path`` if there is a file or folder, and raise if not."""
    if not path.exists():
        near = path.parent
        while not near.exists() and near != near.parent:
            near = near.parent
        raise FileNotFoundError(f"there is no file {path} (its folder {near} exists). Check the path's spelling.")
    if path.is_file() and path.stat().st_size == 0:
        raise DataFileError(f"{path}: the file is empty. Write it anew.")
    return path
