"""Passes on a Dask cluster: the only package that imports dask.

Rows are the chunks of a Dask array, one block per chunk. A pass is one graph: one task per block, which runs the step
where the chunk is, and one per merge of :class:`~nystrom.engine.base.TreeMerger`. The tree, and with it every bit of
the result, is that of the local engine with blocks of the same size. What a step carries (landmarks, whitening) is in
the graph once. The scheduler computes again what a lost worker held: nothing is scattered, so no part of a fit is lost.
"""

from __future__ import annotations

from nystrom.exceptions import MissingDependencyError

try:
    import cloudpickle  # noqa: F401
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as missing:
    raise MissingDependencyError(
        "dask", "dask", "engine='dask'", install='"dask[distributed]" pandas pyarrow'
    ) from missing

from nystrom.engine.dask.engine import DaskEngine
from nystrom.engine.dask.rows import DaskRows, collection_rows, ship_rows

__all__ = ["DaskEngine", "DaskRows", "collection_rows", "ship_rows"]
