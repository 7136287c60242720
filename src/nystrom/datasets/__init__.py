"""Data sets of the LIBSVM archive by name, marked stand-ins for some of them, and generated sets."""

from nystrom.datasets.loader import (
    DatasetInfo,
    DataUnavailableError,
    data_homes,
    info,
    is_available,
    list_datasets,
    load,
    make_rings,
)
from nystrom.exceptions import DataFileError
from nystrom.rows.libsvm import read_libsvm

__all__ = [
    "DataFileError",
    "DataUnavailableError",
    "DatasetInfo",
    "data_homes",
    "info",
    "is_available",
    "list_datasets",
    "load",
    "make_rings",
    "read_libsvm",
]
