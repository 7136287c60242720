"""How many threads BLAS may use: one setting per process, which many threads change at once.

threadpoolctl alone is not enough here. Most BLAS libraries have one setting per process, and threadpoolctl lets only
one Python thread change it and silently ignores the others. A limit set in one thread and lifted in another then stays
for ever, or is never set. Passes need the limit for reproducible bits, not only for speed: a product on two threads
rounds differently than on one.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType
from typing import ParamSpec, Protocol, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from nystrom.checks import is_whole
from nystrom.machine import available_cores

P = ParamSpec("P")
R = TypeVar("R")


class BlasLibrary(Protocol):
    """The controller that threadpoolctl has for a loaded BLAS."""

    def get_num_threads(self) -> int | None: ...

    def set_num_threads(self, num_threads: int) -> object: ...


class BlasLimiter:
    """Keep every library at the smallest number of threads that any active limit requests.

    Libraries with one setting per process get that number from the first thread that sets a limit, and are reset by the
    last one that lifts its limit. Libraries on OpenMP have one setting per thread; they are set in the thread that sets
    the limit.
    """

    def __init__(self, libraries: Sequence[BlasLibrary]) -> None:
        per_thread = [getattr(library, "threading_layer", "") == "openmp" for library in libraries]
        self.of_thread = [library for library, own in zip(libraries, per_thread, strict=True) if own]
        self._of_process = [library for library, own in zip(libraries, per_thread, strict=True) if not own]
        # Reentrant: the garbage collector may end a limit while this thread holds the lock.
        self.lock = threading.RLock()
        self._asked: dict[weakref.ref[Limit], int] = {}
        self._before: list[int | None] = []
        # The current number of threads; 0 for the user's setting, None while it is being changed.
        self._now: int | None = 0

    def ask(self, key: weakref.ref[Limit] | None, count: int = 0) -> None:
        """Limit BLAS to ``count`` threads until ``key`` requests 0: no limit."""
        with self.lock:
            if count and key is not None:
                if self._now == 0:
                    self._before = [library.get_num_threads() for library in self._of_process]
                self._asked[key] = count
            else:
                self._asked.pop(key, None)  # type: ignore[arg-type]
            # An interrupt may stop this halfway; the next call repeats it.
            while (wanted := min(self._asked.values(), default=0)) != self._now:
                self._now = None
                for library, threads in zip(self._of_process, self._before, strict=True):
                    _set(library, threads, wanted)
                self._now = wanted

    def forget_parent(self) -> None:
        """Lift every limit in a child process, which has none of the threads that set one."""
        self.lock = threading.RLock()
        self._asked.clear()
        self.ask(None)


class Limit:
    """One limit on BLAS threads, for a ``with`` block; :meth:`release` may be called repeatedly.

    An interrupt (Ctrl-C) can strike at the first instruction of ``__exit__``, before any of its lines. The limit then
    ends when the object is freed with the traceback. Public entry points call ``release`` in their own ``finally`` so
    that they need not wait for that.
    """

    def __init__(self, limiter: BlasLimiter, count: int) -> None:
        self._limiter = limiter
        self._count = count
        self._key: weakref.ref[Limit] | None = None
        self._thread = 0
        self._own_before: list[tuple[BlasLibrary, int | None]] = []

    def __enter__(self) -> None:
        try:
            # Ends a limit that is freed without ``release``; after ``release`` there is no reference to call back.
            self._key = weakref.ref(self, self._limiter.ask)
            self._thread = threading.get_ident()
            self._own_before = [(library, library.get_num_threads()) for library in self._limiter.of_thread]
            for library, threads in self._own_before:
                _set(library, threads, self._count)
            self._limiter.ask(self._key, self._count)
        except BaseException:
            self.release()
            raise

    def __exit__(self, *error: object) -> None:
        try:
            self.release()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """End the limit."""
        if self._key is None:
            return
        self._limiter.ask(self._key)
        if threading.get_ident() == self._thread:
            for library, threads in self._own_before:
                _set(library, threads)
        self._key = None


def _set(library: BlasLibrary, threads: int | None, most: int = 0) -> None:
    # Never more than the user allowed with OMP_NUM_THREADS or an enclosing threadpool_limits.
    if most:
        threads = most if threads is None else min(most, threads)
    # Control from any thread, and keep it: the lock above orders the changes.
    # Older releases of threadpoolctl have no such control.
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    if threads is not None:
        library.set_num_threads(threads)
    if release is not None:
        release(force=True)


class _Process:
    """The limiter of this process, created on first use: finding the BLAS libraries takes milliseconds."""

    creating = threading.Lock()
    limiter: BlasLimiter | None = None
    # The limiter whose lock is held during a fork; another may be created meanwhile.
    locked: BlasLimiter | None = None


def blas_threads(count: int) -> Limit:
    """Limit BLAS to at most ``count`` threads inside the ``with`` block, whatever thread enters or leaves it."""
    limiter = _Process.limiter
    if limiter is None:
        with _Process.creating:
            limiter = _Process.limiter or BlasLimiter(ThreadpoolController().select(user_api="blas").lib_controllers)
            _Process.limiter = limiter
    return Limit(limiter, count)


def _before_fork() -> None:
    # Hold the lock during a fork, so that the child never sees a half-changed setting.
    _Process.locked = _Process.limiter
    if _Process.locked is not None:
        _Process.locked.lock.acquire()


def _after_fork_in_parent() -> None:
    if _Process.locked is not None:
        _Process.locked.lock.release()


def _after_fork_in_child() -> None:
    _Process.creating = threading.Lock()
    if _Process.limiter is not None:
        _Process.limiter.forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Limit BLAS to one thread during a public call, including the algebra outside of passes.

    Parallel work comes from passes, whose threads sleep while they wait. BLAS threads spin: with other work on the same
    cores, a fit with two of them took ten times as long as with one, and its bits depended on their number. NumPy's
    floating-point warnings, and its errors after ``np.seterr(all="raise")``, are off meanwhile: overflow and underflow
    are expected here, and their results are checked by value.
    """

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        limit = blas_threads(1)
        try:
            with limit, np.errstate(all="ignore"):
                return function(*args, **kwargs)
        finally:
            limit.release()

    return limited


def limit_methods(cls: type, package: str) -> None:
    """Wrap every public method that ``cls`` inherits from classes of ``package`` in :func:`one_blas_thread`."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] != package:
            continue
        for name, method in list(vars(base).items()):
            if name.startswith("_") or not isinstance(method, FunctionType) or name in vars(base).get("_limited", ()):
                continue
            setattr(base, name, one_blas_thread(method))
            base._limited = (*vars(base).get("_limited", ()), name)  # type: ignore[attr-defined]


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


__all__ = [
    "BlasLimiter",
    "Limit",
    "blas_threads",
    "limit_methods",
    "one_blas_thread",
    "resolve_n_jobs",
]
