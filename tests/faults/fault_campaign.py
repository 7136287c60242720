"""Kill one writer again and again, and look each time at what it left and at what the next call makes of that.

``python tests/faults/fault_campaign.py "out.npy" --kills 40 --way random`` prints a line of JSON: how many processes
were killed, how many had got so far that the next one could take their work up, and what went wrong.

This process imports everything and forks a child for each trial. It must not itself read, write or compute with the
library, whose threads a fork would cut off.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from fault_jobs import JOBS, Job, content

# A child that takes longer is taken to hang.
_PATIENCE = 120.0
WAYS = ("random", "term", "interrupt", "points", "two", "full")
# Where a child can be killed by itself, before or after the call.
_CALLS = ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "truncate", "fsync")


def _import_all() -> None:
    import h5py  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import zarr  # noqa: F401

    import nystrom
    import nystrom.datasets
    import nystrom.engine.memory

    for name in nystrom.__all__:
        getattr(nystrom, name)


class Trial:
    """A folder for one job: its inputs, its outputs, and the temporary folder of its processes."""

    def __init__(self, job: Job, inputs: Path) -> None:
        self.job = job
        self.place = Path(tempfile.mkdtemp(prefix="faults-"))
        shutil.copytree(inputs, self.place, dirs_exist_ok=True)
        (self.place / "tmp").mkdir()

    def start(self, name: str, fault: Callable[[], None] | None = None) -> int:
        """Fork a child that does the job and writes what it made to the file ``name``."""
        # A signal waits until the child can tell of it: before that it would end in the code of its parent.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        pid = os.fork()
        if pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return pid
        try:
            os.environ["TMPDIR"] = tempfile.tempdir = str(self.place / "tmp")
            with (self.place.parent / f"{self.place.name}.{name}.log").open("w") as log:
                os.dup2(log.fileno(), 2)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                if fault is not None:
                    fault()
                made = self.job.run(self.place)
                # Beside the folder, so that it is not counted as left behind.
                (self.place.parent / f"{self.place.name}.{name}").write_bytes(made)
                _exit(0)
        except BaseException:
            _limit_files(resource.RLIM_INFINITY)  # the log has to be written too
            traceback.print_exc()
            sys.stderr.flush()
            _exit(1)
        finally:
            os._exit(2)  # whatever happens, a child does not go on as its parent
        raise AssertionError

    def made(self, name: str) -> bytes | None:
        path = self.place.parent / f"{self.place.name}.{name}"
        return path.read_bytes() if path.exists() else None

    def log(self, name: str) -> str:
        path = self.place.parent / f"{self.place.name}.{name}.log"
        return " ".join(path.read_text(errors="replace").split())[-500:] if path.exists() else ""

    def files(self) -> set[str]:
        """Return what is in the folder; marks of its own path in names are left out."""
        names = (str(path.relative_to(self.place)) for path in self.place.rglob("*"))
        return {re.sub(r"\.[0-9a-f]{12}\.npz$", ".npz", name) for name in names}

    def output(self) -> bytes | None:
        path = self.place / self.job.output
        return content(path) if self.job.output and path.exists() else None

    def sizes(self) -> list[int]:
        return [path.stat().st_size for path in self.place.rglob("*") if path.is_file()]

    def remove(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        for path in self.place.parent.glob(f"{self.place.name}.*"):
            path.unlink(missing_ok=True)


def _exit(code: int) -> None:
    """End as a process ends, with its clean-up, but without pytest's or the parent's."""
    import atexit

    atexit._run_exitfuncs()
    os._exit(code)


def _wait(pid: int, patience: float = _PATIENCE) -> int | None:
    """Return how the child ended, or None after killing one that hangs."""
    waited, clock = 0.0, time.monotonic()
    while waited < patience:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
        before, clock = clock, time.monotonic()
        # On a machine that stops or starves this process the child, too, has had no processor.
        waited += min(clock - before, 0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _counted(act: Callable[[int, str], None]) -> Callable[[], None]:
    """Return a fault that calls ``act`` with a number before and after each call that changes names on the disk."""

    def install() -> None:
        count = [0]

        def wrap(real: Callable[..., object], name: str) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                act(count[0], name)
                count[0] += 1
                result = real(*arguments, **options)
                act(count[0], name)
                count[0] += 1
                return result

            return call

        for name in _CALLS:
            setattr(os, name, wrap(getattr(os, name), name))

    return install


def _mount(place: Path, inputs: Path, room: int) -> bool:
    """Put a small file system where the trial is, with its inputs and so much room; False where that is not allowed."""
    used = sum(path.stat().st_size // 4096 * 4096 + 8192 for path in inputs.rglob("*")) + 16384
    command = ["mount", "-t", "tmpfs", "-o", f"size={used + room}", "tmpfs", str(place)]
    try:
        if subprocess.run(command, capture_output=True).returncode:
            return False
    except FileNotFoundError:
        return False
    shutil.copytree(inputs, place, dirs_exist_ok=True)
    (place / "tmp").mkdir()
    return True


def _limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class Campaign:
    """Many trials of one job."""

    def __init__(self, job: Job, seed: int) -> None:
        self.job = job
        self.random = random.Random(f"{job.name} {seed}")
        self.kills = self.resumed = 0
        self.failures: list[str] = []
        self.inputs = Path(tempfile.mkdtemp(prefix="faults-inputs-"))
        # In a child of its own, for the same reason as the trials.
        pid = os.fork()
        if not pid:
            job.prepare(self.inputs)
            os._exit(0)
        os.waitpid(pid, 0)
        trial = Trial(job, self.inputs)
        begun = time.monotonic()
        if _wait(trial.start("first")) != 0:
            raise RuntimeError(f"{job.name} fails undisturbed: {trial.log('first')}")
        self.seconds = time.monotonic() - begun
        sizes = trial.sizes()
        given = sum(path.stat().st_size for path in self.inputs.rglob("*") if path.is_file())
        # What a temporary file takes is gone by now; it is about as large as what it was made of.
        self.bytes_made = max(sum(sizes) - given, given // 2, 100_000 if not given else 0)
        self.largest = max(sizes, default=self.bytes_made)
        self.expected, self.left = trial.made("first"), trial.files()
        if _wait(trial.start("again")) != 0 or trial.made("again") != self.expected or trial.files() != self.left:
            raise RuntimeError(f"{job.name} is not the same when repeated: {trial.log('again')}")
        trial.remove()

    def points(self) -> int:
        """Return how many places there are at which a child can kill itself."""
        trial = Trial(self.job, self.inputs)
        note = trial.place.parent / f"{trial.place.name}.points"

        def act(number: int, name: str) -> None:
            note.write_text(str(number))

        _wait(trial.start("count", _counted(act)))
        points = int(note.read_text()) + 1 if note.exists() else 0
        trial.remove()
        return points

    def run(self, number: int, way: str) -> None:
        """One trial: disturb a process, look, and call again."""
        trial = Trial(self.job, self.inputs)
        try:
            what = f"{self.job.name}, {way} {number}"
            if not self._disturb(trial, number, way, what):
                return
            if self.job.output and trial.output() not in (None, self._output()):
                self.failures.append(f"{what}: a broken output stands under its name")
            self.resumed += any(path.endswith("job.json") for path in trial.files())
            self._call_again(trial, what)
        finally:
            trial.remove()

    def run_two(self, number: int) -> None:
        """One trial: two processes with the same output at the same time."""
        trial = Trial(self.job, self.inputs)
        what = f"{self.job.name}, two writers {number}"
        try:
            first = trial.start("one")
            time.sleep(self.random.uniform(0, self.seconds))
            second = trial.start("two")
            done = 0
            for pid, name in ((first, "one"), (second, "two")):
                status = _wait(pid)
                done += status == 0
                if status == 0 and trial.made(name) != self.expected:
                    self.failures.append(f"{what}: {name} says that it is done, and made other bytes")
                elif status != 0 and "OutputBusyError" not in trial.log(name):
                    self.failures.append(f"{what}: {name} ended with {status}: {trial.log(name)}")
            if not done:
                self.failures.append(f"{what}: none of them did the work")
            self._call_again(trial, what)
            self.kills += 1
        finally:
            trial.remove()

    def run_full(self, number: int) -> None:
        """One trial: no room left, by a small file system where one can be mounted, else by a limit on files."""
        trial = Trial(self.job, self.inputs)
        what = f"{self.job.name}, full disk {number}"
        share = self.random.uniform(0, 1)
        mounted = number % 2 == 0 and _mount(trial.place, self.inputs, int(share * self.bytes_made))
        size = int(share * self.largest)
        before = trial.files()
        try:
            status = _wait(trial.start("full", None if mounted else lambda: _limit_files(size)))
            if status == 0 and trial.made("full") != self.expected:
                self.failures.append(f"{what}: says that it is done, and made other bytes")
            elif status == 0:
                return  # there was room, or the job can do without
            elif not re.search("No space left|File too large", trial.log("full")):
                self.failures.append(f"{what}: ended with {status}: {trial.log('full')}")
            elif trial.files() != before:
                self.failures.append(f"{what}: left behind: {sorted(trial.files() - before)[:5]}")
            if mounted:
                subprocess.run(["mount", "-o", "remount,size=64m", str(trial.place)], check=True)
            self._call_again(trial, what)
            self.kills += 1
        finally:
            if mounted:
                subprocess.run(["umount", str(trial.place)], check=True)
            trial.remove()

    def _call_again(self, trial: Trial, what: str) -> None:
        status = _wait(trial.start("next"))
        if status != 0:
            self.failures.append(f"{what}: the next call ended with {status}: {trial.log('next')}")
        elif trial.made("next") != self.expected:
            self.failures.append(f"{what}: the next call made other bytes")
        elif trial.files() != self.left:
            odd = sorted(trial.files() ^ self.left)[:5]
            self.failures.append(f"{what}: left behind or missing: {odd}")

    def _output(self) -> bytes | None:
        """The digest of the whole output; jobs with an output return it."""
        return self.expected

    def _disturb(self, trial: Trial, number: int, way: str, what: str) -> bool:
        """Disturb a child, and return whether it was in time."""
        if way == "points":

            def act(at: int, name: str) -> None:
                if at == number:
                    os.kill(os.getpid(), signal.SIGKILL)

            status = _wait(trial.start("killed", _counted(act)))
            wanted = -signal.SIGKILL
        else:
            sent = {"random": signal.SIGKILL, "term": signal.SIGTERM, "interrupt": signal.SIGINT}[way]
            pid = trial.start("killed")
            time.sleep(self.random.uniform(0, self.seconds))
            os.kill(pid, sent)
            status = _wait(pid)
            wanted = 1 if way == "interrupt" else -sent
            if way == "interrupt" and status == 1 and "KeyboardInterrupt" not in trial.log("killed"):
                self.failures.append(f"{what}: ended by {trial.log('killed')}")
        if status is None:
            self.failures.append(f"{what}: the process hung")
        elif status == 0:
            self.seconds *= 0.9  # it was done before: the first run, which was timed, may have been a slow one
            return False
        elif status != wanted and not (way == "interrupt" and status == -signal.SIGINT):
            self.failures.append(f"{what}: ended with {status} instead of {wanted}: {trial.log('killed')}")
        self.kills += 1
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--way", choices=WAYS, default="random")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    _import_all()
    campaign = Campaign(JOBS[arguments.job], arguments.seed)
    if arguments.way == "points":
        points = list(range(campaign.points()))
        # All of them, or as many as asked for, spread evenly.
        step = max(len(points) / max(arguments.kills, 1), 1.0)
        for k in range(min(arguments.kills, len(points))):
            campaign.run(points[int(k * step)], "points")
    elif arguments.way in ("two", "full"):
        for k in range(arguments.kills):
            (campaign.run_two if arguments.way == "two" else campaign.run_full)(k)
    else:
        tries = 0
        while campaign.kills < arguments.kills and tries < 20 * arguments.kills:
            campaign.run(tries, arguments.way)
            tries += 1
    shutil.rmtree(campaign.inputs, ignore_errors=True)
    print(json.dumps({"kills": campaign.kills, "resumed": campaign.resumed, "failures": campaign.failures}))


if __name__ == "__main__":
    main()
