"""Sketches: linear maps from the p columns of the rows to a few columns, p', that preserve distances.

A recipe (a frozen dataclass) sets the kind; ``fit`` draws the map and returns a :class:`Sketch`, which
turns a block of rows, dense or CSR, into a dense block of p' columns of the same dtype. Sketches hold plain
arrays, so they can be pickled and sent to where the rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from nystrom import loops
from nystrom.checks import check_count
from nystrom.devices import on_device
from nystrom.rows.sparse import native
from nystrom.types import Array, Matrix, SparseMatrix, issparse, to_dense

_DEFAULT_DIM = 10
# Largest size in bytes (in float32) of a sign matrix that is stored; of a larger one, blocks generate what they use.
_STORED_BYTES = 64 * 2**20
_DENSE_COLUMNS = 2**16
# Relative distance of a column from the span of the earlier ones below which Householder QR replaces Cholesky.
_INDEPENDENT = 1e-3
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@runtime_checkable
class Sketch(Protocol):
    """A fitted sketch: call it with rows (n × p, dense or CSR) to get their sketch (n × ``dim``)."""

    @property
    def dim(self) -> int: ...

    def __call__(self, X: Matrix) -> Array: ...


@runtime_checkable
class SketchRecipe(Protocol):
    """Draws a sketch. ``sample`` holds rows of the data, for recipes that depend on them."""

    def fit(self, n_features: int, dim: int, rng: np.random.Generator, sample: Matrix | None = None) -> Sketch: ...


def sketch_dimension(n_features: int, sketch_dim: int | None = None, compression: float | None = None) -> int:
    """Return p', the number of columns of a sketch of ``n_features`` columns.

    This is ``sketch_dim`` if given; with ``compression``, the paper's γ, it is γ p rounded to the nearest integer
    (Algorithm 3, step 1); with neither it is 10. Never below 1, never above p.

    Examples
    --------
    >>> sketch_dimension(784, compression=0.02)
    16
    >>> sketch_dimension(3, sketch_dim=10)
    3
    """
    if sketch_dim is not None and compression is not None:
        raise ValueError(
            f"sketch_dim={sketch_dim!r} and compression={compression!r} both set the columns of the sketch: "
            f"give one of them and leave the other None."
        )
    if compression is not None:
        if not 0.0 < compression <= 1.0:
            raise ValueError(
                f"compression must be above 0 and at most 1 (it is the sketch's columns over the data's); "
                f"got {compression!r}. Try compression=0.02, or set sketch_dim=10."
            )
        return min(max(1, int(np.floor(compression * n_features + 0.5))), n_features)
    if sketch_dim is None:
        return min(_DEFAULT_DIM, n_features)
    advice = "Try sketch_dim=10, or compression=0.02 for a share of the columns."
    return min(check_count(sketch_dim, "sketch_dim", advice=advice), n_features)


@dataclass(frozen=True, eq=False)
class LinearSketch:
    """The sketch ``X @ matrix - offset`` with a stored matrix.

    Attributes
    ----------
    matrix : ndarray or CSR of shape (p, dim)
        The paper's Hᵀ.
    offset : ndarray of shape (dim,), optional
        Subtracted from every sketched row.
    """

    matrix: Matrix
    offset: Array | None = None
    # The product with the matrix, by dtype of the rows and whether they are sparse.
    _ways: dict[tuple[np.dtype[np.generic], bool], Callable[[Any], Array]] = field(default_factory=dict, repr=False)

    @property
    def dim(self) -> int:
        return int(self.matrix.shape[1])

    def __getstate__(self) -> dict[str, object]:
        return {"matrix": self.matrix, "offset": self.offset, "_ways": {}}

    def __call__(self, X: Matrix) -> Array:
        X = native(X)
        key = (X.dtype, issparse(X))
        if key not in self._ways:
            H = self.matrix.astype(X.dtype)
            # Two threads may both cast; they store the same values, so either may stay.
            if issparse(X):
                self._ways[key] = loops.SparseProduct(H.T, X.dtype)
            else:
                self._ways[key] = partial(_product, H=H) if issparse(H) else loops.Product(H)
        out = self._ways[key](X)
        if self.offset is not None:
            out -= self.offset.astype(X.dtype)
        return out


def _product(X: Array, H: Matrix) -> Array:
    return X @ to_dense(H) if on_device(X) else np.ascontiguousarray((H.T @ X.T).T)


@dataclass(frozen=True)
class GeneratedSigns:
    """The sketch by ±1/√dim whose signs are generated from ``key`` for the columns of a block, and never stored.

    The sign of column j in output i is bit ``i mod 64`` of a 64-bit hash (the finaliser of splitmix64) of
    ``key``, j and ``i // 64``: any set of columns costs about 10 ns each, in any order and on any machine.
    """

    n_features: int
    dim: int
    key: int

    def signs(self, columns: Array) -> Array:
        """Return the int8 signs, ±1, of the given columns: shape (len(columns), dim)."""
        n_words = -(-self.dim // 64)
        counter = columns.astype(np.uint64)[:, None] * np.uint64(n_words) + np.arange(n_words, dtype=np.uint64)
        words = _splitmix64(counter, np.uint64(self.key))
        octets = words.astype("<u8", copy=False).view(np.uint8)
        bits = np.unpackbits(octets, axis=1, count=self.dim, bitorder="little")
        return (2 * bits.view(np.int8) - 1).astype(np.int8, copy=False)

    def entries(self, columns: Array, dtype: np.dtype[np.generic]) -> Array:
        """Return the entries ±1/√dim of the given columns."""
        return self.signs(columns) * np.asarray(1.0 / np.sqrt(self.dim), dtype=dtype)

    def __call__(self, X: Matrix) -> Array:
        if issparse(X):
            columns, places = np.unique(X.indices, return_inverse=True)
            packed = sp.csr_matrix((X.data, places, X.indptr), shape=(X.shape[0], columns.size), copy=False)
            return np.asarray(packed @ self.entries(columns, X.dtype))
        if on_device(X):
            return X @ self.entries(np.arange(self.n_features), X.dtype)
        out = np.zeros((X.shape[0], self.dim), dtype=X.dtype)
        for start in range(0, self.n_features, _DENSE_COLUMNS):
            columns = np.arange(start, min(start + _DENSE_COLUMNS, self.n_features))
            out += X[:, start : start + columns.size] @ self.entries(columns, X.dtype)
        return out


def _splitmix64(counter: Array, seed: np.uint64) -> Array:
    with np.errstate(over="ignore"):
        z = counter * _GOLDEN + seed
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


@dataclass(frozen=True)
class SignSketch:
    """The paper's H: independent entries ±1/√p' with probability one half each (Equation for H, Section 5).

    Squared distances are preserved in expectation, with relative variance at most 2/p'. Time O(n p p') and memory
    O(p p') up to 64 MiB; with more columns the signs are generated for the columns of each block instead.

    Examples
    --------
    >>> import numpy as np
    >>> sketch = SignSketch().fit(784, 4, np.random.default_rng(0))
    >>> X = np.ones((5, 784), dtype=np.float32)
    >>> sketch(X).shape, sketch(X).dtype
    ((5, 4), dtype('float32'))
    >>> np.unique(sketch.matrix)
    array([-0.5,  0.5])
    """

    def fit(self, n_features: int, dim: int, rng: np.random.Generator, sample: Matrix | None = None) -> Sketch:
        """Draw the signs."""
        generated = GeneratedSigns(n_features, dim, int(rng.integers(2**63)))
        if 4 * n_features * dim > _STORED_BYTES:
            return generated
        return LinearSketch(generated.entries(np.arange(n_features), np.dtype(np.float64)))


@dataclass(frozen=True)
class SparseSign:
    """Sparse signs: each column contributes to ``nonzeros`` of the p' outputs, chosen at random, by ±1/√nonzeros.

    Squared distances are preserved in expectation as by :class:`SignSketch`. It is cheaper for sparse rows
    with very many columns; memory is O(p · nonzeros).

    Examples
    --------
    >>> import numpy as np
    >>> sketch = SparseSign(nonzeros=4).fit(100, 10, np.random.default_rng(0))
    >>> np.count_nonzero(sketch.matrix, axis=1).max()
    np.int64(4)
    """

    nonzeros: int = 4

    def __post_init__(self) -> None:
        if self.nonzeros < 1:
            raise ValueError(
                f"nonzeros must be at least 1 (each column has to reach the sketch); got {self.nonzeros!r}."
            )

    def fit(self, n_features: int, dim: int, rng: np.random.Generator, sample: Matrix | None = None) -> Sketch:
        """Draw the positions and the signs."""
        per_column = min(self.nonzeros, dim)
        places = np.empty((n_features, per_column), dtype=np.int32)
        for start in range(0, n_features, _DENSE_COLUMNS):
            piece = places[start : start + _DENSE_COLUMNS]
            order = np.argpartition(rng.random((len(piece), dim), dtype=np.float32), per_column - 1, axis=1)
            piece[:] = np.sort(order[:, :per_column], axis=1)
        signs = rng.integers(0, 2, size=places.shape, dtype=np.int8) * 2 - 1
        values = signs.ravel() / np.sqrt(per_column)
        indptr = np.arange(n_features + 1) * per_column
        matrix = sp.csr_matrix((values, places.ravel(), indptr), shape=(n_features, dim))
        return LinearSketch(matrix.toarray() if 4 * n_features * dim <= _STORED_BYTES else matrix)


@dataclass(frozen=True)
class GaussianSketch:
    """Independent normal entries with variance 1/p': a sketch without preferred directions.

    Time O(n p p'), memory O(p p').

    Examples
    --------
    >>> import numpy as np
    >>> GaussianSketch().fit(50, 3, np.random.default_rng(0))(np.eye(50)).shape
    (50, 3)
    """

    def fit(self, n_features: int, dim: int, rng: np.random.Generator, sample: Matrix | None = None) -> Sketch:
        """Draw the entries."""
        return LinearSketch(rng.standard_normal((n_features, dim)) / np.sqrt(dim))


@dataclass(frozen=True)
class PCASketch:
    """The leading principal directions of a sample of rows, found by a randomised SVD (few sparse rows: exactly).

    It never lengthens a distance, and keeps as much of the sample's variance as p' directions can. Time
    O(s p p') for s sampled rows (at most ``max_rows``; the rest are not used), and memory O(p p'). For sparse rows with
    very many columns, only the ``max_columns`` that vary most in the sample are used.
    If the sample has fewer than p' directions, the last columns are 0.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 40)) + 5
    >>> sketch = PCASketch().fit(40, 2, rng, sample=X)
    >>> bool(np.isclose(np.linalg.norm(sketch(X[:1]) - sketch(X[1:2])), np.linalg.norm(X[0] - X[1])))
    True
    """

    max_rows: int = 2000
    n_power: int = 2
    max_columns: int = 1024

    def fit(self, n_features: int, dim: int, rng: np.random.Generator, sample: Matrix | None = None) -> Sketch:
        """Find the directions of ``sample``."""
        if sample is None or sample.shape[0] == 0:
            raise ValueError(
                "PCASketch needs sample, some rows of the data to take directions from; got none. "
                "Pass up to 2,000 rows drawn at random, or use SignSketch, which needs no rows."
            )
        rows = sample[: self.max_rows]
        if issparse(rows) and n_features > self.max_columns:
            return _sketch_of_columns(rows, self.max_columns, dim, rng, self.n_power)
        mean = np.asarray(rows.mean(axis=0, dtype=np.float64)).ravel()
        if issparse(rows) and rows.shape[0] < n_features:
            V = _directions_from_rows(rows, mean, dim)
        else:
            V = _principal_directions(rows, mean, dim, rng, self.n_power)
        return LinearSketch(V, mean @ V)


def _principal_directions(X: Matrix, mean: Array, dim: int, rng: np.random.Generator, n_power: int) -> Array:
    """Return the leading ``dim`` right singular vectors (p × dim) of ``X - mean``, which is never formed."""
    n, p = X.shape
    width = min(dim + 10, n, p)
    shift = mean.astype(X.dtype)

    def forward(V: Array) -> Array:
        return np.asarray(X @ V - shift @ V)

    def backward(U: Array) -> Array:
        return np.asarray(X.T @ U - np.outer(shift, U.sum(axis=0)))

    U, _ = _thin_qr(forward(rng.standard_normal((p, width)).astype(X.dtype)))
    for _ in range(n_power):
        V, _ = _thin_qr(backward(U.astype(X.dtype, copy=False)))
        U, _ = _thin_qr(forward(V.astype(X.dtype, copy=False)))
    Q, R = _thin_qr(backward(U.astype(X.dtype, copy=False)))
    left, _, _ = np.linalg.svd(R)
    directions = np.zeros((p, dim))
    kept = min(dim, width)
    directions[:, :kept] = (Q @ left)[:, :kept]
    return directions


def _thin_qr(Y: Array) -> tuple[Array, Array]:
    """Return Q with orthonormal columns and R with ``Y = Q R``, in float64, for a Y with few columns.

    Cholesky of the Gram matrix is much faster than Householder reflections and gives a Q orthonormal to
    ε/_INDEPENDENT². Reflections are used only if columns are nearly dependent.
    """
    Y = Y.astype(np.float64, copy=False)
    try:
        # Squares that overflow make R infinite or NaN, and its columns count as dependent.
        with np.errstate(over="ignore", invalid="ignore"):
            R = np.linalg.cholesky(Y.T @ Y).T
    except np.linalg.LinAlgError:
        return np.linalg.qr(Y)
    sizes = R.diagonal()
    if not sizes.min() > _INDEPENDENT * sizes.max():
        return np.linalg.qr(Y)
    return Y @ np.linalg.inv(R), R


def _directions_from_rows(X: SparseMatrix, mean: Array, dim: int) -> Array:
    """Return the same for few sparse rows, exactly, from the inner products of the rows."""
    X = X.astype(np.float64)
    along = X @ mean
    gram = loops.SparseProduct(X, X.dtype)(X) - along[:, None] - along + mean @ mean
    values, U = np.linalg.eigh(gram)
    kept = values[::-1][:dim] > max(values[-1], 0.0) * X.shape[0] * np.finfo(np.float64).eps
    U = U[:, ::-1][:, :dim][:, kept] / np.sqrt(values[::-1][:dim][kept])
    directions = np.zeros((X.shape[1], dim))
    directions[:, : U.shape[1]] = X.T @ U - np.outer(mean, U.sum(axis=0))
    return directions


def _sketch_of_columns(
    X: SparseMatrix, n_columns: int, dim: int, rng: np.random.Generator, n_power: int
) -> LinearSketch:
    """Return the same as a sketch of sparse rows, using the columns that vary most."""
    n, p = X.shape
    sums, _ = loops.column_sums(X)
    squared = sp.csr_matrix((X.data.astype(np.float64) ** 2, X.indices, X.indptr), shape=X.shape, copy=False)
    varies = loops.column_sums(squared)[0] - sums**2 / n
    # Most columns may be empty, and selecting among equal numbers is slow.
    columns = np.flatnonzero(varies > 0)
    if columns.size > n_columns:
        columns = np.sort(columns[np.argpartition(-varies[columns], n_columns - 1)[:n_columns]])
    n_columns = columns.size
    # The product with unit vectors selects columns.
    picked = (np.ones(n_columns, X.dtype), columns, np.arange(n_columns + 1))
    dense = loops.SparseProduct(sp.csr_matrix(picked, shape=(n_columns, p)), X.dtype)(X)
    mean = dense.mean(axis=0, dtype=np.float64)
    V = _principal_directions(dense, mean, dim, rng, n_power)
    ends = np.arange(dim + 1) * n_columns
    rows = sp.csr_matrix((V.T.ravel(), np.tile(columns, dim), ends), shape=(dim, p))
    return LinearSketch(rows.T, mean @ V)


__all__ = [
    "GaussianSketch",
    "GeneratedSigns",
    "LinearSketch",
    "PCASketch",
    "SignSketch",
    "Sketch",
    "SketchRecipe",
    "SparseSign",
    "sketch_dimension",
]
