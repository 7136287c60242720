"""The kernel base class, combinations of kernels, kernels of some columns, and the bandwidth ``gamma``."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np

from nystrom.checks import is_number
from nystrom.kernels.columns import ColumnsLike, checked_columns, column_numbers, take_columns
from nystrom.kernels.pairwise import as_matrix, check_columns
from nystrom.types import Array, Matrix

if TYPE_CHECKING:
    from nystrom.engine.passes import Moments

Gamma: TypeAlias = float | Literal["scale"] | None
Prepared: TypeAlias = Callable[[Matrix], Array]


class Kernel(ABC):
    """A positive semidefinite function of two rows.

    Subclasses give :meth:`prepare` and :meth:`diag`; those with a bandwidth also :meth:`resolve`.
    """

    # Whether the rows are points; the rows of a precomputed kernel are its values.
    has_coordinates: ClassVar[bool] = True
    # Makes NumPy leave ``np.float64(2) * kernel`` to ``__rmul__``.
    __array_ufunc__ = None

    @property
    def is_psd(self) -> bool:
        """Whether the kernel is known to be positive semidefinite; if not, a fit checks every row."""
        return False

    @property
    def needs_moments(self) -> bool:
        """Whether :meth:`resolve` needs the moments of the rows before the kernel can be evaluated."""
        return False

    @property
    def moments_by_column(self) -> bool:
        """Whether :meth:`resolve` needs the moments of each column, because some kernel uses only some columns."""
        return any(part.moments_by_column for part in self._parts().values())

    def resolve(self, moments: Moments) -> Kernel:
        """Return this kernel with a number for ``gamma``."""
        return self

    def on(self, columns: ColumnsLike) -> OnColumns:
        """Return this kernel restricted to some columns: names, numbers, a slice, booleans, or a callable.

        See :class:`OnColumns`.
        """
        return OnColumns(self, columns)

    def bind(self, names: Sequence[str] | None, n_columns: int, table: object = None) -> Kernel:
        """Return this kernel with column numbers in place of names, slices, booleans and callables.

        Parameters that depend on the number of columns alone, such as ``gamma=None``, become numbers too.

        Parameters
        ----------
        names : sequence of str or None
            The names of the rows' columns, if they have any.
        n_columns : int
            The number of columns of the rows.
        table : data frame, optional
            The table from which a callable chooses columns.
        """
        bound = {name: part.bind(names, n_columns, table) for name, part in self._parts().items()}
        return replace(self, **bound) if bound else self  # type: ignore[type-var]

    def at(self, indices: Sequence[int] | Array | None) -> Kernel:
        """Return this kernel for landmarks that are the rows ``indices``, which only Precomputed needs to know."""
        return self

    def of_new_columns(self, n_columns: int) -> Kernel:
        """Return a similar kernel for rows with other columns, all treated alike.

        A kernel of some columns becomes one of all, and a metric becomes its mean scale, so that the width stays.
        """
        parts = {name: part.of_new_columns(n_columns) for name, part in self._parts().items()}
        return replace(self, **parts) if parts else self  # type: ignore[type-var]

    @property
    def takes_objects(self) -> bool:
        """Whether the rows may be objects of any kind: all parts are user functions."""
        parts = self._parts().values()
        return bool(parts) and all(part.takes_objects for part in parts)

    @property
    def of_objects(self) -> bool:
        """Whether the rows are objects, given as numbers that only the kernel can interpret."""
        return any(part.of_objects for part in self._parts().values())

    def objects(self, points: Matrix) -> list[Any]:
        """Return the objects of some rows."""
        return next(part for part in self._parts().values() if part.of_objects).objects(points)

    def holding(self, points: Matrix) -> Kernel:
        """Return this kernel with the objects of some rows, such as the landmarks, so that it needs no others."""
        found = {name: part.holding(points) for name, part in self._parts().items()}
        return replace(self, **found) if found else self  # type: ignore[type-var]

    def mean_columns(self, n_columns: int) -> Array:
        """Return for which columns means make sense: booleans of shape (n_columns,).

        The mean of two category codes is another category or none. Landmarks take such columns from rows.
        """
        found = np.full(n_columns, self.has_coordinates)
        for part in self._parts().values():
            found &= part.mean_columns(n_columns)
        return found

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; ``deep`` adds those of nested kernels, as ``kernel__gamma``."""
        found = {field.name: getattr(self, field.name) for field in fields(self)} if is_dataclass(self) else {}
        if deep:
            for name, part in self._parts().items():
                found.update({f"{name}__{inner}": value for inner, value in part.get_params().items()})
        return found

    def with_params(self, **params: Any) -> Kernel:
        """Return a copy of this kernel with other parameters, named as in :meth:`get_params`.

        The name of a single nested kernel may be omitted: ``gamma`` of ``2 * Gaussian()`` is that of the Gaussian.
        """
        known = self.get_params(deep=False)
        parts = self._parts()
        changed = {name: value for name, value in params.items() if name in known}
        for name in params:
            if name in known:
                continue
            head, _, inner = name.partition("__")
            if head not in parts and len(parts) == 1:
                head, inner = next(iter(parts)), name
            if not inner or head not in parts:
                raise ValueError(f"{self!r} has no parameter {name!r}; it has {', '.join(self.get_params())}.")
            changed[head] = changed.get(head, parts[head]).with_params(**{inner: params[name]})
        return replace(self, **changed)  # type: ignore[type-var]

    def __sklearn_clone__(self) -> Kernel:
        # Kernels are immutable, so two estimators may share one.
        return self

    def _parts(self) -> dict[str, Kernel]:
        """Return the kernels that this one is made of, by the names of its fields."""
        return {name: value for name, value in self.get_params(deep=False).items() if isinstance(value, Kernel)}

    @abstractmethod
    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        """Return the function ``X ↦ k(X, Z)``; its result has the dtype of ``X``.

        Parameters
        ----------
        Z : matrix of shape (m, p)
            The landmarks, dense or CSR.
        center : array of shape (p,), optional
            A point amid the rows, such as their mean. Kernels of distance may subtract it from both sides for
            accuracy; the value does not depend on it.
        """

    @abstractmethod
    def diag(self, A: Matrix, start: int = 0) -> Array:
        """Return ``k(a, a)`` for each row, in float64; only Precomputed uses ``start``."""

    def __call__(self, A: Matrix, B: Matrix) -> Array:
        """Return the matrix of ``k(a, b)``, of shape (len(A), len(B)), in the dtype of ``A``."""
        return self.prepare(B)(as_matrix(A, "A"))

    def __add__(self, other: object) -> Kernel:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: object) -> Kernel:
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(other, self) if isinstance(other, numbers.Real) else NotImplemented  # type: ignore[arg-type]

    __rmul__ = __mul__


@dataclass(frozen=True, repr=False)
class _Pair(Kernel):
    """Two kernels whose values are combined by an operation."""

    left: Kernel
    right: Kernel

    operation: ClassVar[np.ufunc]

    @property
    def is_psd(self) -> bool:
        return self.left.is_psd and self.right.is_psd

    @property
    def needs_moments(self) -> bool:
        return self.left.needs_moments or self.right.needs_moments

    def resolve(self, moments: Moments) -> Kernel:
        return type(self)(self.left.resolve(moments), self.right.resolve(moments))

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        return _Combined(self.operation, self.left.prepare(Z, center), self.right.prepare(Z, center))

    def diag(self, A: Matrix, start: int = 0) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.operation(self.left.diag(A, start), self.right.diag(A, start)))


@dataclass(frozen=True, repr=False)
class Sum(_Pair):
    """``k1(x, y) + k2(x, y)``."""

    operation = np.add

    def __repr__(self) -> str:
        return f"{self.left!r} + {self.right!r}"


@dataclass(frozen=True, repr=False)
class Product(_Pair):
    """``k1(x, y) · k2(x, y)``."""

    operation = np.multiply

    def __repr__(self) -> str:
        return f"{_factor(self.left)} * {_factor(self.right)}"


@dataclass(frozen=True, repr=False)
class Scaled(Kernel):
    """``factor · k(x, y)``, with a positive factor."""

    factor: float
    kernel: Kernel

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise ValueError(
                f"A kernel can be multiplied by a positive finite number only; got {self.factor!r}. "
                "Any other factor leaves no inner product."
            )

    @property
    def is_psd(self) -> bool:
        return self.kernel.is_psd

    @property
    def needs_moments(self) -> bool:
        return self.kernel.needs_moments

    def resolve(self, moments: Moments) -> Kernel:
        return Scaled(self.factor, self.kernel.resolve(moments))

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        return _Multiple(float(self.factor), self.kernel.prepare(Z, center))

    def diag(self, A: Matrix, start: int = 0) -> Array:
        with np.errstate(over="ignore"):
            return float(self.factor) * self.kernel.diag(A, start)

    def __repr__(self) -> str:
        return f"{self.factor!r} * {_factor(self.kernel)}"


def _factor(kernel: Kernel) -> str:
    return f"({kernel!r})" if isinstance(kernel, Sum) else repr(kernel)


@dataclass(frozen=True, repr=False)
class OnColumns(Kernel):
    """A kernel of some columns, made by :meth:`Kernel.on`.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the columns. Its own column numbers, if any, count within ``columns``.
    columns : str, int, slice, sequence of str, int or bool, or callable
        Names, numbers (negative ones count from the end), a slice of either, or one boolean per column. A slice of
        names includes its end, as in pandas. A callable, such as scikit-learn's ``make_column_selector``, is given the
        table and returns any of the other forms.

    Examples
    --------
    >>> import numpy as np
    >>> from nystrom.kernels import Gaussian, Linear
    >>> kernel = Gaussian(1.0).on([0, 2]) + Linear().on(1)
    >>> kernel
    Gaussian(gamma=1.0).on([0, 2]) + Linear().on(1)
    >>> kernel(np.array([[0.0, 2.0, 0.0]]), np.array([[0.0, 3.0, 1.0]])).round(3)
    array([[6.368]])
    """

    kernel: Kernel
    columns: ColumnsLike

    def __post_init__(self) -> None:
        if not self.kernel.has_coordinates:
            raise ValueError("kernel='precomputed' has no columns to choose from: its rows are rows of K.")
        object.__setattr__(self, "columns", checked_columns(self.columns))

    @property
    def is_psd(self) -> bool:
        return self.kernel.is_psd

    @property
    def needs_moments(self) -> bool:
        return self.kernel.needs_moments

    @property
    def moments_by_column(self) -> bool:
        return self.kernel.needs_moments

    @property
    def takes_objects(self) -> bool:
        return False

    def bind(self, names: Sequence[str] | None, n_columns: int, table: object = None) -> Kernel:
        columns = self.columns
        if callable(columns):
            if table is None:
                raise ValueError(f"columns={columns!r} chooses from a table: give a data frame, or names or numbers.")
            columns = checked_columns(columns(table))
        numbers = column_numbers(columns, None if names is None else list(names), n_columns)
        own = None if names is None else [names[number] for number in numbers]
        return OnColumns(self.kernel.bind(own, len(numbers)), numbers)

    def of_new_columns(self, n_columns: int) -> Kernel:
        return self.kernel.of_new_columns(n_columns)

    def numbers(self, n_columns: int) -> tuple[int, ...]:
        """Return the numbers of the columns in rows of ``n_columns``."""
        return column_numbers(self.columns, None, n_columns)

    def mean_columns(self, n_columns: int) -> Array:
        found = np.ones(n_columns, dtype=bool)
        numbers = list(self.numbers(n_columns))
        found[numbers] = self.kernel.mean_columns(len(numbers))
        return found

    def resolve(self, moments: Moments) -> Kernel:
        """Return this kernel with a number for ``gamma``, from the moments of the selected columns."""
        if not self.kernel.needs_moments:
            return self.bind(None, len(moments.mean))
        return OnColumns(self.kernel.resolve(moments.of(self.numbers(len(moments.mean)))), self.columns)

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        Z = as_matrix(Z, "Z")
        numbers = np.array(self.numbers(Z.shape[1]))
        own = None if center is None else center[numbers]
        return _OfColumns(self.kernel.prepare(take_columns(Z, numbers), own), numbers, Z.shape[1])

    def diag(self, A: Matrix, start: int = 0) -> Array:
        return self.kernel.diag(take_columns(as_matrix(A, "A"), np.array(self.numbers(A.shape[1]))), start)

    def __hash__(self) -> int:
        # A slice has no hash before Python 3.12.
        return hash((self.kernel, repr(self.columns) if isinstance(self.columns, slice) else self.columns))

    def __repr__(self) -> str:
        before = f"({self.kernel!r})" if isinstance(self.kernel, (_Pair, Scaled)) else repr(self.kernel)
        columns: object = self.columns
        if isinstance(columns, tuple):
            columns = columns[0] if len(columns) == 1 and not isinstance(columns[0], bool) else list(columns)
        return f"{before}.on({columns!r})"


@dataclass(frozen=True)
class _OfColumns:
    prepared: Prepared
    numbers: Array
    n_columns: int

    def __call__(self, X: Matrix) -> Array:
        check_columns(X, self.n_columns)
        return self.prepared(take_columns(X, self.numbers))


@dataclass(frozen=True)
class _Combined:
    operation: np.ufunc
    left: Prepared
    right: Prepared

    def __call__(self, X: Matrix) -> Array:
        out = self.left(X)
        # 0 · inf is NaN: like overflow, it is found where the values are summed.
        with np.errstate(over="ignore", invalid="ignore"):
            self.operation(out, self.right(X), out=out)
        return out


@dataclass(frozen=True)
class _Multiple:
    factor: float
    prepared: Prepared

    def __call__(self, X: Matrix) -> Array:
        out = self.prepared(X)
        out *= self.factor
        return out


class GammaKernel(Kernel):
    """A kernel with a parameter ``gamma``: "scale", None for 1 / n_features, or a number."""

    gamma: Gamma

    def __post_init__(self) -> None:
        check_gamma(self.gamma)

    @property
    def needs_moments(self) -> bool:
        return self.gamma == "scale"

    def resolve(self, moments: Moments) -> Kernel:
        if self.gamma == "scale":
            return replace(self, gamma=self._scale(moments))  # type: ignore[type-var]
        return replace(self, gamma=self._number(len(moments.mean)))  # type: ignore[type-var]

    def bind(self, names: Sequence[str] | None, n_columns: int, table: object = None) -> Kernel:
        if self.needs_moments or is_number(self.gamma):
            return self
        return replace(self, gamma=self._number(n_columns))  # type: ignore[type-var]

    def _scale(self, moments: Moments) -> float:
        return reciprocal(moments.spread)

    def _number(self, n_features: int) -> float:
        if self.gamma is None:
            return 1.0 / n_features
        if isinstance(self.gamma, str):
            raise ValueError(
                f"{self!r} has no bandwidth yet: gamma='scale' is taken from the rows. "
                "Call kernel.resolve(moments) first, or give gamma a number."
            )
        return float(self.gamma)


class PlainGammaKernel(GammaKernel):
    """A kernel whose ``gamma="scale"`` does not depend on the spread of the rows."""

    @property
    def needs_moments(self) -> bool:
        return False

    def _plain_scale(self, n_features: int) -> float:
        return 1.0

    def _scale(self, moments: Moments) -> float:
        return self._plain_scale(len(moments.mean))

    def _number(self, n_features: int) -> float:
        return self._plain_scale(n_features) if self.gamma == "scale" else super()._number(n_features)


def check_gamma(gamma: object) -> None:
    """Raise unless ``gamma`` is "scale", None, or a positive finite number."""
    if gamma is None or (isinstance(gamma, str) and gamma == "scale"):
        return
    if not (is_number(gamma) and 0 < gamma < math.inf):
        raise ValueError(f"gamma must be 'scale', None (1 / n_features) or a positive finite number; got {gamma!r}.")


# The largest spread for which every squared distance d² with exp(−γ d²) > 0 is finite: γ d² < 746.
_LARGEST_SPREAD = float(np.finfo(np.float64).max) / 746


def reciprocal(spread: float) -> float:
    """Return ``1 / spread``, or 1 if all rows are equal: any bandwidth then gives the same kernel."""
    if not spread < _LARGEST_SPREAD:
        raise ValueError(
            f"gamma='scale' is one over the spread of the rows, and {spread:.3g} is too large for that: squares of "
            f"distances overflow. Divide the rows by a constant."
        )
    if spread == 0:
        return 1.0
    if not 1.0 / spread < math.inf:
        raise ValueError(
            f"gamma='scale' is one over the spread of the rows, and {spread:.3g} is too small for that. Multiply "
            "the rows by a constant, or give gamma a number."
        )
    return 1.0 / spread


# Range of kernel values that float32 rows compute in float32; outside it they use float64.
_FLOAT32_KERNEL = (1e-30, 1e30)
# Minimum ratio of two parts of a sum in float32; below it the smaller part would be rounded away.
_UNEVEN = 2.0**-10
# Ranges in which kernel values can be squared and their squares summed.
_SQUARABLE = {"float32": (1e-15, 1e15), "float64": (1e-140, 1e140)}


def kernel_dtype(kernel: Kernel, points: Matrix, dtype: np.dtype) -> np.dtype:
    """Return the dtype for the kernel of rows of ``dtype``: float64 if its values exceed the range of float32."""
    if dtype != np.float32 or not kernel.has_coordinates:
        return np.dtype(dtype)
    with np.errstate(over="ignore"):
        sizes = _sizes(kernel, points)
    low, high = _FLOAT32_KERNEL
    inside = not sizes or (low < sum(sizes) < high and min(sizes) > _UNEVEN * max(sizes))
    return np.dtype(np.float32 if inside else np.float64)


def _sizes(kernel: Kernel, points: Matrix) -> list[float]:
    """Return the largest k(x, x) of each part of a sum, without parts that are zero."""
    if isinstance(kernel, Sum):
        return _sizes(kernel.left, points) + _sizes(kernel.right, points)
    if isinstance(kernel, Scaled):
        return [kernel.factor * size for size in _sizes(kernel.kernel, points)]
    largest = float(np.max(kernel.diag(points), initial=0.0))
    return [largest] if largest else []


def with_room(evaluate: Prepared, kernel: Kernel, points: Matrix) -> Prepared:
    """Return the function from rows to kernel values with the points, in float64 if float32 lacks the range."""
    return _Wide(evaluate) if kernel_dtype(kernel, points, points.dtype) != points.dtype else evaluate


def overflow_error(dtype: np.dtype) -> ValueError:
    """Return the error for kernel values, or sums of them, outside the range of the dtype."""
    wider = " or give them as float64" if dtype == np.float32 else ""
    return ValueError(
        f"the kernel of the rows is not finite in {np.dtype(dtype).name}: its values, or their sums, overflow. Scale "
        f"the rows down (for example with sklearn.preprocessing.StandardScaler){wider}, or lower gamma, degree or "
        f"coef0."
    )


def near_one(
    kernel: Kernel, diagonal: Array, dtype: np.dtype, squarable: tuple[float, float] | None = None
) -> tuple[Kernel, Array]:
    """Return the kernel and its diagonal, divided by the largest diagonal entry if its square is out of range.

    ``squarable`` is the range of values that can be squared: by default, that of ``dtype``.
    """
    largest = float(np.max(diagonal, initial=0.0))
    if not largest < np.inf:
        raise overflow_error(dtype)
    low, high = _SQUARABLE[np.dtype(dtype).name] if squarable is None else squarable
    tiny = float(np.finfo(np.float64).tiny)
    if low < largest < high or largest < tiny or not kernel.has_coordinates:
        return kernel, diagonal
    return _NearOne(kernel, 1 / largest), diagonal / largest


@dataclass(frozen=True)
class _Wide:
    """Kernel values of float32 rows in float64."""

    evaluate: Prepared

    def __call__(self, X: Matrix) -> Array:
        return self.evaluate(X.astype(np.float64))


@dataclass(frozen=True)
class _NearOne(Kernel):
    """``factor · k(x, y)``, computed in float64 and returned in the dtype of the rows."""

    kernel: Kernel
    factor: float

    @property
    def is_psd(self) -> bool:
        return self.kernel.is_psd

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        return _Times(self.kernel.prepare(Z, center), self.factor)

    def diag(self, A: Matrix, start: int = 0) -> Array:
        return self.kernel.diag(A, start) * self.factor


@dataclass(frozen=True)
class _Times:
    evaluate: Prepared
    factor: float

    def __call__(self, X: Matrix) -> Array:
        return (self.evaluate(X.astype(np.float64)) * self.factor).astype(X.dtype)


@dataclass(frozen=True)
class Finite:
    """Kernel values, with an error that gives advice if they overflow."""

    evaluate: Prepared

    def __call__(self, X: Matrix) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            values = self.evaluate(X)
            # The sum is a quick test; it may overflow even if the values do not.
            finite = np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all()
        if not finite:
            raise overflow_error(X.dtype)
        return values


class Filling(Protocol):
    """The method ``into`` of a prepared kernel that can write its values in place."""

    def __call__(
        self, out: Array, X: Matrix, minus: Array | None, largest: Array | None = None, kept: Array | None = None
    ) -> float | None: ...


def fill(
    evaluate: Prepared,
    out: Array,
    X: Matrix,
    minus: Array | None = None,
    largest: Array | None = None,
    kept: Array | None = None,
) -> float | None:
    """Fill ``out`` with ``k(X, Z) − minus``; return None and leave ``out`` unchanged if the kernel cannot do so.

    Parameters
    ----------
    evaluate : Prepared
        The kernel with its landmarks.
    out : array (n, m)
    X : matrix (n, p)
    minus : array (m,), optional
        Rounded to the dtype of ``out``. ``largest`` and ``kept`` require it.
    largest : array (n,), optional
        Filled with the largest k(x, z) of each row.
    kept : array (n, m), optional
        Filled with ``k(X, Z)``.

    Returns
    -------
    float or None
        The sum of the rows' squared distances from some point: not finite if a row is not.
    """
    # Looking the method up takes a tenth of the time of isinstance with a protocol.
    into: Filling | None = getattr(evaluate, "into", None)
    return None if into is None else into(out, X, minus, largest, kept)
