"""How a pass over the rows runs."""

from nystrom.engine.base import Engine, Mergeable, Progress, Silent, Sums, TreeMerger
from nystrom.engine.blas import blas_threads
from nystrom.engine.choose import collection_rows, is_dask_collection, make_engine, place_rows
from nystrom.engine.local import LocalEngine, resolve_n_jobs

__all__ = [
    "Engine",
    "LocalEngine",
    "Mergeable",
    "Progress",
    "Silent",
    "Sums",
    "TreeMerger",
    "blas_threads",
    "collection_rows",
    "is_dask_collection",
    "make_engine",
    "place_rows",
    "resolve_n_jobs",
]
