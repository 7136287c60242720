"""Passes on a Dask cluster: the only file that imports dask.

Rows are the chunks of a Dask array, one block a chunk. A pass is one graph: a task a block that runs the step where the
chunk is, and a task for each merge of :class:`~nystrom.engine.base.TreeMerger`, so that the tree, and with it every
bit of the result, is that of the local engine with blocks of the same size. What a step carries (landmarks, whitening)
is in the graph once. What a lost worker held is computed again by the scheduler: nothing is scattered, so nothing of a
fit is lost with a worker.
"""

from __future__ import annotations

import copy
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from nystrom.engine.base import M, Progress, Silent, T, TreeMerger
from nystrom.engine.blas import blas_threads
from nystrom.engine.local import LocalEngine, merge_two
from nystrom.exceptions import ClusterLostError, MissingDependencyError
from nystrom.rows.base import Array, Block, Matrix, RowBlocks, TargetedRows, blocks_to_join, canonical

try:
    import cloudpickle
    import dask
    import dask.array as da
    import dask.threaded
    import distributed
    from dask.base import is_dask_collection, optimize
    from dask.highlevelgraph import HighLevelGraph
    from distributed.comm.core import CommClosedError
except ImportError as missing:
    raise MissingDependencyError("dask", "dask", "engine='dask'") from missing

# Results of a map that come to the client in one message.
_GATHER = 64


class DaskRows(RowBlocks):
    """The chunks of a Dask array, dense or of CSR blocks, as blocks of rows; they stay where they are.

    Parameters
    ----------
    X : dask.array.Array of shape (n, p)
        n may be unknown; it is then counted when first asked for.
    y, weight : dask.array.Array, optional
        Chunked as the rows of X.
    name : str
        For messages.
    """

    on_cluster = True

    def __init__(self, X: Any, y: Any = None, weight: Any = None, *, name: str = "X") -> None:
        self.X = X
        self.y = y
        self.weight = weight
        self.name = name
        self.dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
        self.is_sparse = sp.issparse(X._meta)
        self.has_target = y is not None

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Rows of each chunk."""
        known = self.X.chunks[0]
        if not np.isnan(known).any():
            return tuple(int(length) for length in known)
        graph, keys = self.graph, self.keys
        token = _token()
        for i, key in enumerate(keys):
            graph[(f"count-rows-{token}", i)] = (_count_rows, key)
        return tuple(_fetch(_submit(graph, [(f"count-rows-{token}", i) for i in range(len(keys))]), "count rows"))

    @cached_property
    def starts(self) -> Array:
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def has_lengths(self) -> bool:
        return "lengths" in self.__dict__ or not np.isnan(self.X.chunks[0]).any()

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return int(self.starts[-1]), int(self.X.shape[1])

    @property
    def block_rows(self) -> int:  # type: ignore[override]
        return max(self.lengths, default=1)

    @property
    def n_columns(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_blocks(self) -> int:
        return len(self.keys)

    @property
    def keys(self) -> list[Any]:
        return [(self.X.name, i, 0) for i in range(self.X.numblocks[0])]

    @property
    def graph(self) -> dict[Any, Any]:
        """The tasks that make the chunks: a copy, to add to."""
        return dict(self._optimized)

    @cached_property
    def _optimized(self) -> dict[Any, Any]:
        held = [A for A in (self.X, self.y, self.weight) if A is not None]
        graph = {key: task for A in optimize(*held) for key, task in A.__dask_graph__().items()}
        # Optimizing drops chunks that are persisted under their own key; tasks must still see that it is a key.
        for A in held:
            kept = A.__dask_graph__().items()
            graph.update({key: value for key, value in kept if isinstance(value, distributed.Future)})
        return graph

    def arguments(self, i: int) -> tuple[Any, Any, Any, Any, Any]:
        """Return what a task needs to make block i: its number and first row, and the keys of X, y and weight."""
        y, w = self.y, self.weight
        return (
            i,
            int(self.starts[i]) if self.has_lengths else 0,
            (self.X.name, i, 0),
            None if y is None else (y.name, i, *(0,) * (y.ndim - 1)),
            None if w is None else (w.name, i),
        )

    @property
    def form(self) -> _Form:
        return _Form(self.dtype, self.is_sparse, self.name)

    def block(self, index: int) -> Block:
        token = _token()
        graph = self.graph
        graph[f"block-{token}"] = (self.form.block, *self.arguments(index))
        block: Block = _fetch(_submit(graph, [f"block-{token}"]), "read a block")[0]
        return block

    def take(self, indices: Array) -> Matrix:
        indices = np.asarray(indices)
        order = np.argsort(indices, kind="stable")
        wanted = indices[order]
        bounds = np.searchsorted(wanted, self.starts)
        token = _token()
        graph, keys = self.graph, []
        for i in np.flatnonzero(np.diff(bounds)):
            local = wanted[bounds[i] : bounds[i + 1]] - self.starts[i]
            keys.append((f"take-rows-{token}", int(i)))
            graph[keys[-1]] = (self.form.take, self.keys[i], local)
        pieces = _fetch(_submit(graph, keys), "take rows")
        if not pieces:
            return self.form.matrix(self.X._meta.reshape(0, self.shape[1]))
        stacked = sp.vstack(pieces, format="csr") if self.is_sparse else np.concatenate(pieces)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return stacked[back]

    def with_target(self, y: Any, weight: Any = None) -> DaskRows:
        return DaskRows(
            self._with_lengths(),
            self.y if y is None else self._beside(y, "y"),
            self.weight if weight is None else self._beside(weight, "sample_weight"),
            name=self.name,
        )

    def _with_lengths(self) -> Any:
        if not np.isnan(self.X.chunks[0]).any():
            return self.X
        return da.Array(self.X.dask, self.X.name, (self.lengths, self.X.chunks[1]), meta=self.X._meta)

    def _beside(self, values: Any, name: str) -> Any:
        """Return one value (or row of values) a row as a Dask array in the chunks of X."""
        values = _as_dask_array(values) if is_dask_collection(values) else np.asarray(values)
        chunks = (self.lengths, *((size,) for size in values.shape[1:]))
        if isinstance(values, np.ndarray):
            if len(values) == self.shape[0]:
                return da.from_array(values, chunks=chunks)
        elif np.isnan(values.chunks[0]).any() and values.numblocks[0] == len(self.lengths):
            # Columns of the same dataframe: partitions have the lengths of those of X.
            return da.Array(values.dask, values.name, chunks, meta=values._meta)
        elif values.shape[0] == self.shape[0]:
            return values.rechunk(chunks)
        raise ValueError(
            f"{name} has {values.shape[0]} rows but {self.name} has {self.shape[0]}: each row needs its {name}."
        )

    def widened(self, block_rows: int) -> RowBlocks:
        group = blocks_to_join(self.block_rows, block_rows)
        if group == 1 or self.is_sparse:
            return self
        wide = tuple(sum(self.lengths[i : i + group]) for i in range(0, len(self.lengths), group))
        X = self._with_lengths().rechunk({0: wide})
        return DaskRows(_hold(X) if _is_held(self.X) else X, name=self.name)


@dataclass(frozen=True)
class _Form:
    """What a chunk must become to be a block: contiguous rows, or CSR, of a float dtype."""

    dtype: np.dtype[Any]
    is_sparse: bool
    name: str

    def matrix(self, X: Any) -> Matrix:
        if sp.issparse(X) != self.is_sparse:
            found, said = ("sparse", "dense") if sp.issparse(X) else ("dense", "sparse")
            raise ValueError(
                f"A chunk of {self.name} is {found}, but its Dask array says that chunks are {said}. Give the array "
                f"the right meta, as in X.map_blocks(scipy.sparse.csr_matrix, meta=scipy.sparse.csr_matrix((0, 0)))."
            )
        if self.is_sparse:
            return canonical(X).astype(self.dtype, copy=False)
        return np.ascontiguousarray(X, dtype=self.dtype)

    def block(self, index: int, start: int, X: Any, y: Any = None, weight: Any = None) -> Block:
        return Block(index, start, self.matrix(X), y, weight)

    def take(self, X: Any, numbers: Array) -> Matrix:
        return self.matrix(X)[numbers]


def _count_rows(X: Any) -> int:
    return int(X.shape[0])


@dataclass(frozen=True)
class _Run:
    """A task: make the block, run the step with one BLAS thread, tell the client if it wants to know."""

    form: _Form
    topic: str | None = None

    def __call__(self, step: Callable[[Block], Any], *arguments: Any) -> Any:
        block = self.form.block(*arguments)
        with blas_threads(1):
            result = step(block)
        if self.topic is not None:
            distributed.get_worker().log_event(self.topic, (block.index, block.stop - block.start))
        return result


@dataclass(frozen=True)
class _Emit:
    """A task of a lazy result: the step, or no rows where the chunk has none."""

    form: _Form
    n_columns: int | None
    dtype: np.dtype[Any]

    def __call__(self, step: Callable[[Block], Array], *arguments: Any) -> Array:
        block = self.form.block(*arguments)
        if block.X.shape[0] == 0:
            return np.empty((0,) if self.n_columns is None else (0, self.n_columns), self.dtype)
        with blas_threads(1):
            return np.asarray(step(block), dtype=self.dtype)


def _merge(a: M, b: M) -> M:
    # Results of tasks may be needed again (another worker asks, or one was lost), and merging may overwrite its left
    # side. A copy keeps it; adding gives the same bits.
    with blas_threads(1):
        return merge_two(copy.deepcopy(a), b)


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _second(pair: tuple[Any, Any]) -> Any:
    return pair[1]


class DaskEngine:
    """Run passes where the chunks are: on the active ``distributed.Client``, or in threads if there is none.

    Rows that are in this process (a sample, say) are read here.
    """

    def __init__(self, n_jobs: int | None = None, progress: Progress | None = None) -> None:
        self.progress: Progress = progress or Silent()
        self.local = LocalEngine(n_jobs, progress)
        self._client = _client()

    def spare(self, rows: RowBlocks) -> LocalEngine | None:
        return None if isinstance(rows, DaskRows) else self.local.spare(rows)

    def fold(self, rows: RowBlocks, step: Callable[[Block], M], *, label: str) -> M:
        if not isinstance(rows, DaskRows):
            return self.local.fold(rows, step, label=label)
        with self._pass(rows, label) as (graph, token, run):
            leaves = _leaves(graph, rows, step, run, label, token)
            root = _tree(graph, leaves, label, token)
            merged: M = _fetch(_submit(graph, [root]), label)[0]
            return merged

    def map(self, rows: RowBlocks, step: Callable[[Block], T], *, label: str) -> Iterator[tuple[int, T]]:
        if not isinstance(rows, DaskRows):
            yield from self.local.map(rows, step, label=label)
            return
        with self._pass(rows, label) as (graph, token, run):
            leaves = _leaves(graph, rows, step, run, label, token)
            starts = [int(rows.starts[i]) for _, i in leaves]
            pending = _submit(graph, leaves)
            graph.clear()
            for first in range(0, len(leaves), _GATHER):
                results = _fetch(pending[first : first + _GATHER], label)
                # What has been fetched is let go, so that the cluster can free it.
                pending[first : first + _GATHER] = [None] * len(results)
                yield from zip(starts[first : first + _GATHER], results, strict=True)

    def map_rows(
        self, rows: RowBlocks, step: Callable[[Block], Matrix], n_columns: int, dtype: Any, *, label: str
    ) -> RowBlocks:
        if not isinstance(rows, DaskRows):
            return self.local.map_rows(rows, step, n_columns, dtype, label=label)
        with self._pass(rows, label) as (graph, token, run):
            leaves = _leaves(graph, rows, step, run, label, token)
            held = _submit(graph, leaves)
            _wait(held, label)
        return _held_rows(held, rows, n_columns, dtype, label)

    def map_rows_and_fold(
        self, rows: RowBlocks, step: Callable[[Block], tuple[Matrix, M]], n_columns: int, dtype: Any, *, label: str
    ) -> tuple[RowBlocks, M]:
        if not isinstance(rows, DaskRows):
            return self.local.map_rows_and_fold(rows, step, n_columns, dtype, label=label)
        with self._pass(rows, label) as (graph, token, run):
            name = _slug(label)
            both = _leaves(graph, rows, step, run, label, token)
            made = [(f"{name}-rows-{token}", i) for _, i in both]
            learned = [(f"{name}-part-{token}", i) for _, i in both]
            for pair, first, second in zip(both, made, learned, strict=True):
                graph[first] = (_first, pair)
                graph[second] = (_second, pair)
            root = _tree(graph, learned, label, token)
            *held, total = _submit(graph, [*made, root])
            _wait(held, label)
            merged: M = _fetch([total], label)[0]
        return _held_rows(held, rows, n_columns, dtype, label), merged

    def emit(
        self, rows: RowBlocks, step: Callable[[Block], Array], n_columns: int | None, dtype: Any, *, label: str
    ) -> Any:
        """Return a lazy Dask array in the chunks of the rows; nothing is computed."""
        if not isinstance(rows, DaskRows):
            return self.local.emit(rows, step, n_columns, dtype, label=label)
        name = f"{_slug(label)}-{_token()}"
        X = rows._with_lengths() if rows.has_lengths else rows.X
        task = _Emit(rows.form, n_columns, np.dtype(dtype))
        shipped = f"ship-{name}"
        layer: dict[Any, Any] = {shipped: (cloudpickle.loads, cloudpickle.dumps(step))}
        tail = () if n_columns is None else (0,)
        for i in range(rows.n_blocks):
            layer[(name, i, *tail)] = (task, shipped, *rows.arguments(i))
        graph = HighLevelGraph.from_collections(name, layer, dependencies=[X])
        columns = () if n_columns is None else ((n_columns,),)
        meta = np.empty((0,) if n_columns is None else (0, 0), dtype=dtype)
        return da.Array(graph, name, (X.chunks[0], *columns), meta=meta)

    @contextmanager
    def _pass(self, rows: DaskRows, label: str) -> Iterator[tuple[dict[Any, Any], str, _Run]]:
        """Give the graph to add to, a token for its keys and the function of its tasks; show progress meanwhile."""
        token = _token()
        client = self._client
        if client is not None:
            # A client that was closed since is no longer the active one, and the pass would run in threads here.
            with _explained(client, label):
                pass
        topic = None if client is None or isinstance(self.progress, Silent) else f"nystrom-{token}"
        seen: set[int] = set()
        lock = threading.Lock()

        def advance(event: tuple[Any, tuple[int, int]]) -> None:
            number, size = event[1]
            with lock:
                # A block that was computed twice, because a worker was lost, is counted once.
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


def _leaves(
    graph: dict[Any, Any], rows: DaskRows, step: Callable[[Block], Any], run: _Run, label: str, token: str
) -> list[tuple[str, int]]:
    """Add a task for each block that has rows; return their keys."""
    name = f"{_slug(label)}-{token}"
    shipped = f"ship-{name}"
    graph[shipped] = (cloudpickle.loads, cloudpickle.dumps(step))
    leaves = [(name, i) for i, length in enumerate(rows.lengths) if length]
    for key in leaves:
        graph[key] = (run, shipped, *rows.arguments(key[1]))
    return leaves


def _tree(graph: dict[Any, Any], leaves: list[Any], label: str, token: str) -> Any:
    """Add the merges of :class:`TreeMerger`, as tasks; return the key of the root."""
    name = f"merge-{_slug(label)}-{token}"
    made = 0

    def merge(a: Any, b: Any) -> Any:
        nonlocal made
        key = (name, made)
        graph[key] = (_merge, a, b)
        made += 1
        return key

    merger: TreeMerger[Any] = TreeMerger(merge)
    for leaf in leaves:
        merger.push(leaf)
    return merger.result()


def _slug(label: str) -> str:
    """Return the label as Dask's dashboard shows it: its words up to the first number."""
    words = re.findall(r"[a-z]+", re.split(r"[\d,]", label.lower())[0])
    return "-".join(words) or "pass"


def _token() -> str:
    return uuid.uuid4().hex


def _held_rows(held: list[Any], rows: DaskRows, n_columns: int, dtype: Any, label: str) -> DaskRows:
    name = f"{_slug(label)}-held-{_token()}"
    lengths = tuple(length for length in rows.lengths if length)
    graph = {(name, i, 0): value for i, value in enumerate(held)}
    return DaskRows(da.Array(graph, name, (lengths, (n_columns,)), dtype=dtype), name=label)


def _hold(X: Any) -> Any:
    """Compute the chunks and keep them on the cluster."""
    keys = [(X.name, i, 0) for i in range(X.numblocks[0])]
    held = _submit(dict(optimize(X)[0].__dask_graph__()), keys)
    name = f"held-{_token()}"
    return da.Array({(name, i, 0): value for i, value in enumerate(held)}, name, X.chunks, meta=X._meta)


def _is_held(X: Any) -> bool:
    return "held" in X.name


def _client() -> Any:
    """Return the active client, or None."""
    try:
        return distributed.get_client()
    except ValueError:
        return None


def _submit(graph: dict[Any, Any], keys: list[Any]) -> list[Any]:
    """Start computing the keys; return futures, or the values themselves where there is no client."""
    client = _client()
    if client is None:
        return list(dask.threaded.get(graph, keys))
    # What a step carries is in the graph once, on purpose, so its size is no mistake to warn of.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}), _explained(client, "submit"):
        return list(client.get(graph, keys, sync=False))


def _fetch(pending: list[Any], label: str) -> list[Any]:
    client = _client()
    if client is None:
        return pending
    with _explained(client, label):
        return list(client.gather(pending))


def _wait(pending: list[Any], label: str) -> None:
    client = _client()
    if client is None:
        return
    with _explained(client, label):
        distributed.wait(pending)
        for future in pending:
            if future.status != "finished":
                future.result()


@contextmanager
def _explained(client: Any, label: str) -> Iterator[None]:
    """Turn Dask's errors about the cluster into one that says what to do; errors of the step pass through."""
    lost = (
        f"The connection to the Dask scheduler was lost during {label!r}. Nothing of this fit is left; start the "
        f"scheduler, connect a new Client and fit again."
    )
    if client.status not in ("running", "connecting"):
        raise ClusterLostError(f"{lost} The client is {client.status!r}.")
    try:
        yield
    except distributed.KilledWorker as error:
        raise ClusterLostError(
            f"Workers died again and again during {label!r}; most often a chunk and its kernel values do not fit their "
            f"memory. Rechunk X to fewer rows a chunk (X.rechunk((8192, -1))) or see nystrom.plan. Dask says: {error}"
        ) from error
    except (CommClosedError, OSError, TimeoutError, distributed.CancelledError) as error:
        raise ClusterLostError(f"{lost} Dask says: {type(error).__name__} {error}") from error


def _as_dask_array(X: Any) -> Any:
    """Return a Dask array of what is one, or a Dask dataframe or series."""
    return X if isinstance(X, da.Array) else X.to_dask_array()


def collection_rows(X: Any, *, name: str = "X") -> DaskRows:
    """Return the rows of a Dask array or dataframe."""
    X = _as_dask_array(X)
    if X.ndim != 2:
        raise ValueError(f"{name} must have two dimensions (rows and columns); got shape {X.shape}.")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold numbers; got dtype {X.dtype}. Encode or drop the columns that do not.")
    return DaskRows(X.rechunk({1: -1}) if X.numblocks[1] > 1 else X, name=name)


def ship_rows(rows: RowBlocks) -> DaskRows:
    """Return rows of any source as rows that the cluster reads, in the same blocks.

    Rows in memory are sent to the workers; of files only the name is, and each worker must find them under it.
    """
    if isinstance(rows, DaskRows):
        return rows
    if isinstance(rows, TargetedRows):
        return ship_rows(rows.rows).with_target(rows.y, rows.weight)
    if not rows.random_access:
        raise ValueError(
            f"engine='dask' cannot read {rows.name}: its blocks can only be read in order, from the beginning. Write "
            f"it once to .npy, Parquet or Zarr, or use engine='local'."
        )
    token = _token()
    n, p = rows.shape
    lengths = tuple(min(rows.block_rows, n - i * rows.block_rows) for i in range(rows.n_blocks))
    layer: dict[Any, Any] = {}
    name = f"read-rows-{token}"
    in_memory = rows.in_memory
    if not in_memory:
        layer[f"source-{token}"] = (cloudpickle.loads, cloudpickle.dumps(rows))
    for i in range(rows.n_blocks):
        layer[(name, i, 0)] = rows.block(i).X if in_memory else (_read, f"source-{token}", i)
    meta = sp.csr_matrix((0, 0), dtype=rows.dtype) if rows.is_sparse else np.empty((0, 0), rows.dtype)
    X = da.Array(layer, name, (lengths, (p,)), meta=meta)
    return DaskRows(_hold(X) if in_memory else X, name=rows.name)


def _read(rows: RowBlocks, index: int) -> Matrix:
    return rows.block(index).X


__all__ = ["DaskEngine", "DaskRows", "collection_rows", "ship_rows"]
