"""Passes on a Dask cluster: the only package that imports dask.

Rows are the chunks of a Dask array, one block per chunk. A pass is one graph: one task per run of neighbouring blocks,
which runs the step where the chunks are and merges its results, and one per merge of two runs, as in
:class:`~nystrom.engine.base.TreeMerger`. The tree, and with it every bit of the result, is the same as in the local
engine with blocks of the same size. The data of a step (landmarks, whitening)
is in the graph once. Nothing is scattered, so the scheduler can recompute everything that a lost worker held.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nystrom.exceptions import MissingDependencyError, NotFiniteError

try:
    import cloudpickle
    import dask.array as da
    import distributed
    from dask.highlevelgraph import HighLevelGraph
except ImportError as missing:
    raise MissingDependencyError(
        "dask", "dask", "engine='dask'", install='"dask[distributed]" pandas pyarrow'
    ) from missing

from nystrom.engine.base import M, T, TreeMerger
from nystrom.engine.dask.cluster import (
    Graph,
    Key,
    active_client,
    explained,
    fetch,
    make_token,
    require_package,
    slug,
    submit,
    wait_for,
)
from nystrom.engine.dask.rows import (
    ChunkForm,
    DaskRows,
    collection_rows,
    held_for_fit,
    held_rows,
    in_usual_blocks,
    ship_rows,
    write_parquet,
)
from nystrom.engine.local import LocalEngine, merge_two
from nystrom.engine.progress import Progress, Silent
from nystrom.engine.threads import blas_threads
from nystrom.rows.base import Block, BlockwiseRows, RowBlocks
from nystrom.types import Array, Emitted

# Number of results of a map that reach the client in one message.
_GATHER = 64


@dataclass(frozen=True)
class _Run:
    """A task: make the blocks of a run, one after the other, run the step with one BLAS thread, and gather its results.

    It reports each block to the client if that listens.
    """

    form: ChunkForm
    topic: str | None = None

    def __call__(
        self, gather: Callable[[Iterator[Any]], object], step: Callable[[Block], object], chunks: list[list[Any]]
    ) -> object:
        with blas_threads(1), np.errstate(all="ignore"):
            return gather(self._one(step, arguments) for arguments in chunks)

    def _one(self, step: Callable[[Block], object], arguments: list[Any]) -> object:
        block = self.form.block(*arguments)
        result = step(block)
        if self.topic is not None:
            distributed.get_worker().log_event(self.topic, (block.index, block.stop - block.start))
        return result


def _merged(results: Iterator[M]) -> M:
    merger: TreeMerger[M] = TreeMerger(merge_two)
    for result in results:
        merger.push(result)
    return merger.result()


def _listed_and_merged(pairs: Iterator[tuple[T, M]]) -> tuple[list[T], M]:
    made: list[T] = []

    def learned() -> Iterator[M]:
        for first, second in pairs:
            made.append(first)
            yield second

    return made, _merged(learned())


@dataclass(frozen=True)
class _Emit:
    """A task of a lazy result: the step, or zero rows for an empty chunk."""

    form: ChunkForm
    n_columns: int | None
    dtype: np.dtype
    has_lengths: bool

    def __call__(self, step: Callable[[Block], Array], *arguments: Any) -> Array:
        block = self.form.block(*arguments)
        if block.X.shape[0] == 0:
            return np.empty((0,) if self.n_columns is None else (0, self.n_columns), self.dtype)
        try:
            with blas_threads(1), np.errstate(all="ignore"):
                return np.asarray(step(block), dtype=self.dtype)
        except NotFiniteError as error:
            if self.has_lengths:
                raise
            name, kind, place = error.args
            raise NotFiniteError(name, kind, f"{place} of chunk {block.index}, whose first row has number 0") from None


def _merge(a: M, b: M) -> M:
    # A result may be needed again (by another worker, or after a loss), and merging may overwrite its left
    # side. A copy preserves it; adding gives the same bits.
    with blas_threads(1), np.errstate(all="ignore"):
        return merge_two(copy.deepcopy(a), b)


class DaskEngine:
    """Run passes where the chunks are: on the active ``distributed.Client``, or in threads if there is none.

    Rows in this process, such as a sample, are read here.
    """

    def __init__(self, n_jobs: int | None = None, progress: Progress | None = None) -> None:
        self.progress: Progress = progress or Silent()
        self.local = LocalEngine(n_jobs, progress)
        self._client = active_client()

    @property
    def n_jobs(self) -> int:
        return self.local.n_jobs

    @property
    def room(self) -> int | None:
        return self.local.room

    def reads_here(self, rows: RowBlocks) -> bool:
        return not rows.on_cluster

    def spare(self, rows: RowBlocks) -> LocalEngine | None:
        return self.local.spare(rows) if self.reads_here(rows) else None

    def fold(self, rows: RowBlocks, step: Callable[[Block], M], *, label: str) -> M:
        chunks, task = _peel(rows, step)
        if chunks is None:
            return self.local.fold(rows, step, label=label)
        with self._pass(chunks, label) as (graph, token, run):
            leaves = _leaves(graph, chunks, task, run, _merged, label, token)
            root = _tree(graph, leaves, label, token)
            merged: M = fetch(submit(graph, [root]), label)[0]
            return merged

    def map(self, rows: RowBlocks, step: Callable[[Block], T], *, label: str) -> Iterator[tuple[int, T]]:
        chunks, task = _peel(rows, step)
        if chunks is None:
            yield from self.local.map(rows, step, label=label)
            return
        with self._pass(chunks, label) as (graph, token, run):
            pending = submit(graph, _leaves(graph, chunks, task, run, list, label, token))
            graph.clear()
            many = max(_GATHER // len(chunks.runs[0]), 1)
            for first in range(0, len(pending), many):
                results = fetch(pending[first : first + many], label)
                # Release fetched results, so that the cluster can free them.
                pending[first : first + many] = [None] * len(results)
                for numbers, found in zip(chunks.runs[first : first + many], results, strict=True):
                    yield from zip((int(chunks.starts[i]) for i in numbers), found, strict=True)

    def map_rows(
        self, rows: RowBlocks, step: Callable[[Block], Array], n_columns: int, dtype: DTypeLike, *, label: str
    ) -> RowBlocks:
        chunks, task = _peel(rows, step)
        if chunks is None:
            return self.local.map_rows(rows, step, n_columns, dtype, label=label)
        with self._pass(chunks, label) as (graph, token, run):
            leaves = _leaves(graph, chunks, task, run, list, label, token)
            held = submit(graph, _parts(graph, chunks, leaves, label, token))
            wait_for(held, label)
        return held_rows(held, chunks, n_columns, dtype, label)

    def map_rows_and_fold(
        self, rows: RowBlocks, step: Callable[[Block], tuple[Array, M]], n_columns: int, dtype: DTypeLike, *, label: str
    ) -> tuple[RowBlocks, M]:
        chunks, task = _peel(rows, step)
        if chunks is None:
            return self.local.map_rows_and_fold(rows, step, n_columns, dtype, label=label)
        with self._pass(chunks, label) as (graph, token, run):
            both = _leaves(graph, chunks, task, run, _listed_and_merged, label, token)
            learned = [(f"{slug(label)}-part-{token}", r) for _, r in both]
            graph.update({part: (getitem, pair, 1) for part, pair in zip(learned, both, strict=True)})
            root = _tree(graph, learned, label, token)
            made = [(getitem, pair, 0) for pair in both]
            *held, total = submit(graph, [*_parts(graph, chunks, made, label, token), root])
            wait_for(held, label)
            merged: M = fetch([total], label)[0]
        return held_rows(held, chunks, n_columns, dtype, label), merged

    def emit(
        self, rows: RowBlocks, step: Callable[[Block], Array], n_columns: int | None, dtype: DTypeLike, *, label: str
    ) -> Emitted:
        """Return a lazy Dask array in the chunks of the rows; nothing is computed."""
        chunks, task = _peel(rows, step)
        if chunks is None:
            return self.local.emit(rows, step, n_columns, dtype, label=label)
        if self._client is not None:
            require_package(self._client)
        name = f"{slug(label)}-{make_token()}"
        X = chunks._with_lengths() if chunks.has_lengths else chunks.X
        emit = _Emit(chunks.form, n_columns, np.dtype(dtype), chunks.has_lengths)
        shipped = f"ship-{name}"
        layer: Graph = {shipped: (cloudpickle.loads, cloudpickle.dumps(task))}
        tail = () if n_columns is None else (0,)
        for i in range(chunks.n_blocks):
            layer[(name, i, *tail)] = (emit, shipped, *chunks.arguments(i))
        graph = HighLevelGraph.from_collections(name, layer, dependencies=[X])
        columns = () if n_columns is None else ((n_columns,),)
        meta = np.empty((0,) if n_columns is None else (0, 0), dtype=dtype)
        return da.Array(graph, name, (X.chunks[0], *columns), meta=meta)

    @contextmanager
    def _pass(self, rows: DaskRows, label: str) -> Iterator[tuple[Graph, str, _Run]]:
        """Give the graph to extend, a token for its keys and the function of its tasks; show progress meanwhile."""
        token = make_token()
        client = self._client
        if client is not None:
            # A client that was closed since is no longer active, and the pass would run in threads here.
            with explained(client, label):
                pass
        topic = None if client is None or not self.progress.listens else f"nystrom-{token}"
        seen: set[int] = set()
        lock = threading.Lock()

        def advance(event: tuple[object, tuple[int, int]]) -> None:
            number, size = event[1]
            with lock:
                # Count a block once even if it was computed twice after the loss of a worker.
                if number not in seen:
                    seen.add(number)
                    self.progress.advance(size)

        self.progress.start(label, rows.shape[0])
        if topic is not None:
            client.subscribe_topic(topic, advance)
        try:
            yield rows.graph, token, _Run(rows.form, topic)
            for i, size in enumerate(rows.lengths):
                advance((None, (i, size)))
        finally:
            if topic is not None and client.status == "running":
                client.unsubscribe_topic(topic)
            self.progress.stop()


@dataclass(frozen=True)
class _Changed:
    """A step of wrapped rows, converted to a step of the rows inside."""

    step: Callable[[Block], object]
    change: Callable[[Block], Block]

    def __call__(self, block: Block) -> object:
        return self.step(self.change(block))


def _peel(rows: RowBlocks, step: Callable[[Block], object]) -> tuple[DaskRows | None, Callable[[Block], object]]:
    """Return the chunks inside wrapped rows and the equivalent step for them; None for rows in this process."""
    while isinstance(rows, BlockwiseRows):
        step = _Changed(step, rows.change)
        rows = rows.rows
    if isinstance(rows, DaskRows):
        return rows, step
    if rows.on_cluster:
        raise TypeError(f"{type(rows).__name__} cuts the blocks of {rows.name} again, which a cluster cannot do.")
    return None, step


def _leaves(
    graph: Graph,
    rows: DaskRows,
    step: Callable[[Block], object],
    run: _Run,
    gather: Callable[[Iterator[Any]], object],
    label: str,
    token: str,
) -> list[tuple[str, int]]:
    """Add a task for each run of blocks; return their keys."""
    name = f"{slug(label)}-{token}"
    shipped = f"ship-{name}"
    graph[shipped] = (cloudpickle.loads, cloudpickle.dumps(step))
    leaves = [(name, r) for r in range(len(rows.runs))]
    for key, numbers in zip(leaves, rows.runs, strict=True):
        graph[key] = (run, gather, shipped, [rows.arguments(i) for i in numbers])
    return leaves


def _parts(graph: Graph, rows: DaskRows, made: Sequence[Any], label: str, token: str) -> list[tuple[str, int]]:
    """Add a task for each block that takes its rows out of what its run has made; return their keys.

    ``made`` are keys or tasks that give a list for each run.
    """
    name, parts = f"{slug(label)}-rows-{token}", []
    for run, numbers in zip(made, rows.runs, strict=True):
        for j, i in enumerate(numbers):
            parts.append((name, i))
            graph[parts[-1]] = (getitem, run, j)
    return parts


def _tree(graph: Graph, leaves: Sequence[Key], label: str, token: str) -> Key:
    """Add the merges of :class:`TreeMerger`, as tasks; return the key of the root."""
    name = f"merge-{slug(label)}-{token}"
    made = 0

    def merge(a: Key, b: Key) -> Key:
        nonlocal made
        key = (name, made)
        graph[key] = (_merge, a, b)
        made += 1
        return key

    merger: TreeMerger[Key] = TreeMerger(merge)
    for leaf in leaves:
        merger.push(leaf)
    return merger.result()


__all__ = ["DaskEngine", "DaskRows", "collection_rows", "held_for_fit", "in_usual_blocks", "ship_rows", "write_parquet"]
