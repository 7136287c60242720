"""The search for a bandwidth ends at one that is best among its neighbours, and never worse than where it began."""

from __future__ import annotations

import numpy as np
import pytest

from nystrom import GaussianProcessRegressor, KernelRidge
from nystrom.engine import make_engine
from nystrom.engine.passes import Passes
from nystrom.kernels import Gaussian
from nystrom.landmarks import Landmarks
from nystrom.nystroem.factor import optimal
from nystrom.rows import as_blocks
from nystrom.tuning import bandwidth
from nystrom.tuning.bandwidth import search_gamma

rng = np.random.default_rng(0)
X = rng.normal(size=(2100, 2))


def _search(wanted, *, n_landmarks=20):
    """Search with a criterion that asks for the exponent ``wanted(rows, landmarks)``."""
    rows = as_blocks(X)

    def criterion(fitted, rows):
        asked = wanted(rows.shape[0], len(fitted.landmarks))
        return abs(np.log2(fitted.kernel.gamma) - asked)

    def factorise(passes, kernel, landmarks):
        return optimal(passes, kernel, landmarks, None)

    passes = Passes(rows, make_engine(rows, 1))
    landmarks = Landmarks(X[:n_landmarks])
    found = search_gamma(passes, Gaussian(gamma=1.0), landmarks, factorise, criterion, np.random.default_rng(0))
    return np.log2(found.gamma)


@pytest.mark.parametrize("wrong", [-10, -4, 6, 10])
def test_a_coarse_stage_that_errs_cannot_keep_the_search_from_where_it_began(wrong):
    assert _search(lambda n, m: wrong if n <= 2000 else 0) == 0


@pytest.mark.parametrize("wanted", [-13, -3, 1, 5, 14])
def test_the_search_goes_on_until_its_optimum_is_interior(wanted):
    assert _search(lambda n, m: wanted) == wanted


def test_the_winner_is_compared_with_the_start_on_all_landmarks(monkeypatch):
    monkeypatch.setattr(bandwidth, "_FINE", (20_000, 10))
    assert _search(lambda n, m: 0 if m == 20 else 4) == 0
    assert _search(lambda n, m: 4) == 4


def test_a_score_that_is_no_number_is_never_the_best():
    assert _search(lambda n, m: np.nan) == 0


@pytest.mark.parametrize("selection", ["loo", "gcv", "likelihood"])
@pytest.mark.parametrize("more", [{}, {"n_components": 15}, {"factor": "standard", "n_components": 15}, {"alpha": 0.3}])
@pytest.mark.parametrize("frequency", [1.0, 9.0])
def test_auto_is_never_worse_than_scale_by_its_own_score(monkeypatch, selection, more, frequency):
    # A coarse stage of so few rows points anywhere.
    monkeypatch.setattr(bandwidth, "_COARSE", (40, 4))
    Y = np.sin(frequency * X[:600, 0]) + 0.3 * np.random.default_rng(1).normal(size=600)
    settings = {"selection": selection, "n_landmarks": 60, "random_state": 0, "alpha": "auto"} | more
    alphas = settings["alpha"]
    settings["alpha"] = [alphas, alphas] if alphas != "auto" else alphas
    scores = [KernelRidge(gamma=gamma, **settings).fit(X[:600], Y).alpha_scores_.min() for gamma in ("auto", "scale")]
    assert scores[0] <= scores[1]


def test_the_likelihood_with_auto_gamma_is_never_below_that_of_scale(monkeypatch):
    monkeypatch.setattr(bandwidth, "_COARSE", (40, 4))
    Y = np.sin(3 * X[:600, 0])
    bounds = [
        GaussianProcessRegressor(gamma=gamma, n_landmarks=60, random_state=0).fit(X[:600], Y).likelihood_bound_
        for gamma in ("auto", "scale")
    ]
    assert bounds[0] >= bounds[1]
