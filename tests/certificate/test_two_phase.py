"""Totals from few rows, corrected by many: they are those of all rows in the mean, and spread as they say."""

import numpy as np
import pytest

from nystrom.certificate.two_phase import Drawn, correct, variance


def systematic(rng, chance):
    """Return rows drawn with these chances, as many every time."""
    order = rng.permutation(len(chance))
    reach = np.cumsum(chance[order])
    return order[
        np.searchsorted(
            reach, (np.arange(round(reach[-1])) + rng.random()) * reach[-1] / round(reach[-1]), side="right"
        )
    ]


def draw(rng, x, y, chance, share):
    """Return the terms and the numbers of rows drawn with these chances, and of a part of them."""
    sample = systematic(rng, chance)
    inside = rng.choice(sample, round(share * len(sample)), replace=False)
    return y[inside], Drawn(share * chance[inside], x[inside]), Drawn(chance[sample], x[sample])


@pytest.mark.parametrize("uneven", [False, True])
def test_the_corrected_total_is_right_in_the_mean_and_its_variance_is_the_one_it_has(uneven):
    rng = np.random.default_rng(1)
    n = 5000
    x = np.column_stack([np.ones(n), rng.gamma(2.0, size=n)])
    y = x[:, 1] ** 1.2 + 0.2 * rng.normal(size=n)
    chance = np.clip(0.1 * x[:, 1], 0.1, 0.4) if uneven else np.full(n, 0.2)
    totals, variances, plain = [], [], []
    for _ in range(300):
        terms, part, sample = draw(rng, x, y, chance, 0.2)
        found = correct(terms, part, sample)
        totals.append((terms / part.chance).sum() + found.change)
        variances.append(found.variance)
        plain.append((terms / part.chance).sum())
    assert np.mean(totals) == pytest.approx(y.sum(), rel=0.01)
    if not uneven:  # chances that follow the terms leave little to correct
        assert np.std(totals) < 0.75 * np.std(plain)
    assert 0.8 < np.sqrt(np.mean(variances)) / np.std(totals) < 1.3


def test_rows_that_are_certain_have_no_variance():
    y = np.arange(6.0)
    assert variance(y, np.ones(6)) == 0
    assert variance(np.ones(6), np.full(6, 0.5)) == 0
    assert variance(y, np.full(6, 0.5)) > 0


def test_numbers_that_say_the_same_are_no_trouble():
    x = np.random.default_rng(0).normal(size=(50, 1))
    part = Drawn(np.full(50, 0.1), np.hstack([np.ones((50, 1)), x, 2 * x, np.zeros((50, 1))]))
    found = correct(3 * x[:, 0], part, part)
    assert found.change == pytest.approx(0.0, abs=1e-9)
    assert np.isfinite(found.variance)
