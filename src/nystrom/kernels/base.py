"""What a kernel is, how kernels combine, and the bandwidth ``gamma``."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np

from nystrom.checks import is_number
from nystrom.kernels.pairwise import as_matrix
from nystrom.types import Array, Matrix

if TYPE_CHECKING:
    from nystrom.moments import Moments

Gamma: TypeAlias = float | Literal["scale"] | None
Prepared: TypeAlias = Callable[[Matrix], Array]


class Kernel(ABC):
    """A positive semidefinite function of two rows.

    Subclasses give :meth:`prepare` and :meth:`diag`; those with a bandwidth also :meth:`resolve`.
    """

    # NumPy then leaves ``np.float64(2) * kernel`` to ``__rmul__``.
    __array_ufunc__ = None

    @property
    def is_psd(self) -> bool:
        """Whether a theorem says that the kernel is positive semidefinite; if not, a fit checks every row."""
        return False

    @property
    def needs_moments(self) -> bool:
        """Whether :meth:`resolve` must see the rows' moments before the kernel can be evaluated."""
        return False

    def resolve(self, moments: Moments) -> Kernel:
        """Return this kernel with a number for ``gamma``."""
        return self

    @abstractmethod
    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        """Return the function ``X ↦ k(X, Z)``; its result has the dtype of ``X``.

        Parameters
        ----------
        Z : matrix of shape (m, p)
            The landmarks, dense or CSR.
        center : array of shape (p,), optional
            A point amid the rows, such as their mean. Kernels of distance may subtract it from both sides to
            keep accuracy; the value does not depend on it.
        """

    @abstractmethod
    def diag(self, A: Matrix, start: int = 0) -> Array:
        """Return ``k(a, a)`` for each row, in float64; ``start`` matters to Precomputed alone."""

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
    """Two kernels whose values an operation combines."""

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


@dataclass(frozen=True)
class _Combined:
    operation: np.ufunc
    left: Prepared
    right: Prepared

    def __call__(self, X: Matrix) -> Array:
        out = self.left(X)
        # 0 · inf is NaN: found, as overflow is, by whoever sums the values.
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
    """A kernel whose ``gamma="scale"`` does not depend on how far the rows spread."""

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


def reciprocal(spread: float) -> float:
    """Return ``1 / spread``, or 1 where all rows are equal: any bandwidth then gives the same kernel."""
    if not spread < math.inf:
        raise ValueError(
            f"gamma='scale' needs a finite spread of the rows; it is {spread}. "
            "Divide the rows by a constant so that their squares do not overflow, or give gamma a number."
        )
    if spread == 0:
        return 1.0
    if not 1.0 / spread < math.inf:
        raise ValueError(
            f"gamma='scale' is one over the spread of the rows, and {spread:.3g} is too small for that. Multiply "
            "the rows by a constant, or give gamma a number."
        )
    return 1.0 / spread
