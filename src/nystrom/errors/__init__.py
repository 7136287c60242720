"""How far the approximation is from K, without forming K.

The trace-norm error is exact and free: ``K − L Lᵀ`` is positive semidefinite, so its trace norm is
``Σ k(x, x) − Σ λ``. The Frobenius error is estimated from all pairs among a sample of rows, with an interval. The
spectral error is a bracket, from Lanczos iteration on the kernel of the rows if there are few enough.
"""

from __future__ import annotations

from nystrom.errors.frobenius import frobenius_error
from nystrom.errors.measure import measure_error, spectral_error
from nystrom.errors.trace import Certificate, ErrorEstimate, certify, trace_error

__all__ = [
    "Certificate",
    "ErrorEstimate",
    "certify",
    "frobenius_error",
    "measure_error",
    "spectral_error",
    "trace_error",
]
