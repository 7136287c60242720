"""What an error is reported as: a number with its interval, and what a fit knows of itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NORMS = ("fro", "trace", "spectral")
# A relative error below this is rounding: ten times the dtype's eps, as a round number.
_RESOLUTION = {"float32": 1e-6, "float64": 1e-14}


def resolution(dtype: np.dtype) -> float:
    """Return the least relative error that features of this dtype can tell from none."""
    return _RESOLUTION[np.dtype(dtype).name]


@dataclass(frozen=True)
class ErrorEstimate:
    """A relative error ``‖K − L Lᵀ‖ / ‖K‖`` with the interval that holds it.

    Attributes
    ----------
    value, low, high : float
        The estimate and its interval; all equal where the error is exact.
    norm : str
        "trace", "fro" or "spectral".
    confidence : float
        Probability that the interval holds the error; 1 where it is exact or bounded.
    dtype : str
        The rows' dtype, where the error is below what it resolves; else empty. Then ``low`` is 0 and ``high`` is at
        least the least error that the dtype can tell from none.

    Examples
    --------
    >>> print(ErrorEstimate(0.1, 0.09, 0.11, "fro", 0.95))
    0.1 in [0.09, 0.11] (fro, 95%)
    """

    value: float
    low: float
    high: float
    norm: str
    confidence: float = 1.0
    dtype: str = ""

    @classmethod
    def exact(cls, value: float, norm: str, dtype: np.dtype) -> ErrorEstimate:
        """Return an error that is known, or "below what the dtype resolves"."""
        return cls(value, value, value, norm).resolved(dtype)

    def resolved(self, dtype: np.dtype) -> ErrorEstimate:
        """Return the estimate, or one that says that the error is below what ``dtype`` resolves."""
        least = resolution(dtype)
        if self.value >= least:
            return self
        return ErrorEstimate(self.value, 0.0, max(self.high, least), self.norm, self.confidence, np.dtype(dtype).name)

    def __str__(self) -> str:
        if self.dtype:
            return f"below {self.high:.0e} ({self.norm}, {self.dtype})".replace("e-0", "e-")
        if self.low == self.high:
            return f"{self.value:.4g} ({self.norm}, exact)"
        kind = "bounds" if self.confidence == 1 else f"{100 * self.confidence:.4g}%"
        return f"{self.value:.4g} in [{self.low:.4g}, {self.high:.4g}] ({self.norm}, {kind})"


def check_norm(norm: object) -> str:
    """Return the name of a norm, or raise."""
    if not isinstance(norm, str) or norm not in NORMS:
        raise ValueError(f"norm must be one of {NORMS}; got {norm!r}.")
    return norm


def check_confidence(confidence: object) -> float:
    """Return a probability strictly between 0 and 1, or raise."""
    number = isinstance(confidence, (int, float, np.floating)) and not isinstance(confidence, bool)
    if not number or not 0 < confidence < 1:  # type: ignore[operator]
        raise ValueError(
            f"confidence must be a number between 0 and 1, neither included, such as 0.95; got {confidence!r}."
        )
    return float(confidence)  # type: ignore[arg-type]


def ratio_of(part: float, whole: float) -> float:
    """Return ``part / whole``, and 0 for a kernel that is zero everywhere."""
    return part / whole if whole > 0 else 0.0
