"""The path over C: what is held out takes no part, and the path ends where scores have turned."""

import numpy as np
import pytest

from nystrom import KernelLogisticRegression
from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.kernels import Gaussian
from nystrom.landmarks import Landmarks
from nystrom.nystroem.factor import optimal
from nystrom.rows import as_blocks
from nystrom.solvers.lbfgs import make_problem
from nystrom.solvers.losses import Multinomial
from nystrom.tuning.cost import _NO_COST, AUTO_COSTS, _has_turned, _learned_score, choose_cost

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3))
Y = np.digitize(X[:, 0] + 0.4 * RNG.normal(size=240), [-0.5, 0.5])
WEIGHT = RNG.integers(0, 3, size=240).astype(float)


@pytest.fixture
def problem():
    rows = as_blocks(X, block_rows=100)
    fitted = optimal(Passes(rows, LocalEngine()), Gaussian(0.3), Landmarks(X[:30], None), None)
    whole = make_problem(
        rows, Y, None, fitted=fitted, engine=LocalEngine(), loss=Multinomial(), n_columns=3, fit_intercept=True
    )
    return whole.for_rows(np.arange(240), X, Y, np.ones(240))


def test_a_part_is_the_problem_of_its_rows_alone(problem):
    part, weighted = problem.for_part(Y, WEIGHT), problem.with_weight(Y, WEIGHT)
    assert part.rows.shape[0] == np.count_nonzero(WEIGHT)
    assert (part.weight, part.share) == (weighted.weight, weighted.share)
    x = RNG.normal(size=(problem.n_unknowns, 3))
    for found, expected in zip(part.loss_and_gradient(x), weighted.loss_and_gradient(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_the_path_ends_with_a_value_between_the_best_and_its_better_neighbour(problem):
    path = choose_cost(
        problem, Y, WEIGHT, None, keys=np.arange(240.0), strata=Y, max_iter=1000, rng=np.random.default_rng(1)
    )
    steps = np.diff(np.log10(path.costs))
    assert np.all(np.isclose(steps, 1.0) | np.isclose(steps, 0.5))
    assert np.isclose(steps, 0.5).sum() == 2
    half = 1 + int(np.argmax(np.isclose(steps, 0.5)))
    assert path.scores.argmin() in (half - 1, half, half + 1)
    assert path.best in path.costs
    assert path.solution.shape == (problem.n_unknowns, 3)


def test_the_path_ends_after_two_scores_that_are_no_lower_or_one_that_is_clearly_higher():
    def ends(scores):
        return _has_turned(scores, lambda: 4.0)

    assert not ends([3.0, 2.0])
    assert not ends([3.0, 2.0, 2.01])
    assert ends([3.0, 2.0, 2.01, 2.005])
    assert not ends([3.0, 2.0, 2.01, 1.9])
    assert ends([3.0, 2.0, 2.1])


def test_the_path_goes_on_where_nothing_was_learned_yet():
    assert not _has_turned([0.690, 0.6905, 0.691, 0.692], lambda: 0.686)
    assert _has_turned([0.690, 0.6905, 0.691, 0.71], lambda: 0.686)
    assert _has_turned([0.680, 0.6805, 0.681], lambda: 0.686)


def test_what_a_constant_leaves_is_what_can_be_learned(problem):
    parts = [(problem, problem)]
    shares = np.bincount(Y) / len(Y)
    entropy = -np.sum(shares * np.log(shares))
    np.testing.assert_allclose(_learned_score(parts, _NO_COST * AUTO_COSTS[0], 1000), 0.99 * entropy, rtol=1e-3)
    one_class = problem.for_part(Y, np.where(Y == 0, 1.0, 1e-9))
    assert _learned_score([(one_class, one_class)], _NO_COST * AUTO_COSTS[0], 1000) == np.inf


def test_the_product_of_two_columns_is_learned_with_a_wide_kernel():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1500, 8))
    label = (rows[:, ::2] * rows[:, 1::2]).sum(axis=1) + 0.3 * rng.normal(size=1500) > 0
    model = KernelLogisticRegression("auto", gamma=0.002, n_landmarks=200, random_state=0)
    assert model.fit(rows[:1000], label[:1000]).score(rows[1000:], label[1000:]) > 0.8
