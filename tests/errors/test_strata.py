"""Two rows from each stratum: totals and pairs are right on average, and the chances are those asked for."""

import numpy as np
import pytest

from nystrom.errors.frobenius import degrees_of_freedom, draw_two_each, inclusion

N = 60


def shares(kind):
    if kind == "even":
        return None
    share = np.random.default_rng(1).pareto(1.0, size=N) + 0.05
    return share / share.sum()


@pytest.mark.parametrize("kind", ["even", "uneven"])
def test_totals_of_rows_and_of_pairs_are_right_on_average(kind):
    rng = np.random.default_rng(0)
    order = rng.permutation(N)
    y, T = rng.random(N), rng.random((N, N))
    T = T + T.T
    np.fill_diagonal(T, 0.0)
    totals, pairs = [], []
    for _ in range(4000):
        found = draw_two_each(order, shares(kind), 20, rng)
        w, (one, two) = found.weight, found.draws.T
        part = T[np.ix_(found.rows, found.rows)]
        own = 2 * (found.own - 1) * found.each.prod(axis=1) * part[one, two]
        totals.append(w @ y[found.rows])
        pairs.append(w @ part @ w + own.sum())
    for values, true in ((totals, y.sum()), (pairs, T.sum())):
        assert abs(np.mean(values) - true) < 4 * np.std(values) / np.sqrt(len(values))


@pytest.mark.parametrize("kind", ["even", "uneven"])
def test_the_two_draws_of_a_stratum_tell_the_noise_of_a_total(kind):
    rng = np.random.default_rng(0)
    y = rng.random(N)
    order = np.argsort(y)
    totals, said = [], []
    for _ in range(4000):
        found = draw_two_each(order, shares(kind), 20, rng)
        moves = found.each * y[found.rows][found.draws]
        totals.append(found.weight @ y[found.rows])
        said.append(float(found.noise @ (moves[:, 0] - moves[:, 1]) ** 2))
    assert np.mean(said) == pytest.approx(np.var(totals), rel=0.15)


@pytest.mark.parametrize("kind", ["even", "uneven"])
def test_all_rows_are_taken_where_there_are_not_more(kind):
    found = draw_two_each(np.arange(N)[::-1], shares(kind), N, np.random.default_rng(0))
    np.testing.assert_array_equal(found.rows, np.arange(N))
    np.testing.assert_array_equal(found.weight, 1.0)
    assert len(found.draws) == 0


@pytest.mark.parametrize("size", [1, 2, 3, N - 1])
@pytest.mark.parametrize("kind", ["even", "uneven"])
def test_any_size_can_be_drawn(kind, size):
    found = draw_two_each(np.arange(N), shares(kind), size, np.random.default_rng(0))
    assert len(np.unique(found.rows)) == len(found.rows) <= N
    assert found.weight.sum() > 0
    assert found.draws.max(initial=0) < len(found.rows)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_chances_add_up_to_the_size_and_follow_the_shares(size):
    share = np.random.default_rng(0).pareto(0.5, size=60)
    share /= share.sum()
    chance = inclusion(share, size)
    assert chance.sum() == pytest.approx(size)
    assert chance.max() <= 1
    free = chance < 1
    assert np.ptp(chance[free] / share[free]) <= 1e-9 * np.max(chance[free] / share[free])


def test_few_strata_that_hold_most_of_a_variance_leave_few_degrees_of_freedom():
    even = np.full(50, 2.0)
    assert degrees_of_freedom(even) == 50
    assert degrees_of_freedom(np.append(even, 1e6)) == pytest.approx(2.0, abs=0.1)
    assert degrees_of_freedom(np.zeros(0)) == 1
