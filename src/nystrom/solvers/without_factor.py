"""Landmarks and kernel of a machine that was solved without a factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from nystrom.factor import prepare
from nystrom.kernels import Kernel
from nystrom.landmarks.base import Landmarks
from nystrom.types import Array, Matrix


@dataclass(frozen=True)
class UnfactoredMap:
    """The function ``X ↦ k(X, Z)``, where a :class:`nystrom.factor.NystromMap` would cost n m² operations.

    It has no features, eigenvalues or certificate; asking for them is an ``AttributeError`` that says what to do.
    """

    landmarks: Landmarks
    kernel: Kernel

    @cached_property
    def evaluate(self) -> Callable[[Matrix], Array]:
        """The function that turns rows X into k(X, Z)."""
        return prepare(self.kernel, self.landmarks)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "evaluate"}

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"there is no {name!r}: conjugate gradients solve for the coefficients of the landmarks without a factor. "
            f"Fit a ridge with solver='factor', or Nystroem with landmarks=model.landmarks_ to some of the rows."
        )
