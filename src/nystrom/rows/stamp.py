"""Whether a file is still the one that was opened."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nystrom.disk.owner import machine_mark
from nystrom.exceptions import DataFileError, RowsChangedError

State = tuple[int, ...]


@dataclass(frozen=True)
class Stamp:
    """The state of the files that a source reads, as they were when it was opened.

    A file's state is its size, its times of change and its inode: a change that keeps the size, and sets the time of
    writing back, still shows. A folder's is a digest of the states of all files in it.
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
        """Text that is equal only while the files are the same ones and unchanged."""
        return repr([(os.path.abspath(path), state) for path, state in zip(self.paths, self.states, strict=True)])

    def check(self, row: int) -> None:
        """Raise unless every file is as it was; ``row`` is where the reader stands."""
        for path, state in zip(self.paths, self.states, strict=True):
            try:
                now = _state(path)
            except FileNotFoundError:
                raise RowsChangedError(
                    f"{path} was removed while its rows were read (at row {row}). Put it back and start again."
                ) from None
            self._compare(path, state, now, row)

    def check_open(self, handle: int, row: int) -> None:
        """Raise unless the open file, the only one of this stamp, is as it was."""
        self._compare(self.paths[0], self.states[0], _state_of(os.fstat(handle)), row)

    def _compare(self, path: Path, before: State, now: State, row: int) -> None:
        # A worker on another machine may read a copy, which has an inode of its own.
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
    """Return (bytes in all, a digest of sizes and times, a digest of everything, the folder's inode)."""
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
    """Return ``path`` if there is a file or folder, and raise if not."""
    if not path.exists():
        near = path.parent
        while not near.exists() and near != near.parent:
            near = near.parent
        raise FileNotFoundError(f"there is no file {path} (its folder {near} exists). Check the path's spelling.")
    if path.is_file() and path.stat().st_size == 0:
        raise DataFileError(f"{path}: the file is empty. Write it again.")
    return path
