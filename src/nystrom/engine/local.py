"""Blocks in a pool of threads, one BLAS thread each, merged in block order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, partial
from typing import Any, Generic

import numpy as np
from numpy.typing import DTypeLike

from nystrom.devices import on_device, to_host, to_values
from nystrom.engine.base import M, Mergeable, T, TreeMerger, Writing
from nystrom.engine.memory import HELD_BYTES, hold
from nystrom.engine.progress import Progress
from nystrom.engine.threads import blas_threads, resolve_n_jobs
from nystrom.machine import available_cores
from nystrom.rows.base import Block, RowBlocks
from nystrom.rows.device import DeviceRows, SentRows
from nystrom.types import Array

# Seconds to wait for a pool thread to start a block; then the waiting thread computes it.
_PATIENCE = 0.02


class _Thread(threading.local):
    in_pool = False


_this_thread = _Thread()


def _join_pool() -> None:
    _this_thread.in_pool = True


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    # One pool per process: k-means on a sample makes many short passes, and every new thread would allocate its own
    # memory arena and BLAS buffers.
    return ThreadPoolExecutor(n_threads, thread_name_prefix="nystrom", initializer=_join_pool)


if hasattr(os, "register_at_fork"):
    # A forked child inherits the pool object without its threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)


class _Job(Generic[T]):
    """A call in the pool, or in the waiting thread if no pool thread is free.

    All pool threads may be inside steps that wait for this one: a kernel function may use a fitted map, and thereby
    the same pool, from its own thread.
    """

    def __init__(self, pool: ThreadPoolExecutor, function: Callable[[Any], T], argument: Any) -> None:
        self.future: Future[T] = pool.submit(function, argument)
        self._call = partial(function, argument)

    def result(self, patience: float) -> T:
        try:
            return self.future.result(patience)
        except TimeoutError:
            # Either no thread started in time, or the step itself raised TimeoutError, which the future raises again.
            return self._call() if self.future.cancel() else self.future.result()


class LocalEngine:
    """Run passes in this process.

    At most ``n_jobs + 1`` blocks are in flight, whatever the number of rows. The result does not depend on
    ``n_jobs``: a block is always computed by one thread with one BLAS thread, and results merge in block order.

    Parameters
    ----------
    n_jobs : int or None
        Threads.
    progress : Progress, optional
        Receives the number of rows done.
    room : int or None
        Bytes that :meth:`map_rows` may hold in memory; larger results go to a temporary file.
    """

    def __init__(self, n_jobs: int | None = None, progress: Progress | None = None, *, room: int | None = None) -> None:
        self._threads = None if n_jobs is None else resolve_n_jobs(n_jobs)
        self.progress = progress if progress is not None and progress.listens else None
        self.room = room

    @property
    def n_jobs(self) -> int:
        return self._threads or available_cores()

    def reads_here(self, rows: RowBlocks) -> bool:
        return True

    def spare(self, rows: RowBlocks) -> LocalEngine | None:
        # A progress bar shows one pass at a time, and a file has one reader.
        alone = _this_thread.in_pool or self.progress is not None or not rows.in_memory or rows.n_blocks == 1
        return None if alone or self.n_jobs == 1 else LocalEngine(self.n_jobs - 1)

    def _run(self, rows: RowBlocks, step: Callable[[Block], T], label: str) -> Iterator[tuple[int, T]]:
        if self.progress is not None:
            self.progress.start(label, rows.shape[0])
        # A pass inside a step of another pass uses this thread only, because the others may be waiting for it.
        inline = _this_thread.in_pool or (rows.random_access and rows.n_blocks == 1)
        # Rows on a device are computed by the device's own threads.
        inline = inline or ((rows.place is not None or self.n_jobs == 1) and rows.in_memory)
        here = ((block.start, block.X.shape[0], step(block)) for block in rows.iterate())
        try:
            with blas_threads(1):
                for start, n_rows, result in here if inline else self._run_pool(rows, step):
                    if self.progress is not None:
                        self.progress.advance(n_rows)
                    yield start, result
        finally:
            if self.progress is not None:
                self.progress.stop()

    def _run_pool(self, rows: RowBlocks, step: Callable[[Block], T]) -> Iterator[tuple[int, int, T]]:
        # Results do not reference their block, so its memory is free once its step is done.
        def whole(index: int) -> tuple[int, int, T]:
            return given(rows.block(index))

        def given(block: Block) -> tuple[int, int, T]:
            # Set here too: some BLAS libraries, and NumPy's warnings, have one setting per thread.
            with blas_threads(1), np.errstate(all="ignore"):
                return block.start, block.X.shape[0], step(block)

        pending: deque[_Job[tuple[int, int, T]]] = deque()
        n_jobs = self.n_jobs if rows.place is None else 1
        pool = _pool(n_jobs)

        patience = _PATIENCE

        def first_result() -> tuple[int, int, T]:
            nonlocal patience
            result = pending[0].result(patience)  # remove it later, so that after an interrupt it is waited for below
            if pending.popleft().future.cancelled():
                patience = 0.0  # the pool had no free thread, and probably has none for the next block
            return result

        try:
            # With one pool thread, this thread reads the next block while the pool computes.
            if rows.random_access and n_jobs > 1:
                jobs = (_Job(pool, whole, index) for index in range(rows.n_blocks))
            else:
                jobs = (_Job(pool, given, block) for block in rows.iterate())
            for job in jobs:
                pending.append(job)
                if len(pending) > n_jobs:
                    yield first_result()
            while pending:
                yield first_result()
        finally:
            # After an interrupt or an error, drop the blocks that have not started; running ones finish by themselves.
            wait([job.future for job in pending if not job.future.cancel()])

    def fold(self, rows: RowBlocks, step: Callable[[Block], M], *, label: str) -> M:
        merger: TreeMerger[M] = TreeMerger(merge_two)
        for _, result in self._run(rows, step, label):
            merger.push(result)
        # The last merges also use one BLAS thread: sums of long vectors depend on the number of threads.
        with blas_threads(1):
            return merger.result()

    def map(self, rows: RowBlocks, step: Callable[[Block], T], *, label: str) -> Iterator[tuple[int, T]]:
        return self._run(rows, step, label)

    def map_rows(
        self, rows: RowBlocks, step: Callable[[Block], Array], n_columns: int, dtype: DTypeLike, *, label: str
    ) -> RowBlocks:
        if self._stays(rows, n_columns, dtype):
            return self._joined(rows, [to_values(part) for _, part in self._run(rows, step, label)], dtype, label)
        held = hold((rows.shape[0], n_columns), dtype, self._room_beside(rows))

        def write(block: Block) -> None:
            held.write(block.start, to_host(step(block)))

        for _ in self._run(rows, write, label):
            pass
        return self._sent_again(rows, held.rows(rows.block_rows, label))

    def _room_beside(self, rows: RowBlocks) -> int | None:
        """Return the bytes that results may take in memory; limited for rows of a file even without ``max_memory``."""
        return HELD_BYTES if self.room is None and not rows.in_memory else self.room

    def _stays(self, rows: RowBlocks, n_columns: int, dtype: DTypeLike) -> bool:
        """Whether the device of the rows holds a result: if they live there, and it takes a quarter of its room."""
        if rows.home is None:
            return False
        memory = rows.home.memory
        return memory is None or 4 * rows.shape[0] * n_columns * np.dtype(dtype).itemsize <= memory

    def _sent_again(self, rows: RowBlocks, held: RowBlocks) -> RowBlocks:
        """Return a result held on the host, to be computed with on the device if the rows live there."""
        return held if rows.home is None else SentRows(held, rows.home, home=rows.home)

    def _joined(self, rows: RowBlocks, parts: list[Any], dtype: DTypeLike, label: str) -> RowBlocks:
        """Return the result of a pass over rows on a device, held there."""
        assert rows.home is not None
        made = DeviceRows(rows.home.join(parts, dtype), block_rows=rows.block_rows, name=label)
        return made if rows.home.memory is None else made.within(rows.home.memory, rows.block_rows)

    def map_rows_and_fold(
        self, rows: RowBlocks, step: Callable[[Block], tuple[Array, M]], n_columns: int, dtype: DTypeLike, *, label: str
    ) -> tuple[RowBlocks, M]:
        if self._stays(rows, n_columns, dtype):
            merger: TreeMerger[M] = TreeMerger(merge_two)
            parts = []
            for _, (part, one) in self._run(rows, step, label):
                parts.append(to_values(part))
                merger.push(one)
            return self._joined(rows, parts, dtype, label), merger.result()
        held = hold((rows.shape[0], n_columns), dtype, self._room_beside(rows))

        def write(block: Block) -> M:
            made, folded = step(block)
            held.write(block.start, to_host(made))
            return folded

        merged = self.fold(rows, write, label=label)
        return self._sent_again(rows, held.rows(rows.block_rows, label)), merged

    def emit(
        self, rows: RowBlocks, step: Callable[[Block], Array], n_columns: int | None, dtype: DTypeLike, *, label: str
    ) -> Array:
        if rows.home is not None and np.dtype(dtype).kind in "fiub":  # text stays on the host
            parts = [to_values(part) for _, part in self._run(rows, step, label)]
            return rows.home.join(parts, dtype)
        n = rows.shape[0]
        out = np.empty(n if n_columns is None else (n, n_columns), dtype=dtype)

        in_place: Writing | None = getattr(step, "write", None)

        def write(block: Block) -> None:
            piece = out[block.start : block.start + block.X.shape[0]]
            if in_place is not None and not on_device(block.X):
                in_place(block, piece)
            else:
                piece[:] = to_host(step(block))

        for _ in self._run(rows, write, label):
            pass
        return out


def merge_two(a: M, b: M) -> M:
    """Merge two results of a fold; a named function, so that it can be sent to a cluster."""
    return a.merge(b)


__all__ = ["LocalEngine", "Mergeable", "merge_two"]
