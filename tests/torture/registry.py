"""What the torture is made of: kernels, selectors, factors, machines, containers, dtypes, scales and defects.

One line in one of the dictionaries adds a value to its axis; every combination of the axes is a case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from nystrom import open_rows
from nystrom.kernels import Gaussian, Laplacian, Linear, Matern, Overlap, Polynomial
from nystrom.types import Array


@dataclass(frozen=True)
class Case:
    """One combination of the axes, with sizes and a seed."""

    kernel: str = "gaussian"
    selector: str = "uniform"
    factor: str = "optimal"
    machine: str = "Nystroem"
    container: str = "array"
    dtype: str = "float64"
    scale: str = "one"
    defect: str = "none"
    n: int = 40
    p: int = 3
    m: int = 12
    seed: int = 0


def histogram_kernel(A: Array, B: Array) -> Array:
    """Return ``Σ exp(−|a_i − b_i|)``: a kernel as a user might write it."""
    A, B = (each.toarray() if sp.issparse(each) else each for each in (A, B))
    with np.errstate(invalid="ignore"):
        return np.exp(-np.abs(A[:, None, :] - B[None, :, :])).sum(axis=-1)


KERNELS: dict[str, dict[str, Any]] = {
    "gaussian": {"kernel": "gaussian"},
    "gaussian-narrow": {"kernel": "gaussian", "gamma": 20.0},
    "gaussian-wide": {"kernel": "gaussian", "gamma": 1e-3},
    "gaussian-none": {"kernel": "gaussian", "gamma": None},
    "laplacian": {"kernel": "laplacian"},
    "laplacian-rough": {"kernel": Laplacian(p=1, q=0.5)},
    "laplacian-norm": {"kernel": Laplacian(p=1.5, q=0.7)},
    "laplacian-long": {"kernel": Laplacian(p=2, q=1.3)},
    "overlap": {"kernel": Overlap()},
    "columns": {"kernel": Gaussian().on([0]) * Overlap().on([-1]) + Laplacian().on([0])},
    "matern": {"kernel": "matern"},
    "matern-half": {"kernel": Matern(0.5)},
    "matern-smooth": {"kernel": Matern(2.5)},
    "linear": {"kernel": "linear"},
    "polynomial": {"kernel": "polynomial", "degree": 2},
    "cosine": {"kernel": "cosine"},
    "sum": {"kernel": Gaussian() + 0.5 * Linear()},
    "product": {"kernel": Gaussian(0.1) * Polynomial(degree=2, gamma=0.1)},
    "callable": {"kernel": histogram_kernel},
    "precomputed": {"kernel": "precomputed"},
}

SELECTORS: dict[str, Any] = {
    "auto": "auto",
    "sketched-kmeans": "sketched-kmeans",
    "kmeans": "kmeans",
    "uniform": "uniform",
    "diagonal": "diagonal",
    "column-norm": "column-norm",
    "leverage": "leverage",
    "kmeans++": "kmeans++",
    "rpcholesky": "rpcholesky",
    "points": lambda X, m: X[:m],
    "numbers": lambda X, m: np.arange(len(X))[::-1][:m],
}

FACTORS = ("optimal", "standard")

DTYPES: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "int64": np.int64,
    "int8": np.int8,
    "bool": np.bool_,
    "object": object,
    "float16": np.float16,
}

# Factor and offset. Those that are not ordinary may be refused, with a clear error.
SCALES: dict[str, tuple[float, float]] = {
    "one": (1.0, 0.0),
    "small": (1e-8, 0.0),
    "large": (1e8, 0.0),
    "offset-6": (1.0, 1e6),
    "offset-8": (1.0, 1e8),
    "e+18": (1e18, 0.0),
    "e-18": (1e-18, 0.0),
    "e+80": (1e80, 0.0),
    "e+150": (1e150, 0.0),
    "e-150": (1e-150, 0.0),
    "e-200": (1e-200, 0.0),
    "denormal": (1e-310, 0.0),
}
ORDINARY_SCALES = ("one", "small", "large")


def _duplicates(X: Array, rng: np.random.Generator) -> Array:
    return X[rng.integers(0, max(len(X) // 3, 1), len(X))]


def _pairs(X: Array, rng: np.random.Generator) -> Array:
    half = X[: (len(X) + 1) // 2]
    return np.concatenate([half, half + 1e-6 * rng.normal(size=half.shape)])[: len(X)]


def _column(value: float) -> Callable[[Array, np.random.Generator], Array]:
    def put(X: Array, rng: np.random.Generator) -> Array:
        X = X.copy()
        X[:, 0] = value
        return X

    return put


def _one(value: float) -> Callable[[Array, np.random.Generator], Array]:
    def put(X: Array, rng: np.random.Generator) -> Array:
        X = X.copy()
        X[rng.integers(len(X)), rng.integers(X.shape[1])] = value
        return X

    return put


def _clusters(X: Array, rng: np.random.Generator) -> Array:
    return X + 1e5 * rng.integers(0, 2, X.shape)


def _sparse(X: Array, rng: np.random.Generator) -> Array:
    X = np.where(rng.random(X.shape) < 0.6, 0.0, X)
    X[rng.random(len(X)) < 0.2] = 0.0
    return X


def _outlier(X: Array, rng: np.random.Generator) -> Array:
    X = X.copy()
    X[0] *= 1e4
    return X


DEFECTS: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "none": lambda X, rng: X,
    "duplicates": _duplicates,
    "pairs": _pairs,
    "constant column": _column(3.0),
    "zero column": _column(0.0),
    "all equal": lambda X, rng: np.repeat(X[:1], len(X), axis=0),
    "all zero": lambda X, rng: np.zeros_like(X),
    "one row": lambda X, rng: X[:1],
    "two rows": lambda X, rng: X[:2],
    "one column": lambda X, rng: X[:, :1],
    "fewer rows than landmarks": lambda X, rng: X[:5],
    "clusters far apart": _clusters,
    "empty rows": _sparse,
    "outlier": _outlier,
    "zero weights": lambda X, rng: X,
    "shifted target": lambda X, rng: X,
    "huge target": lambda X, rng: X,
    "NaN": _one(np.nan),
    "infinity": _one(np.inf),
    "minus infinity": _one(-np.inf),
}
REFUSED_DEFECTS = ("NaN", "infinity", "minus infinity")
TARGET_DEFECTS = ("zero weights", "shifted target", "huge target")


def _strided(X: Array, folder: Path) -> Array:
    return np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1]


def _read_only(X: Array, folder: Path) -> Array:
    X = X.copy()
    X.flags.writeable = False
    return X


def _misaligned(X: Array, folder: Path) -> Array:
    if X.dtype == object:
        return X
    raw = np.empty(X.nbytes + 1, np.uint8)
    out = raw[1:].view(X.dtype).reshape(X.shape)
    out[...] = X
    return out


def _swapped(X: Array, folder: Path) -> Array:
    return X if X.dtype == object else X.astype(X.dtype.newbyteorder())


def _csr(X: Array) -> Any:
    return sp.csr_matrix(X.astype(np.float64) if X.dtype in (object, np.float16) else X)


def _unsorted(X: Array, folder: Path) -> Any:
    S = _csr(X)
    for first, last in zip(S.indptr, S.indptr[1:], strict=False):
        S.indices[first:last] = S.indices[first:last][::-1].copy()
        S.data[first:last] = S.data[first:last][::-1].copy()
    S.has_sorted_indices = False
    return S


def _double_entries(X: Array, folder: Path) -> Any:
    S = _csr(X)
    if S.dtype.kind in "b":
        return S
    # Each entry stands twice, once as zero: the sum is exact at any scale.
    indptr = 2 * S.indptr
    indices, data = np.repeat(S.indices, 2), np.repeat(S.data, 2)
    data[1::2] = 0
    return sp.csr_matrix((data, indices, indptr), shape=S.shape)


def _wide_indices(X: Array, folder: Path) -> Any:
    S = _csr(X)
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    return S


def _stored_zeros(X: Array, folder: Path) -> Any:
    rows, columns = np.indices(X.shape).reshape(2, -1)
    values = X.astype(np.float64) if X.dtype in (object, np.float16) else X
    return sp.csr_matrix((values.ravel(), (rows, columns)), shape=X.shape)


def _file(X: Array, folder: Path) -> Any:
    X = X.astype(np.float64) if X.dtype in (object, np.float16) else X
    np.save(folder / "rows.npy", X)
    return open_rows(folder / "rows.npy")


def _mapped(X: Array, folder: Path) -> Any:
    X = X.astype(np.float64) if X.dtype == object else X
    np.save(folder / "mapped.npy", X)
    return np.load(folder / "mapped.npy", mmap_mode="r")


CONTAINERS: dict[str, Callable[[Array, Path], Any]] = {
    "array": lambda X, folder: X,
    "Fortran": lambda X, folder: np.asfortranarray(X),
    "negative strides": _strided,
    "read-only": _read_only,
    "misaligned": _misaligned,
    "other byte order": _swapped,
    "list": lambda X, folder: X.tolist(),
    "data frame": lambda X, folder: pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])]),
    "memmap": _mapped,
    "file": _file,
    "csr": lambda X, folder: _csr(X),
    "csr array": lambda X, folder: sp.csr_array(_csr(X)),
    "csc": lambda X, folder: _csr(X).tocsc(),
    "coo": lambda X, folder: _csr(X).tocoo(),
    "unsorted csr": _unsorted,
    "double entries": _double_entries,
    "int64 indices": _wide_indices,
    "stored zeros": _stored_zeros,
}
SPARSE_CONTAINERS = (
    "csr",
    "csr array",
    "csc",
    "coo",
    "unsorted csr",
    "double entries",
    "int64 indices",
    "stored zeros",
)


def make_rows(case: Case) -> Array:
    """Return the rows of a case, in its dtype, as an ordinary array."""
    rng = np.random.default_rng(case.seed)
    X = DEFECTS[case.defect](rng.normal(size=(case.n, case.p)), rng)
    kind = np.dtype(DTYPES[case.dtype]).kind
    with np.errstate(all="ignore"):
        if kind in "iub":
            X = np.nan_to_num(X, posinf=9, neginf=-9)
            return (X > 0 if kind == "b" else np.clip(np.round(3 * X), -100, 100)).astype(DTYPES[case.dtype])
        factor, offset = SCALES[case.scale]
        X = X * factor + offset
        if case.dtype == "float16":
            X = np.clip(X, -6e4, 6e4)
        return X.astype(DTYPES[case.dtype])
