"""The error in any of the three norms, with arguments checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nystrom.certificate.estimate import ErrorEstimate, check_confidence, check_norm
from nystrom.certificate.frobenius import DEFAULT_PAIRS, check_n_pairs, frobenius_error
from nystrom.certificate.spectral import spectral_error
from nystrom.certificate.trace import trace_error
from nystrom.engine.base import Engine
from nystrom.factor import NystromMap
from nystrom.kernels import Precomputed
from nystrom.kernels.ranges import near_one
from nystrom.rows.base import RowBlocks

# The sizes of k(x, x) of which sums of fourth powers, and their squares, can be taken.
_POWERS = (1e-15, 1e15)


def measure_error(
    rows: RowBlocks,
    fitted: NystromMap,
    engine: Engine,
    norm: str = "fro",
    *,
    rng: np.random.Generator,
    exact: bool = False,
    n_pairs: int = DEFAULT_PAIRS,
    confidence: float = 0.95,
) -> ErrorEstimate:
    """Return the relative error of a map on any rows; see the functions of the norms for cost and method."""
    norm, confidence, n_pairs = check_norm(norm), check_confidence(confidence), check_n_pairs(n_pairs)
    if norm == "trace":
        return trace_error(rows, fitted, engine)
    measure = frobenius_error if norm == "fro" else spectral_error
    return measure(rows, map_near_one(fitted), engine, rng=rng, n_pairs=n_pairs, confidence=confidence, exact=exact)


def map_near_one(fitted: NystromMap) -> NystromMap:
    """Return a map of the same relative errors, of a kernel whose values can be raised to the powers of an interval."""
    if isinstance(fitted.kernel, Precomputed):
        return fitted
    points = fitted.landmarks.points
    diagonal = fitted.kernel.diag(points)
    kernel, scaled = near_one(fitted.kernel, diagonal, points.dtype, _POWERS)
    if kernel is fitted.kernel:
        return fitted
    at = int(diagonal.argmax())
    return replace(fitted, kernel=kernel, projection=fitted.projection * np.sqrt(diagonal[at] / scaled[at]))
