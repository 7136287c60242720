"""Which process made a temporary file, and whether it is still there."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

_PATTERN = re.compile(r"([0-9a-f]{8})-(\d+)-(\d+)")


@dataclass(frozen=True)
class Owner:
    """A process: its machine, its number and when it began, in ticks since the machine did (0 where unknown)."""

    machine: str
    pid: int
    began: int

    @classmethod
    def this_process(cls) -> Owner:
        return cls(machine_mark(), os.getpid(), _began(os.getpid()) or 0)

    @classmethod
    def in_name(cls, name: str) -> Owner | None:
        """Return the owner that a file's name holds, or None."""
        found = _PATTERN.search(name)
        return None if found is None else cls(found[1], int(found[2]), int(found[3]))

    def __str__(self) -> str:
        return f"{self.machine}-{self.pid}-{self.began}"

    def is_gone(self) -> bool:
        """Return whether the process has ended for certain; False where that cannot be known from here."""
        if self.machine != machine_mark() or os.name != "posix":
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        # A number is given again to later processes, which began at another time.
        began = _began(self.pid)
        return bool(self.began) and began is not None and began != self.began


@functools.cache
def machine_mark() -> str:
    """Return a mark of this machine and of the container that numbers its processes."""
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
    # A zombie has ended; only its parent has not yet taken note.
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


def remove_left_behind(folder: Path, prefix: str, suffix: str = "") -> None:
    """Remove what processes that have ended left in ``folder`` under such names; only this user's, no links."""
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
