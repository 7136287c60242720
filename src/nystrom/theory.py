"""The paper's bounds as numbers, together with the error that they bound.

With ``E(X, S) = Σ ‖x − μ(x)‖²``, the quantisation error of the rows by their nearest landmarks, Proposition 1 says
``‖K − C W⁺ Cᵀ‖_F ≤ η₁ √E + η₂ E``. The constants here come from writing ``K − P W Pᵀ`` and ``C − P W``, for the n × m
matrix P that marks each row's landmark. If ``(k(a, b) − k(c, d))² ≤ η (‖a − c‖² + ‖b − d‖²)``, their Frobenius norms
are at most ``√(2nηE)`` and ``√(mηE)``, and ``‖P‖₂`` is the root of the number of rows T of the largest cell. Hence
``η₁ = √η (√(2n) + 2 √(mT))`` and ``η₂ = η m ‖W⁺‖₂``.

A tighter bound needs no W⁺: the residual of a row is at most the squared distance of its feature to that of its
landmark. So the trace of the error, and hence its Frobenius norm, is at most ``L E``, where the feature map
stretches squared distances at most L times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import RandomState, check_count, check_number, make_generator
from nystrom.engine.base import Engine, Sums
from nystrom.errors.frobenius import squared_norms
from nystrom.kernels import Gaussian, Kernel, Linear, Polynomial
from nystrom.kmeans import assign
from nystrom.nystroem.factor import landmark_kernel
from nystrom.rows.base import Block, RowBlocks, require_finite
from nystrom.types import Array, RowsLike


@dataclass(frozen=True)
class Bounds:
    """Bounds on ``‖K − C W⁺ Cᵀ‖_F`` with every direction kept, and the error itself.

    Attributes
    ----------
    quantization : float
        E(X, S).
    eta1, eta2 : float
        The constants of Proposition 1 for these rows and landmarks.
    proposition : float
        ``η₁ √E + η₂ E``.
    theorem : float
        The same with ``(2 + ε) E``: Theorem 1, with E of these landmarks instead of the smaller E of the optimum.
    trace : float
        ``L E``: the tighter bound.
    error, error_high : float
        The measured error, and the upper end of its 95 % interval; below the bounds if no rank was cut.
    kernel_norm : float
        ``‖K‖_F``, for relative values.
    """

    quantization: float
    eta1: float
    eta2: float
    proposition: float
    theorem: float
    trace: float
    error: float
    error_high: float
    kernel_norm: float

    def __str__(self) -> str:
        scale = self.kernel_norm or 1.0
        return (
            f"E(X, S) = {self.quantization:.4g}\n"
            f"relative error {self.error / scale:.4g}, at most {self.error_high / scale:.4g} (95%)\n"
            f"Proposition 1 {self.proposition / scale:.4g}, Theorem 1 {self.theorem / scale:.4g}, "
            f"by the trace {self.trace / scale:.4g}"
        )


def bounds(estimator: Any, X: RowsLike, *, epsilon: float = 0.25, random_state: RandomState = 0) -> Bounds:
    """Return the bounds of Proposition 1 and Theorem 1 for a fitted estimator, and the measured error.

    Parameters
    ----------
    estimator : fitted estimator
        With a Gaussian, linear or polynomial kernel and dense rows. The error is certain to be below the bounds only
        without a rank cut (``n_components=None``).
    X : rows
        Any dense rows.
    epsilon : float
        ε of Theorem 1, between 0 and 1/3.
    random_state : int, Generator, RandomState or None
        Seed of the measured error.

    Examples
    --------
    >>> from nystrom import Nystroem
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> found = bounds(Nystroem(n_components=None, n_landmarks=50, random_state=0).fit(X), X)
    >>> bool(found.error <= found.trace and found.error <= found.proposition <= found.theorem)
    True
    """
    check_is_fitted(estimator)
    if not 0 < check_number(epsilon, "epsilon") < 1 / 3:
        raise ValueError(f"epsilon must lie between 0 and 1/3, as in Theorem 1; got {epsilon!r}.")
    fitted, rows = estimator.map_, estimator._check_X(X, reset=False)
    if rows.is_sparse:
        raise ValueError("the bounds are computed for dense rows; give X as an array.")
    engine = estimator._engine(rows)
    Z = np.asarray(fitted.landmarks.points, dtype=np.float64)
    total, radius, cells = _quantize(rows, Z, engine)
    radius = max(radius, float(np.linalg.norm(Z, axis=1).max()))
    eta, stretch = constants(fitted.kernel, radius, Z.shape[1])
    n, m = rows.shape[0], len(Z)
    values = np.linalg.eigvalsh(landmark_kernel(fitted.kernel, fitted.landmarks))
    kept = values[values > m * np.finfo(np.float64).eps * values[-1]]
    eta1 = math.sqrt(eta) * (math.sqrt(2 * n) + 2 * math.sqrt(m * cells.max()))
    eta2 = eta * m / float(kept[0])
    norms = squared_norms(rows, fitted, engine, rng=make_generator(random_state))
    found, scale = norms.estimate(0.95, rows.dtype), math.sqrt(norms.kernel)
    return Bounds(
        total,
        eta1,
        eta2,
        eta1 * math.sqrt(total) + eta2 * total,
        eta1 * math.sqrt((2 + epsilon) * total) + eta2 * (2 + epsilon) * total,
        stretch * total,
        found.value * scale,
        found.high * scale,
        scale,
    )


def constants(kernel: Kernel, radius: float, n_features: int = 1) -> tuple[float, float]:
    """Return η and L of a kernel on a ball of this radius; ``gamma=None`` is one over the number of features.

    Gaussian: ``exp(−γ‖u‖²)`` has slope at most ``√(2γ/e)`` in u, so η = 4γ/e; and ``2 (1 − exp(−γd²)) ≤ 2γd²``, so L is
    2γ. Linear: η = 2R², L = 1. Polynomial, with ``t = γR² + c``: η = ``2 (dγ t^(d−1) R)²`` and
    ``L = γ d t^(d−1) + γ² d (d − 1) t^(d−2) R²``, the largest eigenvalue of its mixed derivative.

    Examples
    --------
    >>> from nystrom.kernels import Linear
    >>> constants(Linear(), 3.0)
    (18.0, 1.0)
    """
    if isinstance(kernel, Gaussian):
        gamma = kernel._number(n_features)
        return 4 * gamma / math.e, 2 * gamma
    if isinstance(kernel, Linear):
        return 2 * radius**2, 1.0
    if isinstance(kernel, Polynomial):
        gamma, d = kernel._number(n_features), float(kernel.degree)
        t = gamma * radius**2 + float(kernel.coef0)
        slope = d * gamma * t ** (d - 1)
        return 2 * (slope * radius) ** 2, slope + gamma**2 * d * (d - 1) * t ** (d - 2) * radius**2
    raise ValueError(f"the constants are known for Gaussian, linear and polynomial kernels; got {kernel!r}.")


def sketch_sizes(n_landmarks: int, epsilon: float) -> tuple[int, int]:
    """Return the number of columns of a sketch by Theorem 1, m/ε², and by a newer result, log(m/ε)/ε².

    Both are orders of growth, with constants set to 1. The newer result is by Makarychev, Makarychev and
    Razenshteyn, "Performance of Johnson-Lindenstrauss transform for k-means and k-medians clustering", 2019.

    Examples
    --------
    >>> sketch_sizes(100, 0.25)
    (1600, 96)
    """
    m = check_count(n_landmarks, "n_landmarks")
    if not 0 < check_number(epsilon, "epsilon") < 1:
        raise ValueError(f"epsilon must lie between 0 and 1; got {epsilon!r}.")
    return math.ceil(m / epsilon**2), math.ceil(math.log(m / epsilon) / epsilon**2)


def _quantize(rows: RowBlocks, Z: Array, engine: Engine) -> tuple[float, float, Array]:
    """Return E(X, S), the largest norm of a row, and the number of rows in each landmark's cell: one pass."""
    name, m = rows.name, len(Z)

    def step(block: Block) -> tuple[Sums, float]:
        require_finite(block.X, name, block.start)
        X = np.asarray(block.X, dtype=np.float64)
        nearest = assign(X, Z)
        # By subtraction: distances from products lose digits for rows that are near landmarks.
        exact = float(np.sum((X - Z[nearest]) ** 2))
        return Sums(exact, np.bincount(nearest, minlength=m)), float(np.linalg.norm(X, axis=1).max(initial=0.0))

    parts = [part for _, part in engine.map(rows, step, label="quantisation error")]
    total = sum(float(sums[0]) for sums, _ in parts)
    return total, max(largest for _, largest in parts), np.sum([sums[1] for sums, _ in parts], axis=0)
