"""Kernels given by the user: a function, or the kernel matrix itself."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from nystrom.devices import host, on_device, put, to_host
from nystrom.kernels.base import Kernel, Prepared
from nystrom.kernels.pairwise import as_matrix, check_columns
from nystrom.rows.objects import Objects
from nystrom.types import Array, Matrix, issparse, to_dense

# A function of two matrices or of two rows; its types are known only when it is called.
KernelFunction: TypeAlias = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Precomputed(Kernel):
    """The rows are rows of the kernel matrix itself: column j belongs to training row j.

    Parameters
    ----------
    indices : sequence of int, optional
        Row numbers of the landmarks; known once they are chosen (see :meth:`at`).

    Examples
    --------
    >>> import numpy as np
    >>> K = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> Precomputed().at([1])(K, K[[1]])
    array([[1.],
           [3.]])
    """

    has_coordinates: ClassVar[bool] = False

    indices: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.indices is not None:
            object.__setattr__(self, "indices", tuple(int(i) for i in self.indices))

    def at(self, indices: Sequence[int] | Array | None) -> Precomputed:
        """Return this kernel with the landmarks at the rows ``indices``."""
        return Precomputed(None if indices is None else tuple(int(i) for i in indices))

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        """Return the function ``X ↦ X[:, indices]``; ``Z`` are the landmarks' rows of the kernel matrix."""
        Z = as_matrix(Z, "Z")
        if self.indices is None or len(self.indices) != Z.shape[0]:
            given = "none" if self.indices is None else str(len(self.indices))
            raise ValueError(
                f"A precomputed kernel needs the row number of each of the {Z.shape[0]} landmarks; "
                f"{given} given. Use Precomputed(indices), and landmarks that are rows of the data (not means "
                "of rows, as 'kmeans' gives)."
            )
        return _TakeColumns(np.asarray(self.indices, dtype=np.intp))

    def diag(self, A: Matrix, start: int = 0) -> Array:
        """Return ``A[i, start + i]``: the diagonal, if ``A`` are training rows from number ``start`` on."""
        if start + A.shape[0] > A.shape[1]:
            raise ValueError(
                f"Rows {start} to {start + A.shape[0] - 1} of a precomputed kernel with {A.shape[1]} columns "
                "have no diagonal: only training rows do. Pass start, the number of the block's first row."
            )
        if on_device(A):
            own = np.arange(A.shape[0])
            return host(A.ravel()[own * A.shape[1] + start + own])
        if issparse(A):
            return np.asarray(A.tocsr().diagonal(start), dtype=np.float64)
        return np.array(np.diagonal(A, start), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class PrecomputedRows(Precomputed):
    """The kernel of other rows with the training rows; ``k(x, x)`` of the other rows is stored separately, if given.

    Parameters
    ----------
    indices : sequence of int
        Row numbers of the landmarks.
    diagonal : array of shape (n,), optional
        ``k(x, x)`` of each row.
    """

    diagonal: Array | None = None

    def diag(self, A: Matrix, start: int = 0) -> Array:
        """Return the given ``k(x, x)`` of rows ``start`` to ``start + len(A)``."""
        if self.diagonal is None:
            raise ValueError(
                "with kernel='precomputed', k(x, x) of rows other than the training rows is in no column: pass "
                "diag=<array of k(x, x), one for each row>. The whole training matrix needs none."
            )
        return self.diagonal[start : start + A.shape[0]]


@dataclass(frozen=True, eq=False)
class _TakeColumns:
    indices: Array

    def __call__(self, X: Matrix) -> Array:
        if self.indices.size and X.shape[1] <= self.indices.max():
            raise ValueError(
                f"The rows of the precomputed kernel have {X.shape[1]} columns, but a landmark is row "
                f"{self.indices.max()}. Give k(x, training row) for every training row."
            )
        taken = X[:, self.indices]
        if on_device(taken):
            return taken
        return np.ascontiguousarray(to_dense(taken))


@dataclass(frozen=True)
class FromCallable(Kernel):
    """A kernel from a user function.

    Parameters
    ----------
    function : callable
        Either takes two matrices and gives the matrix of values (like scikit-learn's pairwise functions and
        Gaussian process kernels), or takes two vectors and gives a number. The form is detected by trying it on a
        few rows. The second form costs one call per pair of rows, and sees sparse rows as dense vectors. For rows
        that are other objects, it takes two lists of them, or two objects.

    Examples
    --------
    >>> import numpy as np
    >>> FromCallable(lambda x, y: np.minimum(x, y).sum())(np.eye(2), np.ones((1, 2)))
    array([[1.],
           [1.]])
    """

    function: KernelFunction

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function must be callable; got {self.function!r}.")

    @property
    def takes_objects(self) -> bool:
        return True

    def bind(self, names: Sequence[str] | None, n_columns: int, table: object = None) -> Kernel:
        if not isinstance(table, Objects):
            return self
        return OfObjects(self.function, _takes_lists(self.function, table.values))

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        Z = as_matrix(Z, "Z")
        form = _by_matrices if _takes_matrices(self.function, Z) else _by_vectors
        return _FromCallable(self.function, form, Z)

    def diag(self, A: Matrix, start: int = 0) -> Array:
        A = as_matrix(A, "A")
        if A.shape[0] == 0:
            return np.empty(0)
        if not _takes_matrices(self.function, A):
            A = to_host(A)
            return np.array([_number(self.function, a, a) for a in _vectors(A)])
        # No shortcut to the diagonal is sure to agree with the matrix (the diag of a scikit-learn WhiteKernel holds
        # noise that its matrix k(X, Y) lacks), so evaluate small square blocks.
        squares = (A[i : i + _SQUARE] for i in range(0, A.shape[0], _SQUARE))
        parts = [np.diagonal(to_host(_by_matrices(self.function, S, S))) for S in squares]
        return np.concatenate(parts).astype(np.float64)


# Number of rows of the square blocks whose diagonal is kept: n · 16 values are computed to get n.
_SQUARE = 16


@dataclass(frozen=True, eq=False)
class _FromCallable:
    function: KernelFunction
    form: Callable[[KernelFunction, Matrix, Matrix], Array]
    Z: Matrix

    def __call__(self, X: Matrix) -> Array:
        check_columns(X, self.Z.shape[1])
        return self.form(self.function, X, self.Z).astype(X.dtype, copy=False)


def _by_matrices(function: KernelFunction, A: Matrix, B: Matrix) -> Array:
    if on_device(A):
        there = put(function(A.values, A.beside(B).values), A.place)
        if there.shape != (A.shape[0], B.shape[0]):
            raise ValueError(f"The kernel function gave shape {there.shape} for {A.shape[0]} and {B.shape[0]} rows.")
        return there
    values = function(A, B)
    # A copy: the function may keep its result, and sums of kernels are computed in place.
    values = np.array(to_dense(values), order="C")
    if values.shape != (A.shape[0], B.shape[0]):
        raise ValueError(
            f"The kernel function gave shape {values.shape} for {A.shape[0]} and {B.shape[0]} rows; "
            f"it must give shape {(A.shape[0], B.shape[0])}."
        )
    return values


def _by_vectors(function: KernelFunction, A: Matrix, B: Matrix) -> Array:
    if on_device(A):
        there = [A.beside(b).values for b in _vectors(B)]
        return put(np.array([[float(function(A[i].values, b)) for b in there] for i in range(len(A))]), A.place)
    others = list(_vectors(B))
    values = [[_number(function, a, b) for b in others] for a in _vectors(A)]
    return np.array(values, dtype=np.float64).reshape(A.shape[0], B.shape[0])


def _vectors(A: Matrix) -> Iterator[Array]:
    for i in range(A.shape[0]):
        yield A[[i]].toarray().ravel() if issparse(A) else A[i]


def _number(function: KernelFunction, a: Array, b: Array) -> float:
    value = np.asarray(function(a, b))
    if value.size != 1:
        raise TypeError(f"the result for two vectors has shape {value.shape}; one number was expected")
    return float(value.reshape(()))


def _takes_matrices(function: KernelFunction, A: Matrix) -> bool:
    """Return whether ``function`` takes two matrices (else two vectors), by trying both on rows of ``A``.

    Two rows against three (or four): a function of vectors such as ``x @ y`` or ``((x - y) ** 2).sum()`` then
    either fails or gives another shape, because the numbers of rows differ from each other and from the columns.
    """
    few = 3 if A.shape[1] != 3 else 4
    A = to_host(A[np.arange(few) % A.shape[0]]) if on_device(A) else A
    left, right = A[np.arange(2) % A.shape[0]], A[np.arange(few) % A.shape[0]]
    try:
        shape = np.shape(function(left, right))
        if shape == (2, few):
            return True
        by_matrices = f"given matrices of 2 and {few} rows, it returned shape {shape}"
    except Exception as error:
        by_matrices = f"given two matrices, it raised {error!r}"
    vector = next(_vectors(A))
    try:
        _number(function, vector, vector)
    except Exception as error:
        raise TypeError(
            f"The kernel function {function!r} must take two matrices and give a matrix, or take two vectors "
            f"and give a number; {by_matrices}; given two vectors, it raised {error!r}."
        ) from error
    return False


@dataclass(frozen=True)
class OfObjects(Kernel):
    """A user function of objects: what :class:`FromCallable` becomes when the rows are strings, graphs, ...

    Parameters
    ----------
    function : callable
        Of two lists of objects, if ``takes_lists``, or of two objects.
    takes_lists : bool
    held : dict
        The objects of the landmarks, by the numbers of their rows.
    """

    function: KernelFunction
    takes_lists: bool
    held: dict[float, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def takes_objects(self) -> bool:
        return True

    @property
    def of_objects(self) -> bool:
        return True

    def objects(self, points: Matrix) -> list[Any]:
        return Objects.find(points, self.held)

    def holding(self, points: Matrix) -> Kernel:
        numbers = np.asarray(to_dense(points))[:, 0].tolist()
        return replace(self, held=dict(zip(numbers, self.objects(points), strict=True)))

    def mean_columns(self, n_columns: int) -> Array:
        return np.zeros(n_columns, dtype=bool)

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        return _OfObjects(self, self.objects(Z))

    def diag(self, A: Matrix, start: int = 0) -> Array:
        return np.array([self.values([a], [a])[0, 0] for a in self.objects(A)])

    def values(self, left: list[Any], right: list[Any]) -> Array:
        """Return the kernel of each pair of objects, in float64."""
        if self.takes_lists:
            found = np.array(to_dense(self.function(left, right)), dtype=np.float64)
        else:
            pairs = [[_number(self.function, a, b) for b in right] for a in left]
            found = np.array(pairs, dtype=np.float64).reshape(len(left), len(right))
        if found.shape != (len(left), len(right)):
            raise ValueError(
                f"The kernel function gave shape {found.shape} for {len(left)} and {len(right)} objects; it must give "
                f"shape {(len(left), len(right))}."
            )
        if not np.isfinite(found).all():
            i, j = np.argwhere(~np.isfinite(found))[0]
            raise ValueError(
                f"The kernel function gave {found[i, j]} for {reprlib.repr(left[i])} and {reprlib.repr(right[j])}."
            )
        return found


@dataclass(frozen=True, eq=False)
class _OfObjects:
    kernel: OfObjects
    points: list[Any]

    def __call__(self, X: Matrix) -> Array:
        return self.kernel.values(self.kernel.objects(X), self.points)


def _takes_lists(function: KernelFunction, values: Sequence[Any]) -> bool:
    """Return whether ``function`` takes two lists of objects (else two objects), by trying both on some of them."""
    left, right = [values[i % len(values)] for i in range(2)], [values[i % len(values)] for i in range(3)]
    try:
        shape = np.shape(function(left, right))
        if shape == (2, 3):
            return True
        by_lists = f"given lists of 2 and 3 objects, it returned shape {shape}"
    except Exception as error:
        by_lists = f"given two lists, it raised {error!r}"
    try:
        _number(function, left[0], right[0])
    except Exception as error:
        raise TypeError(
            f"The kernel function {function!r} must take two lists of objects and give a matrix, or take two objects "
            f"and give a number; {by_lists}; given two objects, it raised {error!r}."
        ) from error
    return False
