"""The cores and the memory available to this process: those of the machine, or of its container.

``joblib.cpu_count`` is not enough: it reads the quota of the outermost control group only, does not cover memory, and
ignores OMP_NUM_THREADS.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

# Parent of /proc and /sys; a parameter below, so that tests can replace it.
_SYSTEM = Path("/")
# Environment variables by which users limit the threads of numerical libraries.
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def available_cores() -> int:
    """Return the cores available to this process: by affinity, container quota, and the user's OMP_NUM_THREADS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    settings = (os.environ.get(name, "").partition(",")[0].strip() for name in _THREAD_SETTINGS)
    limits = [int(setting) for setting in settings if setting.isdecimal() and int(setting) > 0]
    return int(min(cores, container_cores(_SYSTEM), *limits))


def machine_memory() -> float | None:
    """Return the bytes of memory of this machine or container; None if the system does not report it."""
    limits = [_pages("SC_PHYS_PAGES"), container_memory(_SYSTEM)]
    known = [limit for limit in limits if limit is not None and limit < math.inf]
    return min(known) if known else None


def free_memory() -> float | None:
    """Return the bytes of free memory; None if the system does not report it."""
    free = _pages("SC_AVPHYS_PAGES")
    return None if free is None else max(0.0, min(free, container_free_memory(_SYSTEM)))


def _pages(name: str) -> float | None:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf(name))
    except (AttributeError, OSError, ValueError):  # no such call on Windows, no such name on macOS
        return None


@cache
def container_cores(system: Path) -> float:
    """Return the cores that the quotas of the control groups allow, rounded up; infinity without a quota."""
    cores = math.inf
    for group in _groups(system, "cpu"):
        quota, period = _numbers(group / "cpu.max", 2) or (
            *(_numbers(group / "cpu.cfs_quota_us", 1) or (math.inf,)),
            *(_numbers(group / "cpu.cfs_period_us", 1) or (100_000.0,)),
        )
        # Version 1 writes -1 for no quota.
        if 0 < quota < math.inf and period > 0:
            cores = min(cores, math.ceil(quota / period))
    return cores


@cache
def container_memory(system: Path) -> float:
    """Return the bytes that the control groups allow; infinity without a limit."""
    return min((limit for limit, _ in _memory_limits(system)), default=math.inf)


def container_free_memory(system: Path) -> float:
    """Return the free bytes within the limits of the control groups; infinity without a limit."""
    return min((limit - used for limit, used in _memory_limits(system)), default=math.inf)


def _memory_limits(system: Path) -> Iterator[tuple[float, float]]:
    """Yield the limit and the usage of each control group."""
    for group in _groups(system, "memory"):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            found = _numbers(group / limit, 1)
            if found is not None:
                yield found[0], (_numbers(group / used, 1) or (0.0,))[0]


def _groups(system: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups and of their parents, which limit it too.

    Inside a container the path may be the host's and missing here; the top folder is then that of the container.
    """
    try:
        lines = (system / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        top = system / "sys/fs/cgroup" / controllers  # version 2 has one tree, without names of controllers
        if not top.is_dir():
            top = system / "sys/fs/cgroup" / controller
        own = PurePosixPath(path.lstrip("/"))
        yield from (top / part for part in (own, *own.parents))


def _numbers(path: Path, count: int) -> tuple[float, ...] | None:
    """Return the numbers at the beginning of a file, infinity for "max"; None if there are none."""
    try:
        words = path.read_text(encoding="utf-8").split()[:count]
        found = tuple(math.inf if word == "max" else float(word) for word in words)
    except (OSError, ValueError):
        return None
    return found if len(found) == count else None
