"""How a machine passes over rows: checked once, within its memory and threads, to an array or to a file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from nystrom.engine import Engine, make_engine, place_rows
from nystrom.estimators.column_names import check_columns
from nystrom.estimators.display import DisplayMixin
from nystrom.factor import NystromMap
from nystrom.memory import Footprint, emit_footprint, parse_memory
from nystrom.output import describe_job, write_rows
from nystrom.progress import make_progress
from nystrom.rows import Block, RowBlocks, as_blocks, require_finite
from nystrom.threads import resolve_n_jobs
from nystrom.types import Array, Emitted, Matrix, OutPath, RowsLike

_FIT_ADVICE = "Fewer landmarks, or rows opened with a smaller block_rows, need less."
_EMIT_ADVICE = "The result itself counts: transform(X, out='features.npy') writes it to a file instead."


class PassMixin(DisplayMixin):
    """Passes over rows by the parameters of a machine: its engine, and what it emits for each row."""

    max_memory: str | float | None
    n_jobs: int | None
    engine: str
    verbose: int
    map_: NystromMap
    landmarks_: Matrix

    def _engine(self, rows: RowBlocks, work: Footprint | None = None, *, advice: str = _FIT_ADVICE) -> Engine:
        """Return the engine for these rows, with as many threads as ``max_memory`` allows for ``work``."""
        budget = parse_memory(self.max_memory)
        progress = make_progress(self.verbose)
        if budget is None or rows.on_cluster:
            return make_engine(rows, self.n_jobs, progress)
        if work is None:
            work = emit_footprint(rows, self.landmarks_.shape[0] if hasattr(self, "landmarks_") else 0, 1)
        threads = work.threads(budget, resolve_n_jobs(self.n_jobs), advice=advice)
        return make_engine(rows, threads, progress, room=work.room(budget, threads))

    def _check_X(self, X: RowsLike, *, reset: bool) -> RowBlocks:
        """Return the rows of X, checked for shape, dtype and number of columns; finiteness is checked in the pass."""
        if reset:
            self._check_parameters()
        rows = as_blocks(X, owner=self)
        check_columns(self, rows, reset=reset, from_file=isinstance(X, RowBlocks))
        return place_rows(rows, self.engine)

    def _check_parameters(self) -> None:
        """Raise for values that no fit can use, also where this one would not: each class checks its own."""

    def _emit(
        self,
        rows: RowBlocks,
        function: Callable[[Block], Array],
        n_columns: int | None,
        dtype: DTypeLike,
        *,
        label: str,
        out: OutPath = None,
    ) -> Emitted:
        """Return what ``function`` makes of each block of finite rows, as one array or in ``out``: one pass."""
        name = rows.name

        def step(block: Block) -> Array:
            require_finite(block.X, name, block.start)
            return function(block)

        engine = self._emit_engine(rows, n_columns or 1, dtype, to_file=out is not None)
        if out is None:
            return engine.emit(rows, step, n_columns, dtype, label=label)
        job = describe_job(self.map_, label, vars(self))
        return write_rows(out, rows, engine, step, n_columns or 1, dtype, job=job, label=label)

    def _emit_engine(self, rows: RowBlocks, n_columns: int, dtype: DTypeLike, *, to_file: bool) -> Engine:
        if self.max_memory is None or rows.on_cluster:
            return self._engine(rows)
        held = 0 if to_file else rows.shape[0] * n_columns * np.dtype(dtype).itemsize
        work = emit_footprint(rows, self.landmarks_.shape[0], n_columns, held=held)
        return self._engine(rows, work, advice=_FIT_ADVICE if to_file else _EMIT_ADVICE)
