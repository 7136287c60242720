"""Feed damaged files to child processes and count what became of them.

``python tests/fuzz/fuzz_runner.py --count 10000 rows.npz`` prints a line per format, and each failure with the number
that repeats it (``--first NUMBER --count 1``).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_HERE = Path(__file__).parent
_PATIENCE = 20.0  # seconds for one file, without those in which the child had no processor
_SLOW_START = 120.0  # seconds for the imports
_TICK = 0.05


@dataclass
class Tally:
    """What became of the damaged files of one format."""

    name: str
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, number: int, outcome: str) -> None:
        kind = outcome.split(":")[0]
        self.outcomes[kind] += 1
        if kind not in ("read", "refused", "memory"):
            self.failures.append(f"{self.name} file {number}: {outcome}")

    def __str__(self) -> str:
        shown = ", ".join(f"{count} {kind}" for kind, count in sorted(self.outcomes.items()))
        return f"{self.name}: {sum(self.outcomes.values())} damaged files: {shown}; {len(self.failures)} failures"


def fuzz(name: str, count: int, first: int = 0) -> Tally:
    """Damage ``count`` files and read them; a child that dies or hangs is replaced, and the file is named."""
    tally = Tally(name)
    stop = first + count
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        while first < stop:
            done = _run_child([name], first, stop, Path(folder))
            for (_, number), outcome in done.items():
                tally.add(number, outcome)
            first = max(number for _, number in done) + 1
    return tally


def fuzz_few(names: Sequence[str], count: int) -> list[Tally]:
    """Read a few damaged files of many formats in one child, to save the imports."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        done = _run_child(names, 0, count, Path(folder))
    tallies = {name: Tally(name) for name in names}
    for (name, number), outcome in done.items():
        tallies[name].add(number, outcome)
    return list(tallies.values())


def _run_child(names: Sequence[str], first: int, stop: int, folder: Path) -> dict[tuple[str, int], str]:
    """Run one child to its end, and return what became of the files that it looked at; the last may have ended it."""
    log = folder / "log"
    log.unlink(missing_ok=True)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "TMPDIR": str(folder)}
    command = [sys.executable, str(_HERE / "fuzz_child.py"), ",".join(names), str(first), str(stop), str(folder)]
    with (folder / "errors").open("wb") as errors:
        child = subprocess.Popen(command, stderr=errors, stdout=errors, env=environment)
        hung = _wait(child, log)
    begun, done = _read(log)
    unfinished = begun - done.keys()
    for file in unfinished:
        how = "hang" if hung else f"signal {-child.returncode}" if child.returncode < 0 else "the child ended"
        done[file] = f"{how}: {_tail(folder / 'errors')}"
    if child.returncode and not unfinished:  # between two files: the mistake is in this harness
        raise RuntimeError(f"the child for {names} failed: {_tail(folder / 'errors')}")
    return done


def _wait(child: subprocess.Popen[bytes], log: Path) -> bool:
    """Wait for the child's end; kill it, and return True, if a file takes too long."""
    seen, spent, clock, worked = b"", 0.0, time.monotonic(), _worked(child)[0]
    while child.poll() is None:
        time.sleep(_TICK)
        before, clock = clock, time.monotonic()
        last, (worked, waits) = worked, _worked(child)
        # On a busy machine the child may want a processor and have none, or be stopped, as this process then is.
        spent += worked - last if waits else min(clock - before, 2 * _TICK)
        now = _last_bytes(log)
        if now != seen:
            seen, spent = now, 0.0
        # Between two formats there are imports.
        elif spent > (_PATIENCE if seen.endswith(b"begun\n") else _SLOW_START):
            child.kill()
            child.wait()
            return True
    return False


def _worked(child: subprocess.Popen[bytes]) -> tuple[float, bool]:
    """Return the seconds of processor time that the child has had, and whether a thread of it wants more."""
    ticks, runnable = 0, False
    with suppress(OSError):  # a thread, or the child, that is gone
        for thread in Path(f"/proc/{child.pid}/task").iterdir():
            fields = (thread / "stat").read_text().rpartition(")")[2].split()
            runnable |= fields[0] == "R"
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), runnable


def _last_bytes(log: Path) -> bytes:
    if not log.exists():
        return b""
    with log.open("rb") as stream:
        stream.seek(max(log.stat().st_size - 100, 0))
        return stream.read()


def _read(log: Path) -> tuple[set[tuple[str, int]], dict[tuple[str, int], str]]:
    begun: set[tuple[str, int]] = set()
    done: dict[tuple[str, int], str] = {}
    for line in log.read_text(errors="replace").splitlines() if log.exists() else []:
        name, number, outcome = line.split(" ", 2)
        if outcome == "begun":
            begun.add((name, int(number)))
        else:
            done[name, int(number)] = outcome
    return begun, done


def _tail(path: Path) -> str:
    return " ".join(path.read_text(errors="replace").split())[-400:]


def main() -> int:
    from fuzz_formats import FORMATS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("--count", type=int, default=10_000, help="damaged files per format")
    parser.add_argument("--first", type=int, default=0, help="number of the first, to repeat one")
    arguments = parser.parse_args()
    failures = 0
    for name in arguments.formats or FORMATS:
        tally = fuzz(name, arguments.count, arguments.first)
        print(tally, flush=True)
        for failure in tally.failures[:20]:
            print("   ", failure, flush=True)
        failures += len(tally.failures)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
