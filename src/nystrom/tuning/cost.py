"""The choice of C by the loss on rows that were held out, along a path of warm starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from nystrom.solvers.lbfgs import Problem, minimise
from nystrom.tuning.sample import assign_parts, count_distinct
from nystrom.types import Array

# What "auto" tries, in this order: a larger C takes more steps, so the path ends where the score falls no more.
AUTO_COSTS = 10.0 ** np.arange(-2.0, 5.5, 0.5)
_TURNED = 2
# It ends at once where a score is above the lowest by this share: what follows takes the most steps and is worse still.
_WORSE = 0.02
# It goes on where no score is below that of a constant by this share. Wide kernels learn nothing but the noise along
# straight lines until C is large: on sums of products of two columns the path ended at C = 0.01, and half of the
# classes were wrong instead of a seventh.
_LEARNED = 0.01
# So small a C that nothing but the intercept is fitted.
_NO_COST = 1e-10
# Where a constant leaves so small a share of the loss of scores 0, as with unequal weights, there is nothing to learn.
_NEGLIGIBLE = 1e-3
# Where there are fewer rows than the first number, the second is the number of parts, each held out once.
_PARTS = ((1000, 5), (2500, 3))
_HELD_SHARE = 5
# Rows of larger tables that fits on the path and their judges are drawn from.
PATH_ROWS = 5000
# A solution that is not converged is regularised by that, and its score flatters a large C: at 0.1 the C chosen for
# scikit-learn's wine set was 31,600 instead of 1,000.
_TOL = 1e-3
# Scores that differ by a smaller share are ties.
_TIE = 1e-3


@dataclass(frozen=True)
class CostPath:
    """The values of C that were tried, the mean held-out loss of each (less is better), and the best one's unknowns.

    The unknowns are those of the first part that was held out.
    """

    costs: Array
    scores: Array
    solution: Array

    @property
    def best(self) -> float:
        """The least C whose score is the lowest, as far as scores are known."""
        return float(self.costs[_first_of_best(self.scores)])


def _first_of_best(scores: Array | list[float]) -> int:
    values = np.asarray(scores)
    return int(np.argmax(values <= values.min() + _TIE * abs(values.min())))


def _has_turned(scores: list[float], learned: Callable[[], float]) -> bool:
    """Return whether scores along the path will fall no more; below ``learned()`` something was learned."""
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
    in_array: bool = False,
) -> CostPath:
    """Return the held-out loss for each C, from the smallest to the largest, each fit begun where the last ended.

    Of 2,500 distinct rows or more a fifth is held out. Fewer make three parts, and below 1,000 five, each held out
    once.

    Parameters
    ----------
    y, weight : arrays
        Target and weight of each row, as in the problem.
    costs : array or None
        Values of C; None tries those of "auto", and stops when two more have not lowered the score, if that is below
        the score of a constant, or when one has raised it by 2 %.
    keys : array
        Of the rows, by :func:`nystrom.tuning.sample.row_keys`: equal rows are held out together.
    strata : array
        The class of each row, or zeros: rows of each are spread evenly over the parts.
    in_array : bool
        Whether the kernel values of the rows are in one array, so that those held out can be left out of each pass.
    """
    w = np.ones(len(strata)) if weight is None else weight
    n = count_distinct(keys, w)
    n_parts = next((parts for rows, parts in _PARTS if n < rows), _HELD_SHARE)
    parts = assign_parts(keys, w, n_parts, rng, strata=strata)
    held = range(n_parts if n < _PARTS[-1][0] else 1)
    pairs = [_split(problem, y, w, parts == part, in_array) for part in held]
    pairs = [pair for pair in pairs if min(part.weight for part in pair) > 0]
    if not pairs:
        count = int(np.count_nonzero(w))
        raise ValueError(
            f"C cannot be chosen with n_samples={count} rows of positive weight, all of them equal: there is none to "
            f"hold out. Give one C."
        )
    tried = AUTO_COSTS if costs is None else np.sort(costs)
    scores: list[float] = []
    solutions: list[Array] = []
    starts: list[Array] | None = None
    learned = cache(lambda: _learned_score(pairs, max_iter))
    for C in tried:
        starts, score = _fit_parts(pairs, float(C), starts, max_iter)
        scores.append(score)
        solutions.append(starts[0])
        if costs is None and _has_turned(scores, learned):
            break
    return CostPath(tried[: len(scores)], np.array(scores), solutions[_first_of_best(scores)])


def _fit_parts(
    pairs: list[tuple[Problem, Problem]], C: float, starts: list[Array] | None, max_iter: int
) -> tuple[list[Array], float]:
    """Return the unknowns of a fit beside each part that is held out, and the mean loss of these parts."""
    begin: Sequence[Array | None] = [None] * len(pairs) if starts is None else starts
    found = [
        minimise(train, C, tol=_TOL, max_iter=max_iter, start=x, announce=False).x
        for (train, _), x in zip(pairs, begin, strict=True)
    ]
    losses = [test.total_loss(x) for (_, test), x in zip(pairs, found, strict=True)]
    return found, sum(losses) / sum(test.weight for _, test in pairs)


def _learned_score(pairs: list[tuple[Problem, Problem]], max_iter: int) -> float:
    """Return the score below which a fit has learned something; it is infinite where there is nothing to learn."""
    constant = _fit_parts(pairs, _NO_COST, None, max_iter)[1]
    losses = [test.total_loss(np.zeros((test.n_unknowns, test.n_columns))) for _, test in pairs]
    nothing = sum(losses) / sum(test.weight for _, test in pairs)
    return (1 - _LEARNED) * constant if constant > _NEGLIGIBLE * nothing else np.inf


def _split(problem: Problem, y: Array, w: Array, held: Array, in_array: bool) -> tuple[Problem, Problem]:
    part = problem.for_part if in_array else problem.with_weight
    return part(y, np.where(held, 0.0, w)), part(y, np.where(held, w, 0.0))
