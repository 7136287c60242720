"""Kernels of the distance between two rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nystrom.checks import is_number
from nystrom.kernels.base import Gamma, GammaKernel, Prepared, reciprocal
from nystrom.kernels.pairwise import Exponents, NormKernel, as_matrix
from nystrom.types import Array, Matrix

if TYPE_CHECKING:
    from nystrom.engine.passes import Moments


class _UnitDiagonal(GammaKernel):
    """A kernel of distance with ``k(a, a) = 1``: the Fourier transform of a measure, hence positive semidefinite."""

    @property
    def is_psd(self) -> bool:
        return True

    def diag(self, A: Matrix, start: int = 0) -> Array:
        return np.ones(A.shape[0])


@dataclass(frozen=True)
class Gaussian(_UnitDiagonal):
    """The Gaussian kernel ``exp(−γ‖x − y‖²)``.

    Parameters
    ----------
    gamma : float, "scale" or None
        "scale" is the paper's bandwidth, 1 / (mean squared distance of the rows to their mean); None is
        1 / n_features, scikit-learn's default.

    Examples
    --------
    >>> import numpy as np
    >>> Gaussian(gamma=0.5)(np.array([[0.0], [2.0]]), np.array([[0.0]])).round(3)
    array([[1.   ],
           [0.135]])
    """

    gamma: Gamma = "scale"

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        Z = as_matrix(Z, "Z")
        return Exponents(Z, self._number(Z.shape[1]), center, exp=True)


@dataclass(frozen=True)
class Matern(_UnitDiagonal):
    """The Matérn kernel of smoothness ``nu`` with length scale ``1/√γ``.

    With ``d = √γ ‖x − y‖``: ``exp(−d)`` for 1/2, ``(1 + √3 d) exp(−√3 d)`` for 3/2 and
    ``(1 + √5 d + 5d²/3) exp(−√5 d)`` for 5/2.

    Parameters
    ----------
    nu : 0.5, 1.5 or 2.5
        Smoothness.
    gamma : float, "scale" or None
        As for :class:`Gaussian`.

    Examples
    --------
    >>> import numpy as np
    >>> Matern(nu=0.5, gamma=1.0)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(3)
    array([[1.   , 0.368]])
    """

    nu: float = 1.5
    gamma: Gamma = "scale"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(
                f"nu must be 0.5, 1.5 or 2.5; got {self.nu!r}. The limit of large nu is Gaussian(gamma / 2)."
            )

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        Z = as_matrix(Z, "Z")
        # exp(−d) has a kink at 0, where d is the root of a difference: float32 would give noise of 3e-4.
        exponents = Exponents(Z, 2 * self.nu * self._number(Z.shape[1]), center, sharp=self.nu == 0.5)
        return _Matern(exponents, self.nu)


@dataclass(frozen=True)
class _Matern:
    exponents: Exponents
    nu: float

    def __call__(self, X: Matrix) -> Array:
        t = self.exponents(X)
        np.negative(t, out=t)
        np.sqrt(t, out=t)
        decay = np.exp(-t)
        if self.nu == 1.5:
            t += 1
            decay *= t
        elif self.nu == 2.5:
            decay *= 1 + t * (1 + t / 3)
        return decay


@dataclass(frozen=True)
class Laplacian(_UnitDiagonal):
    """The Laplacian kernel ``exp(−γ‖x − y‖₁)``, and rougher or smoother ones ``exp(−(γ‖x − y‖_p)^q)``.

    γ is one over the length L of ``exp(−(‖x − y‖_p / L)^q)``. A smaller q gives rougher functions; p = q gives a
    product over columns, p = q = 2 is ``Gaussian(gamma²)``, and p = 2, q = 1 is ``Matern(0.5, gamma²)``.
    Cost: n·m·p operations without a matrix product, unless p is 2; each is a power, unless p is 1.

    Parameters
    ----------
    gamma : float, "scale" or None
        "scale" is one over ``n_features^(1/p − 1/2) · sqrt(spread)``, with the spread as for :class:`Gaussian`; None is
        1 / n_features.
    p, q : float
        The norm and the power: 0 < q ≤ p ≤ 2, for which the kernel is positive semidefinite.

    Examples
    --------
    >>> import numpy as np
    >>> Laplacian(gamma=1.0)(np.array([[0.0, 0.0]]), np.array([[0.0, 1.0]])).round(3)
    array([[0.368]])
    >>> Laplacian(gamma=1.0, p=1.5, q=0.5)(np.array([[0.0, 0.0]]), np.array([[0.0, 4.0]])).round(3)
    array([[0.135]])
    """

    gamma: Gamma = "scale"
    p: float = 1
    q: float = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.p) and is_number(self.q) and 0 < self.q <= self.p <= 2):
            raise ValueError(
                f"p and q must be numbers with 0 < q ≤ p ≤ 2, where the kernel is positive semidefinite; got "
                f"p={self.p!r}, q={self.q!r}."
            )

    def _scale(self, moments: Moments) -> float:
        # ‖x‖_p ≤ n^(1/p − 1/2) ‖x‖₂ for n features, nearly with equality if they vary alike. Times √spread, this factor
        # is a typical p-norm distance to the mean, as √spread is in the 2-norm.
        return reciprocal(len(moments.mean) ** (1 / self.p - 0.5) * math.sqrt(moments.spread))

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        Z = as_matrix(Z, "Z")
        gamma = self._number(Z.shape[1])
        if self.p == 2 and _SQUARABLE[0] < gamma < _SQUARABLE[1]:
            exponents = Exponents(Z, gamma**2, center, sharp=self.q < 2, exp=self.q == 2)
            return exponents if self.q == 2 else _OfSquares(exponents, self.q / 2)
        return NormKernel(Z, gamma, float(self.p), float(self.q))


# Range of bandwidths whose square is a normal number in float64.
_SQUARABLE = (1e-150, 1e150)


@dataclass(frozen=True)
class _OfSquares:
    exponents: Exponents
    power: float

    def __call__(self, X: Matrix) -> Array:
        t = self.exponents(X)
        np.negative(t, out=t)
        np.power(t, self.power, out=t)
        np.negative(t, out=t)
        return np.exp(t, out=t)
