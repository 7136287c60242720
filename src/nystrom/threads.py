"""How many threads BLAS may use: one setting of the process that many threads ask for at once.

threadpoolctl alone is not enough here. The setting of most BLAS libraries is the process's, and threadpoolctl lets only
one Python thread change it and ignores the others without a word, so that a limit taken in one thread and lifted in
another stays for good, or never comes. Passes need the limit for their bits, not only for their speed: a product on two
threads rounds otherwise than on one.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Protocol

from threadpoolctl import ThreadpoolController

from nystrom.checks import is_whole


class BlasLibrary(Protocol):
    """What threadpoolctl knows of a loaded BLAS."""

    def get_num_threads(self) -> int | None: ...

    def set_num_threads(self, num_threads: int) -> object: ...


class BlasLimiter:
    """Keeps every library at the smallest number of threads that anyone inside asks for.

    Libraries whose setting is the process's go to that number with the first thread that asks, and back with the last
    one that leaves, whichever it is. Libraries on OpenMP have a setting for each thread; they are set in the thread
    that asks.
    """

    def __init__(self, libraries: Sequence[BlasLibrary]) -> None:
        per_thread = [getattr(library, "threading_layer", "") == "openmp" for library in libraries]
        self._of_thread = [library for library, own in zip(libraries, per_thread, strict=True) if own]
        self._of_process = [library for library, own in zip(libraries, per_thread, strict=True) if not own]
        self._lock = threading.Lock()
        self._asked: Counter[int] = Counter()
        self._before: list[int | None] = []
        self._now = 0

    @contextmanager
    def __call__(self, count: int) -> Iterator[None]:
        """Limit BLAS to at most ``count`` threads inside the ``with`` block."""
        own_before = [library.get_num_threads() for library in self._of_thread]
        for library, threads in zip(self._of_thread, own_before, strict=True):
            _set(library, _at_most(count, threads))
        with self._lock:
            if not self._asked:
                self._before = [library.get_num_threads() for library in self._of_process]
            self._asked[count] += 1
            self._apply()
        try:
            yield
        finally:
            with self._lock:
                self._asked[count] -= 1
                self._asked += Counter()  # drops what nobody asks for
                self._apply()
            for library, threads in zip(self._of_thread, own_before, strict=True):
                _set(library, threads)

    def _apply(self) -> None:
        wanted = min(self._asked, default=0)
        if wanted == self._now:
            return
        self._now = wanted
        for library, threads in zip(self._of_process, self._before, strict=True):
            _set(library, _at_most(wanted, threads) if wanted else threads)


def _at_most(count: int, before: int | None) -> int:
    # Never more than the user allowed, with OMP_NUM_THREADS or a threadpool_limits around the fit.
    return count if before is None else min(count, before)


def _set(library: BlasLibrary, threads: int | None) -> None:
    # Control is taken from whichever thread has it, and left to nobody: the lock above is what orders the changes.
    # Older releases of threadpoolctl have no such control.
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    if threads is not None:
        library.set_num_threads(threads)
    if release is not None:
        release(force=True)


_creating = threading.Lock()


@cache
def _found() -> BlasLimiter:
    # Looking the BLAS libraries up costs milliseconds, so it is done once for the process.
    return BlasLimiter(ThreadpoolController().select(user_api="blas").lib_controllers)


if hasattr(os, "register_at_fork"):
    # A child process has none of the threads that asked.
    os.register_at_fork(after_in_child=_found.cache_clear)


def blas_threads(count: int) -> AbstractContextManager[None]:
    """Limit BLAS to at most ``count`` threads inside the ``with`` block, whatever thread enters or leaves it."""
    with _creating:
        limiter = _found()
    return limiter(count)


__all__ = ["BlasLimiter", "blas_threads"]


def available_cores() -> int:
    """Return the cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_n_jobs(n_jobs: int | None) -> int:
    """Return the number of threads: all cores for None or -1, all but k - 1 for -k."""
    cores = available_cores()
    if n_jobs is None:
        return cores
    if not is_whole(n_jobs) or n_jobs == 0:
        raise ValueError(
            f"n_jobs must be None, a positive number of threads, or negative to count back from all "
            f"cores (-1 is all of them); got {n_jobs!r}."
        )
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))
