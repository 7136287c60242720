"""The chunks of Dask collections as blocks of rows."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from operator import getitem
from pathlib import Path
from typing import Any, TypeAlias

import cloudpickle
import dask.array as da
import distributed
import numpy as np
import scipy.sparse as sp
from dask.base import is_dask_collection, optimize
from numpy.typing import DTypeLike

from nystrom.engine.dask.cluster import Graph, Pending, cluster_memory, cluster_threads, fetch, make_token, slug, submit
from nystrom.rows.arrow import ArrowRows
from nystrom.rows.base import Block, RowBlocks, TargetedRows, blocks_to_join, default_block_rows
from nystrom.rows.files import open_rows
from nystrom.rows.sparse import canonical, join_arrays, stack_rows
from nystrom.rows.stream import Piece
from nystrom.rows.validation import column_names, require_number_columns
from nystrom.types import Array, Matrix, issparse

# A Dask array, dataframe or series, and the type of its chunks on a worker; Dask's own annotations are partial.
Collection: TypeAlias = Any
Chunk: TypeAlias = Any

# A task takes a run of neighbouring chunks, so that their sums merge without a message: at most this many bytes ...
_RUN_BYTES = 64 * 2**20
# ... and few enough chunks for this many runs per thread of the cluster, so that all threads end at the same time.
_RUNS_PER_THREAD = 8
# A fit holds its rows on the cluster if they take at most this fraction of the memory of the workers.
_HELD_FRACTION = 0.25


class DaskRows(RowBlocks):
    """The chunks of a Dask array, dense or of CSR blocks, as blocks of rows; they stay where they are.

    Parameters
    ----------
    X : dask.array.Array of shape (n, p)
        n may be unknown; it is then counted on first use.
    y, weight : dask.array.Array, optional
        Chunked as the rows of X.
    name : str
        For messages.
    held : bool
        Whether the cluster holds the chunks as results, so that reading them computes nothing.
    """

    on_cluster = True

    def __init__(
        self, X: Collection, y: Collection = None, weight: Collection = None, *, name: str = "X", held: bool = False
    ) -> None:
        self.X = X
        self.y = y
        self.weight = weight
        self.has_weight = weight is not None
        self.name = name
        self.held = held
        self.dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
        self.is_sparse = issparse(X._meta)
        self.has_target = y is not None

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Rows of each chunk."""
        known = self.X.chunks[0]
        if not np.isnan(known).any():
            return tuple(int(length) for length in known)
        return _count_chunks(self.graph, self.keys)

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
    def graph(self) -> Graph:
        """The tasks that make the chunks: a copy, to add to."""
        return dict(self._optimized)

    @cached_property
    def _optimized(self) -> Graph:
        arrays = [A for A in (self.X, self.y, self.weight) if A is not None]
        lazy = [A for A in arrays if not _is_in_runs(A)]
        graph = {key: task for A in optimize(*lazy) for key, task in A.__dask_graph__().items()}
        # Optimizing drops chunks that are persisted under their own key; tasks must still refer to them by key.
        for A in arrays:
            kept, runs = A.__dask_graph__().items(), _is_in_runs(A)
            held = {key: value for key, value in kept if isinstance(value, distributed.Future)}
            # Without a client, runs are the values themselves.
            graph.update(held or {key: value for key, value in kept if runs and key[0] != A.name})
        return graph

    @cached_property
    def runs(self) -> list[list[int]]:
        """The numbers of the blocks that have rows, in runs of neighbours that one task reads.

        A run has a power of two of blocks, so the merges within it are a subtree of those of all blocks.
        """
        numbers = [i for i, length in enumerate(self.lengths) if length]
        together = 1
        if not self.is_sparse:
            block_bytes = self.block_rows * self.n_columns * self.dtype.itemsize
            together = min(
                blocks_to_join(block_bytes, _RUN_BYTES),
                blocks_to_join(_RUNS_PER_THREAD * cluster_threads(), len(numbers)),
            )
        return [numbers[i : i + together] for i in range(0, len(numbers), together)]

    def arguments(self, i: int) -> list[Any]:
        """Return what a task needs to make block i: its number and first row, and the chunks of X, y and weight."""
        start = int(self.starts[i]) if self.has_lengths else 0
        return [i, start, *(_chunk(A, i) for A in (self.X, self.y, self.weight))]

    @property
    def form(self) -> ChunkForm:
        return ChunkForm(self.dtype, self.is_sparse, self.name)

    def block(self, index: int) -> Block:
        token = make_token()
        graph = self.graph
        graph[f"block-{token}"] = (self.form.block, *self.arguments(index))
        block: Block = fetch(submit(graph, [f"block-{token}"]), "read a block")[0]
        return block

    def take(self, indices: Array) -> Matrix:
        indices = np.asarray(indices)
        order = np.argsort(indices, kind="stable")
        wanted = indices[order]
        bounds = np.searchsorted(wanted, self.starts)
        token = make_token()
        graph, keys = self.graph, []
        for run in self.runs:
            chunks = [i for i in run if bounds[i] < bounds[i + 1]]
            if chunks:
                keys.append((f"take-rows-{token}", run[0]))
                local = [wanted[bounds[i] : bounds[i + 1]] - self.starts[i] for i in chunks]
                graph[keys[-1]] = (self.form.take, [_chunk(self.X, i) for i in chunks], local)
        pieces = [piece for taken in fetch(submit(graph, keys), "take rows") for piece in taken]
        if not pieces:
            return self.form.matrix(self.X._meta.reshape(0, self.shape[1]))
        return stack_rows(pieces, order)

    def with_target(self, y: Collection, weight: Collection = None) -> DaskRows:
        rows = self._like(
            self._with_lengths(),
            self.y if y is None else self._aligned(y, "y"),
            self.weight if weight is None else self._aligned(weight, "sample_weight"),
        )
        return rows.in_runs() if _is_in_runs(self.X) else rows

    def _like(self, X: Collection, y: Collection, weight: Collection, *, held: bool | None = None) -> DaskRows:
        rows = DaskRows(X, y, weight, name=self.name, held=self.held if held is None else held)
        rows.feature_names, rows.frame = self.feature_names, self.frame
        return rows

    def in_runs(self) -> DaskRows:
        """Return the same rows, computed now and kept on the cluster: each run on one worker, without empty chunks."""
        arrays = dict(zip(("X", "y", "weight"), (self._with_lengths(), self.y, self.weight), strict=True))
        loose = {name: A for name, A in arrays.items() if A is not None and not _is_in_runs(A)}
        token, tasks = make_token(), {}
        for name, A in loose.items():
            form = self.form.matrices if name == "X" else list
            for r, run in enumerate(self.runs):
                tasks[(f"{_IN_RUNS}{name.lower()}-{token}", r)] = (form, [_chunk(A, i) for i in run])
        held = dict(zip(tasks, submit({**self.graph, **tasks}, list(tasks)), strict=True))
        for name, A in loose.items():
            meta = A._meta.astype(self.dtype) if name == "X" else A._meta
            arrays[name] = _array_in_runs(f"{_IN_RUNS}{name.lower()}-{token}", held, self.runs, A.chunks, meta)
        return self._like(*arrays.values(), held=True)

    def _with_lengths(self) -> Collection:
        if not np.isnan(self.X.chunks[0]).any():
            return self.X
        return da.Array(self.X.dask, self.X.name, (self.lengths, self.X.chunks[1]), meta=self.X._meta)

    def _aligned(self, values: Collection, name: str) -> Collection:
        """Return one value (or row of values) per row as a Dask array in the chunks of X."""
        values = as_dask_array(values) if is_dask_collection(values) else np.asarray(values)
        chunks = (self.lengths, *((size,) for size in values.shape[1:]))
        if isinstance(values, np.ndarray):
            if len(values) == self.shape[0]:
                return da.from_array(values, chunks=chunks)
        else:
            # Dask may partition a file differently for one column than for several.
            values = _with_known_lengths(values)
            if values.shape[0] == self.shape[0]:
                return values.rechunk(chunks, method="tasks")
        raise ValueError(
            f"{name} has {values.shape[0]} rows but {self.name} has {self.shape[0]}: each row needs its {name}."
        )

    def widened(self, block_rows: int) -> RowBlocks:
        group = blocks_to_join(self.block_rows, block_rows)
        if group == 1 or self.is_sparse:
            return self
        wide = tuple(sum(self.lengths[i : i + group]) for i in range(0, len(self.lengths), group))
        return self.in_chunks(wide)

    def in_chunks(self, lengths: tuple[int, ...]) -> DaskRows:
        """Return the same rows in chunks of these lengths."""

        def cut(values: Collection) -> Collection:
            # Not by "p2p", whose state on the workers does not survive that every pass makes the chunks again.
            return None if values is None else values.rechunk({0: lengths}, method="tasks")

        X = cut(self._with_lengths())
        rows = self._like(X, cut(self.y), cut(self.weight), held=False)
        return rows.in_runs() if self.held else rows

    def target_dtype(self) -> np.dtype | None:
        return None if self.y is None else np.dtype(self.y.dtype)


@dataclass(frozen=True)
class ChunkForm:
    """Convert a chunk to a block: contiguous rows, or CSR, of a float dtype."""

    dtype: np.dtype
    is_sparse: bool
    name: str

    def matrix(self, X: Chunk) -> Matrix:
        if issparse(X) != self.is_sparse:
            found, said = ("sparse", "dense") if issparse(X) else ("dense", "sparse")
            raise ValueError(
                f"A chunk of {self.name} is {found}, but its Dask array says that chunks are {said}. Give the array "
                f"the right meta, as in X.map_blocks(scipy.sparse.csr_matrix, meta=scipy.sparse.csr_matrix((0, 0)))."
            )
        if self.is_sparse:
            return canonical(X, f"a chunk of {self.name}").astype(self.dtype, copy=False)
        return np.ascontiguousarray(X, dtype=self.dtype)

    def block(self, index: int, start: int, X: Chunk, y: Array | None = None, weight: Array | None = None) -> Block:
        return Block(index, start, self.matrix(X), y, weight)

    def matrices(self, chunks: list[Chunk]) -> list[Matrix]:
        return [self.matrix(X) for X in chunks]

    def take(self, chunks: list[Chunk], numbers: list[Array]) -> list[Matrix]:
        return [self.matrix(X)[wanted] for X, wanted in zip(chunks, numbers, strict=True)]


# The beginning of the name of an array whose chunks are kept in runs.
_IN_RUNS = "run-of-"


def _is_in_runs(A: Collection) -> bool:
    return bool(A.name.startswith(_IN_RUNS))


def _array_in_runs(name: str, held: Graph, runs: list[list[int]], chunks: Any, meta: Any) -> Collection:
    """Return the array of the chunks that are kept in lists, one for each run."""
    layer: Graph = {key: value for key, value in held.items() if key[0] == name}
    places = [(r, j) for r, run in enumerate(runs) for j in range(len(run))]
    tail = (0,) * (len(chunks) - 1)
    layer |= {(f"{name}-chunk", i, *tail): (getitem, (name, r), j) for i, (r, j) in enumerate(places)}
    lengths = tuple(chunks[0][i] for run in runs for i in run)
    return da.Array(layer, f"{name}-chunk", (lengths, *chunks[1:]), meta=meta)


def _chunk(A: Collection | None, i: int) -> Any:
    """Return the key of a chunk, or where it is in a run; None without an array."""
    if A is None:
        return None
    key = (A.name, i, *(0,) * (A.ndim - 1))
    return A.dask[key] if _is_in_runs(A) else key


def _count_chunks(graph: Graph, keys: list[Any]) -> tuple[int, ...]:
    """Return the rows of each chunk, counted on the cluster."""
    token = make_token()
    counted = [(f"count-rows-{token}", i) for i in range(len(keys))]
    tasks = {place: (_count_rows, key) for place, key in zip(counted, keys, strict=True)}
    return tuple(fetch(submit({**graph, **tasks}, counted), "count rows"))


def _with_known_lengths(values: Collection) -> Collection:
    """Return a Dask array whose chunks have known lengths."""
    if not np.isnan(values.chunks[0]).any():
        return values
    keys = [(values.name, i, *(0,) * (values.ndim - 1)) for i in range(values.numblocks[0])]
    lengths = _count_chunks(dict(optimize(values)[0].__dask_graph__()), keys)
    return da.Array(values.dask, values.name, (lengths, *values.chunks[1:]), meta=values._meta)


def _count_rows(X: Chunk) -> int:
    return int(X.shape[0])


def held_for_fit(rows: DaskRows) -> DaskRows:
    """Return the rows kept on the cluster for the passes of a fit, or as they are if they take much of its memory."""
    if rows.is_sparse or rows.held:
        return rows
    n, p = rows.shape
    return rows.in_runs() if n * p * rows.dtype.itemsize <= _HELD_FRACTION * cluster_memory() else rows


def held_rows(held: list[Pending], rows: DaskRows, n_columns: int, dtype: DTypeLike, label: str) -> DaskRows:
    name = f"{slug(label)}-held-{make_token()}"
    lengths = tuple(length for length in rows.lengths if length)
    graph = {(name, i, 0): value for i, value in enumerate(held)}
    return DaskRows(da.Array(graph, name, (lengths, (n_columns,)), dtype=dtype), name=label, held=True)


def as_dask_array(X: Collection) -> Collection:
    """Return a Dask array, made from a Dask dataframe or series if needed."""
    return X if isinstance(X, da.Array) else X.to_dask_array()


def collection_rows(X: Collection, *, name: str = "X") -> DaskRows:
    """Return the rows of a Dask array or dataframe."""
    names = None if isinstance(X, da.Array) else column_names(X)
    likeness = X._meta if hasattr(X, "dtypes") else None
    if likeness is not None:
        # Dask's meta frame has no rows, so it cannot show whether object columns hold numbers.
        require_number_columns(likeness, name, objects=False)
    X = as_dask_array(X)
    if X.ndim != 2:
        raise ValueError(f"{name} must have two dimensions (rows and columns); got shape {X.shape}.")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold numbers; got dtype {X.dtype}. Encode or drop the columns that do not.")
    rows = DaskRows(X.rechunk({1: -1}) if X.numblocks[1] > 1 else X, name=name)
    rows.feature_names, rows.frame = names, likeness
    return rows


def in_usual_blocks(rows: DaskRows) -> DaskRows:
    """Return the rows of a Dask dataframe in the blocks that they have in memory: partitions may be large or tiny.

    Chunks of arrays stay as they are, since the user has chosen them.
    """
    if rows.frame is None:
        return rows
    n, p = rows.shape
    size = default_block_rows(p * rows.dtype.itemsize, n)
    chunks = tuple(min(size, n - start) for start in range(0, n, size))
    return rows if chunks == rows.lengths else rows.in_chunks(chunks)


def _parquet_rows(rows: ArrowRows) -> DaskRows:
    """Return rows of Parquet files that the workers read, a row group each, in the same blocks."""
    groups, token, p = rows.row_groups(), make_token(), len(rows.features)
    source, name = f"source-{token}", f"read-parquet-{token}"
    layer: Graph = {source: (cloudpickle.loads, cloudpickle.dumps(rows))}
    layer |= {(name, g): (_read_group, source, str(path), number) for g, (path, number, _) in enumerate(groups)}
    lengths = tuple(count for *_, count in groups)

    def part(word: str, place: int, meta: Array) -> Collection:
        own, tail = f"{word}-{token}", (0,) * (meta.ndim - 1)
        graph = {(own, g, *tail): (getitem, (name, g), place) for g in range(len(groups))}
        return da.Array({**layer, **graph}, own, (lengths, (p,))[: meta.ndim], meta=meta)

    kind = rows.target_dtype()
    y = None if kind is None else part("targets", 1, np.empty(0, object if kind.kind == "U" else kind))
    found = DaskRows(part("rows", 0, np.empty((0, 0), rows.dtype)), y, name=rows.name)
    found.feature_names, found.frame = rows.feature_names, rows.frame
    n, size = rows.shape[0], rows.block_rows
    return found.in_chunks(tuple(min(size, n - start) for start in range(0, n, size)))


def _read_group(rows: ArrowRows, path: str, number: int) -> Piece:
    return rows.read_row_group(Path(path), number)


def write_parquet(values: Collection, path: Path) -> RowBlocks:
    """Let the workers write a lazy matrix to a folder of Parquet files, one per chunk, which appears when complete."""
    import dask.dataframe as dd

    if path.suffix != ".parquet":
        raise ValueError(f"out must end in .parquet, a folder that the workers write to; got {str(path)!r}.")
    if path.exists() and not path.is_dir():
        raise FileExistsError(
            f"out={str(path)!r} is a file, and workers write a folder. Remove it, or give another name."
        )
    partial = path.with_name(path.name + ".partial")
    frame = dd.from_dask_array(values, columns=[f"f{j}" for j in range(values.shape[1])])
    frame.to_parquet(str(partial), write_index=False, overwrite=True, name_function=_part_name)
    if path.is_dir():
        shutil.rmtree(path)
    os.replace(partial, path)
    return open_rows(path)


def _part_name(index: int) -> str:
    # File names keep the order of the rows even when sorted as text.
    return f"{index:09d}.parquet"


def ship_rows(rows: RowBlocks) -> DaskRows:
    """Return rows of any source as rows that the cluster reads, in the same blocks.

    Rows in memory are sent to the workers. Of files only the name is sent, so each worker must find them under it.
    """
    if isinstance(rows, DaskRows):
        return rows
    if isinstance(rows, TargetedRows):
        return ship_rows(rows.rows).with_target(rows.y, rows.weight)
    if isinstance(rows, ArrowRows) and all(str(path).endswith((".parquet", ".pq")) for path in rows.table.paths):
        return _parquet_rows(rows)
    if not rows.random_access:
        raise ValueError(
            f"engine='dask' cannot read {rows.name}: its blocks can only be read in order, from the beginning. Write "
            f"it once to Parquet or .npy, or use engine='local'."
        )
    token = make_token()
    n, p = rows.shape
    lengths = tuple(min(rows.block_rows, n - i * rows.block_rows) for i in range(rows.n_blocks))
    layer: Graph = {}
    name = f"read-rows-{token}"
    in_memory = rows.in_memory
    if not in_memory:
        layer[f"source-{token}"] = (cloudpickle.loads, cloudpickle.dumps(rows))
    for i in range(rows.n_blocks):
        layer[(name, i, 0)] = rows.block(i).X if in_memory else (_read, f"source-{token}", i)
    meta = sp.csr_matrix((0, 0), dtype=rows.dtype) if rows.is_sparse else np.empty((0, 0), rows.dtype)
    X = da.Array(layer, name, (lengths, (p,)), meta=meta)
    shipped = DaskRows(X, name=rows.name)
    shipped.feature_names, shipped.frame = rows.feature_names, rows.frame
    if in_memory:
        shipped = shipped.in_runs()
    if rows.has_target or rows.has_weight:
        # Targets and weights of a file are one or two numbers per row: read them here and send them along.
        beside = [(block.y, block.weight) for block in rows.iterate()]
        y, weight = (join_arrays(part) for part in zip(*beside, strict=True))
        return shipped.with_target(y, weight)
    return shipped


def _read(rows: RowBlocks, index: int) -> Matrix:
    return rows.block(index).X
