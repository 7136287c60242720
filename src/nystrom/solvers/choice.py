"""Which solver a ridge regression takes: the cheapest that gives the same answer, by counting operations."""

from __future__ import annotations

from typing import NamedTuple

# Operations per kernel value beside the p of its product (an exponential), and for the two products of a step, which
# run at a quarter of the speed of matrix products (`python -m benchmarks landmark_cg`).
_EXPONENTIAL = 20
_STEP_PRODUCTS = 8
_SLOWER = 4
# Below so many operations (some ten seconds) the closed form is taken: it gives a certificate and all regularisations.
_FEW_OPERATIONS = 1e12
# And below so many (a minute) for a machine whose passes do not get fewer without it.
_LONG_OPERATIONS = 4e12
# Steps of conjugate gradients that a fit usually takes, and of the exact solver.
STEPS = 30
_EXACT_STEPS = 40
# Steps of a regularisation on trial, as a share; and how many of them "auto" tries.
_SEARCH_SHARE = 0.3
AUTO_ALPHAS = 10
# Eigenvalue problems of order m, in multiples of m³, at the speed of products.
_ALGEBRA = 40
# Beyond this the closed form's dozen m × m matrices take gigabytes.
_MOST_FACTOR_LANDMARKS = 12_000


class Choice(NamedTuple):
    """A solver and why it was taken."""

    solver: str
    reason: str


def choose_solver(
    n_rows: int,
    n_features: int,
    n_landmarks: int,
    n_targets: int = 1,
    *,
    n_alphas: int = 1,
    factor_fits: bool = True,
) -> Choice:
    """Return the cheapest of "factor", "cg" and "exact", and the reason.

    The first two solve the same problem. The exact solver does so only if every row is a landmark.

    Parameters
    ----------
    n_rows, n_features, n_landmarks, n_targets : int
        n, p, m and t.
    n_alphas : int
        Regularisations to choose from. The closed form has them all for the price of one.
    factor_fits : bool
        Whether the closed form fits into ``max_memory`` and into this machine.

    Examples
    --------
    >>> choose_solver(100_000, 10, 1000).solver, choose_solver(100_000, 10, 20_000).solver
    ('factor', 'cg')
    """
    n, p, m, t = float(n_rows), n_features, float(min(n_landmarks, n_rows)), n_targets
    values = n * m * (p + _EXPONENTIAL)
    factor = values + 2 * n * m * m + _ALGEBRA * m**3
    # To choose among regularisations, each is solved to fewer digits, from the one before; the last again on all rows.
    solves = 1.0 if n_alphas == 1 else 1 + _SEARCH_SHARE * n_alphas
    cg = n_alphas * m**3 + solves * STEPS * _SLOWER * (values + _STEP_PRODUCTS * n * m * t)
    if m >= n and factor > _FEW_OPERATIONS:
        # The factor that preconditions the exact solver takes a tenth of the rows.
        few = min(1000.0, n)
        exact = n * few * few + _ALGEBRA * few**3 + _EXACT_STEPS * _SLOWER * n * n * (p + _EXPONENTIAL + 8 * t) / 2
        if exact < min(factor, cg):
            return Choice("exact", f"every row is a landmark, and {exact:.2g} operations are fewer than {factor:.2g}")
    if not factor_fits:
        return Choice("cg", "the closed form does not fit into max_memory, or into this machine")
    if m > _MOST_FACTOR_LANDMARKS:
        return Choice("cg", f"the closed form would take more than {100 * m * m / 1e9:.0f} GB for {m:.0f} landmarks")
    if factor > _FEW_OPERATIONS and cg < factor:
        return Choice("cg", f"about {cg:.2g} operations, against {factor:.2g} of the closed form")
    if cg < factor:
        return Choice("factor", f"about {factor:.2g} operations, too few to gain by conjugate gradients")
    return Choice("factor", f"about {factor:.2g} operations, against {cg:.2g} of conjugate gradients")


def factor_takes_long(n_rows: int, n_landmarks: int) -> bool:
    """Return whether a factor costs more than the passes of a machine that can do without."""
    n, m = float(n_rows), float(min(n_landmarks, n_rows))
    return 2 * n * m * m + _ALGEBRA * m**3 > _LONG_OPERATIONS or m > _MOST_FACTOR_LANDMARKS
