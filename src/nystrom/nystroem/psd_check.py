"""Features that exceed their kernel, ``‖f‖² > k(x, x)``: what rounding can do, what is repeated, what is refused."""

from __future__ import annotations

import numpy as np

from nystrom.exceptions import AccuracyWarning, NotPositiveSemidefiniteError, warn_caller
from nystrom.kernels import Kernel
from nystrom.nystroem.fit_pass import Fold
from nystrom.nystroem.statistics import Statistics
from nystrom.types import Array

# Factors on the cut-off of the landmarks' eigenvalues, tried until no row's features exceed its kernel.
CAUTIONS = (1.0, 10.0, 100.0, 1000.0)
# An excess of this many times the possible rounding comes from the kernel itself; a higher cut-off would hide it.
_CLEARLY = 1e3


def excess(statistics: Statistics, fold: Fold) -> float:
    """Return by how many times the tolerance the features exceed the kernel; at most 1 is rounding.

    Looks at the row that exceeds it most, where rows were looked at, and at the sum of all.
    """
    s = statistics
    left = s.trace - s.spanned
    # The rows' scales add up to at most this, by the inequality of Cauchy and Schwarz.
    scale = np.sqrt(s.trace) * np.sqrt(s.trace + s.weight * fold.top) + s.weight * fold.tolerance * fold.top
    margin = min(s.margin, left / scale if scale > 0 else 0.0)
    return float(-margin / fold.tolerance)


def value_tolerance(m: int, dtype: np.dtype) -> float:
    """Return ``√ε m^¼``: the part of :func:`rounding_tolerance` that kernel values with m landmarks are worth."""
    return float(np.sqrt(np.finfo(dtype).eps) * m**0.25)


def rounding_tolerance(kernel: Kernel, W: Array, T: Array, dtype: np.dtype) -> float:
    """Return how far features may exceed the kernel by rounding alone, as a share of the scale of ``margin_of``.

    Kernel values with the landmarks are rounded, which is worth √ε m^¼. So is W, by ε √m top, which changes ``‖f‖²`` by
    the share ε √m top / σ, with σ the least eigenvalue kept. A higher cut-off mends that, unless σ is far above even
    the highest: then, for a kernel that is positive semidefinite by theorem, it is rounding that must be allowed.
    """
    of_values, root = value_tolerance(len(W), dtype), len(W) ** 0.25
    spread = root * float(np.sqrt(np.max(np.diag(W)))) * float(np.max(np.linalg.norm(T, axis=0)))
    of_landmarks = float(np.finfo(np.float64).eps) * spread**2
    beyond_cut = of_landmarks < 1 / (10 * CAUTIONS[-1])
    return of_values + of_landmarks if kernel.is_psd and beyond_cut else of_values


def warn_or_refuse(kernel: Kernel, over: float) -> None:
    """Warn that a pass is repeated with a higher cut-off, or raise where rounding cannot be the reason."""
    if over > _CLEARLY and not kernel.is_psd:
        raise exceeded(kernel, over)
    warn_caller(
        f"rounding made the approximation exceed the kernel, by {over:.2g} times what is expected; the cut-off on "
        f"the landmarks' eigenvalues is raised tenfold and the pass repeated. float64 rows avoid this.",
        AccuracyWarning,
    )


def exceeded(kernel: Kernel, over: float) -> NotPositiveSemidefiniteError:
    advice = (
        "Its values are too inexact: give the rows as float64, or scale them."
        if kernel.is_psd
        else "A Nyström approximation needs k(x, y) to be an inner product; use a positive definite kernel such as "
        "'gaussian', or shift a precomputed one (add a constant to its diagonal)."
    )
    return NotPositiveSemidefiniteError(
        f"the kernel is not positive semidefinite on the rows: for some row k(x, x) is negative, or below what the "
        f"landmarks explain of it, by {over:.2g} times what rounding can do. {advice}"
    )
