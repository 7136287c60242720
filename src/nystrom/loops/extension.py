"""Which compiled loops are in use, and the array layout they require."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from nystrom.devices import DeviceArray, Sent
from nystrom.types import Array, Matrix

if TYPE_CHECKING:
    from nystrom.loops._native import InstructionSet


def _choose(wanted: str) -> InstructionSet | None:
    """Return the loops that the environment selects: none, the best for this processor, or those of one name."""
    if wanted == "0":
        return None
    try:
        from nystrom.loops import _native
    except ImportError:
        # The package was installed without a compiler.
        return None
    sets = {each.name: each for each in _native.instruction_sets()}
    if wanted in ("", "1"):
        return list(sets.values())[-1]
    if wanted not in sets:
        raise ImportError(
            f"NYSTROM_COMPILED must be 0 (NumPy only), 1 (the best for this processor) or one of {', '.join(sets)}; "
            f"got {wanted!r}. Unset it to let nystrom choose."
        )
    return sets[wanted]


native = _choose(os.environ.get("NYSTROM_COMPILED", "1"))


def instruction_set() -> str | None:
    """Return the name of the instruction set of the loops in use, or None if NumPy does the work."""
    return None if native is None else native.name


def takes(dtype: np.dtype) -> bool:
    """Whether the loops support this dtype."""
    return dtype.newbyteorder("=") in (np.float32, np.float64)


def by_rows(X: Array) -> Array:
    """Return rows as the loops need them, each contiguous, aligned, in native byte order; copies only if needed."""
    if not X.dtype.isnative:
        return X.astype(X.dtype.newbyteorder("="), order="C")
    size = X.itemsize
    if X.strides[1] != size or X.strides[0] % size or not X.flags.aligned:
        return X.copy(order="C")
    return X


def aligned(values: Array, dtype: DTypeLike | None = None) -> Array:
    """Return an array as the loops need it: contiguous and aligned. Arrays received over a network may be neither."""
    return np.require(values, dtype, ["C_CONTIGUOUS", "ALIGNED"])


def check_columns(X: Matrix, n_columns: int) -> None:
    """Raise unless X is a matrix with the given number of columns."""
    if X.ndim != 2 or X.shape[1] != n_columns:
        raise ValueError(f"X must have {n_columns} columns; got shape {X.shape}.")


class Columns(Sent):
    """A matrix (p, m) and its panels, the layout that the loops read.

    The panels are made on first use. They are not pickled, because another machine may use other loops.
    """

    def __init__(self, values: Array) -> None:
        values = np.asarray(values)
        super().__init__(np.require(values, values.dtype.newbyteorder("="), ["ALIGNED"]))
        # By instruction set. Threads that race make the same panels.
        self._panels: dict[str, Array] = {}

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"_panels": {}}

    def beside(self, X: DeviceArray) -> DeviceArray:
        # With contiguous columns, which most libraries multiply fastest.
        if X.place not in self._sent:
            self._sent[X.place] = X.beside(np.ascontiguousarray(self.values.T)).T
        return self._sent[X.place]

    def panels(self, loops: InstructionSet) -> Array:
        if loops.name not in self._panels:
            self._panels[loops.name] = loops.pack(self.values)
        return self._panels[loops.name]


__all__ = ["Columns", "by_rows", "check_columns", "instruction_set", "native", "takes"]
