"""Files that appear complete or not at all, temporary folders, locks, and the process that owns each."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from nystrom.exceptions import OutputBusyError

_PATTERN = re.compile(r"([0-9a-f]{8})-(\d+)-(\d+)")


@dataclass(frozen=True)
class Owner:
    """A process: its machine, its number and its start time, in ticks since the machine's start (0 if unknown)."""

    machine: str
    pid: int
    began: int

    @classmethod
    def this_process(cls) -> Owner:
        return cls(machine_mark(), os.getpid(), _began(os.getpid()) or 0)

    @classmethod
    def in_name(cls, name: str) -> Owner | None:
        """Return the owner encoded in a file's name, or None."""
        found = _PATTERN.search(name)
        return None if found is None else cls(found[1], int(found[2]), int(found[3]))

    def __str__(self) -> str:
        return f"{self.machine}-{self.pid}-{self.began}"

    def is_gone(self) -> bool:
        """Return whether the process has certainly ended; False if that cannot be determined from here."""
        if self.machine != machine_mark() or os.name != "posix":
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        # Process numbers are reused, by processes with another start time.
        began = _began(self.pid)
        return bool(self.began) and began is not None and began != self.began


@functools.cache
def machine_mark() -> str:
    """Return an identifier of this machine and of the container that numbers its processes."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return hashlib.blake2b(f"{socket.gethostname()} {namespace}".encode(), digest_size=4).hexdigest()


def _began(pid: int) -> int | None:
    try:
        # The second field, the program's name, may hold spaces and brackets; the rest does not.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    # A zombie has ended; only its parent has not yet collected it.
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


def remove_left_behind(folder: Path, prefix: str, suffix: str = "") -> None:
    """Remove files of such names that ended processes left in ``folder``; only this user's, and no links."""
    try:
        found = [entry for entry in os.scandir(folder) if entry.name.startswith(prefix) and entry.name.endswith(suffix)]
    except OSError:
        return
    for entry in found:
        owner = Owner.in_name(entry.name)
        if owner is not None and owner.is_gone() and _is_ours(entry):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    try:
        return not entry.is_symlink() and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    except OSError:
        return False


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the name of a new file to write; it replaces ``path`` if the block ends without an error.

    Leftovers of killed processes are removed. The data are on the disk before the name is.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from nystrom.disk import replacing
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
    """Give a finished file its name, replacing an existing file: its data first, then the name."""
    flush(source)
    os.replace(source, path)
    flush(path.parent)


def flush(path: Path) -> None:
    """Make sure that a file's data, or a folder's names, are on the disk; folders only if the system supports it."""
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


_PREFIX = "nystrom-"
_swept: set[tuple[int, str]] = set()


class Scratch:
    """A new folder, removed with this object or, at the latest, at the end of the process.

    A killed process leaves it behind; the next process that creates or opens anything removes it.
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
    """Remove the temporary folders of ended processes; once per process and place."""
    place = Path(tempfile.gettempdir() if folder is None else folder)
    key = (os.getpid(), str(place))
    if key not in _swept:
        _swept.add(key)
        remove_left_behind(place, _PREFIX)


def _remove(path: Path, pid: int) -> None:
    # A forked child inherits the object, but the folder still belongs to its parent.
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)


try:
    import fcntl
except ImportError:  # not on Windows, where the existing file and its process are the lock
    fcntl = None  # type: ignore[assignment]

_UNSUPPORTED = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
_ATTEMPTS = 100


class FolderLock:
    """Holds ``folder/lock``, creating the folder; raises :class:`OutputBusyError` if it is held already.

    Parameters
    ----------
    folder : Path
        The folder to lock. Its last user removes it with :meth:`remove`.
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
            except FileNotFoundError:  # the previous holder has just removed its folder
                continue
            # The previous holder may have removed the file after we opened it and before we locked it.
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
        """Release the lock and keep the folder."""
        if self._handle < 0:
            return
        handle, self._handle = self._handle, -1
        if fcntl is None:
            # Windows cannot remove an open file.
            os.close(handle)
            self.path.unlink(missing_ok=True)
            return
        self.path.unlink(missing_ok=True)
        # A forked child may hold the same open file; closing ours would not release it.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)

    def remove(self) -> None:
        """Release the lock and remove the folder if it is empty."""
        self.release()
        try:
            self.path.parent.rmdir()
        except OSError:  # the next holder has started in it
            return

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
