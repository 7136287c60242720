"""The choice of C by the loss on rows that were held out, along a path of warm starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nystrom.solvers.lbfgs import Problem, minimise
from nystrom.types import Array

# What "auto" tries, in this order: a larger C takes more steps, so the path ends where the score has turned.
AUTO_COSTS = 10.0 ** np.arange(-2.0, 5.5, 0.5)
_TURNED = 2
# Where there are fewer rows than the first number, the second is the number of parts, each held out once.
_PARTS = ((1000, 5), (5000, 3))
_HELD_SHARE = 5
# Enough to tell values of C that are half a decade apart.
_TOL = 1e-3


@dataclass(frozen=True)
class CostPath:
    """The values of C that were tried, and the mean held-out loss of each: less is better."""

    costs: Array
    scores: Array

    @property
    def best(self) -> float:
        return float(self.costs[np.argmin(self.scores)])


def assign_parts(strata: Array, n_parts: int, rng: np.random.Generator) -> Array:
    """Return the part of each row, 0 to ``n_parts − 1``, at random; each stratum is spread evenly."""
    order = rng.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    parts = np.empty(len(strata), dtype=np.int8)
    parts[order] = np.arange(len(strata)) % n_parts
    return parts


def choose_cost(
    problem: Problem,
    y: Array,
    weight: Array | None,
    costs: Array | None,
    *,
    strata: Array,
    max_iter: int,
    rng: np.random.Generator,
) -> CostPath:
    """Return the held-out loss for each C, from the smallest to the largest, each fit begun where the last ended.

    Of 5,000 rows or more a fifth is held out. Fewer rows make three parts, and below 1,000 five, each held out once.

    Parameters
    ----------
    y, weight : arrays
        Target and weight of each row, as in the problem.
    costs : array or None
        Values of C; None tries those of "auto", and stops when the score has risen twice.
    strata : array
        The class of each row, or zeros: rows of each are spread evenly over the parts.
    """
    n = len(strata)
    w = np.ones(n) if weight is None else weight
    n_parts = next((parts for rows, parts in _PARTS if n < rows), _HELD_SHARE)
    parts = assign_parts(strata, n_parts, rng)
    held = range(n_parts if n < _PARTS[-1][0] else 1)
    pairs = [_split(problem, y, w, parts == part) for part in held]
    pairs = [pair for pair in pairs if min(part.weight for part in pair) > 0]
    if not pairs:
        count = int(np.count_nonzero(w))
        raise ValueError(
            f"C cannot be chosen with n_samples={count} rows of positive weight: there is none to hold out. Give one C."
        )
    starts = [np.zeros((problem.n_unknowns, problem.n_columns))] * len(pairs)
    tried = AUTO_COSTS if costs is None else np.sort(costs)
    scores: list[float] = []
    for C in tried:
        starts = [
            minimise(train, C, tol=_TOL, max_iter=max_iter, start=x, announce=False).x
            for (train, _), x in zip(pairs, starts, strict=True)
        ]
        losses = [test.total_loss(x) for (_, test), x in zip(pairs, starts, strict=True)]
        scores.append(sum(losses) / sum(test.weight for _, test in pairs))
        if costs is None and len(scores) - 1 - int(np.argmin(scores)) >= _TURNED:
            break
    return CostPath(tried[: len(scores)], np.array(scores))


def _split(problem: Problem, y: Array, w: Array, held: Array) -> tuple[Problem, Problem]:
    return problem.with_weight(y, np.where(held, 0.0, w)), problem.with_weight(y, np.where(held, w, 0.0))
