"""How sums over pairs of drawn rows spread, and the interval that follows."""

import numpy as np
import pytest

from nystrom import Nystroem
from nystrom.engine import LocalEngine
from nystrom.errors.frobenius import TILE, PairSums, SquaredNorms, pair_sums
from nystrom.kernels import Gaussian
from nystrom.rows import as_blocks


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


@pytest.mark.parametrize(("dtype", "scale"), [(np.float64, 1.0), (np.float32, 1.0), (np.float32, 1e6)])
@pytest.mark.parametrize("s", [2 * TILE + 64, 4])
def test_sums_over_tiles_are_those_over_the_whole_matrix_of_pairs(s, dtype, scale):
    X = np.random.default_rng(0).normal(size=(600, 3)).astype(dtype)
    rows, engine = as_blocks(X), LocalEngine(1)
    fitted = Nystroem(scale * Gaussian(0.3), n_components=10, random_state=0).fit(X).map_
    drawn = np.random.default_rng(1).integers(600, size=s)
    weight = np.random.default_rng(2).uniform(1, 3, size=s)
    phi = fitted.features(X[drawn]).astype(np.float64)
    product = phi @ phi.T
    rows_drawn = X[drawn].astype(np.float64)
    left = np.where(drawn[:, None] == drawn, 0.0, fitted.kernel(rows_drawn, rows_drawn) - product)
    whole = [np.multiply.outer(weight, weight) * T for T in (left**2, 2 * left * product)]
    strata = np.arange(s) // 2
    other = strata[:, None] != strata
    found = pair_sums(rows, fitted, engine, drawn, weight, np.full(s, scale))
    # In float32: its eps times the weights, up to 9, and the number of terms.
    close = 1e-10 if dtype == np.float64 else 1e-7 * 9 * s
    for sums, own, T in zip(found[:2], found[2:4], whole, strict=True):
        np.testing.assert_allclose(sums, (T * other).sum(axis=1), atol=close * scale**2)
        np.testing.assert_allclose(own, T[np.arange(0, s, 2), np.arange(1, s, 2)], atol=close * scale**2)
    e, c = ((T * other)[0::2] - (T * other)[1::2] for T in whole)
    e, c = (T[:, 0::2] - T[:, 1::2] for T in (e, c))
    squares = [np.sum(e * e), np.sum(e * c), np.sum(c * c)]
    np.testing.assert_allclose(found.contrasts, squares, rtol=close, atol=100 * close * scale**4)


@pytest.mark.parametrize("kinds", [2, 3, 8])
def test_the_interval_of_rows_of_few_kinds_holds_their_error(kinds):
    # Only strata where two kinds meet spread, and both draws of such a stratum may be of one kind.
    held = 0
    for seed in range(12):
        X = np.eye(kinds)[np.random.default_rng([kinds, seed]).integers(kinds, size=2300)]
        features = Nystroem("polynomial", n_components=kinds - 1, random_state=seed).fit(X)
        found = features.approximation_error(X, random_state=seed)
        true = features.approximation_error(X, exact=True).value
        held += found.low * (1 - 1e-9) <= true <= found.high * (1 + 1e-9)
    assert held >= 10  # below 10 of 12 has probability 0.02 at 95 %
