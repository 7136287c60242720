"""Files appear whole or not at all; locks say who holds them; temporary folders do not outlive their process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nystrom import disk
from nystrom.disk import FolderLock, Owner, Scratch, remove_left_behind, replacing
from nystrom.engine import memory
from nystrom.exceptions import OutputBusyError

posix = pytest.mark.skipif(os.name != "posix", reason="needs signals and process numbers")


def _run(code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


# -- owners ------------------------------------------------------------------------------------------------------------


def _ended() -> Owner:
    """Return the owner that a process was which has ended."""
    done = _run("from nystrom.disk import Owner; print(Owner.this_process())", check=True)
    found = Owner.in_name(done.stdout)
    assert found is not None
    return found


@posix
def test_a_process_is_known_by_its_number_and_its_beginning() -> None:
    mine = Owner.this_process()
    assert Owner.in_name(f"nystrom-spool-{mine}-x7") == mine
    assert not mine.is_gone()
    assert _ended().is_gone()
    # The same number given to a later process.
    assert Owner(mine.machine, mine.pid, mine.began + 1).is_gone()
    # Nothing is known of another machine.
    assert not Owner("00000000", 2**22, 1).is_gone()


# -- replacing ---------------------------------------------------------------------------------------------------------


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "note"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["note"]


@posix
def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    stale = tmp_path / f".note.{_ended()}-ab.part"
    alive = tmp_path / f".note.{Owner.this_process()}-ab.part"
    other = tmp_path / f".other.{_ended()}-ab.part"
    for path in (stale, alive, other):
        path.write_text("half")
    with replacing(tmp_path / "note") as temporary:
        temporary.write_text("whole")
    assert sorted(os.listdir(tmp_path)) == sorted([alive.name, other.name, "note"])


# -- locks -------------------------------------------------------------------------------------------------------------

_HOLD = """
import sys, time
from pathlib import Path
from nystrom import disk
if sys.argv[2] == "names":
    disk.fcntl = None
held = disk.FolderLock(Path(sys.argv[1]), "F.npy")
print("held", flush=True)
time.sleep(100)
"""


@posix
@pytest.mark.parametrize("way", ["flock", "names"])
def test_a_lock_says_who_holds_it_and_goes_with_its_process(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "names":
        monkeypatch.setattr(disk, "fcntl", None)
    folder = tmp_path / "F.npy.partial"
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, str(folder), way], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(OutputBusyError, match=rf"F\.npy is being written by process {holder.pid} on "):
            FolderLock(folder, "F.npy")
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with FolderLock(folder, "F.npy") as held:
        held.remove()
    assert not folder.exists()


@pytest.mark.parametrize("way", ["flock", "names"])
def test_threads_of_one_process_lock_each_other_out(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "names":
        monkeypatch.setattr(disk, "fcntl", None)
    inside, most, refused = [0], [0], []

    def work() -> None:
        for _ in range(40):
            try:
                with FolderLock(tmp_path / "F.partial", "F"):
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    inside[0] -= 1
            except OutputBusyError as error:
                refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert len(refused) < 160


# -- scratch -----------------------------------------------------------------------------------------------------------

_SPOOL = """
import os, signal, sys
import numpy as np
from nystrom import open_rows
from nystrom.engine.memory import hold
rows = open_rows(sys.argv[1], spool=True)
held = hold((10, 10), np.float64, 0)
held.write(0, np.ones((10, 10)))
os.kill(os.getpid(), int(sys.argv[2]))
"""


@posix
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_next_start_removes_the_folders_of_a_killed_process(number: int, tmp_path: Path) -> None:
    (tmp_path / "x.svm").write_text("1 1:2\n0 2:1\n")
    place = tmp_path / "tmp"
    place.mkdir()
    environment = {**os.environ, "TMPDIR": str(place)}
    done = _run(_SPOOL, str(tmp_path / "x.svm"), str(int(number)), env=environment)
    assert done.returncode == -number
    assert sorted(name.split("-")[1] for name in os.listdir(place)) == ["held", "spool"]
    code = "import sys, nystrom; nystrom.open_rows(sys.argv[1])"
    _run(code, str(tmp_path / "x.svm"), env=environment, check=True)
    assert not os.listdir(place)


@posix
def test_folders_of_the_living_and_of_others_stay(tmp_path: Path) -> None:
    mine = Scratch("spool", tmp_path)
    gone = _ended()
    (tmp_path / "nystrom-notes").mkdir()
    (tmp_path / f"nystrom-held-{gone}-a").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / f"nystrom-spool-{gone}-link").symlink_to(tmp_path / "target")
    remove_left_behind(tmp_path, "nystrom-")
    assert sorted(os.listdir(tmp_path)) == sorted(
        [mine.path.name, "nystrom-notes", "target", f"nystrom-spool-{gone}-link"]
    )
    mine.remove()


@posix
def test_a_forked_child_leaves_its_parents_folders(tmp_path: Path) -> None:
    code = """
import os, sys, gc
from pathlib import Path
from nystrom.disk import Scratch
held = Scratch("held", Path(sys.argv[1]))
if os.fork() == 0:
    del held
    gc.collect()
    sys.exit(0)
os.wait()
print(held.path.exists())
"""
    assert _run(code, str(tmp_path), check=True).stdout.strip() == "True"
    assert not os.listdir(tmp_path)


def test_a_place_is_swept_once_per_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(disk, "remove_left_behind", lambda place, prefix: calls.append(place))
    monkeypatch.setattr(disk, "_swept", set())
    for _ in range(3):
        Scratch("spool", tmp_path).remove()
    assert calls == [tmp_path]


def test_a_system_without_positioned_writes_holds_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(memory.os, "pwrite")
    X = np.random.default_rng(0).normal(size=(100, 3))
    held = memory.hold(X.shape, X.dtype, 0)
    for start in (60, 0, 30, 90):
        held.write(start, X[start : start + 30])
    np.testing.assert_array_equal(held.rows(40, "held").take(np.arange(100)), X)
