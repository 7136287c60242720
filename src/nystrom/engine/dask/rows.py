"""The chunks of Dask collections as blocks of rows."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import cloudpickle
import dask.array as da
import distributed
import numpy as np
import scipy.sparse as sp
from dask.base import is_dask_collection, optimize
from numpy.typing import DTypeLike

from nystrom.engine.dask.cluster import Graph, Pending, fetch, make_token, slug, submit
from nystrom.rows.arrow import ArrowRows
from nystrom.rows.base import Block, RowBlocks, TargetedRows, blocks_to_join, default_block_rows
from nystrom.rows.files import open_rows
from nystrom.rows.sparse import canonical, join_arrays, stack_rows
from nystrom.rows.validation import column_names, require_number_columns
from nystrom.types import Array, Matrix, issparse

# A Dask array, dataframe or series, and the type of its chunks on a worker; Dask's own annotations are partial.
Collection: TypeAlias = Any
Chunk: TypeAlias = Any


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
        Whether the cluster holds the chunks of X as results, so that reading them computes nothing.
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
        held = [A for A in (self.X, self.y, self.weight) if A is not None]
        graph = {key: task for A in optimize(*held) for key, task in A.__dask_graph__().items()}
        # Optimizing drops chunks that are persisted under their own key; tasks must still refer to them by key.
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
        for i in np.flatnonzero(np.diff(bounds)):
            local = wanted[bounds[i] : bounds[i + 1]] - self.starts[i]
            keys.append((f"take-rows-{token}", int(i)))
            graph[keys[-1]] = (self.form.take, self.keys[i], local)
        pieces = fetch(submit(graph, keys), "take rows")
        if not pieces:
            return self.form.matrix(self.X._meta.reshape(0, self.shape[1]))
        return stack_rows(pieces, order)

    def with_target(self, y: Collection, weight: Collection = None) -> DaskRows:
        rows = DaskRows(
            self._with_lengths(),
            self.y if y is None else self._beside(y, "y"),
            self.weight if weight is None else self._beside(weight, "sample_weight"),
            name=self.name,
            held=self.held,
        )
        rows.feature_names, rows.frame = self.feature_names, self.frame
        return rows

    def _with_lengths(self) -> Collection:
        if not np.isnan(self.X.chunks[0]).any():
            return self.X
        return da.Array(self.X.dask, self.X.name, (self.lengths, self.X.chunks[1]), meta=self.X._meta)

    def _beside(self, values: Collection, name: str) -> Collection:
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
        rows = DaskRows(
            hold_chunks(X) if self.held else X, cut(self.y), cut(self.weight), name=self.name, held=self.held
        )
        rows.feature_names, rows.frame = self.feature_names, self.frame
        return rows

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

    def take(self, X: Chunk, numbers: Array) -> Matrix:
        return self.matrix(X)[numbers]


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


def hold_chunks(X: Collection) -> Collection:
    """Compute the chunks and keep them on the cluster."""
    keys = [(X.name, i, 0) for i in range(X.numblocks[0])]
    held = submit(dict(optimize(X)[0].__dask_graph__()), keys)
    name = f"held-{make_token()}"
    return da.Array({(name, i, 0): value for i, value in enumerate(held)}, name, X.chunks, meta=X._meta)


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


def in_usual_blocks(rows: DaskRows, block_rows: int | None = None) -> DaskRows:
    """Return the rows of a Dask dataframe in the blocks that they have in memory: partitions may be large or tiny.

    Chunks of arrays stay as they are, since the user has chosen them.
    """
    if rows.frame is None:
        return rows
    n, p = rows.shape
    size = block_rows or default_block_rows(p * rows.dtype.itemsize, n)
    chunks = tuple(min(size, n - start) for start in range(0, n, size))
    return rows if chunks == rows.lengths else rows.in_chunks(chunks)


def _parquet_rows(rows: ArrowRows) -> DaskRows:
    """Return rows of Parquet files that the workers read directly, each a part of them, in the same blocks."""
    import dask.dataframe as dd

    names = [*rows.features, *([rows.target_name] if rows.target_name else [])]
    frame = dd.read_parquet([str(path) for path in rows.table.paths], columns=names, split_row_groups=True)
    found = collection_rows(frame[rows.features].astype(rows.dtype), name=rows.name)
    found = in_usual_blocks(found, rows.block_rows)
    if rows.target_name is None:
        return found
    beside = found.with_target(frame[rows.target_name])
    beside.feature_names, beside.frame = found.feature_names, found.frame
    return beside


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
    shipped = DaskRows(hold_chunks(X) if in_memory else X, name=rows.name, held=in_memory)
    shipped.feature_names, shipped.frame = rows.feature_names, rows.frame
    if rows.has_target or rows.has_weight:
        # Targets and weights of a file are one or two numbers per row: read them here and send them along.
        beside = [(block.y, block.weight) for block in rows.iterate()]
        y, weight = (join_arrays(part) for part in zip(*beside, strict=True))
        return shipped.with_target(y, weight)
    return shipped


def _read(rows: RowBlocks, index: int) -> Matrix:
    return rows.block(index).X
