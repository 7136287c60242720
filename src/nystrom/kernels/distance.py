"""Kernels of the distance between two rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nystrom.kernels.base import Gamma, GammaKernel, Prepared, reciprocal
from nystrom.kernels.pairwise import Exponents, ManhattanDistances, as_matrix
from nystrom.types import Array, Matrix

if TYPE_CHECKING:
    from nystrom.engine.passes import Moments


class _UnitDiagonal(GammaKernel):
    """A kernel of distance, with ``k(a, a) = 1``: the Fourier transform of a measure, so positive semidefinite."""

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
        return _Gaussian(Exponents(Z, self._number(Z.shape[1]), center))


@dataclass(frozen=True)
class _Gaussian:
    exponents: Exponents

    def __call__(self, X: Matrix) -> Array:
        # Taken chunk by chunk with the exponents, while they are in the cache.
        return self.exponents(X, exp=True)

    def into(
        self, out: Array, X: Matrix, minus: Array | None, largest: Array | None = None, kept: Array | None = None
    ) -> float | None:
        return self.exponents.into(out, X, minus, largest, kept)


@dataclass(frozen=True)
class Matern(_UnitDiagonal):
    """The Matérn kernel of smoothness ``nu`` with length scale ``1/√γ``.

    With ``d = √γ ‖x − y‖``: ``exp(−d)`` for 1/2, ``(1 + √3 d) exp(−√3 d)`` for 3/2 and
    ``(1 + √5 d + 5d²/3) exp(−√5 d)`` for 5/2.

    Parameters
    ----------
    nu : 0.5, 1.5 or 2.5
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
        # exp(−d) has a kink at 0, where d is the root of a difference: float32 would leave 3e-4 of noise.
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
    """The Laplacian kernel ``exp(−γ‖x − y‖₁)``. No matrix product computes it: it is slower than the others.

    Parameters
    ----------
    gamma : float, "scale" or None
        "scale" is ``1 / sqrt(n_features · spread)``, with the spread as for :class:`Gaussian`.

    Examples
    --------
    >>> import numpy as np
    >>> Laplacian(gamma=1.0)(np.array([[0.0, 0.0]]), np.array([[0.0, 1.0]])).round(3)
    array([[0.368]])
    """

    gamma: Gamma = "scale"

    def _scale(self, moments: Moments) -> float:
        # ‖x − y‖₁ ≤ √p ‖x − y‖₂, and comes near it where the features vary alike: √(p · spread) is thus the
        # size of a typical distance to the mean in the 1-norm, as √spread is in the 2-norm.
        return reciprocal(math.sqrt(len(moments.mean) * moments.spread))

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        Z = as_matrix(Z, "Z")
        return _Laplacian(ManhattanDistances(Z), self._number(Z.shape[1]))


@dataclass(frozen=True)
class _Laplacian:
    distances: ManhattanDistances
    gamma: float

    def __call__(self, X: Matrix) -> Array:
        out = self.distances(X)
        out *= -self.gamma
        return np.exp(out, out=out).astype(X.dtype, copy=False)
