"""Type aliases that every room shares."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
# A dense ndarray or a scipy CSR matrix; scipy ships no types, so the union cannot be spelled for the checker.
Matrix: TypeAlias = Any
