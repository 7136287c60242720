"""The sets of the LIBSVM archive by name, stand-ins marked as such, and sets that are generated."""

from nystrom.datasets.download import DataUnavailableError
from nystrom.datasets.home import data_homes
from nystrom.datasets.loader import is_available, list_datasets, load
from nystrom.datasets.registry import DatasetInfo, info
from nystrom.datasets.synthetic import make_rings
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
