"""How a pass over the rows runs: in threads here, or on a Dask cluster.

Dask is imported only on request or when a Dask collection is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nystrom.devices import ENGINES, named_place
from nystrom.engine.base import Engine, Mergeable, Sums, TreeMerger
from nystrom.engine.local import LocalEngine
from nystrom.engine.memory import Footprint, fit_footprint
from nystrom.engine.progress import Progress, Silent, make_progress
from nystrom.engine.threads import blas_threads, resolve_n_jobs
from nystrom.machine import machine_memory
from nystrom.rows.base import RowBlocks
from nystrom.rows.device import SentRows
from nystrom.rows.objects import Objects
from nystrom.rows.validation import register_reader
from nystrom.types import RowsLike

__all__ = [
    "Engine",
    "LocalEngine",
    "Mergeable",
    "Progress",
    "Resources",
    "Silent",
    "Sums",
    "TreeMerger",
    "blas_threads",
    "is_dask_collection",
    "place_rows",
]

FIT_ADVICE = "Fewer landmarks, or rows opened with a smaller block_rows, need less."
_NAMES = ("auto", "local", "dask")


def is_dask_collection(X: object) -> bool:
    """Return whether X is a Dask array, dataframe or series, without importing dask."""
    return callable(getattr(type(X), "__dask_graph__", None))


def _collection_rows(X: RowsLike, *, name: str) -> RowBlocks:
    from nystrom.engine import dask

    return dask.collection_rows(X, name=name)


register_reader(is_dask_collection, _collection_rows)


def place_rows(rows: RowBlocks, engine: object, *, fit: bool = False) -> RowBlocks:
    """Return the rows where ``engine`` reads them; "dask" sends rows in this process to the cluster.

    For a fit, the partitions of a Dask dataframe become the blocks that its rows have in memory, and the cluster keeps
    the rows if its memory allows.
    """
    named = isinstance(engine, str) and engine.partition(":")[0] in ENGINES
    if engine not in _NAMES and not named:
        raise ValueError(
            f"engine must be one of {_NAMES}, or a package and its device, such as 'torch', 'torch:cuda', 'torch:mps', "
            f"'cupy' or 'jax'; got {engine!r}."
        )
    if engine == "local" and rows.on_cluster:
        raise ValueError(
            "engine='local' cannot read a Dask collection; leave engine='auto', or give X.compute() if memory allows."
        )
    if named:
        return _sent(rows, str(engine))
    if engine != "dask" and not (fit and rows.on_cluster):
        return rows
    if isinstance(rows.frame, Objects):
        raise ValueError("engine='dask' cannot send objects, whose kernel is a function here; leave engine='auto'.")
    from nystrom.engine import dask

    placed = dask.ship_rows(rows)
    if not fit:
        return placed
    return dask.held_for_fit(dask.in_usual_blocks(placed) if placed is rows else placed)


def _sent(rows: RowBlocks, engine: str) -> RowBlocks:
    """Return the rows with their blocks on the device that ``engine`` names."""
    if rows.on_cluster:
        raise ValueError(f"engine={engine!r} cannot read a Dask collection; leave engine='auto', or give X.compute().")
    place = named_place(engine)
    if rows.home is None:
        return SentRows(rows, place)
    if rows.home != place:
        raise ValueError(
            f"{rows.name} is an array of {rows.home}, but engine={engine!r} computes with {place}: leave engine='auto' "
            f"to compute where the array is."
        )
    return rows


@dataclass(frozen=True)
class Resources:
    """The resources of a fit: bytes in addition to those in use, threads, and a terminal."""

    max_memory: int | None = None
    n_jobs: int | None = None
    verbose: int = 0

    def engine(
        self,
        rows: RowBlocks,
        work: Footprint | Callable[[], Footprint] | None = None,
        *,
        advice: str = FIT_ADVICE,
        check: bool = False,
    ) -> Engine:
        """Return the engine that reads these rows: on the cluster if they are there, else in this process.

        It has as many threads as ``max_memory`` allows for ``work``.
        Without a limit on the pass, ``work`` is neither used nor called, unless it is to ``check`` the memory of this
        machine.
        """
        progress = None if self.verbose == 0 else make_progress(self.verbose)
        if rows.on_cluster:
            from nystrom.engine import dask

            return dask.DaskEngine(self.n_jobs, progress)
        if self.max_memory is None or work is None:
            if check and isinstance(work, Footprint):
                work.check_machine()
            return LocalEngine(self.n_jobs, progress)
        work = work() if callable(work) else work
        threads = work.threads(self.max_memory, resolve_n_jobs(self.n_jobs), advice=advice)
        return LocalEngine(threads, progress, room=work.room(self.max_memory, threads))

    def factor_fits(self, rows: RowBlocks, m: int) -> bool:
        """Whether a factor of m landmarks fits in ``max_memory``, or in the memory of this machine."""
        budget = self.max_memory or machine_memory()
        return budget is None or rows.on_cluster or fit_footprint(rows, m).least <= budget

    def most_landmarks(self, rows: RowBlocks, held_bytes: Callable[[RowBlocks, int], int], most: int) -> int:
        """Return ``most``, the number of rows, or what ``max_memory`` allows, whichever is least.

        ``held_bytes`` returns the bytes that the selection of m landmarks holds.
        """
        most = min(most, rows.shape[0])
        if self.max_memory is None or rows.on_cluster:
            return most
        low, high = 1, most
        while low < high:
            middle = (low + high + 1) // 2
            fits = fit_footprint(rows, middle, held_bytes(rows, middle)).least <= self.max_memory
            low, high = (middle, high) if fits else (low, middle - 1)
        return low
