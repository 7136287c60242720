"""Landmarks and kernel of a machine that was solved without a factor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from nystrom.factor import FeatureMap, spanning_projection
from nystrom.kernels import Kernel
from nystrom.landmarks.base import Landmarks
from nystrom.types import Array


@dataclass(frozen=True)
class UnfactoredMap(FeatureMap):
    """The function ``X ↦ k(X, Z)``, where a :class:`nystrom.factor.NystromMap` would cost n m² operations.

    It has no eigenvalues and no certificate; asking for them is an ``AttributeError`` that says what to do. Features,
    with every direction of the landmarks, and with them errors, are there for those who ask: O(m³) for the first of
    them, and O(m²) per row.
    """

    landmarks: Landmarks
    kernel: Kernel

    @cached_property
    def projection(self) -> Array:  # type: ignore[override]
        """M, found when it is first asked for."""
        return spanning_projection(self.kernel, self.landmarks)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"there is no {name!r}: conjugate gradients solve for the coefficients of the landmarks without a factor. "
            f"Fit a ridge with solver='factor', or Nystroem with landmarks=model.landmarks_ to some of the rows."
        )
