"""The choice of C by the loss on held-out rows, along a path of warm starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from nystrom.rows.draw import unit_weight
from nystrom.solvers.lbfgs import Problem, minimise
from nystrom.tuning.sample import assign_parts, count_distinct
from nystrom.types import Array

# Values of C for "auto", in increasing order: larger ones take more steps, so the path ends when scores stop falling.
# One more value is then tried: the geometric mean of the best and its better neighbour.
AUTO_COSTS = 10.0 ** np.arange(-2.0, 6.0)
# Consecutive values without a lower score that end the path: scores are known to about 1 %, so one is not enough.
_TURNED = 2
# End the path at once if a score exceeds the lowest by this fraction: later values take the most steps and are worse.
_WORSE = 0.02
# Continue while no score is below that of a constant by this fraction. Wide kernels learn only noise along straight
# lines until C is large: on sums of products of two columns the path ended at C = 0.01, and half of the classes were
# wrong instead of a seventh.
_LEARNED = 0.01
# A C so small that only the intercept is fitted, as a fraction of the smallest C of the path.
_NO_COST = 1e-8
# If a constant leaves less than this fraction of the loss at scores 0, as with unequal weights, nothing can be learned.
_NEGLIGIBLE = 1e-3
# (rows, parts): with fewer distinct rows than the first number, each of the parts is held out once.
_PARTS = ((1000, 5), (2500, 3))
_HELD_SHARE = 5
# Rows of larger tables from which the fits on the path and the judging rows are drawn.
PATH_ROWS = 5000
# Tolerance of the fits on the path. Stopping early regularises and favours a large C: at 0.1 the C chosen for
# scikit-learn's wine set was 31,600 instead of 1,000.
_TOL = 1e-3
# Scores that differ by less than this fraction are ties.
_TIE = 1e-3


@dataclass(frozen=True)
class CostPath:
    """The values of C tried, the mean held-out loss of each (less is better), and the unknowns of the best.

    The unknowns are those of the fit without the first held-out part.
    """

    costs: Array
    scores: Array
    solution: Array

    @property
    def best(self) -> float:
        """The smallest C with the lowest score, up to ties."""
        return float(self.costs[_first_of_best(self.scores)])


def auto_costs(weight: Array | None) -> Array:
    """Return the values of C tried for "auto": for one row of mean weight if only the ratios of weights matter.

    Whole weights are repetitions. If they are large, smaller values are added in steps of 10.
    """
    unit = unit_weight(weight)
    mean = 1.0 if weight is None else float(weight.sum() / np.count_nonzero(weight))
    further = max(0, int(np.log10(mean / unit)))
    return np.concatenate([AUTO_COSTS[0] / 10.0 ** np.arange(further, 0, -1), AUTO_COSTS]) / unit


def _first_of_best(scores: Array | list[float]) -> int:
    values = np.asarray(scores)
    return int(np.argmax(values <= values.min() + _TIE * abs(values.min())))


def _has_turned(scores: list[float], learned: Callable[[], float]) -> bool:
    """Return whether scores along the path have stopped falling; below ``learned()`` something was learned."""
    turned, lowest = len(scores) - 1 - _first_of_best(scores), min(scores)
    if turned > 0 and scores[-1] > (1 + _WORSE) * lowest:
        return True
    return turned >= _TURNED and lowest < learned()


def choose_cost(
    problem: Problem,
    y: Array,
    weight: Array | None,
    costs: Array | None,
    *,
    keys: Array,
    strata: Array,
    max_iter: int,
    rng: np.random.Generator,
    auto: Array = AUTO_COSTS,
) -> CostPath:
    """Return the held-out loss for each C, in increasing order, with warm starts.

    With 2,500 distinct rows or more, a fifth is held out. Fewer rows are cut into three parts, and below 1,000 into
    five, each held out once.

    Parameters
    ----------
    problem : Problem
        With the kernel values of the rows in one array.
    y, weight : arrays
        Target and weight of each row, as in the problem.
    costs : array or None
        Values of C; None tries those of ``auto``, and stops if two in a row do not lower the score and the best is
        below the score of a constant, or if one exceeds the lowest by 2 %.
    keys : array
        Keys of the rows, by :func:`nystrom.tuning.sample.row_keys`: equal rows are held out together.
    strata : array
        The class of each row, or zeros: each class is spread evenly over the parts.
    auto : array
        The values of "auto".
    """
    w = np.ones(len(strata)) if weight is None else weight
    n = count_distinct(keys, w)
    n_parts = next((parts for rows, parts in _PARTS if n < rows), _HELD_SHARE)
    parts = assign_parts(keys, w, n_parts, rng, strata=strata)
    held = range(n_parts if n < _PARTS[-1][0] else 1)
    pairs = [_split(problem, y, w, parts == part) for part in held]
    pairs = [pair for pair in pairs if min(part.weight for part in pair) > 0]
    # Rows that are all equal cannot be held out. They judge themselves: only a constant can be learned from them.
    pairs = pairs or [(problem, problem)]
    found: dict[float, tuple[float, list[Array]]] = {}
    starts: list[Array] | None = None
    learned = cache(lambda: _learned_score(pairs, _NO_COST * auto[0], max_iter))
    for C in map(float, auto if costs is None else np.sort(costs)):
        starts, score = _fit_parts(pairs, C, starts, max_iter)
        found[C] = score, starts
        if costs is None and _has_turned([score for score, _ in found.values()], learned):
            break
    if costs is None:
        tried = list(found)
        best = _first_of_best([found[C][0] for C in tried])
        beside = min((i for i in (best - 1, best + 1) if 0 <= i < len(tried)), key=lambda i: found[tried[i]][0])
        C = float(np.sqrt(tried[best] * tried[beside]))
        starts, score = _fit_parts(pairs, C, found[tried[min(best, beside)]][1], max_iter)
        found[C] = score, starts
    tried = sorted(found)
    scores = np.array([found[C][0] for C in tried])
    return CostPath(np.array(tried), scores, found[tried[_first_of_best(scores)]][1][0])


def _fit_parts(
    pairs: list[tuple[Problem, Problem]], C: float, starts: list[Array] | None, max_iter: int
) -> tuple[list[Array], float]:
    """Return the unknowns of the fit without each held-out part, and the mean loss on these parts."""
    begin: Sequence[Array | None] = [None] * len(pairs) if starts is None else starts
    found = [
        minimise(train, C, tol=_TOL, max_iter=max_iter, start=x, announce=False).x
        for (train, _), x in zip(pairs, begin, strict=True)
    ]
    losses = [test.total_loss(x) for (_, test), x in zip(pairs, found, strict=True)]
    return found, sum(losses) / sum(test.weight for _, test in pairs)


def _learned_score(pairs: list[tuple[Problem, Problem]], no_cost: float, max_iter: int) -> float:
    """Return the score below which a fit has learned something; infinite if nothing can be learned."""
    constant = _fit_parts(pairs, no_cost, None, max_iter)[1]
    losses = [test.total_loss(np.zeros((test.n_unknowns, test.n_columns))) for _, test in pairs]
    nothing = sum(losses) / sum(test.weight for _, test in pairs)
    return (1 - _LEARNED) * constant if constant > _NEGLIGIBLE * nothing else np.inf


def _split(problem: Problem, y: Array, w: Array, held: Array) -> tuple[Problem, Problem]:
    return problem.for_part(y, np.where(held, 0.0, w)), problem.for_part(y, np.where(held, w, 0.0))
