"""Temporary folders that go when the last rows that need them go."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

from nystrom.disk.owner import Owner, remove_left_behind

_PREFIX = "nystrom-"
_swept: set[tuple[int, str]] = set()


class Scratch:
    """A new folder, removed with this object or, at the latest, at the end of the process.

    A process that is killed leaves it; the next one that makes or opens anything removes it.
    """

    def __init__(self, purpose: str, folder: Path | None = None) -> None:
        sweep(folder)
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-{Owner.this_process()}-", dir=folder))
        self._removal = weakref.finalize(self, _remove, self.path, os.getpid())

    def remove(self) -> None:
        """Remove the folder now."""
        self._removal()

    def __getstate__(self) -> dict[str, object]:
        # A copy in another process may read the files but must not remove them.
        return {"path": self.path}


def sweep(folder: Path | None = None) -> None:
    """Remove the temporary folders of processes that have ended; once per process and place."""
    place = Path(tempfile.gettempdir() if folder is None else folder)
    key = (os.getpid(), str(place))
    if key not in _swept:
        _swept.add(key)
        remove_left_behind(place, _PREFIX)


def _remove(path: Path, pid: int) -> None:
    # A forked child inherits the object, but the folder is still its parent's.
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)
