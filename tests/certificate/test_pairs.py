"""How sums over pairs of drawn rows spread, and the interval that follows."""

import numpy as np
import pytest

from nystrom.certificate.frobenius import SquaredNorms
from nystrom.certificate.pairs import PairSums


def no_terms(s):
    return np.zeros(s), np.zeros(s), np.zeros(s // 2), np.zeros(s // 2), np.zeros(3)


def own_pair(s, at):
    """Return sums in which one stratum's own pair holds everything."""
    error, cross, own_error, own_cross, contrasts = no_terms(s)
    own_error[at] = 1.0
    return PairSums(error, cross, own_error, own_cross, contrasts)


def far_pair(s, first, second):
    """Return sums in which one pair of draws from two strata holds everything."""
    error, cross, own_error, own_cross, contrasts = no_terms(s)
    error[[first, second]] = 1.0
    # Each of the two orders of the strata has one block with one term.
    contrasts[0] = 2.0
    return PairSums(error, cross, own_error, own_cross, contrasts)


@pytest.mark.parametrize("sums", [own_pair(1000, 7), far_pair(1000, 4, 301)], ids=["own", "far"])
def test_one_pair_that_holds_all_spreads_and_leans_as_a_count_of_one(sums):
    total = sums.totals[0]
    assert np.sqrt(sums.variance(1.0, 0.0)) == pytest.approx(total, rel=0.01)
    assert sums.skewness(1.0, 0.0) == pytest.approx(1.0, rel=0.01)
    assert sums.skewness(-1.0, 0.0) == pytest.approx(-1.0, rel=0.01)


def test_sums_as_often_high_as_low_do_not_lean():
    rng = np.random.default_rng(0)
    error, cross, own_error, own_cross, contrasts = no_terms(4000)
    error += rng.normal(10.0, 1.0, size=4000)
    assert abs(PairSums(error, cross, own_error, own_cross, contrasts).skewness(1.0, 0.0)) < 0.05


def test_the_skewness_is_that_of_the_estimate_over_many_draws():
    rng = np.random.default_rng(1)
    found = []
    for _ in range(400):
        error, cross, own_error, own_cross, contrasts = no_terms(200)
        error += rng.exponential(size=200)
        sums = PairSums(error, cross, own_error, own_cross, contrasts)
        found.append(sums.skewness(1.0, 0.0))
    # A sum of 200 exponential terms: 2 / √200.
    assert np.mean(found) == pytest.approx(2 / np.sqrt(200), abs=0.02)


def test_the_interval_leans_with_the_estimate_and_allows_for_one_more_pair():
    even = SquaredNorms(0.04, 1.0, spread=0.002, freedom=1e6).estimate(0.95, np.dtype(np.float64))
    leaning = SquaredNorms(0.04, 1.0, spread=0.002, freedom=1e6, skewness=0.5).estimate(0.95, np.dtype(np.float64))
    assert even.high - even.value == pytest.approx(even.value - even.low)
    assert leaning.low > even.low
    assert leaning.high > even.high
    assert leaning.low < leaning.value
    rare = SquaredNorms(0.04, 1.0, spread=1e-9, unseen=0.0084, freedom=1e6).estimate(0.95, np.dtype(np.float64))
    assert rare.high == pytest.approx(0.22)
