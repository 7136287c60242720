"""Measure a contest: interleaved runs, the best time of each contestant, and the memory that it adds."""

from __future__ import annotations

import gc
import re
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# Bytes to touch before each run: as much as any contestant adds.
_TOUCHED_BYTES = 2 * 2**30


@dataclass(frozen=True)
class Result:
    """One contestant of one case.

    ``seconds`` is the best of the repeats, ``processor`` the least processor time (all threads), ``added_mb`` the peak
    above the start, and ``times`` the seconds of each round.
    """

    case: str
    contestant: str
    seconds: float
    added_mb: float
    error: float | None
    note: str = ""
    processor: float | None = None
    times: tuple[float, ...] = ()


def contest(
    case: str,
    contestants: dict[str, Callable[[], Any]],
    *,
    repeat: int,
    judge: Callable[[Any], float | None] | None = None,
    pause: float = 0.1,
    judge_each: bool = False,
) -> list[Result]:
    """Run all contestants in turn, ``repeat`` times round, and keep the best time of each.

    ``judge`` turns what a contestant returns into its error; it is not timed. With ``judge_each`` every round is judged
    and the error is the mean, for contestants that use a new seed each time. A contestant whose first run takes over 20
    seconds is run once, because noise matters little there. Each run starts after a pause of ``pause`` seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    processor: dict[str, list[float]] = {name: [] for name in contestants}
    added: dict[str, float] = {}
    errors: dict[str, list[float]] = {name: [] for name in contestants}
    slow: set[str] = set()
    for _ in range(repeat):
        for name, run in contestants.items():
            if name in slow:
                continue
            gc.collect()
            touch_memory(_TOUCHED_BYTES)
            # BLAS threads of the previous contestant spin for about 30 ms; wait so that each starts on idle cores.
            time.sleep(pause)
            before = _reset_peak()
            start, used = time.perf_counter(), time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = run()
            seconds, used = time.perf_counter() - start, time.process_time() - used
            added[name] = max(added.get(name, 0.0), _peak() - before)
            judged = judge(value) if judge and (judge_each or not times[name]) else None
            if judged is not None:
                errors[name].append(judged)
            times[name].append(seconds)
            processor[name].append(used)
            if seconds > 20:
                slow.add(name)
            del value
    return [
        Result(
            case,
            name,
            min(times[name]),
            added[name],
            statistics.fmean(errors[name]) if errors[name] else None,
            processor=min(processor[name]),
            times=tuple(times[name]),
        )
        for name in contestants
    ]


def touch_memory(size: int) -> None:
    """Write to the given number of bytes of new memory and free them.

    On a virtual machine, the first access to memory may cost seconds per gigabyte: the first contestant would pay.
    """
    np.ones(size, np.uint8)


def _status(field: str) -> float:
    """Return a field of this process's status in MB; NaN if the system does not provide it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    found = re.search(rf"^{field}:\s+(\d+) kB", status.read_text(), re.MULTILINE)
    return int(found.group(1)) / 1024 if found else float("nan")


def _reset_peak() -> float:
    """Reset the peak of resident memory (Linux) and return what is resident now, in MB."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")
    return _status("VmRSS")


def _peak() -> float:
    return _status("VmHWM")
