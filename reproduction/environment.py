"""The machine, the versions and the memory that a row was made with."""

from __future__ import annotations

import platform
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Self

from nystrom.machine import available_cores

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python, this library and what it computes with."""
    found = {"python": platform.python_version()}
    for package in ("nystrom", "numpy", "scipy", "scikit-learn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            from nystrom import __version__

            found[package] = __version__ if package == "nystrom" else "unknown"
    return found


@cache
def machine() -> str:
    """Return one line on the processor, the cores this process may use, the memory and the system."""
    model, memory = platform.processor() or platform.machine(), ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
        kilobytes = int(Path("/proc/meminfo").read_text().split()[1])
        memory = f", {kilobytes / 2**20:.0f} GiB"
    except (OSError, ValueError, IndexError):
        pass
    return f"{model}, {available_cores()} cores{memory}, {platform.system()}"


class Clock:
    """Measure the wall-clock and the processor seconds of a ``with`` block.

    Processor seconds are summed over the threads of this process and exclude other processes, so they are comparable on
    a busy machine.
    """

    wall = 0.0
    cpu = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wall = time.perf_counter() - self._began[0]
        self.cpu = time.process_time() - self._began[1]

    def plus(self, other: Clock) -> Clock:
        """Return the sum of both times."""
        both = Clock()
        both.wall, both.cpu = self.wall + other.wall, self.cpu + other.cpu
        return both


class PeakMemory:
    """Measure how far the resident memory of this process rises inside a ``with`` block, in megabytes.

    Needs Linux, where the high-water mark can be reset; elsewhere ``megabytes`` is NaN.
    """

    megabytes = float("nan")
    _before: int | None = None

    def __enter__(self) -> Self:
        try:
            _RESET.write_text("5")
            self._before = _read_kilobytes("VmRSS:")
        except (OSError, ValueError):
            self._before = None  # no /proc here
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            self.megabytes = max(_read_kilobytes("VmHWM:") - self._before, 0) / 1024


def _read_kilobytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise ValueError(f"{_STATUS} has no field {field!r}.")
