"""A total estimated from few rows whose terms are costly, made more precise by many rows whose terms are cheap.

Double sampling: each row has a term, known for a part of a sample, and some numbers that go with it, known for all of
the sample. The terms are regressed on these numbers, and the difference of the numbers' totals, by the part and by the
sample, corrects the total of the terms. What noise is left comes from the residuals, by the part, and from what the
regression explains, by the whole sample.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nystrom.types import Array

# Directions of the cheap numbers that hold less than this share of them are rounding.
_LEAST_SHARE = 1e-9


class Drawn(NamedTuple):
    """Rows drawn, each with the chance that it had, and the numbers that go with it.

    Attributes
    ----------
    chance : array (s,)
        In (0, 1]; a row that was drawn for certain adds no noise.
    numbers : array (s, q)
        The cheap numbers of each row.
    """

    chance: Array
    numbers: Array


class Corrected(NamedTuple):
    """What is added to the total of the terms by the part, and the variance of the sum."""

    change: float
    variance: float


def correct(terms: Array, part: Drawn, sample: Drawn) -> Corrected:
    """Return the correction of the total ``Σ terms / chance`` over the part by the sample that it was drawn from.

    Cost: O(s q²).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=1000)
    >>> part, sample = Drawn(np.full(100, 0.01), x[:100, None]), Drawn(np.full(1000, 0.1), x[:, None])
    >>> found = correct(3 * x[:100], part, sample)
    >>> bool(np.isclose(3 * x[:100].sum() * 100 + found.change, 3 * x.sum() * 10))
    True
    """
    y, Z = terms / part.chance, part.numbers / part.chance[:, None]
    noisy = 1 - part.chance
    root = np.sqrt(noisy)
    deviation, spread = root * (y - _mean(y, noisy)), root[:, None] * (Z - _mean(Z, noisy))
    scale = np.sqrt(np.square(spread).sum(axis=0))
    # Numbers that are the same in every row differ by rounding, and explain nothing.
    scale[scale <= _LEAST_SHARE * np.sqrt(noisy @ np.square(Z))] = np.inf
    U, size, Vt = np.linalg.svd(spread / scale, full_matrices=False)
    kept = size > _LEAST_SHARE * max(size[0], 1e-300)
    U, size, Vt = U[:, kept], size[kept], Vt[kept]
    slope = (Vt.T @ ((U.T @ deviation) / size)) / scale
    # A row that the regression leans on is explained too well: its residual is what it would be without the row.
    leverage = np.minimum(np.square(U).sum(axis=1), 0.9)
    residual = (deviation - U @ (U.T @ deviation)) / (1 - leverage)
    whole = sample.numbers / sample.chance[:, None]
    change = float((whole @ slope).sum() - (Z @ slope).sum())
    return Corrected(change, float(residual @ residual) + variance(sample.numbers @ slope, sample.chance))


def variance(terms: Array, chance: Array) -> float:
    """Return the variance of ``Σ terms / chance`` over rows drawn with these chances, as many every time."""
    noisy, y = 1 - chance, terms / chance
    return float(noisy @ np.square(y - _mean(y, noisy)))


def _mean(values: Array, weight: Array) -> Array:
    total = weight.sum()
    return np.asarray(weight @ values / total if total > 0 else np.zeros(values.shape[1:]))
