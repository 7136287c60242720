"""How a pass over the rows runs."""

from nystrom.engine.base import Engine, Mergeable, Progress, Silent, Sums, TreeMerger
from nystrom.engine.choose import is_dask_collection, make_engine, place_rows
from nystrom.engine.local import LocalEngine
from nystrom.threads import blas_threads

__all__ = [
    "Engine",
    "LocalEngine",
    "Mergeable",
    "Progress",
    "Silent",
    "Sums",
    "TreeMerger",
    "blas_threads",
    "is_dask_collection",
    "make_engine",
    "place_rows",
]
