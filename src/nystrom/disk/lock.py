"""A lock on a folder's work, freed by the system when its process ends; the error says who holds it."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path
from types import TracebackType

from nystrom.disk.owner import Owner
from nystrom.exceptions import OutputBusyError

try:
    import fcntl
except ImportError:  # not on Windows: there the file's existence and its process are the lock
    fcntl = None  # type: ignore[assignment]

_UNSUPPORTED = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
_ATTEMPTS = 100


class FolderLock:
    """Holds ``folder/lock``, making the folder; raises :class:`OutputBusyError` if another does.

    Parameters
    ----------
    folder : Path
        What is locked. Its last user removes it with :meth:`remove`.
    purpose : str
        What is being written, for the message.
    """

    def __init__(self, folder: Path, purpose: str) -> None:
        self.path = folder / "lock"
        self._purpose = purpose
        self._handle = self._acquire()
        about = {"owner": str(Owner.this_process()), "pid": os.getpid(), "host": socket.gethostname()}
        os.ftruncate(self._handle, 0)
        os.write(self._handle, json.dumps(about).encode())

    def _acquire(self) -> int:
        for _ in range(_ATTEMPTS):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                handle = self._take()
            except FileNotFoundError:  # the one before has just removed its folder
                continue
            # The one before may have removed the file between our opening it and our locking it.
            if self._is_current(handle):
                return handle
            os.close(handle)
        raise OutputBusyError(f"{self._purpose}: other processes write it again and again. Give each another out.")

    def _take(self) -> int:
        if fcntl is None:
            return self._take_by_name()
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno in _UNSUPPORTED:
                return self._take_by_name()
            if isinstance(error, BlockingIOError):
                raise self._busy() from None
            raise
        return handle

    def _take_by_name(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            owner = Owner.in_name(str(self._holder().get("owner", "")))
            if owner is None or not owner.is_gone():
                raise self._busy() from None
        self.path.unlink(missing_ok=True)
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)

    def _is_current(self, handle: int) -> bool:
        try:
            mine, named = os.fstat(handle), os.stat(self.path)
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino)

    def _holder(self) -> dict[str, object]:
        try:
            found = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _busy(self) -> OutputBusyError:
        holder = self._holder()
        who = f"process {holder['pid']} on {holder['host']}" if {"pid", "host"} <= holder.keys() else "another process"
        return OutputBusyError(
            f"{self._purpose} is being written by {who}. Wait until it is done, give another out, or end it. "
            f"(If no such process exists, remove {self.path}.)"
        )

    def release(self) -> None:
        """Free the lock and leave the folder."""
        if self._handle < 0:
            return
        handle, self._handle = self._handle, -1
        if fcntl is None:
            # Windows removes no file that is open.
            os.close(handle)
            self.path.unlink(missing_ok=True)
            return
        self.path.unlink(missing_ok=True)
        # A forked child may hold the same open file; closing ours would not free it.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)

    def remove(self) -> None:
        """Free the lock and remove the folder if it is empty."""
        self.release()
        try:
            self.path.parent.rmdir()
        except OSError:  # the next one has begun in it
            return

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
